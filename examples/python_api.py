"""The three levels of the Python API on one page, with the types that a strict type checker asks for.

python examples/python_api.py
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import proximo  # before the first JAX computation: it sets a remedy against a deadlock on few cores
import jax

from proximo.callbacks import BestModel, EarlyStopping, Info
from proximo.types import Metrics, TrainState


class Entropy:
    """A callback: ends a training that has become certain."""

    every = 5

    def on_update(self, info: Info) -> bool:
        """True ends it."""
        return info.metrics["train/entropy"] < 0.02


def an_agent(steps: int, folder: Path) -> float:
    """An object that learns, acts, is judged and saved."""
    agent = proximo.PPO("gymnax:CartPole-v1", seed=1).learn(steps)
    action, memory = agent.predict(np.zeros(4, np.float32))
    action, memory = agent.predict(np.zeros(4, np.float32), memory)
    print(agent, "would push", "right" if action else "left")
    again = proximo.load(agent.save(folder / "agent"))
    return again.evaluate(100).summary()["mean_return"]


def a_run(steps: int, folder: Path) -> float | None:
    """What `proximo train` does."""
    callbacks = [Entropy(), EarlyStopping(at=475), BestModel(folder / "best")]
    [result] = proximo.train("gymnax:CartPole-v1", callbacks=callbacks, total_steps=steps, runs_dir=str(folder / "runs"))
    policy = proximo.load_policy(result.run_dir)
    _, actions = policy(policy.init_memory(2), np.zeros((2, 4), np.float32), np.array([True, True]))
    print(policy, "would do", actions.tolist())
    return result.mean_return


def functions(steps: int) -> float:
    """A loop of one's own, of pure functions."""
    config = proximo.make_config("gymnax:CartPole-v1", {"total_steps": steps})
    init, collect, update = proximo.make_functions(config, proximo.make_env(config.env.id))

    def step(state: TrainState, _: None) -> tuple[TrainState, Metrics]:
        state, rollout, episodes = collect(state)
        state, metrics = update(state, rollout)
        return state, {**metrics, **episodes}

    _, metrics = jax.lax.scan(step, init(jax.random.key(0)), length=config.total_updates)
    return float(metrics["rollout/return_mean"][-10:].mean())


def main(steps: int = 50_000) -> tuple[float, float | None, float]:
    """All three; their returns."""
    with TemporaryDirectory() as folder:
        returns = an_agent(steps, Path(folder)), a_run(steps, Path(folder)), functions(steps)
    print("returns:", *returns)
    return returns


if __name__ == "__main__":
    main()
