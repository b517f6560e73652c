"""Environments without velocities, from Gymnasium and gymnax."""

import gymnasium as gym
import jax
import numpy as np
import pytest

from proximo.collect.jax_vector import JaxAsGymnasium
from proximo.envs import make_env, registry
from proximo.envs.hidden_velocities import BASES

SHOWN = {"CartPoleNoVel-v1": (4, [0, 2]), "PendulumNoVel-v1": (2, [0, 1]), "MountainCarNoVel-v0": (2, [0])}


def of_gymnasium(name):
    """Observations for a fixed seed and fixed actions."""
    env = make_env(name).make()
    env.action_space.seed(0)
    return [env.reset(seed=3)[0], *(env.step(env.action_space.sample())[0] for _ in range(5))]


def of_gymnax(name):
    made = make_env(f"gymnax:{name}")
    env = JaxAsGymnasium(made, jax.random.key(0))
    return [env.reset(seed=0)[0], env.step(np.zeros(made.action_space.shape))[0]]


def of_vectors(name):
    env, actions = make_env(name).make_vector(3), np.random.default_rng(0).integers(2, size=(60, 3))
    return [env.reset(seed=3)[0], *(env.step(action)[0] for action in actions)]


@pytest.mark.parametrize(
    ("name", "observe"), [*((n, f) for n in SHOWN for f in (of_gymnasium, of_gymnax)), ("CartPoleNoVel-v1", of_vectors)]
)
def test_observations_keep_positions_and_lose_velocities(name, observe):
    size, shown = SHOWN[name]
    masked, plain = (np.array(observe(env_id)) for env_id in (name, name.replace("NoVel", "")))
    assert masked.shape[-1] == size
    np.testing.assert_allclose(masked[..., shown], plain[..., shown])
    assert (np.delete(masked, shown, axis=-1) == 0).all()
    assert np.abs(np.delete(plain, shown, axis=-1)).max() > 0
    assert {make_env(env_id).observation_space.shape for env_id in (name, f"gymnax:{name}")} == {(size,)}


def test_environments_without_velocities_are_listed_and_keep_name_and_limit():
    listed = registry.listing()
    assert set(BASES) <= set(listed["gymnasium"])
    assert "gymnax:PendulumNoVel-v1" in listed["gymnax"]
    assert "gymnax:LunarLanderNoVel-v3" not in listed["gymnax"]
    env = make_env("CartPoleNoVel-v1")
    assert (env.id, env.make().spec.max_episode_steps) == ("CartPoleNoVel-v1", 500)
    assert make_env("PendulumNoVel-v1").make_vector is None


def test_an_environment_that_the_user_has_registered_is_made_with_settings_of_any_name():
    """Also with the names of our own arguments."""
    gym.register("MountainCarNoVel-v0", lambda code, make: gym.make("Pendulum-v1"))
    try:
        assert make_env("MountainCarNoVel-v0", {"code": "c", "make": "m"}).observation_space.shape == (3,)
    finally:
        del gym.registry["MountainCarNoVel-v0"]
