"""Environments without velocities, from Gymnasium and gymnax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.envs import make_env, registry
from proximo.envs.hidden_velocities import VELOCITIES, names

SHOWN = {"CartPoleNoVel-v1": (4, [0, 2]), "PendulumNoVel-v1": (2, [0, 1]), "MountainCarNoVel-v0": (2, [0])}


def host_pair(name):
    """Return observations with and without velocities, for equal seeds and actions."""
    rows = []
    for env_id in (name, name.replace("NoVel", "")):
        env = make_env(env_id).make()
        env.action_space.seed(0)
        seen = [env.reset(seed=3)[0]]
        seen += [env.step(env.action_space.sample())[0] for _ in range(5)]
        rows.append(np.array(seen))
        env.close()
    return rows


@pytest.mark.parametrize("name", SHOWN)
def test_gymnasium_observations_keep_positions_and_lose_velocities(name):
    size, shown = SHOWN[name]
    masked, plain = host_pair(name)
    assert masked.shape == (6, size)
    assert (masked[:, shown] == plain[:, shown]).all()
    assert (np.delete(masked, shown, axis=1) == 0).all()
    assert np.abs(np.delete(plain, shown, axis=1)).max() > 0
    assert make_env(name).observation_space.shape == (size,)


@pytest.mark.parametrize("name", SHOWN)
def test_jax_observations_keep_positions_and_lose_velocities(name):
    size, shown = SHOWN[name]
    rows = []
    for env in (make_env(f"gymnax:{name}"), make_env(f"gymnax:{name.replace('NoVel', '')}")):
        key, params = jax.random.key(0), env.default_params
        state, observation = env.reset(key, params)
        action = jnp.zeros(env.action_space.shape, jnp.float32 if env.action_space.shape else jnp.int32)
        rows.append(np.array([observation, env.step(key, state, action, params)[1]]))
        assert env.observation_space.shape == rows[-1].shape[1:]
    masked, plain = rows
    assert masked.shape[1] == size
    np.testing.assert_allclose(masked[:, shown], plain[:, shown])
    assert (np.delete(masked, shown, axis=1) == 0).all()


def test_environments_with_hidden_velocities_are_listed():
    listed = registry.listing()
    assert set(names()) <= set(listed["gymnasium"])
    assert "gymnax:PendulumNoVel-v1" in listed["gymnax"]
    assert "gymnax:LunarLanderNoVel-v3" not in listed["gymnax"]
    assert len(names()) == len(VELOCITIES)


def test_an_environment_without_velocities_keeps_name_and_limit():
    env = make_env("CartPoleNoVel-v1")
    assert env.id == "CartPoleNoVel-v1"
    assert env.make().spec.max_episode_steps == 500


def test_native_vector_environment_hides_the_same_velocities():
    """Compared with the vector environment with velocities, for equal seeds and actions."""
    masked, plain = (make_env(name).make_vector(3) for name in ("CartPoleNoVel-v1", "CartPole-v1"))
    rows = [(masked.reset(seed=3)[0], plain.reset(seed=3)[0])]
    actions = np.random.default_rng(0).integers(2, size=(60, 3))
    rows += [(masked.step(action)[0], plain.step(action)[0]) for action in actions]
    masked, plain = (np.array(seen) for seen in zip(*rows, strict=True))
    assert (masked[..., [0, 2]] == plain[..., [0, 2]]).all()
    assert (masked[..., [1, 3]] == 0).all()
    assert np.abs(plain[..., [1, 3]]).max() > 1
    assert make_env("PendulumNoVel-v1").make_vector is None
