"""brax and MuJoCo Playground: transitions equal those of the environment and of the episode wrapper of the library."""

import subprocess
from unittest import mock

import jax
import numpy as np
import pytest

from proximo.envs import Preprocessing, make_env
from proximo.envs.jax import brax, playground
from proximo.errors import EnvError

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
    assert {*playground.names()} == {*pytest.importorskip("mujoco_playground").registry.ALL_ENVS}


@pytest.mark.parametrize("env_id", ROBOTS)
def test_the_model_of_a_robot_can_be_drawn(env_id):
    """An episode with gravity times three is that of a library's environment with this model."""
    library = env_id.partition(":")[0]
    pytest.importorskip("mujoco_playground" if library == "playground" else library)

    def heavier(key, model):
        return (
            model.replace(opt=model.opt.replace(gravity=model.opt.gravity * 3))
            if library == "playground"
            else model.replace(gravity=model.gravity * 3)
        )

    make, settings = ROBOTS[env_id]
    env = make_env(env_id, {"episode_length": LIMIT, **settings}, Preprocessing(randomize=heavier))
    theirs, key = make(), jax.random.key(0)
    attribute = "_mjx_model" if library == "playground" else "sys"
    setattr(theirs.unwrapped, attribute, heavier(None, getattr(theirs.unwrapped, attribute)))
    (state, drawn), observation = env.reset(key, env.default_params)
    assert len(drawn) == 1, "only gravity is in the state"
    expected = jax.jit(theirs.reset)(LEGACY(jax.random.split(key)[1]))
    step = jax.jit(theirs.step)
    for _ in range(3):
        assert same(observation, expected.obs)
        action = np.full(env.action_space.shape, 0.5, np.float32)
        (state, drawn), observation, *_ = env.step(key, (state, drawn), action, env.default_params)
        expected = step(expected, action)
    assert not same(observation, env.step(key, env.reset(key, env.default_params)[0], action, env.default_params)[1])


def test_a_failed_download_of_models_names_the_command(tmp_path, monkeypatch):
    models = pytest.importorskip("mujoco_playground")._src.mjx_env
    monkeypatch.setattr(models, "MENAGERIE_PATH", tmp_path / "missing")
    for error in (subprocess.CalledProcessError(128, ["git", "clone"]), FileNotFoundError("git")):
        with (
            mock.patch.object(models, "_clone_with_progress", side_effect=error),
            pytest.raises(EnvError, match=r"needs models of robots.*run: python -c"),
        ):
            make_env("playground:Go1JoystickFlatTerrain")
