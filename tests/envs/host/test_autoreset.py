"""The three autoreset modes, and our own stepping, give the same learning problem."""

import functools
import types

import numpy as np
import pytest
from pools import in_process, lanes, rollout, vectorised

import gym_toys
from proximo.envs.host.vector import autoreset_of
from proximo.errors import EnvError

MODES = ("NextStep", "SameStep", "Disabled")
still_walk = functools.partial(gym_toys.Walk, action_matters=False)


def play(pool, steps, seed=3):
    """``lanes`` of a rollout, and of each truncated row the final observation that stood with it."""
    pool.reset(0, seed)
    slab = pool.slabs[0]
    slab.clear()
    finals = {}
    counts = np.zeros(slab.reward.shape[1], int)
    for t in range(steps):
        slab.action[t] = 0
        pool.send(0, t, 0)
        cut = pool.receive(0, t, 0)
        assert cut == bool(slab.truncated[t].any())
        for i in np.flatnonzero(slab.truncated[t]):
            finals[i, counts[i]] = slab.final[0][i].copy()
        counts += ~slab.filler[t]
    return lanes(slab), finals


def seeded_alike(pool):
    """A vectorised environment seeds its parts ``seed, seed + 1, …``; ours get those seeds too."""
    pool.blocks[0].reset(pool.slabs[0], 0, seeds_of_vector(len(pool.blocks[0].envs)))
    return pool


def seeds_of_vector(num_envs, seed=3):
    from proximo.envs.host.pool import environment_seeds

    base = environment_seeds(1, seed)[0]
    return [base + i for i in range(num_envs)]


@pytest.fixture(scope="module")
def reference():
    """Our own stepping, with the seeds of the vectorised ones."""
    pool = in_process(still_walk, num_envs=3, num_steps=120)
    pool.reset = lambda slab, seed: pool.blocks[0].reset(pool.slabs[slab], 0, seeds_of_vector(3, seed))
    return play(pool, 120)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_the_rows_of_our_own_stepping(mode, reference):
    ours, our_finals = reference
    theirs, their_finals = play(vectorised(still_walk, mode, num_envs=3, num_steps=120), 120)
    for lane, other in zip(ours, theirs, strict=True):
        count = min(len(lane), len(other))
        assert count > 80, "fillers are the only rows that a mode may lose"
        assert lane[:count] == other[:count]
    shared = our_finals.keys() & their_finals.keys()
    assert len(shared) > 5
    for key in shared:
        np.testing.assert_array_equal(our_finals[key], their_finals[key])


@pytest.mark.parametrize("mode", MODES)
def test_fillers_stand_behind_ends_in_next_step_mode_only(mode):
    pool = vectorised(still_walk, mode, num_envs=3, num_steps=120)
    slab = rollout(pool, np.zeros((120, 3), np.int64))
    done = slab.terminated | slab.truncated
    assert done.any()
    if mode != "NextStep":
        assert not slab.filler.any()
        np.testing.assert_array_equal(slab.first[1:], done)
        return
    np.testing.assert_array_equal(slab.filler[1:], done)
    np.testing.assert_array_equal(slab.first[1:], slab.filler[:-1])
    assert (slab.reward[slab.filler[:-1]] == 0).all()


@pytest.mark.parametrize("mode", MODES)
def test_the_seam_between_two_rollouts_loses_nothing(mode):
    whole = rollout(vectorised(still_walk, mode, num_steps=60), np.zeros((60, 3), np.int64))
    pool = vectorised(still_walk, mode, num_steps=20)
    pieces = [lanes(rollout(pool, np.zeros((20, 3), np.int64), reset=k == 0)) for k in range(3)]
    for i, lane in enumerate(lanes(whole)):
        assert lane == pieces[0][i] + pieces[1][i] + pieces[2][i]


def test_an_unknown_mode_is_an_error_that_names_it():
    odd = types.SimpleNamespace(metadata={"autoreset_mode": "sometimes"})
    with pytest.raises(
        EnvError, match=r"odd declares the autoreset mode 'sometimes': expected one of next_step, same_step, disabled"
    ):
        autoreset_of(odd, "odd")
