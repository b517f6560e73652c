"""jumanji: its transitions, time limits and masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.envs import make_env
from proximo.envs.jax import jumanji
from proximo.spaces import ACTION_MASK, Box, Discrete, MultiBinary, MultiDiscrete

from adapted import LEGACY, played, same

library = pytest.importorskip("jumanji")
LIMITED = ("Snake-v1", "Tetris-v0", "Cleaner-v0", "RubiksCube-partly-scrambled-v0", "Maze-v0", "SlidingTilePuzzle-v0")


def own_action(env, action):
    return jnp.stack(jnp.unravel_index(action, env.nvec)) if env.nvec else action


def flat(observation):
    """Return the leaves of jumanji's observation, in the order of names."""
    if not hasattr(observation, "_asdict"):
        return [np.asarray(observation).reshape(-1)]
    parts = sorted(observation._asdict().items())
    return [leaf for _, part in parts for leaf in flat(part)]


@pytest.mark.parametrize("name", ["Snake-v1", "Tetris-v0", "Cleaner-v0", "RubiksCube-v0", "Game2048-v1", "JobShop-v0", "Maze-v0"])
def test_states_are_those_of_jumanji(name):
    """Until the end, which is that of jumanji within its limit."""
    env = make_env(f"jumanji:{name}")
    ours, actions, keys = played(env, 8)
    own = library.make(name)
    state, timestep = jax.jit(own.reset)(LEGACY(keys[0]))
    step = jax.jit(own.step)
    for (inner, observation, reward, terminated, truncated), action in zip(ours, [None, *actions], strict=True):
        if action is not None:
            state, timestep = step(state, own_action(env, action))
        assert same(inner[0], state)
        assert same([np.asarray(x).reshape(-1) for x in jax.tree.leaves(observation)], flat(timestep.observation))
        assert same(reward, timestep.reward)
        assert (terminated, truncated) == (bool(timestep.last()), False)
        if terminated:
            break


@pytest.mark.parametrize("name", LIMITED)
def test_the_limit_truncates_although_jumanji_terminates(name):
    env, own = make_env(f"jumanji:{name}", {"time_limit": 2}), library.make(name, time_limit=2)
    ours, actions, keys = played(env, 2)
    state, timestep = own.reset(LEGACY(keys[0]))
    for action in actions:
        state, timestep = jax.jit(own.step)(state, own_action(env, action))
    assert [row[3:] for row in ours] == [(False, False), (False, False), (False, True)]
    assert bool(timestep.last())
    assert float(timestep.discount) == 0, "jumanji has mended this one"


def crash(**settings):
    """Move a snake up until its episode ends. Returns the number of steps, terminated and truncated."""
    env = make_env("jumanji:Snake-v1", settings)
    step, (state, _), length, ended = jax.jit(env.step), env.reset(jax.random.key(0), ()), 0, (False, False)
    while not any(ended):
        state, _, _, *ended, _ = step(jax.random.key(1), state, jnp.int32(0), ())
        length += 1
    return length, *map(bool, ended)


def test_a_failure_terminates_even_at_the_limit():
    length, *ended = crash()
    assert length > 1
    assert ended == [True, False]
    assert crash(time_limit=length) == (length, True, False)
    assert crash(time_limit=length - 1) == (length - 1, False, True)


def test_action_masks_and_step_counts_are_as_the_policy_expects_them():
    assert dict(make_env("jumanji:Snake-v1", {"time_limit": 7}).observation_space.spaces)["step_count"] == Box((), 0, 7, "int32")
    snake, tetris, cleaner = (make_env(f"jumanji:{name}") for name in ("Snake-v1", "Tetris-v0", "Cleaner-v0"))
    assert (snake.action_space, tetris.action_space) == (Discrete(4), Discrete(40))
    assert cleaner.action_space == MultiDiscrete((4, 4, 4))
    for env, entries in ((snake, 4), (tetris, 40), (cleaner, 12)):
        assert dict(env.observation_space.spaces)[ACTION_MASK] == MultiBinary((entries,))


def test_a_joint_mask_allows_what_jumanji_allows():
    """The mask of Tetris's 40 pairs of rotation and column agrees with jumanji, which ends the episode after a forbidden pair."""
    env = make_env("jumanji:Tetris-v0")
    state, observation = env.reset(jax.random.key(0), ())
    after = jax.jit(jax.vmap(lambda action: env.step(jax.random.key(0), state, action, ())))(jnp.arange(40))
    np.testing.assert_array_equal(np.asarray(after[3]), ~np.asarray(observation[ACTION_MASK]))
    assert 0 < np.asarray(after[3]).sum() < 40


def test_all_supported_environments_are_listed():
    apart = {"MultiCVRP-v0", "Sokoban-v0"}
    several = {i for i in library.registered_environments() - apart if library.make(i).reward_spec.shape}
    assert set(jumanji.names()) == library.registered_environments() - apart - several
