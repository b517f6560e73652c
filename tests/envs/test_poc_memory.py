"""The rules of PocMemory."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.envs import make_env
from proximo.envs.tasks.poc_memory import PocMemory, PocMemoryParams, PocMemoryState

COUNT = 2000


def remember_the_goal(goal, time):
    """Go to the side where +1 was shown at the start."""
    return jnp.where(goal > 0, 0, 1)


def always_left(goal, time):
    return jnp.zeros_like(time)


def shuttle(goal, time):
    """Never reach an end."""
    return time % 2


@functools.cache
def played(policy, **settings):
    """Play many episodes with a policy that knows the left goal of the first observation. Returns arrays [step, episode]."""
    env = PocMemory(settings)
    params = jax.tree.map(jnp.asarray, env.default_params)

    def episode(key):
        state, observation = env.reset(key, params)
        goal = observation[0]

        def step(carry, time):
            state, over = carry
            state, seen, reward, terminated, truncated, info = env.step(key, state, policy(goal, time), params)
            row = (seen, reward, terminated, truncated, info["success"], ~over)
            return (state, over | terminated | truncated), row

        _, rows = jax.lax.scan(step, (state, jnp.array(False)), jnp.arange(40))
        return observation, rows

    start, rows = jax.jit(jax.vmap(episode, out_axes=(0, 1)))(jax.random.split(jax.random.key(0), COUNT))
    names = ("observation", "reward", "terminated", "truncated", "success", "running")
    return np.asarray(start), {name: np.asarray(row) for name, row in zip(names, rows, strict=True)}


def returns_and_lengths(rows):
    return (rows["reward"] * rows["running"]).sum(0), rows["running"].sum(0)


def test_the_best_return_is_1_2_and_its_length_7():
    _, rows = played(remember_the_goal)
    returns, lengths = returns_and_lengths(rows)
    assert returns.mean() == pytest.approx(1.20, abs=0.02)
    assert lengths.mean() == pytest.approx(7.0, abs=0.15)
    assert np.all((rows["success"] & rows["running"]).any(0))


def test_without_memory_half_of_the_episodes_succeed():
    _, rows = played(always_left)
    assert (rows["success"] & rows["running"]).any(0).mean() == pytest.approx(0.5, abs=0.05)


def test_starts_and_orders_of_goals_are_uniform():
    start, _ = played(remember_the_goal)
    cases = list(itertools.product((-1.0, 1.0), (-0.4, -0.2, 0.0, 0.2, 0.4)))
    counts = [np.sum((start[:, 0] == goal) & np.isclose(start[:, 1], position)) for goal, position in cases]
    assert sum(counts) == COUNT
    assert min(counts) > 0.07 * COUNT
    assert np.array_equal(start[:, 2], -start[:, 0])


def test_glob_starts_cover_the_whole_line():
    start, _ = played(remember_the_goal, glob=True)
    positions = np.unique(np.round(start[:, 1], 3))
    np.testing.assert_allclose(positions, np.arange(-4, 5) * 0.2, atol=1e-6)


def test_the_first_three_observations_show_the_goals():
    start, rows = played(shuttle)
    goals = rows["observation"][:, :, [0, 2]]
    assert np.all(goals[:2] == start[:, [0, 2]])
    assert not np.any(goals[2:])


def test_the_first_two_steps_neither_move_nor_reward():
    start, rows = played(shuttle)
    assert np.all(rows["observation"][:2, :, 1] == start[:, 1])
    assert not np.any(rows["reward"][:2])
    np.testing.assert_allclose(rows["observation"][2, :, 1], start[:, 1] - 0.2, atol=1e-6)


def test_moves_cost_and_episodes_are_truncated_after_32_steps():
    _, rows = played(shuttle)
    returns, lengths = returns_and_lengths(rows)
    assert np.all(lengths == 32)
    assert np.all(rows["truncated"][31])
    assert not np.any(rows["terminated"])
    np.testing.assert_allclose(returns, -3.0, atol=1e-5)


@pytest.mark.parametrize(
    ("cell", "action", "left_goal", "reward", "success"),
    [(4, 1, -1.0, 1.6, True), (4, 1, 1.0, -1.6, False), (-4, 0, 1.0, 1.6, True), (-4, 0, -1.0, -1.6, False)],
)
def test_reaching_an_end_terminates_with_the_reward_of_its_goal(cell, action, left_goal, reward, success):
    env = PocMemory()
    state = PocMemoryState(jnp.int32(cell), jnp.float32(left_goal), jnp.int32(9))
    _, _, got, terminated, truncated, info = env.step(jax.random.key(0), state, jnp.int32(action), PocMemoryParams())
    assert float(got) == pytest.approx(reward)
    assert bool(terminated)
    assert not bool(truncated)
    assert bool(info["success"]) is success


def test_reaching_an_end_at_the_limit_is_a_termination():
    state = PocMemoryState(jnp.int32(4), jnp.float32(1.0), jnp.int32(31))
    _, _, _, terminated, truncated, _ = PocMemory().step(jax.random.key(0), state, jnp.int32(1), PocMemoryParams())
    assert bool(terminated)
    assert not bool(truncated)


def test_the_hard_variant_shows_goals_once_and_freezes_twelve_steps():
    start, rows = played(shuttle, show_steps=0, freeze_steps=12)
    assert np.all(start[:, 0] != 0.0)
    assert not np.any(rows["observation"][:, :, 0])
    assert np.all(rows["observation"][:12, :, 1] == start[:, 1])
    assert np.all(rows["observation"][12, :, 1] != start[:, 1])


def test_the_task_has_its_id():
    env = make_env("proximo:PocMemory", {"max_steps": 20})
    assert isinstance(env, PocMemory)
    assert env.default_params.max_steps == 20
