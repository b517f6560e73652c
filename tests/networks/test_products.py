"""Products of matrices: their values and gradients, and that XLA need not transpose or convert their operands."""

import re

import jax
import jax.numpy as jnp
import pytest

from proximo.networks.cpu_kernels.convolution import CHUNK, convolve
from proximo.networks.cpu_kernels.products import dense
from proximo.networks.layers import Linear


def matrices(rows=5, inner=7, columns=3, dtype="bfloat16"):
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = ((rows, inner), (inner, columns), (rows, columns))
    return tuple(jax.random.normal(key, shape, dtype) for key, shape in zip(keys, shapes, strict=True))


def value_and_gradients(multiply, x, weight, gradient):
    y, backward = jax.vjp(multiply, x, weight)
    return y, *backward(gradient)


@pytest.mark.parametrize(("dtype", "error"), [("bfloat16", 1e-2), ("float32", 1e-6)])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 7, 1), (64, 32, 16)])
def test_dense_layer_has_the_value_and_gradients_of_the_product(sizes, dtype, error):
    got = jax.jit(value_and_gradients, static_argnums=0)(dense, *matrices(*sizes, dtype))
    expected = value_and_gradients(jnp.matmul, *(a.astype(jnp.float32) for a in matrices(*sizes, dtype)))
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == dtype
        assert float(jnp.abs(a - b).max()) < error * float(jnp.abs(b).max())


@pytest.mark.parametrize(("rows", "columns", "copied"), [(50, 1, "7x50"), (50, 3, "3x50"), (5, 3, "7x5"), (50, 9, "7x50")])
def test_gradient_of_a_weight_multiplies_a_transposed_copy(rows, columns, copied):
    # A transposed view takes up to five times as long (docs/decisions/0003-speed-on-the-cpu.md).
    x, weight, gradient = matrices(rows, columns=columns, dtype="float32")
    layer = Linear(weight, jnp.zeros(columns))
    text = lowered(lambda layer: jax.vjp(lambda layer: layer(x), layer)[1](gradient), "cpu", layer)
    assert re.findall(r"LayoutConstraint.*\(tensor<(\w+)xf32>\) ->", text)[0] == copied
    one_by_one = lowered(lambda layer: jax.vjp(lambda layer: jax.vmap(layer)(x), layer)[1](gradient), "cpu", layer)
    assert f"tensor<{rows}x7x{columns}xf32>" not in one_by_one, "an outer product for each observation"


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_dense_layer_runs_under_vmap_and_before_a_transposition(dtype):
    x, weight, gradient = matrices(dtype=dtype)
    twice = jax.jit(jax.vmap(lambda w: value_and_gradients(dense, x, w, gradient)))(jnp.stack([weight, weight]))
    assert all(jnp.array_equal(a[0], a[1]) for a in twice)
    # XLA's CPU backend refuses a transposed product of bfloat16 matrices when the program runs.
    assert jnp.array_equal(jax.jit(lambda x, w: dense(x, w).T)(x, weight), dense(x, weight).T)


def test_the_gradient_of_a_dense_layer_has_a_forward_mode_derivative():
    x, weight, direction = (a.astype(jnp.float32) for a in (*matrices()[:2], matrices(7, 3, 3)[0]))

    def hessian_vector_product(multiply):
        gradient = jax.grad(lambda w: jnp.tanh(multiply(x, w)).sum())
        return jax.jvp(gradient, (weight,), (direction,))[1]

    assert jnp.allclose(hessian_vector_product(dense), hessian_vector_product(jnp.matmul), atol=1e-5)


def lowered(function, platform, *arguments):
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=(platform,)).as_text()


def test_products_on_the_cpu_have_bfloat16_operands_and_a_float32_result():
    # Another result makes XLA compute in float32, which takes twice as long (docs/decisions/0005-convolutions-on-the-cpu.md).
    def total(x, weight, kernel, images):
        outputs = dense(x, weight), convolve(images, kernel, kernel[0, 0, 0], 1)
        return sum(jnp.sum(y.astype(jnp.float32)) for y in outputs)

    x, weight, _ = matrices()
    arguments = (x, weight, jnp.ones((3, 3, 2, 4), jnp.bfloat16), jnp.ones((2 * CHUNK, 9, 9, 2), jnp.bfloat16))
    gradients = jax.grad(total, (0, 1, 2, 3))
    pattern = r"dot_general.*?\(tensor<(?:\d+x)*(\w+)>, tensor<(?:\d+x)*(\w+)>\) -> tensor<(?:\d+x)*(\w+)>"
    # Of the dense layer two gradients, of the convolution also the value.
    assert re.findall(pattern, lowered(gradients, "cpu", *arguments)) == [("bf16", "bf16", "f32")] * 5
    assert "LayoutConstraint" not in lowered(gradients, "cuda", *arguments)
