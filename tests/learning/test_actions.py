"""Every kind of action is trained to near its optimum in a few thousand steps, on environments that pay for an action that the
observation tells; what a mask forces is learned; and variants find what they have to find."""

import jax.numpy as jnp
import numpy as np
import pytest

from learning import probes
from learning.test_probes import last, trained
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import toys

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


SIGNS, BITS = MultiBinary((2,)), MultiBinary((2, 2))
BOUNDED = Box((3,), (-2.0, 0.0, -np.inf), (2.0, np.inf, 2.0))
PARTS = Dict((("one", Discrete(3, 3)), ("others", MultiDiscrete((2, 3), (1, 0)))))
CHOICES = Identity(PARTS, MultiDiscrete((3, 2, 3), (3, 1, 0)), lambda x: jnp.concatenate([x["one"][None], x["others"]]))
# By kind: the environment, the return of a random policy is at most the first number, a trained one passes the second. Of one choice
# there is the masked task below.
ENVIRONMENTS = {
    "bits": (Identity(BITS, BITS, lambda x: x.astype(jnp.int32)), 0.6, 0.95),
    "bounded and half bounded": (Identity(MultiBinary((3,)), BOUNDED, lambda x: jnp.where(x, 1.0, 0.5)), 0.3, 0.85),
    "several choices, observed in parts": (CHOICES, 0.45, 0.9),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_each_kind_of_action_is_learned(name):
    env, before, after = ENVIRONMENTS[name]
    noise = {"log_std_init": -0.5} if isinstance(env.action_space, Box) else {}
    _, metrics = trained(env, hidden_sizes=(32,), **noise)
    assert metrics["rollout/return_mean"][0] < before
    assert last(metrics, "rollout/return_mean") > after


def test_masked_task_is_learned_without_forbidden_actions():
    # The best allowed of four, each allowed with ½ and the first always: 3/2 + 2/4 + 1/8 = 2.125 on average.
    _, metrics = trained(toys.Forbidden(), hidden_sizes=(32,))
    assert np.all(metrics["rollout/success_rate"] == 1.0)
    assert metrics["rollout/return_mean"][0] < 1.7
    assert metrics["rollout/return_mean"][-10:].mean() == pytest.approx(2.125, abs=0.1)


def test_zero_learning_rate_misses_the_threshold():
    assert last(trained(CHOICES, hidden_sizes=(32,), learning_rate=0)[1], "rollout/return_mean") < 0.6


TARGETS = Identity(SIGNS, Box((2,), (-2.0, 0.0), (2.0, 4.0)), lambda x: jnp.where(x, 1.0, 0.5))
"""1 - |action - target| on two components; a random policy has 0 and less, for its bounds are four wide."""
SQUASHED = {"action_mapping": "tanh", "state_dependent_std": True, "log_std_init": -0.5}


@pytest.mark.parametrize(
    ("settings", "before", "after"),
    [({"distribution": "beta"}, 0.4, 0.75), pytest.param(SQUASHED, 0.85, 0.85, marks=pytest.mark.slow)],
)
def test_policy_hits_its_targets(settings, before, after):
    _, metrics = trained(TARGETS, hidden_sizes=(16,), **settings)
    assert metrics["rollout/return_mean"][0] < before
    assert last(metrics, "rollout/return_mean") > after


def test_kl_penalty_finds_the_action_and_limits_the_divergence():
    metrics, free = (
        trained(probes.ACTION, objective="kl_penalty", objective_settings=f"kl_coef={beta},kl_target={target}")[1]
        for beta, target in ((20.0, 0.003), (1e-6, 0.0))
    )
    assert last(metrics, "rollout/success_rate") > 0.95
    assert metrics["train/approx_kl"].max() < 0.5 * free["train/approx_kl"].max()
    assert metrics["train/kl_coef"].min() < 20.0
