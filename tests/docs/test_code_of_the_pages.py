"""Every Python block of every page runs, the blocks of a page one after the other, and so do the cells of notebooks. All but the README's
train for a quarter of the steps that they say. Notebooks are committed with what they show."""

import importlib.util
import json
import re
import sys

import gymnasium as gym
import matplotlib
import pytest
from matplotlib import pyplot

import proximo
from proximo.cli import main

from pages import DOCS, NOTEBOOKS, PAGES, ROOT, blocks, modules, name_of, optional_modules, script

matplotlib.use("Agg")

ELSEWHERE = {
    "docs/tune.md": "tests/cli/test_tune.py",
    "docs/from-lightning-baselines3.md": "tests/integrations/test_lightning_ppo.py",
}
"""Pages whose code another module runs, in its own way."""
STEPS = re.compile(r'(learn\(|total_steps(?:=|": ))(\d[\d_]*)\b')
"""Steps of a training. Most pages show how a call is written; what is learned from it is tested elsewhere."""
LONG = {"docs/notebooks/pendulum.ipynb", "docs/notebooks/masked-pendulum.ipynb"}
"""Notebooks that train for minutes. Only the slow tests run them."""


def _prepared(name, folder, monkeypatch):
    """What the code of a page takes for granted: a run, or what `proximo export` writes."""
    if name not in ("docs/export.md", "docs/publishing.md"):
        return {}
    run_name = "published" if name == "docs/publishing.md" else "exported"
    [result] = proximo.train("gymnax:CartPole-v1", total_steps=2_048, eval_episodes=4, name=run_name)
    if name == "docs/publishing.md":
        return {}
    assert main(["export", str(result.run_dir), "--out", str(folder / "export")]) == 0
    monkeypatch.syspath_prepend(str(folder / "export"))
    monkeypatch.chdir(folder / "export")
    return {"env": gym.make("CartPole-v1")}


CLAIMS = {
    "README.md": "result.summary()['return_mean'] > 150 and (state.learner.steps[:, 0] > 19_000).all()",
    "docs/python.md": "agent.step > 6_000 and len(metrics['rollout/return_mean']) == config.total_updates",
    "docs/checkpoints.md": "'learner.policy.critic.output.weight' in policy and meta['step'] > 2_000",
    "docs/demonstrations.md": "pretrained_return > 5 * random_return and losses[-1] < losses[0] and agent.step > 1_000",
    "docs/from-purejaxrl.md": "metrics['rollout/return_mean'].shape[0] == 2",
    "docs/from-rsl-rl.md": "(config.network.activation, config.ppo.optimizer_settings.eps) == ('elu', 1e-8)",
    "docs/variants.md": "action in (0, 1)",
}
"""What is true after the code of a page."""


def _params():
    """Those on an environment of gymnax have its name in that of the test."""
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
    names = _prepared(name, tmp_path, monkeypatch)
    for source in code:
        if page.suffix == ".md" and name != "README.md":
            source = STEPS.sub(lambda m: f"{m[1]}{max(int(m[2]) // 4, 1_024)}", source)
        exec(compile(source, name, "exec"), names)
    assert eval(CLAIMS.get(name, "True"), names)


def test_every_page_with_special_treatment_has_code():
    """A page that was renamed would lose its claims without a word."""
    with_code = {name_of(page) for page in PAGES if blocks(page)}
    others = {"docs/export.md", "docs/publishing.md", "docs/index.md", "docs/custom-jax-environment.md"}
    assert {*ELSEWHERE, *CLAIMS, *others} <= with_code


def test_only_modules_of_extras_may_be_missing():
    assert {"optuna", "brax", "wandb", "jax2onnx"} <= optional_modules()
    assert not {"jax", "proximo", "numpy", "gymnasium", "matplotlib"} & optional_modules()


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path):
    """One of them on gymnax:CartPole-v1."""
    pytest.importorskip("nbclient", reason="the extra docs is not installed")
    notebook = script(DOCS / "notebooks" / "run.py").run(path)
    assert sum("assert " in "".join(cell["source"]) for cell in notebook["cells"]) >= 2  # it claims something, and it is true
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_small_executed_and_contains_no_local_paths(path):
    text = path.read_text()
    assert len(text) < 150_000
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert not any(folder in text for folder in ("/tmp/", "/home/"))
    assert any(path.name in page.read_text() for page in PAGES)


def test_exactly_four_notebooks_are_tested():
    assert [path.stem for path in NOTEBOOKS] == ["clipped-objective", "masked-pendulum", "memory", "pendulum"]
