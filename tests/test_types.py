import jax
import jax.numpy as jnp

from proximo.types import add_steps, steps_to_float


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
