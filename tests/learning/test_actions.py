"""Every kind of action is trained to near its optimum in a few thousand steps, on environments that pay for an action that the
observation tells; and what a mask forces is learned."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.collect import make_train
from proximo.ppo import make_hyperparameters
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import toys
from helpers import small_config

pytestmark = pytest.mark.learning


class Identity:
    """One step; the reward is the share of components in which the action is the target that is observed. Of continuous ones
    1 - |action - target| each."""

    default_params = ()

    def __init__(self, observation_space, action_space, target):
        self.observation_space, self.action_space, self.target = observation_space, action_space, target

    def reset(self, key, params):
        observation = toys.draw(key, self.observation_space)
        return self.target(observation), observation

    def step(self, key, state, action, params):
        hit = 1.0 - jnp.abs(action - state) if isinstance(self.action_space, Box) else 1.0 * (action == state)
        _, observation = self.reset(key, params)
        return self.target(observation), observation, jnp.mean(hit), jnp.array(True), False, {}


SIGNS, BITS, BOUNDED = MultiBinary((2,)), MultiBinary((2, 2)), Box((3,), (-2.0, 0.0, -np.inf), (2.0, np.inf, 2.0))
PARTS = Dict((("one", Discrete(3, 3)), ("others", MultiDiscrete((2, 3), (1, 0)))))
CHOICES = Identity(PARTS, MultiDiscrete((3, 2, 3), (3, 1, 0)), lambda x: jnp.concatenate([x["one"][None], x["others"]]))
# By kind (of one choice the masked task below): the environment, the return of a random policy is at most the first number, a trained one passes the second.
ENVIRONMENTS = {
    "bits": (Identity(BITS, BITS, lambda x: x.astype(jnp.int32)), 0.6, 0.95),
    "bounded and half bounded": (Identity(MultiBinary((3,)), BOUNDED, lambda x: jnp.where(x, 1.0, 0.5)), 0.3, 0.85),
    "several choices, observed in parts": (CHOICES, 0.45, 0.9),
}


@functools.cache
def program(name):
    """A training of 60 updates of 128 steps, and its settings."""
    settings = {"num_envs": 16, "num_steps": 8, "num_epochs": 4, "normalize_observation": False}
    settings |= {"total_steps": 60 * 128, "hidden_sizes": (32,)}
    env = toys.Forbidden() if name == "forbidden" else ENVIRONMENTS[name][0]
    if isinstance(env.action_space, Box):
        settings["log_std_init"] = -0.5
    return jax.jit(make_train(small_config(**settings), env)), settings


def returns(name, rate):
    """Mean returns of the updates."""
    train, settings = program(name)
    hyperparameters = make_hyperparameters(small_config(**settings, learning_rate=rate).ppo)
    state, metrics = train(jax.random.key(0), hyperparameters)
    assert bool(state.healthy)
    return jax.device_get(metrics)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_each_kind_of_action_is_learned(name):
    _, untrained, trained = ENVIRONMENTS[name]
    metrics = returns(name, 1e-2)["rollout/return_mean"]
    assert metrics[0] < untrained
    assert metrics[-5:].mean() > trained


def test_masked_task_is_learned_without_forbidden_actions():
    # The best allowed of four, each allowed with ½ and the first always: 3/2 + 2/4 + 1/8 = 2.125 on average.
    metrics = returns("forbidden", 1e-2)
    assert np.all(metrics["rollout/success_rate"] == 1.0)
    assert metrics["rollout/return_mean"][0] < 1.7
    assert metrics["rollout/return_mean"][-10:].mean() == pytest.approx(2.125, abs=0.1)


def test_zero_learning_rate_misses_the_threshold():
    assert returns("several choices, observed in parts", 0)["rollout/return_mean"][-5:].mean() < 0.6
