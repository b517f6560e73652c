"""Every Python block of every page runs as it stands there, the blocks of a page one after the other, and so do the cells of notebooks."""

import importlib.util
import sys

import gymnasium as gym
import matplotlib
import pytest
from matplotlib import pyplot

import proximo
from proximo.cli import main

from pages import NOTEBOOKS, PAGES, ROOT, blocks, modules, name_of, optional_modules

matplotlib.use("Agg")

ELSEWHERE = {
    "docs/tune.md": "tests/cli/test_tune.py",
    "docs/from-lightning-baselines3.md": "tests/integrations/test_lightning_ppo.py",
}
"""Pages whose code another module runs, in its own way."""


def _small(name):
    [result] = proximo.train("gymnax:CartPole-v1", total_steps=8_192, eval_episodes=4, name=name)
    return result.run_dir


def _export(folder, monkeypatch):
    """What `proximo export` writes, where the page's code runs."""
    run = _small("exported")
    assert main(["export", str(run), "--out", str(folder / "export")]) == 0
    monkeypatch.syspath_prepend(str(folder / "export"))
    monkeypatch.chdir(folder / "export")
    return {"env": gym.make("CartPole-v1")}


def _published(folder, monkeypatch):
    _small("published")
    return {}


PREPARED = {"docs/export.md": _export, "docs/publishing.md": _published}
"""What a page's code takes for granted."""


def _claims_of_the_readme(names):
    assert names["result"].summary()["return_mean"] > 150
    assert (names["state"].learner.steps[:, 0] > 19_000).all()  # two seeds, the low word of each counter


def _claims_of_python(names):
    assert names["agent"].step > 28_000
    assert names["result"].return_mean > 100
    assert len(names["metrics"]["rollout/return_mean"]) == names["config"].total_updates


def _claims_of_demonstrations(names):
    assert names["pretrained_return"] > 5 * names["random_return"]
    assert names["losses"][-1] < names["losses"][0]
    assert names["agent"].step == 4_096


def _claims_of_checkpoints(names):
    assert "learner.policy.critic.output.weight" in names["policy"]
    assert names["meta"]["step"] == 8_192


CLAIMS = {
    "README.md": _claims_of_the_readme,
    "docs/python.md": _claims_of_python,
    "docs/checkpoints.md": _claims_of_checkpoints,
    "docs/demonstrations.md": _claims_of_demonstrations,
    "docs/from-purejaxrl.md": lambda names: names["metrics"]["rollout/return_mean"].shape == (2, 16),
    "docs/from-rsl-rl.md": lambda names: (
        (names["config"].network.activation, names["config"].ppo.optimizer_settings.eps) == ("elu", 1e-8)
    ),
    "docs/variants.md": lambda names: names["action"] in (0, 1),
    "docs/custom-gymnasium-environment.md": lambda names: names["agent"].evaluate(50).summary()["success_rate"] > 0.9,
}
"""What must have come of a page's code. Those on an environment of gymnax have its name in that of the test."""


LONG = {"docs/notebooks/pendulum.ipynb", "docs/notebooks/masked-pendulum.ipynb"}
"""Notebooks that train for minutes. Only test_notebooks.py runs them, with the slow tests."""


def _params():
    for page in (*PAGES, *NOTEBOOKS):
        code = "".join(blocks(page))
        if code and name_of(page) not in LONG:
            yield pytest.param(page, id=name_of(page) + (" on gymnax" if "gymnax:" in code else ""))


@pytest.mark.learning
@pytest.mark.parametrize("page", list(_params()))
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    name = name_of(page)
    if name in ELSEWHERE:
        assert page.name in (ROOT / ELSEWHERE[name]).read_text()
        return
    code = blocks(page)
    lacking = [m for source in code for m in modules(source) & optional_modules() if importlib.util.find_spec(m) is None]
    if lacking:
        pytest.skip(f"{name} needs {', '.join(sorted(set(lacking)))}, which an extra brings")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(pyplot, "show", lambda: pyplot.close("all"))
    names = PREPARED[name](tmp_path, monkeypatch) if name in PREPARED else {}
    for source in code:
        exec(compile(source, name, "exec"), names)
    assert CLAIMS.get(name, lambda _: True)(names) is not False


def test_every_page_with_special_treatment_has_code():
    """A page that was renamed would lose its claims without a word."""
    with_code = {name_of(page) for page in PAGES if blocks(page)}
    assert {*ELSEWHERE, *PREPARED, *CLAIMS} <= with_code
    assert {"README.md", "docs/index.md", "docs/python.md", "docs/custom-jax-environment.md"} <= with_code


def test_only_modules_of_extras_may_be_missing():
    assert {"optuna", "brax", "wandb", "jax2onnx"} <= optional_modules()
    assert not {"jax", "proximo", "numpy", "gymnasium", "matplotlib"} & optional_modules()
