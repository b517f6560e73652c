"""Suggest a learning rate: a callback that records one training in which the rate grows.

    python examples/learning_rate_finder.py [ENV] [STEPS]

This is a range test (Smith 2017, arXiv:1506.01186) with two measures of how far an update moves the policy. The suggestion is the rate at which the
clip fraction or the approximate KL divergence exceeds its limit, whichever comes first. docs/decisions/0008-learning-rate-finder.md
describes the measurements.
"""

from __future__ import annotations

import sys
from typing import Any

import proximo
import numpy as np

from proximo.callbacks import Info

LOW, HIGH = 1e-5, 1e-1
LIMITS = {"clip_fraction": 0.05, "approx_kl": 0.01}
MAX_CLIP_FRACTION, MAX_CLIPPED_UPDATES = 0.5, 5
"""The training stops after this many updates in a row in which at least half of the ratios are outside the clip range."""


class LearningRateFinder:
    """Records the learning rate, the clip fraction and the KL divergence of each update."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the training needs: over its updates, the rate grows by equal factors."""
        return {"learning_rate": f"exponential({LOW}, {HIGH})"}

    def on_update(self, info: Info) -> bool:
        """Record the update. Returns whether the rate is so high that the training can stop."""
        self.rows.append({name: float(info.metrics[f"train/{name}"]) for name in ("learning_rate", *LIMITS)})
        last = self.rows[-MAX_CLIPPED_UPDATES:]
        return len(last) == MAX_CLIPPED_UPDATES and all(row["clip_fraction"] >= MAX_CLIP_FRACTION for row in last)

    @property
    def suggestion(self) -> float | None:
        """The suggested learning rate; None if no limit is exceeded, or the first rate already exceeds one."""
        rates = np.array([row["learning_rate"] for row in self.rows])
        found = [rate for name, limit in LIMITS.items() if (rate := self._rate_at(name, limit, rates)) is not None]
        return float(f"{min(found):.1e}") if found and min(found) > rates[0] else None

    def _rate_at(self, name: str, limit: float, rates: np.ndarray) -> float | None:
        """The rate at which the best non-decreasing fit of a measure reaches its limit, interpolated on a logarithmic scale."""
        values = np.array([row[name] for row in self.rows])
        # The KL divergence grows by factors: its fit is on a logarithmic scale.
        fitted = non_decreasing(values) if name == "clip_fraction" else np.exp(non_decreasing(np.log(np.maximum(values, 1e-8))))
        if fitted[-1] < limit:
            return None
        levels, first = np.unique(fitted, return_index=True)
        return float(np.exp(np.interp(limit, levels, np.log(rates[first]))))


def non_decreasing(values: np.ndarray) -> np.ndarray:
    """Isotonic regression: the non-decreasing values nearest to ``values`` (least squares). Neighbors in the wrong order are replaced by their mean."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((float(value), 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    return np.concatenate([np.full(count, mean) for mean, count in pools])


def main(env: str = "gymnax:CartPole-v1", steps: int = 50_000) -> None:
    """Train with growing rates, and print the rows and the suggestion."""
    finder = LearningRateFinder()
    proximo.PPO(env, eval_episodes=0, **finder.settings).learn(steps, callbacks=[finder])
    print("learning rate  clip fraction  KL divergence")
    for row in finder.rows[:: max(1, len(finder.rows) // 20)]:
        print(f"{row['learning_rate']:13.2e}  {row['clip_fraction']:13.3f}  {row['approx_kl']:13.5f}")
    print("suggestion:", finder.suggestion or "none: no rate of the range reaches a limit, or the first one already exceeds it")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
