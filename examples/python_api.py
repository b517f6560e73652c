"""The three levels of the Python API: an agent, a run, and pure functions. The types satisfy a strict type checker.

python examples/python_api.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import proximo  # before the first JAX computation: it prevents a deadlock on few cores
import jax

from proximo.callbacks import BestModel, EarlyStopping, Info
from proximo.types import Metrics, TrainState


class Entropy:
    """A callback that stops a training when the entropy of the policy is low."""

    every = 5

    def on_update(self, info: Info) -> bool:
        """Return True to stop."""
        return info.metrics["train/entropy"] < 0.02


def an_agent(steps: int, folder: Path) -> float:
    """Use an agent object: learn, act, save, load, evaluate."""
    agent = proximo.PPO("gymnax:CartPole-v1", seed=1).learn(steps)
    action, memory = agent.predict(np.zeros(4, np.float32))
    action, memory = agent.predict(np.zeros(4, np.float32), memory)
    print(agent, "would push", "right" if action else "left")
    again = proximo.load(agent.save(folder / "agent"))
    return again.evaluate(100).summary()["return_mean"]


def a_run(steps: int, folder: Path) -> float | None:
    """Write a run directory, as ``proximo train`` does."""
    callbacks = [Entropy(), EarlyStopping(at=475), BestModel(folder / "best")]
    [result] = proximo.train("gymnax:CartPole-v1", callbacks=callbacks, total_steps=steps, runs_dir=str(folder / "runs"))
    policy = proximo.load_policy(result.run_dir)
    actions, _ = policy.predict(np.zeros((2, 4), np.float32))
    print(policy, "would do", actions.tolist())
    return result.return_mean


def functions(steps: int) -> float:
    """Write a training loop of pure functions."""
    config = proximo.make_config("gymnax:CartPole-v1", {"total_steps": steps})
    init, collect, update = proximo.make_functions(config, proximo.make_env(config.env.id))

    def step(state: TrainState, _: None) -> tuple[TrainState, Metrics]:
        state, rollout, episodes = collect(state)
        state, metrics = update(state, rollout)
        return state, {**metrics, **episodes}

    _, metrics = jax.lax.scan(step, init(jax.random.key(0)), length=config.total_updates)
    return float(metrics["rollout/return_mean"][-10:].mean())


def main(steps: int = 50_000) -> tuple[float, float | None, float]:
    """Run all three levels, and return the mean return of each."""
    with TemporaryDirectory() as folder:
        returns = an_agent(steps, Path(folder)), a_run(steps, Path(folder)), functions(steps)
    print("returns:", *returns)
    return returns


if __name__ == "__main__":
    main()
