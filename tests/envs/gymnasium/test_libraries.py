"""Ids of Gymnasium, ALE and EnvPool, and errors for missing libraries and unknown ids."""

import dataclasses
from unittest import mock

import gymnasium as gym
import numpy as np
import pytest
from vector_envs import lanes, rollout

from proximo.envs import Preprocessing, make_env
from proximo.envs.gymnasium.vector_environment import VectorOptions
from proximo.spaces import Box, Discrete, random_actions

import gym_toys


def played(env, num_envs=2, num_steps=40, seed=0, **options):
    """Return the rollout buffer of random actions, and its vector environment."""
    vector_env = env.open(num_envs, num_steps, VectorOptions(**options))
    actions = random_actions(env.action_space, np.random.default_rng(0), num_steps * num_envs)
    buffer = rollout(vector_env, actions.reshape(vector_env.buffer.action.shape), seed)
    vector_env.close()
    return buffer, vector_env


def steps_itself(vector_env):
    return vector_env.description == "in their own vector environment"


@mock.patch.dict(gym.registry)
def test_registered_ids_are_made_by_what_they_have():
    """A vector entry point may fail, for example if it lacks an argument of the single environment. Workers have not registered the id."""
    gym.register("FailingVector-v0", gym_toys.Countdown, vector_entry_point=lambda num_envs: 1 / 0, max_episode_steps=3)
    gym.register("OnlyVector-v0", vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv")
    failing = make_env("FailingVector-v0")
    assert failing.make_vector is None
    buffer, vector_env = played(failing, num_steps=7, num_workers=2)
    assert vector_env.num_workers == 2
    assert buffer.truncated[[2, 5]].all(), "the limit of the registration"
    buffer, vector_env = played(make_env("OnlyVector-v0"))
    assert steps_itself(vector_env)
    assert buffer.reward.any()


def test_a_vector_entry_point_is_used_unless_options_forbid_it_or_its_spaces_differ():
    env = make_env("CartPole-v1")
    assert (env.observation_space.shape, env.action_space) == ((4,), Discrete(2))
    assert steps_itself(played(env)[1])
    assert not steps_itself(played(env, num_workers=0, single_environments=True, stagger_steps=5)[1])
    env = make_env("ALE/Pong-v5")  # its vector environment preprocesses frames: it is another one
    assert env.observation_space.shape == (210, 160, 3)
    assert env.make_vector is None
    assert make_env("ALE/Pong-v5", {"obs_type": "ram"}).observation_space.shape == (128,)


def test_atari_game_uses_the_vector_environment_of_ale(capfd):
    """ALE's own banner, one for each process that makes a game, is left out."""
    pytest.importorskip("ale_py")
    env = make_env("ale:breakout", {"noop_max": 0})
    assert env.observation_space == Box((4, 84, 84), 0.0, 255.0, "uint8")
    buffer, _ = played(env, num_envs=2, num_steps=60)
    assert buffer.observation[0].max() > 100
    assert buffer.valid.all()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("env_id", "library"), [("ale:breakout", "ale_py"), ("envpool:CartPole-v1", "envpool")])
def test_neither_overlap_nor_processes_change_transitions_of_ale_and_envpool(env_id, library):
    """Processes and actors open a part of the environments, from ``first_env``."""
    pytest.importorskip(library)
    env = make_env(env_id, preprocessing=Preprocessing(life_loss=library == "ale_py"))
    plain, vector_env = played(env, num_envs=5, num_steps=100, seed=1)
    assert steps_itself(vector_env)
    np.testing.assert_array_equal(plain.valid[1:], ~plain.terminated & ~plain.truncated | (library == "ale_py"))
    overlapped, vector_env = played(env, num_envs=5, num_steps=100, seed=1, num_groups=2, cores=2)
    assert vector_env.groups == (range(2), range(2, 5))
    assert lanes(plain) == lanes(overlapped) != lanes(played(env, num_envs=5, num_steps=100, seed=2)[0])
    np.testing.assert_array_equal(plain.life_lost, overlapped.life_lost)
    assert plain.life_lost[:, 2:].any() or plain.terminated[:, 2:].any(), "no life was lost, so resets are not compared"
    numbered = dataclasses.replace(env, spec=dataclasses.replace(env.spec, first_env=2))
    part, _ = played(numbered, num_envs=3, num_steps=1, seed=1)
    np.testing.assert_array_equal(plain.observation[0][0, 2:], part.observation[0][0])
