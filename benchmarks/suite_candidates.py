"""The table of a suite of candidates, such as ``suites/panel.yaml``: a row for each candidate, a column for each environment.

    python benchmarks/suite_candidates.py Hopper-v5     # the mean return of uniformly random actions, for the entry random

The score of a seed is ``(return - random) / (preset - random)``: 0 for random actions, 1 for the mean of the preset on the same seeds.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import jax
import numpy as np

from proximo.collect.jax_vector import JaxAsGymnasium
from proximo.envs import GymnasiumEnvironment, make_env
from suite_report import number
from suite_tasks import EVALUATION_SEEDS, Suite

PRESET = "preset"
"""The candidate that gives the score 1."""


def candidates_table(suite: Suite, results: dict[str, Any]) -> str:
    """Markdown: for each environment the mean score, the lowest score and the number of seeds; their mean; and the wall time of all seeds."""
    environments = list(dict.fromkeys(name.partition(", ")[0] for name in suite.tasks))
    lines = [f"| Candidate | {' | '.join(environments)} | Mean | Hours |", "|---" * (len(environments) + 3) + "|"]

    def seeds_of(environment: str, candidate: str) -> dict[str, Any]:
        return results["tasks"].get(f"{environment}, {candidate}", {"seeds": {}})["seeds"]

    for candidate in suite.candidates:
        cells, means, seconds = [], [], 0.0
        for environment in environments:
            seeds, preset = seeds_of(environment, candidate), seeds_of(environment, PRESET)
            seconds += sum(row["wall_seconds"] or 0.0 for row in seeds.values())
            shared, task = [seed for seed in seeds if seed in preset], suite.tasks.get(f"{environment}, {candidate}")
            if not shared or task is None or task.random is None:
                cells.append("–")
                continue
            best = np.mean([preset[seed]["score"] for seed in shared]) - task.random
            scores = (np.array([seeds[seed]["score"] for seed in shared]) - task.random) / best
            means.append(scores.mean())
            cells.append(f"{number(scores.mean())} ({number(scores.min())}, {len(shared)})")
        if means:
            of_all = "" if len(means) == len(environments) else f" of {len(means)}"
            lines.append(f"| {candidate} | {' | '.join(cells)} | {number(np.mean(means))}{of_all} | {seconds / 3600:.2f} |")
    return "\n".join(lines)


def random_return(env_id: str, episodes: int = 100) -> float:
    """Mean return of uniformly random actions."""
    is_gymnasium = isinstance(env := make_env(env_id), GymnasiumEnvironment)
    steps = gymnasium.make(env_id) if is_gymnasium else JaxAsGymnasium(env, jax.random.key(EVALUATION_SEEDS))
    space = steps.action_space if is_gymnasium else gymnasium.spaces.Discrete(env.action_space.n)
    space.seed(EVALUATION_SEEDS)
    total = 0.0
    for episode in range(episodes):
        steps.reset(seed=EVALUATION_SEEDS * is_gymnasium + episode)
        done = False
        while not done:
            _, reward, terminated, truncated, _ = steps.step(space.sample())
            total, done = total + float(reward), bool(terminated or truncated)
    return total / episodes


if __name__ == "__main__":
    for env_id in sys.argv[1:]:
        print(f"{env_id}: {random_return(env_id):.4g}")
