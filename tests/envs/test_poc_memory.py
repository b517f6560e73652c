"""The rules of PocMemory."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.envs.tasks.poc_memory import PocMemory, PocMemoryParams, PocMemoryState

COUNT = 2000
POLICIES = {
    "remember": lambda goal, time: jnp.where(goal > 0, 0, 1),  # go to the side where +1 was shown at the start
    "left": lambda goal, time: jnp.zeros_like(time),
    "shuttle": lambda goal, time: time % 2,  # never reach an end
}


@functools.cache
def played(policy, **settings):
    """Play many episodes with a policy that knows the left goal of the first observation. Returns arrays [step, episode]."""
    env = PocMemory(settings)
    params = jax.tree.map(jnp.asarray, env.default_params)

    def episode(key):
        state, observation = env.reset(key, params)

        def step(carry, time):
            state, over = carry
            action = POLICIES[policy](observation[0], time)
            state, seen, reward, terminated, truncated, info = env.step(key, state, action, params)
            row = (seen, reward, terminated, truncated, info["success"], ~over)
            return (state, over | terminated | truncated), row

        _, rows = jax.lax.scan(step, (state, jnp.array(False)), jnp.arange(40))
        return observation, rows

    start, rows = jax.device_get(jax.jit(jax.vmap(episode, out_axes=(0, 1)))(jax.random.split(jax.random.key(0), COUNT)))
    return start, dict(zip(("observation", "reward", "terminated", "truncated", "success", "running"), rows, strict=True))


def test_the_best_return_is_1_2_and_without_memory_half_of_the_episodes_succeed():
    _, rows = played("remember")
    assert (rows["reward"] * rows["running"]).sum(0).mean() == pytest.approx(1.20, abs=0.02)
    assert rows["running"].sum(0).mean() == pytest.approx(7.0, abs=0.15)
    assert np.all((rows["success"] & rows["running"]).any(0))
    _, rows = played("left")
    assert (rows["success"] & rows["running"]).any(0).mean() == pytest.approx(0.5, abs=0.05)


def test_starts_and_orders_of_goals_are_uniform():
    start, _ = played("remember")
    cases = list(itertools.product((-1.0, 1.0), (-0.4, -0.2, 0.0, 0.2, 0.4)))
    counts = [np.sum((start[:, 0] == goal) & np.isclose(start[:, 1], position)) for goal, position in cases]
    assert sum(counts) == COUNT
    assert min(counts) > 0.07 * COUNT
    assert np.array_equal(start[:, 2], -start[:, 0])
    start, _ = played("remember", glob=True)
    np.testing.assert_allclose(np.unique(np.round(start[:, 1], 3)), np.arange(-4, 5) * 0.2, atol=1e-6)


@pytest.mark.parametrize(("settings", "shown", "frozen"), [({}, 2, 2), ({"show_steps": 0, "freeze_steps": 12}, 0, 12)])
def test_goals_are_shown_and_the_agent_is_frozen_at_the_start(settings, shown, frozen):
    start, rows = played("shuttle", **settings)
    goals, positions = rows["observation"][:, :, [0, 2]], rows["observation"][:, :, 1]
    assert np.all(start[:, 0] != 0.0)
    assert np.all(goals[:shown] == start[:, [0, 2]])
    assert not np.any(goals[shown:])
    assert np.all(positions[:frozen] == start[:, 1])
    assert not np.any(rows["reward"][:frozen])
    np.testing.assert_allclose(positions[frozen], start[:, 1] - 0.2, atol=1e-6)


def test_moves_cost_and_episodes_are_truncated_after_32_steps():
    _, rows = played("shuttle")
    assert np.all(rows["running"].sum(0) == 32)
    assert np.all(rows["truncated"][31])
    assert not np.any(rows["terminated"])
    np.testing.assert_allclose((rows["reward"] * rows["running"]).sum(0), -3.0, atol=1e-5)


@pytest.mark.parametrize("time", [9, 31])
@pytest.mark.parametrize(
    ("cell", "action", "left_goal", "reward"), [(4, 1, -1.0, 1.6), (4, 1, 1.0, -1.6), (-4, 0, 1.0, 1.6), (-4, 0, -1.0, -1.6)]
)
def test_reaching_an_end_terminates_even_at_the_limit(cell, action, left_goal, reward, time):
    state = PocMemoryState(jnp.int32(cell), jnp.float32(left_goal), jnp.int32(time))
    _, _, got, *ended, info = PocMemory().step(jax.random.key(0), state, jnp.int32(action), PocMemoryParams())
    assert float(got) == pytest.approx(reward)
    assert (*map(bool, ended), bool(info["success"])) == (True, False, reward > 0)
