"""Ids of environments: those that are listed can be made, with their parameters."""

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from proximo.envs import JaxEnvironment, make_env
from proximo.envs.custom import CustomJaxEnvironment, from_class, from_object
from proximo.envs.jax.gymnax import names as gymnax_names
from proximo.envs.registry import TWINS, twin
from proximo.spaces import Box, Discrete


def test_settings_of_gymnax_change_its_spaces():
    assert make_env("gymnax:Pendulum-v1", {"max_torque": 8.0}).action_space == Box((1,), -8.0, 8.0)
    assert make_env("gymnax:Pendulum-v1").action_space == Box((1,), -2.0, 2.0)


def test_every_twin_is_an_id_of_both_libraries():
    for env_id in TWINS:
        assert env_id in gym.registry
        assert twin(env_id).removeprefix("gymnax:") in gymnax_names()
    assert twin("LunarLander-v3") is None


class Minimal(eqx.Module):
    """A JAX environment without parameters, whose attributes cannot be set, with a space of Gymnasium and an argument ``size``."""

    size: int = 2
    action_space = Discrete(2)

    @property
    def observation_space(self):
        return gym.spaces.Box(-1.0, 1.0, (self.size,))

    def reset(self, key, params):
        return jnp.int32(0), jnp.zeros(self.size)

    def step(self, key, state, action, params):
        return state, jnp.zeros(self.size), 1.0, False, False, {}


def test_spaces_of_a_custom_environment_are_converted_and_others_are_left_alone():
    env = from_class(Minimal, {"size": 5}, "minimal")
    assert isinstance(env, CustomJaxEnvironment)
    assert (env.observation_space, env.action_space, env.default_params) == (Box((5,), -1.0, 1.0), Discrete(2), ())
    assert isinstance(env, JaxEnvironment)
    complete = make_env("gymnax:CartPole-v1")
    assert from_object(complete, {})[1] is complete


def rollout_of(env, action, steps):
    """Observations, rewards and ends of steps with one action."""
    params = jax.tree.map(jnp.asarray, env.default_params)

    def step(state, key):
        state, *rest, _ = env.step(key, state, action, params)
        return state, rest

    run = jax.jit(lambda key: jax.lax.scan(step, env.reset(key, params)[0], jax.random.split(key, steps))[1])
    return jax.device_get(run(jax.random.key(0)))


def test_gymnax_does_not_autoreset_and_its_limit_truncates():
    observation, _, terminated, truncated = rollout_of(make_env("gymnax:MountainCar-v0"), jnp.int32(1), 205)
    assert np.flatnonzero(truncated)[0] == 199
    assert not terminated.any()
    # An autoreset would jump to another start.
    assert np.abs(np.diff(observation[:, 0])).max() < 0.07


def test_the_fall_of_the_pole_is_a_termination_even_at_the_limit():
    _, reward, terminated, _ = rollout_of(make_env("gymnax:CartPole-v1"), jnp.int32(1), 15)
    end = int(np.flatnonzero(terminated)[0]) + 1
    assert 5 < end <= 15
    assert reward[0] == 1.0
    _, _, terminated, truncated = rollout_of(make_env("gymnax:CartPole-v1", {"max_steps_in_episode": end}), jnp.int32(1), end)
    assert terminated[-1]
    assert not truncated[-1]
