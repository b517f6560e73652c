"""Statistics of finished episodes on the host, against a count by hand."""

import numpy as np
import pytest

from proximo.drivers.episodes import EpisodeLog

from slabs import slab_of


def by_hand(slabs, envs):
    """(return, length) of every finished episode, row by row."""
    finished, total, length = [], np.zeros(envs), np.zeros(envs, int)
    for slab in slabs:
        for t in range(len(slab.reward)):
            for i in range(envs):
                if slab.cut[t, i]:
                    total[i], length[i] = 0, 0
                    continue
                if slab.filler[t, i]:
                    continue
                total[i], length[i] = total[i] + slab.reward[t, i], length[i] + 1
                if slab.terminated[t, i] or slab.truncated[t, i]:
                    finished.append((total[i], length[i]))
                    total[i], length[i] = 0, 0
    return finished


def test_random_rollouts_agree_with_a_count_by_hand():
    rng = np.random.default_rng(0)
    slabs, rows = [], []
    log = EpisodeLog(4)
    log.begin(False)
    for _ in range(6):
        draws = {name: np.argwhere(rng.random((20, 4)) < 0.08) for name in ("terminated", "truncated", "filler", "cut")}
        slab = slab_of(rng.normal(size=(20, 4)), **{name: [tuple(p) for p in places] for name, places in draws.items()})
        slab.filler[:-1] |= slab.cut
        for flags in (slab.terminated, slab.truncated):
            flags &= ~slab.filler[:-1]
        slabs.append(slab)
        rows.append(log.add(slab))
    finished = by_hand(slabs, 4)
    counts = np.array([row["rollout/episodes"] for row in rows])
    assert counts.sum() == len(finished) > 20
    for name, column in (("return", 0), ("length", 1)):
        mean = (np.array([row[f"rollout/{name}_mean"] for row in rows]) * counts).sum() / counts.sum()
        assert mean == pytest.approx(np.mean([episode[column] for episode in finished]))


def test_a_lost_life_neither_ends_an_episode_nor_its_return():
    log = EpisodeLog(1)
    log.begin(False)
    row = log.add(slab_of(np.ones((6, 1)), terminated=[(5, 0)], lost=[(1, 0), (3, 0)]))
    assert (row["rollout/episodes"], row["rollout/return_mean"]) == (1, 6)


def test_first_episodes_of_a_staggered_start_do_not_count():
    log = EpisodeLog(1)
    log.begin(True)
    row = log.add(slab_of(np.ones((6, 1)), truncated=[(1, 0)], terminated=[(4, 0)]))
    assert (row["rollout/episodes"], row["rollout/return_mean"]) == (1, 3)


def test_success_appears_once_an_environment_has_told_it():
    log = EpisodeLog(2)
    log.begin(False)
    assert "rollout/success_rate" not in log.add(slab_of(np.ones((3, 2)), terminated=[(1, 0)]))
    row = log.add(slab_of(np.ones((3, 2)), terminated=[(1, 0), (2, 1)], success=[(1, 0)]))
    assert row["rollout/success_rate"] == 0.5
    assert log.add(slab_of(np.ones((3, 2))))["rollout/success_rate"] == 0.0
