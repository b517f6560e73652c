"""Histograms of what a policy has seen, done and learned from: counted on the host, from the rows that are valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from proximo.spaces import ACTION_MASK, OBSERVATION, PREVIOUS_ACTION, PREVIOUS_REWARD

BINS = 64
MOST_WHOLE_NUMBERS = 256
MOST_COMPONENTS = 16
"""Components of an action that have a histogram each; more of them share one."""
MOST_VALUES = 2**19
"""Of more numbers, as pictures have, so many are counted, evenly spread."""
ADDED = (ACTION_MASK, PREVIOUS_ACTION, PREVIOUS_REWARD)


@dataclass(frozen=True)
class Histogram:
    """``counts`` of finite values in equal bins from ``low`` to ``high``, and the sums of the values and of their squares."""

    low: float
    high: float
    counts: np.ndarray
    total: float
    squares: float

    @classmethod
    def of(cls, values: np.ndarray) -> Histogram | None:
        """A bin for each whole number where ``values`` are integers of a few hundred; None where nothing is finite."""
        flat = values.reshape(-1)
        flat = flat[:: -(-len(flat) // MOST_VALUES) | 1] if len(flat) > MOST_VALUES else flat
        whole = flat.dtype.kind in "iub"
        x = flat.astype(np.float64)
        x = x[np.isfinite(x)]
        if not len(x):
            return None
        low, high = float(x.min()), float(x.max())
        bins = BINS
        if whole and high - low < MOST_WHOLE_NUMBERS:
            low, high, bins = low - 0.5, high + 0.5, round(high - low) + 1
        elif high - low <= 1e-9 * max(abs(low), abs(high)):
            width = max(1e-6, 1e-6 * abs(low))  # narrower bins than floating-point numbers are apart
            low, high = low - width, high + width
        counts, _ = np.histogram(x, bins, (low, high))
        return cls(low, high, counts, float(x.sum()), float(np.square(x).sum()))

    @property
    def count(self) -> int:
        """How many values."""
        return int(self.counts.sum())

    @property
    def edges(self) -> np.ndarray:
        """The borders of the bins, one more than these."""
        return np.linspace(self.low, self.high, len(self.counts) + 1)

    def as_json(self) -> dict[str, Any]:
        """What ``from_json`` reads."""
        named = {"low": self.low, "high": self.high, "counts": self.counts.tolist()}
        return {**named, "total": self.total, "squares": self.squares}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Histogram:
        """The inverse of ``as_json``."""
        return cls(row["low"], row["high"], np.asarray(row["counts"]), row["total"], row["squares"])


def of_rows(rows: Mapping[str, Any]) -> dict[str, Histogram]:
    """Histograms of a rollout. ``rows``: ``valid`` (T N), ``returns``, ``advantages`` and ``ratios`` (T N), ``actions`` as the
    environment got them, ``observations`` as it gave them (T N ...; dicts and tuples part by part)."""
    valid = np.asarray(rows["valid"])
    arrays = {name: np.asarray(rows[name]) for name in ("returns", "advantages", "ratios")}
    arrays |= _components(np.asarray(rows["actions"])) | _parts(rows["observations"])
    made = {f"histograms/{name}": Histogram.of(x[valid]) for name, x in arrays.items()}
    return {name: histogram for name, histogram in made.items() if histogram is not None}


def _components(actions: np.ndarray) -> dict[str, np.ndarray]:
    flat = actions.reshape((*actions.shape[:2], -1))
    count = flat.shape[-1]
    if not 1 < count <= MOST_COMPONENTS:
        return {"actions": flat}
    return {f"actions/{i}": flat[..., i] for i in range(count)}


def _parts(observations: Any) -> dict[str, np.ndarray]:
    parts: dict[str, np.ndarray] = {}
    for path, leaf in jax.tree.leaves_with_path(observations):
        names = [str(getattr(key, "key", getattr(key, "idx", key))) for key in path]
        if not set(names) & set(ADDED):
            parts["/".join(["observations", *(name for name in names if name != OBSERVATION)])] = np.asarray(leaf)
    return parts
