import math

import jax.numpy as jnp
import pytest

from proximo.math.masked_statistics import explained_variance, masked_mean, normalized


def test_explained_variance_by_hand():
    target, valid = jnp.array([1.0, 2.0, 3.0, 4.0, 1e6]), jnp.array([True] * 4 + [False])
    value = jnp.array([1.0, 2.0, 3.0, 5.0, 0.0])
    assert explained_variance(value, target, valid) == pytest.approx(0.85, abs=1e-6)
    assert explained_variance(target, target, valid) == 1.0
    assert explained_variance(jnp.full(5, 2.5), target, valid) == pytest.approx(0.0, abs=1e-6)


def test_explained_variance_of_constant_targets_is_zero_and_finite():
    assert explained_variance(jnp.array([1.0, 2.0]), jnp.ones(2), jnp.ones(2, bool)) == 0.0


def test_advantages_are_normalized_over_valid_steps_only():
    got = normalized(jnp.array([1.0, 2.0, 3.0, 99.0]), jnp.array([True, True, True, False]))
    assert got[:3].tolist() == pytest.approx([-1.2247449, 0.0, 1.2247449], abs=1e-6)


def test_masked_mean_divides_by_the_number_of_valid_entries():
    assert masked_mean(jnp.array([1.0, 2.0, 6.0]), jnp.array([True, True, False])) == 1.5


def test_masked_mean_ignores_nan_on_padding():
    assert masked_mean(jnp.array([1.0, math.nan]), jnp.array([True, False])) == 1.0


def test_masked_mean_of_no_valid_entries_is_zero():
    assert masked_mean(jnp.array([1.0, 2.0]), jnp.zeros(2, bool)) == 0.0
