"""Statistics of finished episodes on Gymnasium environments, against a count by hand."""

import numpy as np
import pytest

from buffers import buffer_of
from proximo.collect.episode_tally import EpisodeTally
from proximo.tracking.metrics_window import MetricsWindow


def added(tally, buffer):
    tally.add(buffer)
    return tally.metrics()


def by_hand(buffers, envs):
    """(return, length) of every finished episode, step by step."""
    finished, total, length = [], np.zeros(envs), np.zeros(envs, int)
    for buffer in buffers:
        for t in range(len(buffer.reward)):
            for i in range(envs):
                if buffer.lost[t, i]:
                    total[i], length[i] = 0, 0
                    continue
                if not buffer.valid[t, i]:
                    continue
                total[i], length[i] = total[i] + buffer.reward[t, i], length[i] + 1
                if buffer.terminated[t, i] or buffer.truncated[t, i]:
                    finished.append((total[i], length[i]))
                    total[i], length[i] = 0, 0
    return finished


def test_random_rollouts_agree_with_a_count_by_hand():
    rng = np.random.default_rng(0)
    buffers, rows = [], []
    tally = EpisodeTally(4)
    tally.begin(False)
    for _ in range(6):
        draws = {name: np.argwhere(rng.random((20, 4)) < 0.08) for name in ("terminated", "truncated", "invalid", "lost")}
        buffer = buffer_of(rng.normal(size=(20, 4)), **{name: [tuple(p) for p in places] for name, places in draws.items()})
        buffer.valid[:-1] &= ~buffer.lost
        for flags in (buffer.terminated, buffer.truncated):
            flags &= buffer.valid[:-1]
        buffers.append(buffer)
        rows.append(added(tally, buffer))
    finished = by_hand(buffers, 4)
    counts = np.array([row["rollout/episodes"] for row in rows])
    assert counts.sum() == len(finished) > 20
    window = MetricsWindow()
    window.add({name: np.array([row[name] for row in rows]) for name in rows[0]})
    merged = window.merge()
    for name, column in (("return", 0), ("length", 1)):
        x = np.array([episode[column] for episode in finished])
        for statistic in ("mean", "std", "min", "max"):
            assert merged[f"rollout/{name}_{statistic}"] == pytest.approx(getattr(x, statistic)())


def tallied(reward, staggered=False, **places):
    """The episodes of one environment, and their metrics."""
    tally = EpisodeTally(1)
    tally.begin(staggered)
    return tally.add(buffer_of(np.asarray(reward)[:, None], **places)), tally.metrics(), tally


def test_returns_are_exact_and_a_reward_that_is_not_finite_reaches_only_its_own_episode():
    [episode], *_ = tallied(np.array([1e8, *[1] * 4095], np.float32), terminated=[(4095, 0)])
    assert episode.episode_return == 1e8 + 4095
    finished, _, tally = tallied([1.0, np.nan, 1, 1, np.inf, 1, 1], terminated=[(1, 0), (3, 0), (4, 0)])
    np.testing.assert_array_equal([episode.episode_return for episode in finished], [np.nan, 2, np.inf])
    assert tally.add(buffer_of(np.ones((3, 1)), terminated=[(2, 0)]))[0].episode_return == 5


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"terminated": [(5, 0)], "life_lost": [(1, 0), (3, 0)]}, 6),  # a lost life does not end an episode
        ({"staggered": True, "truncated": [(1, 0)], "terminated": [(4, 0)]}, 3),  # the first episode does not count
    ],
)
def test_only_whole_episodes_are_counted(settings, expected):
    _, row, _ = tallied(np.ones(6), **settings)
    assert (row["rollout/episodes"], row["rollout/return_mean"]) == (1, expected)


def test_success_rate_appears_after_the_first_reported_success():
    tally = EpisodeTally(2)
    tally.begin(False)
    assert "rollout/success_rate" not in added(tally, buffer_of(np.ones((3, 2)), terminated=[(1, 0)]))
    row = added(tally, buffer_of(np.ones((3, 2)), terminated=[(1, 0), (2, 1)], success=[(1, 0)]))
    assert row["rollout/success_rate"] == 0.5
    assert added(tally, buffer_of(np.ones((3, 2))))["rollout/success_rate"] == 0.0
