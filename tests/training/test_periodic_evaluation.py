"""How many episodes the evaluations of a training play."""

from types import SimpleNamespace

import pytest

import proximo
from proximo.config import Config, override
from proximo.training.events import PeriodicEvaluation
from proximo.training.seed_run import SeedRun

import toys


def number(step=10_000, length=10.0, evaluated=0, last=None, on_jax=False, num_envs=8, **settings):
    config = override(Config(), {"id": "toy", "total_steps": 102_400, "num_envs": num_envs, **settings})
    backend = SimpleNamespace(config=config, episodes_together=0 if on_jax else min(num_envs, config.run.eval_episodes))
    seed_run = SimpleNamespace(
        window=SimpleNamespace(recent_mean=lambda name: length),
        last_evaluation=last and {"length_mean": last},
        evaluation_steps=evaluated,
    )
    training = SimpleNamespace(config=config, backend=backend, seed_runs=[seed_run], reporter=None, total=config.total_updates)
    evaluation = PeriodicEvaluation(training)
    return evaluation.num_episodes(SimpleNamespace(step=step, update=step // config.batch_size))


@pytest.mark.parametrize(
    ("expected", "situation"),
    [
        (32, {}),  # 320 of 1,000 steps
        (24, {"length": 40.0}),  # 3 rounds of 8 episodes: 960 steps
        (8, {"length": 40.0, "evaluated": 500}),
        (8, {"length": 10.0, "last": 100.0}),  # greedy episodes are longer
        (0, {"length": 200.0}),
        (0, {"length": None}),  # no episode has ended
        (0, {"length": 300.0, "num_envs": 1}),  # 3 episodes tell too little
        (5, {"length": 200.0, "num_envs": 1}),
        (2, {"length": 200.0, "num_envs": 2, "eval_episodes": 2}),
        (32, {"length": 200.0, "eval_every": 10_000}),
        (32, {"length": 200.0, "on_jax": True}),
        (32, {"length": 200.0, "step": 102_400, "evaluated": 10**6}),  # the end
    ],
)
def test_evaluations_before_the_end_take_a_tenth_of_the_steps(expected, situation):
    assert number(**situation) == expected


def test_evaluations_of_a_resumed_training_count_the_earlier_ones(tmp_path, monkeypatch):
    """Episodes of EveryThird have 3 to 9 steps."""
    played = []

    def evaluated(self, step, *arguments, **named):
        summary = original(self, step, *arguments, **named)
        played.append((step, self.evaluation_steps))
        return summary

    original = SeedRun.evaluated
    monkeypatch.setattr(SeedRun, "evaluated", evaluated)
    settings = {"num_envs": 2, "num_steps": 32, "num_minibatches": 1, "num_epochs": 1, "num_workers": 0, "eval_episodes": 8}
    folder = {"runs_dir": str(tmp_path), "name": "r", "tensorboard": False, "hidden_sizes": 4}
    [result] = proximo.train("gym_toys:EveryThird", total_steps=1280, **settings, **folder)
    proximo.resume(result.run_dir, total_steps=2560)
    assert [step for step, _ in played].count(1280) == 1
    assert played[-1][0] == 2560
    used = [steps for _, steps in played]
    assert used == sorted(used)
    assert 128 - 9 * 8 < used[-1] <= 256 + 9 * 2  # of a tenth, up to an estimate of the length that is too small
    assert all(after <= 0.1 * step + 9 * 2 for step, after in played)
    assert used[[step for step, _ in played].index(1280)] > 0


def test_evaluation_with_nan_is_one_warning():
    class Late(toys.Broken):
        default_params = {"observation": 40, "reward": -1}  # noqa: RUF012

    settings = {"num_envs": 4, "num_steps": 8, "num_minibatches": 1, "hidden_sizes": 4, "eval_max_steps": 60, "eval_every": 32}
    agent = proximo.PPO(toys.Broken, preset=False, eval_env=Late, **settings)
    agent.learn(96)
    [warning] = [warning for warning in agent.warnings if "NaN" in warning]
    assert warning.startswith("In the evaluation at step 32, the environment returned NaN or infinity: check its reset and step.")
