"""``PPOModule`` learns, and its page shows what works; beside ``test_lightning.py``, so that the gate runs both at once."""

import re
from pathlib import Path

import pytest

lightning = pytest.importorskip("lightning")

from proximo.integrations.lightning import PPOModule  # noqa: E402
from proximo.tracking.run_trackers import read_rows  # noqa: E402


@pytest.mark.learning
def test_cartpole_is_solved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Lightning writes its logs there
    learner = PPOModule("CartPole-v1")
    trainer = lightning.Trainer(accelerator="cpu")
    trainer.fit(learner)
    assert (trainer.global_step, trainer.current_epoch) == (learner.agent.config.total_updates, 10)
    assert learner.agent.evaluate(100).summary()["return_mean"] >= 475


@pytest.mark.learning
def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "lightning.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(blocks) == 3
    names = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    assert names["resumed"].agent.step > names["best"].agent.step
    assert read_rows(Path("my-agent") / "metrics.jsonl")
