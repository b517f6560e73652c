import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.types import CompensatedSum, add_steps, int_of_steps, steps_to_float


@pytest.mark.parametrize(("before", "count"), [(2**32 - 5, 10), (3 * 2**32 + 2**31 - 1, 1)])
def test_steps_are_counted_beyond_32_bits(before, count):
    steps = jax.jit(add_steps, static_argnums=1)(jnp.array([before % 2**32, before >> 32], jnp.uint32), count)
    assert int_of_steps(steps) == before + count
    assert float(steps_to_float(steps)) == pytest.approx(before + count)


def total(numbers):
    """The sum of ``numbers``, T N, as a compiled scan adds them."""
    numbers = jnp.asarray(numbers, jnp.float32)
    add = lambda running, x: (running.plus(x), None)  # noqa: E731
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
