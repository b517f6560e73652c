"""The window of metrics: means over episodes are weighted, extremes stay extremes, and nothing counts twice."""

import math

import numpy as np
import pytest

from proximo.tracking.metrics_window import EPISODE_WINDOW, MetricsWindow


def metrics(episodes, returns, **others):
    rows = {"rollout/episodes": episodes, "rollout/return_mean": returns, "rollout/length_mean": returns, **others}
    return {name.replace("__", "/"): np.asarray(x, np.float32) for name, x in rows.items()}


def test_returns_are_weighted_by_their_episodes():
    window = MetricsWindow()
    window.add(metrics([0], [0.0]))
    assert window.recent_return is None
    assert math.isnan(window.merge()["rollout/return_mean"])
    window.add(metrics([1, 3], [10.0, 2.0], bad__loss=[0, 0]))
    window.add(metrics([0], [0.0]))
    assert len(window) == 3
    assert window.recent_return == pytest.approx(4.0)
    row = window.merge()
    assert row["rollout/episodes"] == 4
    assert "bad/loss" not in row
    assert len(window) == 0
    assert row["rollout/return_mean"] == pytest.approx(4.0)


def test_spread_and_extremes_are_those_of_all_episodes():
    updates, window = ([3.0, 5.0, 10.0], [], [-2.0], [4.0, 4.0]), MetricsWindow()
    for returns in updates:
        x = np.array(returns or [0.0])
        statistics = {"std": x.std(), "min": x.min(), "max": x.max()}
        window.add(
            metrics([len(returns)], [x.mean()], **{f"rollout__return_{name}": [value] for name, value in statistics.items()})
        )
    row, x = window.merge(), np.concatenate(updates)
    for name in ("mean", "std", "min", "max"):
        assert row[f"rollout/return_{name}"] == pytest.approx(getattr(x, name)())


def test_ratio_keeps_extremes_and_other_metrics_are_means():
    window = MetricsWindow()
    window.add(metrics([1, 1], [0, 0], train__ratio_min=[0.9, 0.5], train__ratio_max=[1.5, 1.1], train__loss=[1, 3]))
    row = window.merge()
    assert row["train/ratio_min"] == 0.5
    assert row["train/ratio_max"] == 1.5
    assert row["train/loss"] == 2


def test_recent_return_is_over_about_a_hundred_episodes():
    window = MetricsWindow()
    window.add(metrics([EPISODE_WINDOW, 60, 60], [1000.0, 1.0, 3.0]))
    assert window.recent_return == pytest.approx(2.0)
    window.add(metrics([EPISODE_WINDOW], [9.0]))
    assert window.recent_return == 9
