"""``MetricsWindow``: the metrics of the updates between two rows, and how they become one row."""

from __future__ import annotations

from collections import deque

import numpy as np

EPISODE_WINDOW = 100


class MetricsWindow:
    """Collects the metrics of several updates, to merge them into one row, and the returns and lengths of the last hundred episodes."""

    def __init__(self) -> None:
        self._rows: list[dict[str, float]] = []
        self._recent: deque[tuple[float, float, float]] = deque()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, metrics: dict[str, np.ndarray]) -> None:
        """Append the metrics of some updates: arrays by name, with one entry for each update."""
        for i in range(len(next(iter(metrics.values())))):
            row = {name: float(x[i]) for name, x in metrics.items()}
            self._rows.append(row)
            if row["rollout/episodes"]:
                self._recent.append((row["rollout/episodes"], row["rollout/return_mean"], row["rollout/length_mean"]))
        while self._recent and sum(count for count, *_ in self._recent) - self._recent[0][0] >= EPISODE_WINDOW:
            self._recent.popleft()

    @property
    def recent_return(self) -> float | None:
        """Mean return of about the last hundred finished episodes; None before the first."""
        return self._recent_mean(1)

    @property
    def recent_length(self) -> float | None:
        """Mean length of these episodes, in steps."""
        return self._recent_mean(2)

    def _recent_mean(self, column: int) -> float | None:
        count = sum(row[0] for row in self._recent)
        return sum(row[0] * row[column] for row in self._recent) / count if count else None

    def merge(self) -> dict[str, float]:
        """One row for all updates since the last merge: sums of counts, statistics over all episodes in ``rollout/``, extremes of the
        ratio, else means."""
        rows, self._rows = self._rows, []
        return {
            name: _merged(name, [row for row in rows if not np.isnan(row.get(name, np.nan))])
            for name in dict.fromkeys(name for row in rows for name in row)
            if not name.startswith("bad/")
        }


def _merged(name: str, rows: list[dict[str, float]]) -> float:
    """The values of ``name`` in ``rows`` as one number."""
    values = np.array([row[name] for row in rows])
    if name in ("rollout/episodes", "rollout/restarts"):
        return float(values.sum())
    if name.startswith("rollout/"):
        return _over_episodes(name, [row for row in rows if row["rollout/episodes"]])
    if not len(values):
        return float("nan")
    return float({"ratio_min": np.min, "ratio_max": np.max}.get(name.split("/")[1], np.mean)(values))


def _over_episodes(name: str, rows: list[dict[str, float]]) -> float:
    """The statistic ``name`` over the episodes of all ``rows``; NaN without rows."""
    if not rows:
        return float("nan")
    values, weights = (np.array([row[column] for row in rows]) for column in (name, "rollout/episodes"))
    if name.endswith(("_min", "_max")):
        return float(values.min() if name.endswith("_min") else values.max())
    if name.endswith("_std"):
        means = np.array([row[name.removesuffix("_std") + "_mean"] for row in rows])
        values = values**2 + (means - np.average(means, weights=weights)) ** 2
        return float(np.sqrt(np.average(values, weights=weights)))
    return float(np.average(values, weights=weights))
