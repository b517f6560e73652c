"""Environments that are given as objects are copied, or refused with the reason."""

import functools
import threading

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from vector_envs import rollout

from proximo.envs.custom import from_object
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.gymnasium.vector_environment import VectorOptions
from proximo.errors import ConfigError, EnvError

import gym_toys
import toys

ONE = gym_toys.Countdown(5)
VECTOR = SyncVectorEnv([gym_toys.Walk] * 2)


def having(**attributes):
    """An environment with these attributes."""
    env = gym_toys.Walk()
    vars(env).update(attributes)
    return env


def episode_lengths(env, num_envs=2):
    """The lengths of the first episodes of two environments, which step beside each other."""
    vector_env = env.open(num_envs, 40, VectorOptions(num_workers=0 if env.make else -1))
    buffer = rollout(vector_env)
    vector_env.close()
    return [int(np.flatnonzero(ends)[0]) + 1 for ends in (buffer.terminated | buffer.truncated).T]


def test_single_environments_are_made_from_an_object_which_is_copied_as_it_is_and_not_touched():
    limited = gym.wrappers.TimeLimit(gym_toys.Countdown(9), 5)
    for given in (ONE, limited, functools.partial(gym_toys.Countdown, 5), lambda: gym_toys.Countdown(5)):
        assert episode_lengths(from_object(given, {})[1]) == [5, 5]
    given = gym_toys.Countdown(5)
    env_id, env = from_object(gym.wrappers.TransformReward(given, abs), {}, Preprocessing(action_repeat=2))
    given.length = 7
    assert env_id == "<gym_toys.Countdown>"
    assert episode_lengths(env) == [3, 3]
    assert given.now == 0, "it was never stepped"


def test_instance_is_drawn_in_the_mode_that_is_asked_for_with_its_changes():
    given = gym.make("CartPole-v1")
    given.unwrapped.force_mag = 0.0
    _, env = from_object(given, {})
    one = env.make(render_mode="rgb_array")
    assert one.unwrapped.force_mag == 0.0
    one.reset(seed=0)
    assert one.render().shape == (400, 600, 3)
    assert env.make().render_mode is None


@pytest.mark.parametrize("mode", AutoresetMode)
def test_an_instance_or_a_function_of_the_number_makes_vector_environments(mode):
    def make(num_envs):
        return SyncVectorEnv([lambda: gym_toys.Countdown(5)] * num_envs, autoreset_mode=mode)

    for given in (make(2), make):
        _, env = from_object(given, {})
        assert episode_lengths(env, 3) == [5, 5, 5]
        assert env.make_vector(1).metadata["autoreset_mode"] == mode


def test_registered_vector_environment_is_made_again_in_any_number():
    for mode in ("vector_entry_point", "sync"):
        _, env = from_object(gym.make_vec("CartPole-v1", 3, vectorization_mode=mode), {})
        made = env.make_vector(5)
        assert (made.num_envs, made.reset(seed=0)[0].shape) == (5, (5, 4))


REFUSED = {
    "lock": (having(lock=threading.Lock()), r"<gym_toys.Walk> is an instance that cannot be copied \(TypeError: cannot pickle .*\), and training and evaluation need"),
    "window": (having(render_mode="human"), r"has render_mode = 'human', so every environment of the training would open a window"),
    "selfish": (gym_toys.altered(gym_toys.Walk, __deepcopy__=lambda self, memo: self)(), r"returned the same environment twice"),
    "same objects": (SyncVectorEnv([lambda: ONE] * 2), r"returned the same environment twice"),
    "same object": (lambda: ONE, r"returned the same environment twice.*create it inside the function"),
    "wrapped same object": (lambda: gym.wrappers.TimeLimit(ONE, 3), r"returned the same environment twice"),
    "vector of 2": (lambda num_envs: VECTOR, r"returned SyncVectorEnv.* for num_envs = 1: expected a gymnasium.vector.VectorEnv of 1 environments"),
    "no number": (lambda: SyncVectorEnv([gym_toys.Walk]), r"returned a vector environment: give it an argument num_envs"),
    "single for vector": (lambda num_envs: gym_toys.Walk(), r"returned <Walk.* for num_envs = 1: expected a gymnasium.vector.VectorEnv"),
    "vector": (gym_toys.altered(SyncVectorEnv)([gym_toys.Walk] * 2), r"vector environment of 2 environments, and evaluation needs other numbers of them: pass a function"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_object_that_cannot_be_made_again_is_refused(name):
    given, message = REFUSED[name]
    with pytest.raises(EnvError, match=message):
        from_object(given, {})[1].open(1, 3, VectorOptions())  # a vector environment is made again


def test_settings_do_not_change_an_instance():
    for given in (ONE, VECTOR, toys.RandomEnds()):
        with pytest.raises(ConfigError, match=r"is an instance: pass the settings to its constructor"):
            from_object(given, {"length": 3})
