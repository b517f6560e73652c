"""Matrix products that are fast on the CPU.

XLA's CPU backend is slow where a product reads a transposed view: a matrix is transposed in memory first
(decision 0003, "The gradient of a weight"). It multiplies in bfloat16 only if both operands are row-major and
the result is float32. If it folds a transposition of the result into the product, the program fails
("Unsupported element type for DotThunk::Execute"; decision 0005, "bfloat16").
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float


def row_major(x: Array) -> Array:
    """``x``, written to memory in row-major order, which also prevents fusion. Only for gradients:
    ``jax.export`` refuses it, and automatic sharding gathers the whole array."""
    return with_layout_constraint(x, Layout(tuple(range(x.ndim))))


def product(left: Float[Array, "m k"], right: Float[Array, "k n"]) -> Float[Array, "m n"]:
    """``left @ right``, at least in float32. A result of bfloat16 needs ``row_major`` before it is transposed."""
    return jnp.matmul(left, right, preferred_element_type=jnp.promote_types(left.dtype, jnp.float32))


def transposed_product(left: Float[Array, "k m"], right: Float[Array, "k n"]) -> Float[Array, "m n"]:
    """``left.T @ right``, for gradients."""
    return row_major(product(row_major(left.T), right))


def as_bits(x: Array) -> Array:
    """``x``, or the bits of bfloat16 numbers, which XLA's CPU backend slices, concatenates and stacks faster."""
    return jax.lax.bitcast_convert_type(x, jnp.uint16) if x.dtype == jnp.bfloat16 else x


def from_bits(x: Array, dtype: jnp.dtype) -> Array:
    """The inverse of ``as_bits``, for numbers of the type ``dtype``."""
    return jax.lax.bitcast_convert_type(x, dtype) if dtype == jnp.bfloat16 else x


def concatenated(parts: Sequence[Array]) -> Array:
    """``jnp.concatenate`` along the last axis, also fast for bfloat16 arrays on the CPU."""
    return from_bits(jnp.concatenate([as_bits(part) for part in parts], -1), parts[0].dtype)


@jax.custom_vjp
def dense(x: Float[Array, "m k"], weight: Float[Array, "k n"]) -> Float[Array, "m n"]:
    """``x @ weight`` for matrices of one type. Only its gradient has a forward-mode derivative."""
    return _value(x, weight)


def _value(x: Array, weight: Array) -> Array:
    if x.dtype != jnp.bfloat16:
        return jnp.matmul(x, weight)
    return jax.lax.platform_dependent(x, weight, cpu=lambda x, w: product(x, w).astype(x.dtype), default=jnp.matmul)


def _backward(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    def by_xla(x, weight, gradient):
        return jax.vjp(jnp.matmul, x, weight)[1](gradient)

    return jax.lax.platform_dependent(*kept, gradient, cpu=_gradients_on_cpu, default=by_xla)


def _gradients_on_cpu(x: Array, weight: Array, gradient: Array) -> tuple[Array, Array]:
    if x.dtype == jnp.bfloat16:
        of_x = row_major(product(gradient, row_major(weight.T))).astype(x.dtype)
    else:
        of_x = jnp.matmul(gradient, weight.T)
    # The one that takes fewer copies is transposed. With one output, transposing the gradient makes trainings slower on two cores.
    transposes_gradient = weight.shape[1] > 1 and gradient.size + weight.size < x.size
    of_weight = transposed_product(gradient, x).T if transposes_gradient else transposed_product(x, gradient)
    return of_x, of_weight.astype(weight.dtype)


dense.defvjp(lambda x, weight: (_value(x, weight), (x, weight)), _backward)
