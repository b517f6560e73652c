"""brax and MuJoCo Playground: transitions equal those of the environment and of the episode wrapper of the library."""

import jax
import numpy as np
import pytest

from proximo.envs import make_env
from proximo.envs.jax import brax, playground

from adapted import LEGACY, played, same

LIMIT = 4


def of_brax():
    envs = pytest.importorskip("brax.envs")
    return envs.training.EpisodeWrapper(envs.get_environment("inverted_pendulum", backend="spring"), LIMIT, 1)


def of_playground():
    library = pytest.importorskip("mujoco_playground")
    env = library.registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    return library.wrapper.brax_training.EpisodeWrapper(env, LIMIT, 1)


ROBOTS = {"brax:inverted_pendulum": (of_brax, {"backend": "spring"}), "playground:CartpoleBalance": (of_playground, {})}


@pytest.fixture(scope="module", params=ROBOTS)
def robot(request):
    """The environment and the one of its library, with the rows, actions and keys of some steps."""
    make, settings = ROBOTS[request.param]
    theirs, env = make(), make_env(request.param, {"episode_length": LIMIT, **settings})
    return theirs, env, *played(env, 12)


def test_states_and_ends_equal_those_of_the_library(robot):
    """Also after the end, because nothing is reset inside."""
    theirs, _, ours, actions, keys = robot
    step, state = jax.jit(theirs.step), jax.jit(theirs.reset)(LEGACY(keys[0]))
    assert same(ours[0][1], state.obs)
    for (_, observation, reward, terminated, truncated), action in zip(ours[1:], actions, strict=True):
        state = step(state, action)
        assert same((observation, reward), (state.obs, state.reward))
        assert terminated == bool(state.done > state.info["truncation"])
        assert truncated == bool(state.info["truncation"])
    assert [row[4] for row in ours[: LIMIT + 1]] == [False] * LIMIT + [True]


def test_a_state_that_is_done_terminates_even_at_the_limit(robot):
    """A fall ends an episode of brax; Playground ends one whose physics becomes NaN, which random actions do not cause soon."""
    _, env, [((state, steps), *_), *_], actions, _ = robot
    if hasattr(state, "pipeline_state"):
        fallen, *_ = played(env, 60, seed=1)
        ends = np.array([row[3:] for row in fallen])
        first = int(np.flatnonzero(ends[:, 0])[0])
        assert first > LIMIT
        assert not ends[first, 1]
    else:
        broken = state.replace(data=state.data.replace(qpos=state.data.qpos * float("nan")))
        _, _, _, *ended, _ = jax.jit(env.step)(jax.random.key(0), (broken, steps + LIMIT), actions[0], ())
        assert [*map(bool, ended)] == [True, False]


def test_all_usable_environments_are_listed():
    assert set(brax.names()) == set(pytest.importorskip("brax.envs")._envs) - {"swimmer", "fast"}
    assert set(playground.names()) == set(pytest.importorskip("mujoco_playground").dm_control_suite.ALL_ENVS)
