"""``MetricsWindow``: the metrics of the updates between two rows, and how they become one row."""

from collections import deque

import numpy as np

EPISODE_WINDOW = 100
COUNTS = ("rollout/episodes", "rollout/restarts")
EXTREMES = {"min": np.min, "max": np.max}


class MetricsWindow:
    """Merges the metrics of several updates into one row, and has the means of the last hundred episodes."""

    def __init__(self) -> None:
        self._rows: list[dict[str, float]] = []
        self._recent: deque[tuple[float, ...]] = deque()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, metrics: dict[str, np.ndarray]) -> None:
        """Append the metrics of some updates: arrays by name, with one entry for each update."""
        for i in range(len(metrics["rollout/episodes"])):
            row = {name: float(x[i]) for name, x in metrics.items()}
            self._rows.append(row)
            if row["rollout/episodes"]:
                self._recent.append(tuple(row[f"rollout/{name}"] for name in ("episodes", "return_mean", "length_mean")))
        while sum(row[0] for row in list(self._recent)[1:]) >= EPISODE_WINDOW:
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
        """One row for all updates since the last merge: sums of counts, statistics over all episodes in ``rollout/``,
        extremes of the ratio, else means. NaN where no update has measured the metric."""
        rows, self._rows = self._rows, []
        names = dict.fromkeys(name for row in rows for name in row if not name.startswith("bad/"))
        return {name: _merged(name, [row for row in rows if not np.isnan(row.get(name, np.nan))]) for name in names}


def _merged(name: str, rows: list[dict[str, float]]) -> float:
    is_of_episodes = name.startswith("rollout/") and name not in COUNTS
    rows = [row for row in rows if row["rollout/episodes"] or not is_of_episodes]
    values, weights = (np.array([row[column] for row in rows]) for column in (name, "rollout/episodes"))
    if name in COUNTS:
        return float(values.sum())
    if not rows:
        return float("nan")
    statistic = name.rpartition("_")[-1]
    if (is_of_episodes or "/ratio_" in name) and statistic in EXTREMES:
        return float(EXTREMES[statistic](values))
    if not is_of_episodes:
        return float(values.mean())
    if name.endswith("_std"):
        means = np.array([row[f"{name.removesuffix('_std')}_mean"] for row in rows])
        values = values**2 + (means - np.average(means, weights=weights)) ** 2
        return float(np.sqrt(np.average(values, weights=weights)))
    return float(np.average(values, weights=weights))
