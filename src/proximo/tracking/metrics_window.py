"""``MetricsWindow``: the metrics of the updates between two rows, and how they become one row."""

import functools

import numpy as np

EPISODE_WINDOW = 100
COUNTS = ("rollout/episodes", "rollout/team_episodes", "rollout/restarts")
EXTREMES = {"min": np.min, "max": np.max}


class MetricsWindow:
    """Merges the metrics of several updates into one row, and has the means of the last hundred episodes."""

    def __init__(self) -> None:
        self._rows: list[dict[str, float]] = []
        self._recent: list[dict[str, float]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, metrics: dict[str, np.ndarray]) -> None:
        """Append the metrics of some updates: arrays by name, with one entry for each update."""
        for i in range(len(metrics["rollout/episodes"])):
            row = {name: float(x[i]) for name, x in metrics.items()}
            self._rows.append(row)
            self._recent += [row] if row["rollout/episodes"] else []
        counts = np.cumsum([row["rollout/episodes"] for row in reversed(self._recent)])
        del self._recent[: -int(np.searchsorted(counts, EPISODE_WINDOW)) - 1]

    def recent_mean(self, name: str) -> float | None:
        """``return_mean`` or ``length_mean`` of about the last hundred finished episodes; None before the first."""
        count = sum(row["rollout/episodes"] for row in self._recent)
        total = sum(row["rollout/episodes"] * row[f"rollout/{name}"] for row in self._recent)
        return total / count if count else None

    def merge(self) -> dict[str, float]:
        """One row for all updates since the last merge: sums of counts, statistics over all episodes in ``rollout/``,
        extremes of the ratio, else means. NaN where no update has measured the metric."""
        rows, self._rows = self._rows, []
        names = dict.fromkeys(name for row in rows for name in row if not name.startswith("bad/"))
        return {name: _merged(name, [row for row in rows if not np.isnan(row.get(name, np.nan))]) for name in names}


def _merged(name: str, rows: list[dict[str, float]]) -> float:
    is_of_episodes = name.startswith("rollout/") and name not in COUNTS
    number = "rollout/team_episodes" if name.startswith("rollout/team_") else "rollout/episodes"
    rows = [row for row in rows if row[number] or not is_of_episodes]
    values, weights = (np.array([row[column] for row in rows]) for column in (name, number))
    if name in COUNTS:
        return float(values.sum())
    if not rows:
        return float("nan")
    quantity, _, statistic = name.rpartition("_")
    if (is_of_episodes or "/ratio_" in name) and statistic in EXTREMES:
        return float(EXTREMES[statistic](values))
    if not is_of_episodes:
        return float(values.mean())
    mean = functools.partial(np.average, weights=weights)
    if statistic == "std":
        means = np.array([row[f"{quantity}_mean"] for row in rows])
        return float(np.sqrt(mean(values**2 + (means - mean(means)) ** 2)))
    return float(mean(values))
