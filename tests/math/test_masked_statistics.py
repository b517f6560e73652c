import math

import jax
import jax.numpy as jnp
import pytest

from proximo.math.masked_statistics import explained_variance, masked_mean, normalized


def test_explained_variance_by_hand():
    target, valid = jnp.array([1.0, 2.0, 3.0, 4.0, 1e6]), jnp.array([True] * 4 + [False])
    value = jnp.array([1.0, 2.0, 3.0, 5.0, 0.0])
    assert explained_variance(value, target, valid) == pytest.approx(0.85, abs=1e-6)
    assert explained_variance(target, target, valid) == 1.0
    assert explained_variance(jnp.full(5, 2.5), target, valid) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("number", [0.0, 1.0, 0.1, 1234.567, -1e-6])
def test_what_is_constant_has_no_explained_variance_and_is_normalized_to_zero(number):
    valid = jnp.arange(1000) % 7 > 0  # the mean of 857 numbers is rounded
    numbers = jnp.where(valid, number, 1e6).astype(jnp.float32)
    assert jnp.isnan(explained_variance(jnp.linspace(0, 1, 1000), numbers, valid))
    assert jnp.all(jnp.where(valid, normalized(numbers, jnp.zeros(1000), valid), 0.0) == 0)


def test_advantages_are_normalized_over_valid_steps_only():
    got = normalized(jnp.array([1.0, 2.0, 3.0, 99.0]), jnp.zeros(4), jnp.array([True, True, True, False]))
    assert got[:3].tolist() == pytest.approx([-1.2247449, 0.0, 1.2247449], abs=1e-6)


@pytest.mark.parametrize(("noise", "expected"), [(1e-6, 0.0), (1e-2, 1.0)])
def test_advantages_that_vary_by_the_rounding_of_their_targets_are_normalized_to_zero(noise, expected):
    value = 100.0 + jax.random.normal(jax.random.key(0), (857,))
    target = value + noise * jax.random.normal(jax.random.key(1), (857,))
    got = normalized(target - value, target, jnp.ones(857, bool))
    assert float(jnp.std(got)) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("x", "valid", "expected"), [([1.0, 2.0, 6.0], [1, 1, 0], 1.5), ([1.0, math.nan], [1, 0], 1.0), ([1.0, 2.0], [0, 0], 0.0)]
)
def test_masked_mean_is_over_valid_entries(x, valid, expected):
    assert masked_mean(jnp.array(x), jnp.array(valid, bool)) == expected
