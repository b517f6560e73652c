"""Law: the convolution as products of matrices is XLA's convolution, and so are its gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.networks.convolution import CHUNK, Conv, by_products, by_xla, convolve, gradients_by_products, gradients_by_xla

from helpers import precision

# (images, height, width, channels, size, stride, out): NatureCNN's layers, sizes that leave pixels over, several chunks.
CASES = [
    (2, 36, 36, 4, 8, 4, 32),
    (3, 37, 43, 1, 8, 4, 5),
    (2, 20, 21, 32, 4, 2, 64),
    (2, 9, 7, 64, 3, 1, 64),
    (CHUNK * 2, 9, 11, 2, 4, 2, 3),
    (CHUNK * 2 + 5, 8, 9, 2, 4, 2, 3),
    (CHUNK + 1, 8, 8, 3, 8, 4, 2),
]


def case(images, height, width, channels, size, stride, out, dtype="float32"):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(images, height, width, channels)), dtype)
    weight = jnp.asarray(rng.normal(size=(size, size, channels, out)), dtype)
    rows, columns = (height - size) // stride + 1, (width - size) // stride + 1
    return x, weight, jnp.asarray(rng.normal(size=(images, rows, columns, out)), dtype), stride


def relative(got, expected):
    return max(float(jnp.abs(a - b).max() / jnp.abs(b).max()) for a, b in zip(got, expected, strict=True))


def errors(x, weight, gradient, stride):
    got = by_products(x, weight, stride), *gradients_by_products(x, weight, gradient, stride)
    return relative(got, (by_xla(x, weight, stride), *gradients_by_xla(x, weight, gradient, stride)))


@pytest.mark.parametrize("sizes", CASES)
def test_products_of_matrices_are_the_convolution(sizes):
    assert errors(*case(*sizes)) < 1e-5


@pytest.mark.parametrize("sizes", [CASES[0], CASES[5]])
def test_bytes_are_numbers_and_have_no_gradient(sizes):
    x, weight, gradient, stride = case(*sizes)
    x = jnp.asarray(np.random.default_rng(1).integers(0, 256, x.shape), jnp.uint8)
    wide = x.astype(jnp.float32)
    assert relative((by_products(x, weight, stride),), (by_xla(wide, weight, stride),)) < 1e-5
    nothing, of_weight = gradients_by_products(x, weight, gradient, stride)
    assert nothing is None
    assert relative((of_weight,), gradients_by_xla(wide, weight, gradient, stride)[1:]) < 1e-5
    got = jax.jit(jax.grad(lambda w: jnp.vdot(convolve(x, w, stride), gradient)))(weight)
    assert relative((got,), (of_weight,)) < 1e-5


def test_they_are_the_same_to_the_last_digits_in_float64():
    with precision("float64"):
        assert errors(*case(*CASES[1], dtype="float64")) < 1e-13


def test_the_law_detects_a_transposed_kernel():
    x, weight, gradient, stride = case(*CASES[1])
    assert relative((by_products(x, weight.swapaxes(0, 1), stride),), (by_xla(x, weight, stride),)) > 1e-2
    wrong = gradients_by_products(x, weight.swapaxes(0, 1), gradient, stride)
    assert relative(wrong[:1], gradients_by_xla(x, weight, gradient, stride)[:1]) > 1e-2


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_each_platform_has_its_own_way_where_a_program_is_exported_for_it(platform):
    x, weight, gradient, stride = case(*CASES[4])

    def program(x, weight):
        return jax.value_and_grad(lambda x, w: jnp.vdot(convolve(x, w, stride), gradient), argnums=(0, 1))(x, weight)

    text = jax.export.export(jax.jit(program), platforms=[platform])(x, weight).mlir_module()
    assert ("stablehlo.convolution" in text) == (platform != "cpu")


def test_the_layer_has_the_gradients_of_its_platform_under_jit_and_vmap():
    x, _, _, _ = case(*CASES[0])
    layer = Conv.create(jax.random.key(0), 4, 3, 8, 4)

    def total(weight, x):
        return jnp.sum(jnp.sin(convolve(x, weight, 4)))

    def plain(weight, x):
        return jnp.sum(jnp.sin(by_xla(x, weight, 4)))

    weights = jnp.stack([layer.weight, 2.0 * layer.weight])
    got, expected = (jax.jit(jax.vmap(jax.grad(f), (0, None)))(weights, x) for f in (total, plain))
    assert relative((got,), (expected,)) < 1e-5


def test_half_precision_adds_up_in_single_precision():
    x, weight, gradient, stride = case(*CASES[5], dtype="bfloat16")
    wide = case(*CASES[5])
    got = by_products(x, weight, stride), *gradients_by_products(x, weight, gradient, stride)
    assert {a.dtype for a in got} == {jnp.dtype("bfloat16")}
    expected = by_xla(*wide[:2], stride), *gradients_by_xla(*wide[:3], stride)
    assert relative([a.astype(jnp.float32) for a in got], expected) < 0.02
