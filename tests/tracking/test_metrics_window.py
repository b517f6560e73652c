"""The window of metrics: means over episodes are weighted, extremes stay extremes, and nothing counts twice."""

import math

import numpy as np
import pytest

from proximo.tracking.metrics_window import EPISODE_WINDOW, MetricsWindow


def metrics(episodes, returns, **others):
    rows = {"rollout/episodes": episodes, "rollout/return_mean": returns, "rollout/length_mean": returns, **others}
    return {name.replace("__", "/"): np.asarray(x, np.float32) for name, x in rows.items()}


def test_a_row_has_the_statistics_of_all_episodes_extremes_of_the_ratio_and_means():
    updates, window = ([3.0, 5.0, 10.0], [], [-2.0], [4.0, 4.0]), MetricsWindow()
    for i, returns in enumerate(updates):
        x = np.array(returns or [0.0])
        statistics = {f"rollout__return_{name}": [getattr(x, name)()] for name in ("std", "min", "max")}
        train = {"train__loss": [i], "train__ratio_min": [0.9 - i / 10], "train__ratio_max": [1 + i], "bad__loss": [0]}
        window.add(metrics([len(returns)], [x.mean()], **statistics, **train))
    assert len(window) == 4
    row, x = window.merge(), np.concatenate(updates)
    for name in ("mean", "std", "min", "max"):
        assert row[f"rollout/return_{name}"] == pytest.approx(getattr(x, name)())
    assert (row["rollout/episodes"], row["train/loss"], row["train/ratio_max"]) == (6, 1.5, 4)
    assert row["train/ratio_min"] == pytest.approx(0.6)
    assert "bad/loss" not in row
    assert (len(window), window.merge()) == (0, {})


def test_recent_return_is_over_about_a_hundred_episodes():
    window = MetricsWindow()
    window.add(metrics([0], [0.0]))
    assert window.recent_mean("return_mean") is None
    assert math.isnan(window.merge()["rollout/return_mean"])
    window.add(metrics([1, 3, 0], [10.0, 2.0, 7.0]))
    assert window.recent_mean("return_mean") == pytest.approx(4.0)
    window.add(metrics([EPISODE_WINDOW, 60, 60], [1000.0, 1.0, 3.0]))
    assert window.recent_mean("return_mean") == pytest.approx(2.0)
    window.add(metrics([EPISODE_WINDOW], [9.0]))
    assert window.recent_mean("return_mean") == 9
