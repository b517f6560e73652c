"""What the tests of adapters share: a play by the adapter, its training in small, all that a library has."""

import jax
import jax.numpy as jnp
import numpy as np

from proximo.collect import JaxTrainer, jax_vector
from proximo.spaces import ACTION_MASK, Box, allowed_action, from_any

from helpers import small_collector

LEGACY = jax.random.key_data


def played(env, steps, seed=0):
    """A reset and random steps of an adapter: rows (state, observation, reward, terminated, truncated), actions and keys."""
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    params, space = jax.tree.map(jnp.asarray, env.default_params), from_any(env.action_space, "action")
    keys = jax.random.split(jax.random.key(seed), 2 * steps + 1)
    state, observation = reset(keys[0], params)
    rows, actions = [(state, observation, 0.0, False, False)], []
    for t in range(steps):
        mask = observation.get(ACTION_MASK) if isinstance(observation, dict) else None
        drawn = allowed_action(space, np.random.default_rng([seed, t]), mask)
        actions.append(jnp.asarray(drawn, jnp.float32 if isinstance(space, Box) else jnp.int32))
        state, observation, reward, terminated, truncated, _ = step(keys[2 * t + 2], state, actions[-1], params)
        rows.append((state, observation, float(reward), bool(terminated), bool(truncated)))
    return rows, actions, [keys[0], *keys[2::2]]


def same(one, other):
    """Whether two pytrees have the same leaves, but for the last bits of separate programs."""
    one, other = (jax.tree.leaves(tree) for tree in (one, other))
    return len(one) == len(other) and all(
        np.allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), 1e-4, 1e-5) for a, b in zip(one, other, strict=True)
    )


def trained(env, updates=3, **settings):
    """Metrics of some small updates on the device; all is finite, and something was learned."""
    collector = small_collector(env, **settings)
    before = collector.init(jax.random.key(0))
    after, metrics = jax.jit(JaxTrainer(collector).advance, static_argnums=2)(before, jnp.int32(updates), updates)
    assert bool(after.healthy)
    weights = [state.learner.policy.critic.output.weight for state in (before, after)]
    assert not np.array_equal(*weights)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(metrics))
    return {name: np.asarray(x) for name, x in metrics.items()}


def traceable(ids, make):
    """Hold every environment against its spaces, without running it: `check_env` raises."""
    assert len(ids) > 0
    for env_id in ids:
        jax_vector.check_env(make(env_id), env_id)
