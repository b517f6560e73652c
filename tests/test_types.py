import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.types import CompensatedSum, add_steps, steps_to_float


def whole(steps):
    """The counter as one exact number."""
    low, high = map(int, steps)
    return high * 2**32 + low


def test_steps_are_counted_beyond_32_bits():
    steps = jnp.array([2**32 - 5, 0], jnp.uint32)
    steps = jax.jit(add_steps, static_argnums=1)(steps, 10)
    assert steps.tolist() == [5, 1]
    assert whole(steps) == 2**32 + 5
    assert float(steps_to_float(steps)) == 2.0**32


def test_steps_below_the_boundary_carry_nothing():
    steps = add_steps(jnp.array([2**31 - 1, 3], jnp.uint32), 1)
    assert steps.tolist() == [2**31, 3]
    assert whole(steps) == 3 * 2**32 + 2**31


def total(numbers):
    """The sum of ``numbers``, T N, as a compiled scan adds them."""

    def add(running, x):
        return running.plus(x), None

    numbers = jnp.asarray(numbers, jnp.float32)
    return jax.jit(lambda: jax.lax.scan(add, CompensatedSum.zeros(numbers.shape[1:]), numbers)[0].value)()


def test_sum_of_a_million_numbers_is_exact_to_its_last_place():
    numbers = np.stack([np.full(10**6, 0.1, np.float32), np.random.default_rng(0).normal(1, 5, 10**6).astype(np.float32)], 1)
    np.testing.assert_allclose(total(numbers), numbers.astype(np.float64).sum(0), rtol=1e-7)
    assert abs(np.add.accumulate(numbers[:, 0])[-1] - 1e5) > 900  # a plain sum


@pytest.mark.parametrize(("numbers", "expected"), [((1, np.inf, 2), np.inf), ((np.inf, -np.inf), np.nan), ((np.nan, 1), np.nan)])
def test_infinity_and_nan_stay_in_the_sum(numbers, expected):
    np.testing.assert_array_equal(total(np.array(numbers)[:, None]), [expected])


def test_zero_where_restarts_the_sum():
    running = CompensatedSum.zeros(2).plus(jnp.array([1.0, 2.0])).plus(jnp.array([1e-9, 1e-9]))
    kept = running.zero_where(jnp.array([True, False]))
    assert (kept.value.tolist(), kept.rest.tolist()) == ([0.0, 2.0], [0.0, running.rest[1].item()])
