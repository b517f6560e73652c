"""MuJoCo Playground: transitions equal those of its environment and of its episode wrapper."""

import jax
import pytest

from proximo.envs import make_env
from proximo.envs.jax import playground

from adapted import LEGACY, played, same

library = pytest.importorskip("mujoco_playground")
LIMIT = 4


@pytest.fixture(scope="module")
def cartpole():
    env = make_env("playground:CartpoleBalance", {"episode_length": LIMIT})
    return env, *played(env, 8)


def test_states_and_ends_equal_those_of_playground(cartpole):
    """Also after the end, because nothing is reset inside."""
    _, ours, actions, keys = cartpole
    raw = library.registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    env = library.wrapper.brax_training.EpisodeWrapper(raw, LIMIT, 1)
    step = jax.jit(env.step)
    state = jax.jit(env.reset)(LEGACY(keys[0]))
    assert same(ours[0][1], state.obs)
    for (inner, observation, reward, terminated, truncated), action in zip(ours[1:], actions, strict=True):
        state = step(state, action)
        assert same((inner[0].data.qpos, inner[0].data.qvel), (state.data.qpos, state.data.qvel))
        assert same((observation, reward), (state.obs, state.reward))
        assert (terminated, truncated) == (False, bool(state.info["truncation"]))
    assert [row[4] for row in ours] == [False] * LIMIT + [True] * (len(ours) - LIMIT)


def test_a_state_that_is_done_terminates(cartpole):
    """It terminates when the physics becomes NaN, which random actions do not cause soon."""
    env, [((state, steps), *_), *_], actions, _ = cartpole
    broken = state.replace(data=state.data.replace(qpos=state.data.qpos * float("nan")))
    _, _, _, *ended, _ = jax.jit(env.step)(jax.random.key(0), (broken, steps + LIMIT), actions[0], ())
    assert [*map(bool, ended)] == [True, False]


def test_the_whole_control_suite_is_listed():
    assert set(playground.names()) == set(library.dm_control_suite.ALL_ENVS)
