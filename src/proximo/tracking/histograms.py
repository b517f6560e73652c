"""Histograms of the observations, actions and learning targets of a rollout, over its valid transitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from proximo.spaces import ACTION_MASK, OBSERVATION

BINS = 64
MAX_WHOLE_NUMBERS = 256
MAX_COMPONENTS = 16
"""An action with up to this many components has one histogram for each; with more, one for all."""
MAX_VALUES = 2**19
"""Of larger arrays, such as images, about this many evenly spaced values are counted."""


@dataclass(frozen=True)
class Histogram:
    """``counts`` of the finite values in equal bins from ``low`` to ``high``, their sum, and the sum of their squares."""

    low: float
    high: float
    counts: np.ndarray
    total: float
    squares: float

    @classmethod
    def of(cls, values: np.ndarray) -> Histogram | None:
        """Count ``values`` of any shape: in one bin for each integer of a range below 256, else in 64 bins. None if no value is
        finite."""
        flat = values.reshape(-1)
        flat = flat[:: -(-len(flat) // MAX_VALUES) | 1]
        x = flat.astype(np.float64)
        x = x[np.isfinite(x)]
        if not len(x):
            return None
        low, high, bins = float(x.min()), float(x.max()), BINS
        if flat.dtype.kind in "iub" and high - low < MAX_WHOLE_NUMBERS:
            low, high, bins = low - 0.5, high + 0.5, round(high - low) + 1
        elif high - low <= 1e-9 * max(abs(low), abs(high)):
            width = max(1e-6, 1e-6 * abs(low))  # narrower bins than floating-point numbers are apart
            low, high = low - width, high + width
        counts, _ = np.histogram(x, bins, (low, high))
        return cls(low, high, counts, float(x.sum()), float(np.square(x).sum()))

    @property
    def edges(self) -> np.ndarray:
        """The edges of the bins, one more than there are bins."""
        return np.linspace(self.low, self.high, len(self.counts) + 1)

    def as_json(self) -> dict[str, Any]:
        """The histogram as ``from_json`` reads it."""
        return {**vars(self), "counts": self.counts.tolist()}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Histogram:
        """The inverse of ``as_json``."""
        return cls(**{**row, "counts": np.asarray(row["counts"])})


def of_rows(rows: Mapping[str, Any]) -> dict[str, Histogram]:
    """The histograms of a rollout, by name. ``valid``, ``returns``, ``advantages`` and ``ratios`` of ``rows`` are T N,
    ``actions`` and the leaves of ``observations`` T N .... ``episode_returns`` and ``episode_lengths``, of any shape, are
    counted where ``episode_ends`` is true."""
    valid, ends = np.asarray(rows["valid"]), np.asarray(rows["episode_ends"])
    actions = np.asarray(rows["actions"]).reshape((*valid.shape, -1))
    several = 1 < actions.shape[-1] <= MAX_COMPONENTS
    counted = {name: rows[name] for name in ("returns", "advantages", "ratios", "observations")}
    counted["actions"] = list(np.moveaxis(actions, -1, 0)) if several else actions
    values = {name: np.asarray(rows[name])[ends] for name in ("episode_returns", "episode_lengths")}
    for path, leaf in jax.tree.leaves_with_path(counted):
        names = [jax.tree_util.keystr((key,), simple=True) for key in path]
        if ACTION_MASK not in names:
            values["/".join(name for name in names if name != OBSERVATION)] = np.asarray(leaf)[valid]
    return {f"histograms/{name}": made for name, x in values.items() if (made := Histogram.of(x)) is not None}
