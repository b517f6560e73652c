"""Variants that learn: what they have to find is missed where they are broken."""

import functools

import jax
import numpy as np
import pytest

from learning import probes
from learning.test_actions import SIGNS, Identity
from learning.test_probes import DEFAULTS
from proximo.collect import make_train
from proximo.spaces import Box

from helpers import small_config

pytestmark = pytest.mark.learning

TARGETS = Identity(SIGNS, Box((2,), (-2.0, 0.0), (2.0, 4.0)), lambda x: jax.numpy.where(x, 1.0, 0.5))
"""1 - |action - target| on two components; a random policy has 0 and less, for its bounds are four wide."""


@functools.cache
def returns(env, updates, **settings):
    """Mean returns of updates of 128 steps."""
    sizes = {"hidden_sizes": (16,), "total_steps": updates * 128, "learning_rate": 1e-2}
    config = small_config(**{**DEFAULTS, **sizes, **settings})
    state, metrics = jax.jit(lambda key: make_train(config, env)(key))(jax.random.key(0))
    assert bool(state.healthy)
    return {name: np.asarray(x) for name, x in jax.device_get(metrics).items()}


def last(metrics, name="rollout/return_mean"):
    return float(metrics[name][-5:].mean())


SQUASHED = {"action_mapping": "tanh", "state_dependent_std": True, "log_std_init": -0.5}


@pytest.mark.parametrize(
    ("settings", "untrained", "trained"),
    [({"distribution": "beta"}, 0.4, 0.75), pytest.param(SQUASHED, 0.85, 0.85, marks=pytest.mark.slow)],
)
def test_policy_hits_its_targets(settings, untrained, trained):
    metrics = returns(TARGETS, 60, **settings)
    assert metrics["rollout/return_mean"][0] < untrained
    assert last(metrics) > trained


def test_kl_penalty_finds_the_action_and_limits_the_divergence():
    metrics, free = (
        returns(probes.ACTION, 60, objective="kl_penalty", objective_settings=f"kl_coef={beta},kl_target={target}")
        for beta, target in ((20.0, 0.003), (1e-6, 0.0))
    )
    assert last(metrics, "rollout/success_rate") > 0.95
    assert metrics["train/approx_kl"].max() < 0.5 * free["train/approx_kl"].max()
    assert metrics["train/kl_coef"].min() < 20.0
