"""The loss and the optimizer against numbers worked out by hand."""

import dataclasses
import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from proximo.math.masked_statistics import count
from proximo.networks import make_policy
from proximo.ppo import init_learner, make_hyperparameters
from proximo.ppo.loss import loss, make_minibatch, value_loss_per_step
from proximo.ppo.minibatches import Batch
from proximo.ppo.optimizer import adam, clipping
from proximo.spaces import Box, Discrete

from helpers import small_config

BY_HAND = {
    "policy_loss": -1.1, "value_loss": 0.3125, "entropy": 0.5623351, "loss": -0.9999835,
    "approx_kl": 0.1438410, "clip_fraction": 1.0, "ratio_min": 0.5, "ratio_max": 1.5,
}  # fmt: skip


@functools.cache
def learner(**settings):
    """A policy that always gives probabilities (¾, ¼) and value ½."""
    config = small_config(
        hidden_sizes=(), normalize_advantage="none", normalize_observation=False, vf_coef=0.5, ent_coef=0.1, **settings
    )
    policy = jax.tree.map(jnp.zeros_like, make_policy(jax.random.key(0), Box((1,)), Discrete(2), config.network, False))
    policy = eqx.tree_at(lambda p: p.actor.readout.output.bias, policy, jnp.array([math.log(3.0), 0.0]))
    policy = eqx.tree_at(lambda p: p.critic.output.bias, policy, jnp.array([0.5]))
    return init_learner(jax.random.key(0), policy, config, make_hyperparameters(config.ppo))


def two_rows(autoreset_steps=0):
    """Ratios 1.5 and 0.5 with advantages 1 and 2; then padding with garbage."""

    def rows(values, garbage):
        return jnp.array([[*values, *[garbage] * autoreset_steps]])

    return Batch(
        observation=rows((0.3, -0.7), 1e3)[..., None],
        episode_start=rows((True, True), False),
        action=rows((0, 1), 1),
        log_prob=rows((math.log(0.5), math.log(0.5)), -20.0),
        value=rows((0.2, 0.4), 1e3),
        advantage=rows((1.0, 2.0), 1e4),
        target=rows((1.5, 0.0), -1e4),
        valid=rows((True, True), False),
        memory=((),),
        burn_in_steps=None,
    )


@functools.cache
def value_and_gradient(autoreset_steps=0, **settings):
    state, batch = learner(**settings), two_rows(autoreset_steps)
    return jax.jit(jax.value_and_grad(lambda policy: loss(policy, state, batch, count(batch.valid), state.key), has_aux=True))(
        state.policy
    )


def test_loss_by_hand():
    (_, metrics), _ = value_and_gradient()
    assert {name: float(metrics[name]) for name in BY_HAND} == pytest.approx(BY_HAND, abs=2e-6)
    (_, metrics), _ = value_and_gradient(clip_eps=0.6)
    assert float(metrics["clip_fraction"]) == 0.0


def test_gradient_of_the_loss_by_hand():
    _, gradient = value_and_gradient()
    # Row 1 is clipped (no gradient); row 2: -r A / 2 · ∇log p₂ = -½ (-¾, ¾). Entropy: ∂S/∂l₁ = -p₁ p₂ ln 3.
    policy_part, entropy_part = 0.375, 0.1 * 0.75 * 0.25 * math.log(3.0)
    expected = [policy_part + entropy_part, -policy_part - entropy_part]
    assert gradient.actor.readout.output.bias.tolist() == pytest.approx(expected, abs=1e-6)
    # ½ · mean(½ - 1.5, ½ - 0)
    assert gradient.critic.output.bias.tolist() == pytest.approx([-0.125], abs=1e-6)


def test_value_losses_by_hand():
    (state, batch), value, target = (learner(), two_rows()), jnp.array([[2.0, 2.0, 1.2]]), jnp.array([[3.0, 1.0, 3.0]])
    minibatch = make_minibatch(state.policy, state, batch, count(batch.valid), state.key, 0)
    minibatch = dataclasses.replace(minibatch, value=jnp.ones((1, 3)), target=target)

    def value_loss(value, clip_eps):
        return value_loss_per_step(dataclasses.replace(minibatch, new_value=value, clip_value_eps=clip_eps))

    assert value_loss(value, None)[0].tolist() == pytest.approx([0.5, 0.5, 1.62], abs=1e-6)
    assert value_loss(value, jnp.array(0.5))[0].tolist() == pytest.approx([1.125, 0.5, 1.62], abs=1e-6)
    gradient = jax.grad(lambda value: value_loss(value, jnp.array(0.5)).sum())(value)[0]
    assert gradient[::2].tolist() == pytest.approx([0.0, -1.8], abs=1e-6)  # none beyond the range
    # Row 1: V moves from .2 to .5, at most .1: ½ (.3 - 1.5)² = .72; row 2: .4 → .5 within .1: ½ .5² = .125
    (_, metrics), _ = value_and_gradient(clip_value_eps=0.1)
    assert float(metrics["value_loss"]) == pytest.approx(0.4225, abs=1e-6)


def test_padding_changes_neither_loss_nor_gradient():
    (_, metrics), gradient = value_and_gradient()
    (_, filled), filled_gradient = value_and_gradient(autoreset_steps=3)
    for name in ("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction"):
        assert float(filled[name]) == pytest.approx(float(metrics[name]), abs=1e-6)
    for a, b in zip(jax.tree.leaves(filled_gradient), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    state, batch = learner(), two_rows(autoreset_steps=1)
    wrong = dataclasses.replace(batch, valid=jnp.ones_like(batch.valid))
    assert abs(float(loss(state.policy, state, wrong, count(wrong.valid), state.key)[0]) - BY_HAND["loss"]) > 1.0
    only = dataclasses.replace(two_rows(), valid=jnp.array([[True, False]]))
    _, metrics = loss(state.policy, state, only, count(only.valid), state.key)
    assert float(metrics["ratio_min"]) == float(metrics["ratio_max"]) == pytest.approx(1.5, abs=1e-6)


def directions(gradients):
    state, parameters = learner(max_grad_norm=0.5), jnp.array([2.0, -1.0])
    optimizer = optax.chain(clipping(state), adam(state, jnp.float32(-1.0), None))
    moments = optimizer.init(parameters)
    for gradient in gradients:
        direction, moments = optimizer.update(jnp.array(gradient), moments, parameters)
    return direction.tolist()


def test_adam_clips_the_global_norm_then_steps_by_hand():
    # (3, 4) has norm 5, clipped to (.3, .4); first step: g / (|g| + 1e-5)
    assert directions([[3.0, 4.0]]) == pytest.approx([0.3 / 0.30001, 0.4 / 0.40001], abs=1.5e-5)
    # Element-wise or unconditional scaling would give another ratio: ε = 1e-5 makes small gradients tell.
    assert directions([[1e-5, 3e-5]]) == pytest.approx([0.5, 0.75], abs=1e-4)
    # The second step: m = .1 g₂ + .09 g₁, v = .001 g₂² + .000999 g₁², unbiased by .19 and .001999
    assert directions([[0.3, 0.4], [-0.2, 0.1]])[0] == pytest.approx(0.144515, abs=1e-4)
