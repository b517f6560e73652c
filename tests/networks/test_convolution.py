"""Property: the convolution as products of matrices is XLA's, and so are its gradients; and products need no copies of operands."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.config import NetworkConfig
from proximo.networks.cpu_kernels.convolution import CHUNK, by_products, by_xla, convolve, gradients_by_products, gradients_by_xla
from proximo.networks.cpu_kernels.products import dense
from proximo.networks.encoders import IMAGE_ENCODERS, Convolution, max_pool
from proximo.networks.layers import Linear
from proximo.spaces import Box

# (images, height, width, channels, size, stride, out): NatureCNN's layers, sizes that leave pixels over, several chunks. Fewer than
# MIN_BATCH images would be left to XLA.
CASES = [
    (8, 37, 43, 1, 8, 4, 5),
    (8, 9, 7, 64, 3, 1, 64),
    (CHUNK * 2, 9, 11, 2, 4, 2, 3),
    (CHUNK * 2 + 5, 8, 9, 2, 4, 2, 3),
    (CHUNK * 2 + 5, 9, 7, 8, 3, 1, 8),  # here the image is shifted for the weights' gradient, not the output's gradient
]


def case(images, height, width, channels, size, stride, out):
    rng = np.random.default_rng(0)

    def normal(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    x, weight, bias = normal(images, height, width, channels), normal(size, size, channels, out), normal(out)
    rows, columns = (height - size) // stride + 1, (width - size) // stride + 1
    return x, weight, bias, normal(images, rows, columns, out), stride


def relative(got, expected):
    return max(float(jnp.abs(a - b).max() / jnp.abs(b).max()) for a, b in zip(got, expected, strict=True))


@partial(jax.jit, static_argnames="stride")  # compiled whole: every operation by itself takes four times as long
def all_by_products(x, weight, bias, gradient, stride):
    y = by_products(x, weight, bias, stride)
    return y, *gradients_by_products(x, weight, y, gradient, stride)


@partial(jax.jit, static_argnames="stride")
def all_by_jax(x, weight, bias, gradient, stride):
    """The layer and its gradients as JAX derives them from XLA's convolution."""
    y, backward = jax.vjp(lambda *a: by_xla(*a, stride), x.astype(jnp.float32), weight, bias)
    return y, *backward(gradient)


@pytest.mark.parametrize("sizes", CASES)
def test_matrix_products_and_hand_written_gradients_equal_the_convolution(sizes):
    x, weight, bias, gradient, stride = case(*sizes)
    expected = all_by_jax(x, weight, bias, gradient, stride)
    assert relative(all_by_products(x, weight, bias, gradient, stride), expected) < 1e-5
    assert 0.2 < float((expected[0] > 0).mean()) < 0.8  # ReLU has something to do
    assert relative(gradients_by_xla(x, weight, expected[0], gradient, stride), expected[1:]) < 1e-6


@pytest.mark.parametrize("sizes", [CASES[0], CASES[3]])
def test_bytes_are_read_as_numbers_without_a_gradient(sizes):
    x, weight, bias, gradient, stride = case(*sizes)
    x = jnp.asarray(np.random.default_rng(1).integers(0, 256, x.shape), jnp.uint8)
    y, _, *expected = all_by_jax(x, weight, bias, gradient, stride)
    ours, nothing, *got = all_by_products(x, weight, bias, gradient, stride)
    assert nothing is None
    assert relative((ours, *got), (y, *expected)) < 1e-5
    derived = jax.jit(jax.grad(lambda w, b: jnp.vdot(convolve(x, w, b, stride), gradient), (0, 1)))(weight, bias)
    assert relative(derived, expected) < 1e-5
    nothing, *by_hand = gradients_by_xla(x, weight, y, gradient, stride)
    assert nothing is None
    assert relative(by_hand, expected) < 1e-6


