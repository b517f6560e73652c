import math

import jax
import jax.numpy as jnp
import pytest

from proximo.math import loss_terms

LN2 = 0.6931471805599453


def test_clipped_surrogate_by_hand_has_no_gradient_beyond_the_clip_range():
    log_ratio, advantage = jnp.log(jnp.array([1.5, 0.5, 1.1, 1.5, 0.5])), jnp.array([2.0, 2.0, -1.0, -2.0, -2.0])
    both = jax.vmap(jax.value_and_grad(loss_terms.clipped_surrogate), in_axes=(0, 0, None))
    value, gradient = both(log_ratio, advantage, jnp.array(0.2))
    assert value.tolist() == pytest.approx([-2.4, -1.0, 1.1, 3.0, 1.6], abs=1e-6)
    assert gradient.tolist() == pytest.approx([0.0, -1.0, 1.1, 3.0, 0.0], abs=1e-6)


@pytest.mark.parametrize(("advantage", "dual_clip", "moves"), [(2.0, None, 0), (-2.0, None, 1), (-2.0, 3.0, 0)])
def test_gradient_is_finite_and_right_at_extreme_log_ratios(advantage, dual_clip, moves):
    def loss(log_ratio):
        surrogate = loss_terms.clipped_surrogate(log_ratio, jnp.array(advantage), jnp.array(0.2))
        return surrogate if dual_clip is None else loss_terms.dual_clipped(surrogate, jnp.array(advantage), jnp.array(dual_clip))

    # At +100 the action is far likelier than before: only a negative advantage without dual clip has a gradient, which lowers it.
    value, gradient = jax.value_and_grad(loss)(jnp.array(100.0))
    assert math.isfinite(value)
    assert math.isfinite(gradient**2)  # as the norm of the gradient squares it
    assert jnp.sign(gradient) == moves
    # At -100 the ratio is 0: a positive advantage has the gradient A r = 0 there, a negative one is clipped.
    value, gradient = jax.value_and_grad(loss)(jnp.array(-100.0))
    assert math.isfinite(value)
    assert float(gradient) == pytest.approx(0.0, abs=1e-30)


@pytest.mark.parametrize("clip_eps", [0.0, 0.2])
def test_quadratic_surrogate_brings_extreme_ratios_back(clip_eps):
    def loss(log_ratio, advantage):
        return loss_terms.quadratic_surrogate(log_ratio, jnp.array(advantage), jnp.array(clip_eps))

    for log_ratio, advantage, moves in ((40.0, 3.0, 1), (100.0, -3.0, 1), (-1.0, -3.0, -1), (0.0, 3.0, -1)):
        value, gradient = jax.value_and_grad(loss)(jnp.array(log_ratio), advantage)
        assert math.isfinite(value)
        assert math.isfinite(gradient**2)
        assert jnp.sign(gradient) == moves


def test_probability_ratio_is_exp_and_its_tangent_beyond_20():
    log_ratio = jnp.linspace(-90.0, 19.9, 50)
    assert loss_terms.probability_ratio(log_ratio).tolist() == jnp.exp(log_ratio).tolist()
    around = loss_terms.probability_ratio(jnp.array([19.999, 20.001])).tolist()
    assert around == pytest.approx([math.exp(19.999), math.exp(20.001)], rel=1e-4)


def test_approximate_kl_is_k3_and_finite_at_extreme_log_ratios():
    got = loss_terms.approximate_kl(jnp.array([LN2, -LN2, 0.0])).tolist()
    assert got == pytest.approx([1.0 - LN2, LN2 - 0.5, 0.0], abs=1e-6)
    # KL(p ‖ q) of p = (.5, .5) and q = (.25, .75): ½ ln 2 + ½ ln ⅔ = 0.14384103622589042
    old, new = jnp.array([0.5, 0.5]), jnp.array([0.25, 0.75])
    assert jnp.sum(old * loss_terms.approximate_kl(jnp.log(new / old))) == pytest.approx(0.143841, abs=1e-6)
    value, gradient = jax.vmap(jax.value_and_grad(loss_terms.approximate_kl))(jnp.array([-100.0, 30.0, 100.0]))
    assert value[0] == pytest.approx(99.0)
    assert 1e8 < value[1] < value[2] < 1e12
    assert gradient.tolist() == pytest.approx([-1.0, math.exp(20.0) - 1, math.exp(20.0) - 1], rel=1e-5)
