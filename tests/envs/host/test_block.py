"""Plain environments stepped in a row: ends, time limits, lost lives, and what is said of an environment that misbehaves."""

import functools

import numpy as np
import pytest

from proximo.envs.host.slab import FAILURE, SUCCESS, UNTOLD
from proximo.errors import EnvError, EnvironmentFault

import gym_toys
from pools import in_process, rollout


def test_an_episode_is_reset_in_the_step_that_ends_it():
    slab = rollout(in_process(functools.partial(gym_toys.Countdown, 5), num_envs=2, num_steps=12), np.ones((12, 2), np.int64))
    ends = np.zeros((12, 2), bool)
    ends[[4, 9]] = True
    np.testing.assert_array_equal(slab.terminated, ends)
    assert not slab.truncated.any()
    np.testing.assert_array_equal(slab.first[1:], ends)
    np.testing.assert_array_equal(slab.observation[0][5], np.zeros((2, 2)), "the first observation of the next episode")
    assert slab.first[0].all()


def test_a_truncated_episode_leaves_its_true_final_observation():
    pool = in_process(functools.partial(gym_toys.Countdown, 5, truncate=True), num_envs=2, num_steps=5)
    slab = rollout(pool, np.ones((5, 2), np.int64))
    assert slab.truncated[4].all()
    assert not slab.terminated.any()
    np.testing.assert_array_equal(slab.final[0], np.ones((2, 2)))


def test_max_episode_steps_truncates_and_a_termination_in_the_same_step_wins():
    slab = rollout(
        in_process(functools.partial(gym_toys.Countdown, 5), num_envs=1, num_steps=10, max_episode_steps=3),
        np.ones((10, 1), np.int64),
    )
    np.testing.assert_array_equal(np.flatnonzero(slab.truncated[:, 0]), [2, 5, 8])
    slab = rollout(
        in_process(functools.partial(gym_toys.Countdown, 3), num_envs=1, num_steps=10, max_episode_steps=3),
        np.ones((10, 1), np.int64),
    )
    assert not slab.truncated.any()
    np.testing.assert_array_equal(np.flatnonzero(slab.terminated[:, 0]), [2, 5, 8])


def test_a_staggered_start_cuts_first_episodes_only():
    pool = in_process(functools.partial(gym_toys.Countdown, 50), num_envs=6, num_steps=40, stagger=20)
    slab = rollout(pool, np.ones((40, 6), np.int64))
    cuts = [np.flatnonzero(slab.truncated[:, i]) for i in range(6)]
    assert all(len(cut) == 1 and cut[0] < 20 for cut in cuts)
    assert len({int(cut[0]) for cut in cuts}) > 2


def test_a_lost_life_is_told_apart_from_the_end():
    slab = rollout(in_process(gym_toys.Lives, num_envs=1, num_steps=13, life_loss=True), np.zeros((13, 1), np.int64))
    np.testing.assert_array_equal(np.flatnonzero(slab.life_lost[:, 0]), [3, 7])
    np.testing.assert_array_equal(np.flatnonzero(slab.terminated[:, 0]), [11])
    np.testing.assert_array_equal(np.flatnonzero(slab.first[1:, 0]), [11], "a lost life does not open an episode")


def test_success_is_read_where_an_episode_ends():
    slab = rollout(in_process(gym_toys.Walk, num_steps=200), np.zeros((200, 3), np.int64))
    done = slab.terminated | slab.truncated
    assert set(np.unique(slab.success[done])) == {FAILURE, SUCCESS}
    assert (slab.success[~done] == UNTOLD).all()


def test_seeds_are_reproducible_distinct_and_independent_of_the_groups():
    actions = np.zeros((30, 4), np.int64)
    one = rollout(in_process(gym_toys.Walk, num_envs=4, num_steps=30), actions, seed=5).observation[0].copy()
    again = rollout(in_process(gym_toys.Walk, num_envs=4, num_steps=30, groups=2), actions, seed=5).observation[0].copy()
    other = rollout(in_process(gym_toys.Walk, num_envs=4, num_steps=30), actions, seed=6).observation[0].copy()
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    assert len(np.unique(one[0, :, 2])) == 4, "no two environments share a stream"


def test_dictionaries_lie_leaf_by_leaf_in_the_order_of_jax():
    pool = in_process(gym_toys.Parts, num_envs=2, num_steps=3)
    pool.reset(0, 0)
    shapes = [leaf.shape[2:] for leaf in pool.slabs[0].observation]
    assert shapes == [(5,), (40, 40, 3), (2,), (2,), (), (3,)], "action_mask camera dials doors gear pose"
    assert pool.slabs[0].observation[1].dtype == np.uint8


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("shape", r"toy.step of environment 0 \(seed \d+, .*\) returned observation of shape \(2, 1\): its space is Box\(2,\)"),
        ("scalar", r"returned observation of shape \(1,\)"),
        ("text", r"returned observation of <U1: its space is"),
        ("nan", r"returned observation with NaN or infinity: \[nan nan\]"),
        ("reward nan", r"returned the reward nan: expected a finite number"),
        ("reward none", r"returned the reward None: expected a single number"),
        ("reward huge", r"returned the reward 1e\+300: expected a finite number \(of float32\)"),
        ("flag", r"returned terminated = 1: expected True or False"),
        ("info", r"returned NoneType as info: expected a dict"),
    ],
)
def test_a_value_that_is_not_of_its_space_is_one_sentence(what, sentence):
    pool = in_process(functools.partial(gym_toys.Misbehaving, what), num_envs=2, num_steps=10)
    with pytest.raises(EnvError, match=sentence):
        rollout(pool, np.zeros((10, 2), np.int64))


def test_an_environment_that_raises_is_named_with_seed_step_and_its_own_traceback():
    pool = in_process(functools.partial(gym_toys.Misbehaving, "raise"), num_envs=2, num_steps=10)
    with pytest.raises(EnvironmentFault) as caught:
        rollout(pool, np.zeros((10, 2), np.int64))
    message = str(caught.value)
    assert message.startswith("toy.step of environment 0 (seed ")
    assert "step 1 of its episode, 6 since the start) raised ZeroDivisionError: the pole has fallen off" in message
    assert 'raise ZeroDivisionError("the pole has fallen off")' in message, "the line of the environment"


def test_a_reset_that_raises_is_named_too():
    pool = in_process(functools.partial(gym_toys.Misbehaving, "reset"), num_envs=1, num_steps=20)
    with pytest.raises(EnvironmentFault, match=r"toy.* of environment 0 .* raised RuntimeError: cannot reset"):
        rollout(pool, np.zeros((20, 1), np.int64))