def test_comparison_detects_transposed_kernel_and_missing_relu():
    x, weight, bias, gradient, stride = case(*CASES[0])
    expected = all_by_jax(x, weight, bias, gradient, stride)
    assert relative((by_products(x, weight.swapaxes(0, 1), bias, stride),), expected[:1]) > 1e-2
    wrong = gradients_by_products(x, weight.swapaxes(0, 1), expected[0], gradient, stride)
    assert relative(wrong[:1], expected[1:2]) > 1e-2
    unrectified = gradients_by_products(x, weight, jnp.ones_like(expected[0]), gradient, stride)
    assert min(relative((got,), (want,)) for got, want in zip(unrectified, expected[1:], strict=True)) > 1e-2


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_programs_use_the_implementation_of_their_platform(platform):
    x, weight, bias, gradient, stride = case(*CASES[2])

    def program(*layer):
        return jax.value_and_grad(lambda *layer: jnp.vdot(convolve(*layer, stride), gradient), argnums=(0, 1, 2))(*layer)

    text = jax.jit(program).trace(x, weight, bias).lower(lowering_platforms=(platform,)).as_text()
    exported = jax.export.export(jax.jit(partial(convolve, stride=stride)), platforms=[platform])(x, weight, bias).mlir_module()
    for lowered in (text, exported):
        assert ("stablehlo.convolution" in lowered) == (platform != "cpu")


def test_the_gradients_are_the_same_under_vmap_and_without_relu():
    x, weight, bias, gradient, stride = case(*CASES[3])

    def total(way, weight, x):
        return jnp.sum(jnp.sin(way(x, weight, bias, stride)))

    def linear(way):
        y, backward = jax.vjp(lambda *a: way(*a, stride, False), x, weight, bias)
        return y, *backward(gradient)

    weights = jnp.stack([weight, 2.0 * weight])
    ours, theirs = (jax.jit(jax.vmap(jax.grad(partial(total, way), (0, 1)), (0, None))) for way in (convolve, by_xla))
    assert relative(ours(weights, x), theirs(weights, x)) < 1e-5
    ours, theirs = jax.jit(partial(linear, convolve))(), jax.jit(partial(linear, by_xla))()
    assert float(theirs[0].min()) < 0
    assert relative(ours, theirs) < 1e-5
    assert relative(gradients_by_xla(x, weight, theirs[0], gradient, stride, relu=False), theirs[1:]) < 1e-6


def test_layer_pads_and_scales_its_inputs():
    x, *_ = case(CHUNK + 1, 8, 8, 3, 8, 4, 2)
    layer = Convolution.create(jax.random.key(0), 3, 3, 3, 1, padding=1)
    numbers = ("NHWC", "HWIO", "NHWC")
    same = jax.lax.conv_general_dilated(0.5 * x, layer.weight, (1, 1), "SAME", dimension_numbers=numbers)
    assert relative((layer(x, scale=0.5),), (jax.nn.relu(same),)) < 1e-5


@pytest.mark.parametrize("size", [(1, 8), (9, 2), (84, 5)])
def test_max_pool_equals_the_window_of_xla(size):
    x = jax.random.normal(jax.random.key(0), (2, *size, 3))
    window = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    assert jnp.array_equal(max_pool(x), window)


@pytest.mark.parametrize(
    ("word", "images", "size", "error"),
    [("nature_cnn", 1, 36, 0.2), ("nature_cnn", 2 * CHUNK + 5, 36, 0.03), ("small_cnn", 1, 9, 0.2), ("small_cnn", 8, 9, 0.06)],
)
def test_encoders_train_in_half_precision(word, images, size, error):
    # Compiled, with and without vmap: XLA's CPU backend refuses some bfloat16 products only when they run.
    encoder, _ = IMAGE_ENCODERS[word].create(jax.random.key(0), Box((size, size, 4), 0.0, 255.0, "uint8"), NetworkConfig())
    x = jnp.asarray(np.random.default_rng(0).integers(0, 256, (images, size, size, 4)), jnp.uint8)

    @partial(jax.jit, static_argnames="dtype")
    def gradients(encoder, dtype="float32"):
        def total(encoder):
            return jnp.sum(jnp.sin(jax.tree.map(lambda a: a.astype(dtype), encoder)(x).astype(jnp.float32)))

        return jax.vmap(jax.grad(total))(jax.tree.map(lambda a: jnp.stack([a, 0.5 * a]), encoder)), jax.grad(total)(encoder)

    got, expected = (jax.tree.leaves(gradients(encoder, dtype)) for dtype in ("bfloat16", "float32"))
    for a, b in zip(got, expected, strict=True):
        assert float(jnp.linalg.norm(a - b)) < error * float(jnp.linalg.norm(b))


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
