"""Compares trainings in float32 and in bfloat16, from the results of the suites.

    python benchmarks/formats.py

For the final policies and for the means of the learning curves, the table has the mean over seeds in float32, the difference of bfloat16 from it with a
95 % interval (Welch), and the probability of a difference at least this large if the format did not matter (permutation test over seeds, exact for
up to ten thousand permutations).
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

RESULTS = Path(__file__).parent / "results"
PAIRS = {
    "`ale:pong`, preset": (
        (("suite_pong", "ale:pong"), ("suite_pong_formats", "ale:pong, float32")),
        (("suite_pong_bfloat16", "ale:pong"), ("suite_pong_formats", "ale:pong, bfloat16")),
    ),
    "`ale:pong`, half the learning rate": (
        (("suite_pong_formats", "ale:pong, float32, rate 2.5e-4"),),
        (("suite_pong_formats", "ale:pong, bfloat16, rate 2.5e-4"),),
    ),
    **{
        f"`gymnax:{game}-MinAtar`": tuple(
            (("suite_minatar_formats", f"gymnax:{game}-MinAtar, {number_format}"),) for number_format in ("float32", "bfloat16")
        )
        for game in ("SpaceInvaders", "Freeway")
    },
}
"""The files and tasks in float32, and those in bfloat16."""
PERMUTATIONS = 10_000
POINTS = 400


def curve_mean(curve: list[list[float | None]]) -> float:
    """The mean of a learning curve over its steps."""
    steps, returns = np.array([point for point in curve if point[1] is not None], float).T
    return float(np.interp(np.linspace(steps[0], steps[-1], POINTS), steps, returns).mean())


def seeds(tasks: tuple[tuple[str, str], ...]) -> dict[str, np.ndarray]:
    """The score and the mean of the learning curve of every seed of the ``tasks``."""
    found: list[dict[str, Any]] = []
    for file, task in tasks:
        recorded = json.loads((RESULTS / f"{file}.json").read_text())["tasks"][task]["seeds"]
        found += [recorded[seed] for seed in sorted(recorded, key=int)]
    return {
        "final policy": np.array([seed["score"] for seed in found]),
        "learning curve": np.array([curve_mean(seed["curve"]) for seed in found]),
    }


def probability(one: np.ndarray, other: np.ndarray) -> float:
    """The share of the divisions of all seeds into two groups whose means differ at least as much."""
    together, n = np.concatenate([one, other]), len(one)
    if math.comb(len(together), n) <= PERMUTATIONS:
        chosen = np.array([np.isin(np.arange(len(together)), group) for group in itertools.combinations(range(len(together)), n)])
    else:
        rng = np.random.default_rng(0)
        chosen = np.array([rng.permutation(len(together)) < n for _ in range(PERMUTATIONS - 1)] + [np.arange(len(together)) < n])
    differences = np.array([abs(together[group].mean() - together[~group].mean()) for group in chosen])
    return float((differences >= abs(one.mean() - other.mean()) - 1e-9).mean())


def interval(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of the difference of the means, ``other - one``: Welch's t interval, because a bootstrap of so few seeds is too narrow."""
    result = scipy.stats.ttest_ind(other, one, equal_var=False).confidence_interval(0.95)
    return float(result.low), float(result.high)


def main() -> None:
    """Print the table."""
    print("| Training | Seeds | Mean of | float32 | Difference of bfloat16 (95 %) | Probability |\n|---|---|---|---|---|---|")
    for name, (float32, bfloat16) in PAIRS.items():
        one, other = seeds(float32), seeds(bfloat16)
        for measure in one:
            a, b = one[measure], other[measure]
            low, high = interval(a, b)
            mean = f"{a.mean():.1f}".replace("-", "−")
            difference = f"{b.mean() - a.mean():+.1f} ({low:+.1f} … {high:+.1f})".replace("-", "−")
            numbers = f"{len(a)} and {len(b)} | {measure} | {mean} | {difference} | {probability(a, b):.2f}"
            print(f"| {name} | {numbers} |")


if __name__ == "__main__":
    main()
