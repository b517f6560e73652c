"""navix: its transitions without autoreset, its truncations, and the contents of its cells."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.collect import jax_vector
from proximo.envs import make_env
from proximo.envs.jax import navix

from adapted import LEGACY, played, same

library = pytest.importorskip("navix")
NAME, LIMIT = "Navix-Empty-5x5-v0", 9
TO_THE_GOAL = (2, 2, 1, 2, 2)  # forward, forward, right, forward, forward


@functools.cache
def room(**settings):
    return make_env(f"navix:{NAME}", {"max_steps": LIMIT, **settings})


@pytest.mark.parametrize("view", navix.VIEWS)
def test_states_are_those_of_navix(view):
    name = "Navix-DoorKey-5x5-v0"
    ours, actions, keys = played(make_env(f"navix:{name}", {"max_steps": LIMIT, "view": view}), LIMIT)
    env = library.make(name, max_steps=LIMIT, observation_fn=getattr(library.observations, view))
    timestep = jax.jit(env.reset)(LEGACY(keys[0]))
    step = jax.jit(env.step)
    for (state, observation, reward, terminated, truncated), action in zip(ours, [None, *actions], strict=True):
        timestep = timestep if action is None else step(timestep, action)
        assert same(state.state.entities, timestep.state.entities)
        assert same((observation, reward), (timestep.observation, timestep.reward))
        assert (terminated, truncated) == (bool(timestep.is_termination()), bool(timestep.is_truncation()))
    assert ours[-1][4], "the last step is that of the limit"


def test_the_limit_truncates_and_nothing_is_reset_inside():
    ours, *_ = played(room(), 2 * LIMIT)
    truncated = [row[4] for row in ours]
    assert truncated.index(True) == LIMIT
    assert int(ours[LIMIT + 1][0].t) == LIMIT + 1, "navix's own step would reset here and ignore the action"


@pytest.mark.parametrize("limit", [9, 5])
def test_reaching_the_goal_at_the_limit_terminates_with_success(limit):
    env = room(max_steps=limit)
    step = jax.jit(env.step)
    state, _ = env.reset(jax.random.key(0), ())
    for action in TO_THE_GOAL:
        state, _, reward, terminated, truncated, info = step(jax.random.key(1), state, jnp.int32(action), ())
    assert (float(reward), bool(terminated), bool(truncated), bool(info["success"])) == (1.0, True, False, True)


def test_the_state_has_no_picture_of_the_empty_level():
    state, _ = room().reset(jax.random.key(0), ())
    assert sum(x.nbytes for x in jax.tree.leaves(state)) < 1000
    picture = room().render(jax.device_get(state), ())
    expected = library.make(NAME, observation_fn=library.observations.rgb).reset(LEGACY(jax.random.key(0))).observation
    np.testing.assert_array_equal(picture, expected)


def test_all_are_listed_but_those_without_a_reward():
    left_out = set(library.registry()) - set(navix.names())
    assert left_out == {f"Navix-KeyCorridor{size}-v0" for size in ("S3R1", "S3R2", "S3R3", "S4R3", "S5R3", "S6R3")}
    assert set(navix.names()) < set(library.registry())
    state = jax.jit(library.make("Navix-KeyCorridorS3R1-v0").reset)(LEGACY(jax.random.key(0))).state
    reason = "navix has mended it: list it"
    assert not isinstance(state.entities["goal"], library.entities.Goal), reason
    assert state.entities["door"].open.max() == 2, reason


@pytest.mark.slow
@pytest.mark.parametrize("view", navix.VIEWS[:2])
def test_cells_are_within_the_space(view):
    """In random episodes of some environments."""
    for name in [name for name in navix.names() if "16x16" not in name]:
        env = make_env(f"navix:{name}", {"view": view})

        def step(carry, key, env=env):
            actions = jax.random.randint(key, (16,), 0, env.action_space.n)
            carry = jax_vector.step(env, jax.random.split(key, 16), carry[0], actions, carry[1], ())[:2]
            return carry, carry[1].max((0, 1, 2))

        start = jax_vector.reset(env, jax.random.split(jax.random.key(0), 16), ())
        largest = jax.jit(lambda c, step=step: jax.lax.scan(step, c, jax.random.split(jax.random.key(1), 60)))(start)[1]
        assert (largest.max(0) < np.array(navix.COUNTS)).all(), name
