"""The page of metrics has every name that trainings write, and no other."""

import json
import re

import jax

import proximo
from proximo.report.curves import METRICS

import toys
from custom_networks import no_loss
from pages import DOCS, codes, rows

PAGE = DOCS / "metrics.md"
SMALL = {
    "num_envs": 4, "num_steps": 8, "num_epochs": 2, "num_minibatches": 2, "hidden_sizes": (8,), "total_steps": 256, "eval_episodes": 4,
    "tensorboard": False,
}  # fmt: skip


def names_of_the_page() -> set[str]:
    return {code for row in rows(PAGE) for code in codes(row[0])}


def test_names_on_the_page_are_those_that_a_training_writes(tmp_path):
    """Two trainings write every name: one with a memory and reported success, and one of several agents."""
    variants = {"objective": "kl_penalty", "critic_learning_rate": 1e-3, "extra_loss": no_loss}
    settings = {**SMALL, **variants, "memory": "gru", "memory_size": 8, "num_workers": 0, "runs_dir": str(tmp_path)}
    [result] = proximo.train(config=proximo.make_config("gym_toys:Walk", settings, preset=False))
    [of_agents] = proximo.train("gym_toys:Team", **SMALL, num_workers=0, runs_dir=str(tmp_path), preset=False)
    files = [run.run_dir / "metrics.jsonl" for run in (result, of_agents)]
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert {name for row in rows for name in row} - {"step"} == names_of_the_page()


def test_metrics_of_pure_functions_only_are_documented_separately():
    config = proximo.make_config("toys:RandomEnds", {**SMALL, "memory": "gru", "memory_size": 8}, preset=False)
    train = proximo.make_train(config, toys.RandomEnds())
    metrics = jax.eval_shape(train, jax.random.key(0))[1]
    apart = set(re.findall(r"`(bad/[a-z]+)`", PAGE.read_text()))
    assert apart == set(metrics) - names_of_the_page()
    assert not apart & names_of_the_page()


def test_the_report_draws_names_of_the_page():
    """A chart of a name that nobody writes would never appear."""
    assert METRICS.keys() <= names_of_the_page()
