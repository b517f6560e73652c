"""Compare the suggestions of `LearningRateFinder` with trainings at a grid of constant rates and at the suggestion itself.

    python benchmarks/learning_rate_finder.py [CASE …]      # results/learning_rate_finder.json, a case at a time

Of each training: the final policy, greedy, 100 episodes. The seeds of the range tests are not those of the trainings.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

import proximo
import jax

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from learning_rate_finder import LearningRateFinder

RESULTS = Path(__file__).parent / "results" / "learning_rate_finder.json"
CASES: dict[str, tuple[str, bool, int]] = {
    "CartPole, preset": ("gymnax:CartPole-v1", True, 100_000),
    "CartPole": ("gymnax:CartPole-v1", False, 100_000),
    "Pendulum, preset": ("gymnax:Pendulum-v1", True, 300_000),
    "Acrobot, preset": ("gymnax:Acrobot-v1", True, 200_000),
    "Acrobot": ("gymnax:Acrobot-v1", False, 200_000),
}
GRID = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
PLAIN = {"normalize_observation": False, "normalize_reward": False}
"""The settings of the cases without a preset."""
SEEDS, TEST_SEEDS = (100, 101), (200, 201, 202)


def suggested(env: str, preset: bool, steps: int, seed: int) -> float | None:
    """The rate that a range test of half a training suggests; None where it suggests none."""
    finder = LearningRateFinder()
    agent = proximo.PPO(env, preset=preset, seed=seed, eval_episodes=0, **finder.settings, **({} if preset else PLAIN))
    agent.learn(steps // 2, callbacks=[finder])
    return finder.suggestion


def final(env: str, preset: bool, steps: int, rate: float) -> list[float]:
    """The returns of whole trainings at one rate."""
    settings = {"eval_episodes": 0, "learning_rate": rate, **({} if preset else PLAIN)}
    agents = [proximo.PPO(env, preset=preset, seed=s, **settings).learn(steps) for s in SEEDS]
    return [round(agent.evaluate(100).summary()["return_mean"], 1) for agent in agents]


def measure(env: str, preset: bool, steps: int) -> dict[str, Any]:
    """The suggestions, the grid, and trainings at the median of the suggestions."""
    suggestions = [suggested(env, preset, steps, seed) for seed in TEST_SEEDS]
    known = [rate for rate in suggestions if rate is not None]
    rates = [*GRID, *([statistics.median(known)] if known else [])]
    returns = {f"{rate:.2g}": final(env, preset, steps, rate) for rate in rates}
    return {"env": env, "preset": preset, "steps": steps, "suggestions": suggestions, "returns_by_rate": returns}


def main() -> None:
    """Measure the cases that are named (all)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[*CASES, []])
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in parser.parse_args().cases or CASES:
        machine = {"jax": jax.__version__, "python": platform.python_version(), "command": " ".join(["python", *sys.argv])}
        results[name] = {**measure(*CASES[name]), **machine}
        print(name, json.dumps(results[name]), flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
