"""Convolutions, each with a bias, and a ReLU where one follows: matrix products on the CPU
(docs/decisions/0005-convolutions-on-the-cpu.md), XLA's convolutions elsewhere.

With the pixels of each ``stride × stride`` block as channels, the stride is 1 and the kernel has ``n = size /
stride`` positions along each axis. One product multiplies all blocks with the matrices of all positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Shaped

from proximo.networks.cpu_kernels.products import as_bits, concatenated, from_bits, product, row_major, transposed_product

CHUNK = 32
"""Images in one matrix product. This many images, with their gradients, fit into the cache."""
MIN_BATCH = 8
"""Smaller batches use XLA forwards on the CPU, where it is faster."""


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def convolve(
    x: Shaped[Array, "batch height width channels"],
    weight: Float[Array, "size size channels out"],
    bias: Float[Array, " out"],
    stride: int,
    relu: bool = True,
) -> Float[Array, "batch rows columns out"]:
    """``y[b, r, c] = max(0, bias + Σ x[b, stride r + i, stride c + j] weight[i, j])``; without ``relu``, no
    maximum is taken.

    ``size`` is a multiple of ``stride``. The implementation is chosen when the program is lowered. Only
    ``x``, ``weight`` and ``y`` are kept for the gradient: other layers keep them anyway. Bias and ReLU are
    part of this function, because on the CPU each pass over all images takes about as long as a product.
    """
    return _by_platform(_on_cpu, by_xla, stride, relu, x, weight, bias)


def _on_cpu(x: Array, weight: Array, bias: Array, stride: int, relu: bool) -> Array:
    # Compared in the branch of the CPU only: an export has a symbolic number of images.
    return (by_products if x.shape[0] >= MIN_BATCH else by_xla)(x, weight, bias, stride, relu)


def _by_platform(cpu: Callable[..., Any], default: Callable[..., Any], stride: int, relu: bool, *arrays: Array) -> Any:
    on_cpu, elsewhere = (partial(function, stride=stride, relu=relu) for function in (cpu, default))
    return jax.lax.platform_dependent(*arrays, cpu=on_cpu, default=elsewhere)


def _forward(x: Array, weight: Array, bias: Array, stride: int, relu: bool) -> tuple[Array, tuple[Array, Array, Array]]:
    y: Any = convolve(x, weight, bias, stride, relu)
    return y, (x, weight, y)


def _backward(stride: int, relu: bool, kept: tuple[Array, Array, Array], gradient: Array) -> tuple[Array | None, Array, Array]:
    return _by_platform(gradients_by_products, gradients_by_xla, stride, relu, *kept, gradient)


convolve.defvjp(_forward, _backward)


def by_xla(x: Array, weight: Array, bias: Array, stride: int, relu: bool = True) -> Array:
    """``relu(convolution + bias)`` by XLA's convolution."""
    y = _convolution(x, weight, stride) + bias
    return jax.nn.relu(y) if relu else y


def _convolution(x: Array, weight: Array, stride: int) -> Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x.astype(weight.dtype), weight, (stride, stride), "VALID", dimension_numbers=numbers)


def gradients_by_xla(
    x: Array, weight: Array, y: Array, gradient: Array, stride: int, relu: bool = True
) -> tuple[Array | None, Array, Array]:
    """Gradients of ``by_xla`` with respect to ``x`` (None for bytes), ``weight`` and ``bias``, given output and output gradient."""
    gradient = jnp.where(y > 0, gradient, 0) if relu else gradient
    d_bias = gradient.sum((0, 1, 2))
    if eqx.is_inexact_array(x):
        return *jax.vjp(partial(_convolution, stride=stride), x, weight)[1](gradient), d_bias
    return None, *jax.vjp(lambda weight: _convolution(x, weight, stride), weight)[1](gradient), d_bias


def by_products(x: Array, weight: Array, bias: Array, stride: int, relu: bool = True) -> Array:
    """``relu(convolution + bias)`` by one matrix product, whose parts are shifted and added up."""
    matrix, positions, size = _weight_to_matrix(weight, stride), _positions(weight.shape[0], stride), weight.shape[0] // stride

    def chunk(x: Array) -> tuple[None, Array]:
        image = _to_blocks(x, weight.shape[0], stride).astype(weight.dtype)
        images, rows, columns, channels = image.shape
        products = product(image.reshape((-1, channels)), matrix)
        products = products.reshape((images, rows, columns, size, size, -1))
        inner = (rows - size + 1, columns - size + 1)
        parts = [products[:, i : i + inner[0], j : j + inner[1], i, j] for i, j in positions]
        y = sum(parts, bias)
        return None, (jax.nn.relu(y) if relu else y).astype(weight.dtype)

    return _in_chunks(chunk, x)[1]


def gradients_by_products(
    x: Array, weight: Array, y: Array, gradient: Array, stride: int, relu: bool = True
) -> tuple[Array | None, Array, Array]:
    """``gradients_by_xla``, each by one matrix product."""
    matrix, out = _weight_to_matrix(weight, stride), weight.shape[-1]
    back = matrix.reshape((len(matrix), -1, out)).transpose(2, 1, 0).reshape((out, -1)) if eqx.is_inexact_array(x) else None
    wide = jnp.promote_types(weight.dtype, jnp.float32)

    def chunk(x: Array, y: Array, gradient: Array) -> tuple[tuple[Array, Array], Array | None]:
        gradient = gradient.astype(wide)
        gradient = jnp.where(y > 0, gradient, 0) if relu else gradient
        d_x = None if back is None else _gradient_of_input(x.shape, back, gradient, weight.shape, stride).astype(x.dtype)
        d_weight = _gradient_of_matrix(x, gradient, weight.shape, stride, weight.dtype)
        return (d_weight, gradient.sum((0, 1, 2))), d_x

    (d_matrix, d_bias), d_x = _in_chunks(chunk, x, y, gradient)
    (d_weight,) = jax.linear_transpose(lambda w: _weight_to_matrix(w, stride), jnp.zeros_like(weight, d_matrix.dtype))(d_matrix)
    return d_x, d_weight.astype(weight.dtype), d_bias.astype(weight.dtype)


def _gradient_of_matrix(x: Array, gradient: Array, shape: tuple[int, ...], stride: int, dtype: Any) -> Array:
    """The gradient of a weight of ``shape``, as a matrix. The factor of the product that needs less memory is shifted to all positions."""
    # Of bytes, the blocks are written before and after they are converted: fused with the conversion, the transposition is slower.
    image = row_major(row_major(_to_blocks(x, shape[0], stride)).astype(dtype))
    rows, columns, channels = image.shape[1:]
    inner, out, positions = gradient.shape[1:3], shape[-1], _positions(shape[0], stride)
    if math.prod(inner) * channels < rows * columns * out:
        parts = [image[:, i : i + inner[0], j : j + inner[1]] for i, j in positions]
        patches = concatenated(parts).reshape((-1, len(positions) * channels))
        transposed = transposed_product(gradient.astype(dtype).reshape((-1, out)), patches)
        return transposed.reshape((out, len(positions), channels)).transpose(2, 1, 0).reshape((channels, -1))
    shifted = jnp.stack([_placed(gradient, position, (rows, columns)) for position in positions], axis=3)
    flat = shifted.astype(dtype).reshape((-1, len(positions) * out))
    return transposed_product(image.reshape((-1, channels)), flat)


def _gradient_of_input(x_shape: tuple[int, ...], back: Array, gradient: Array, shape: tuple[int, ...], stride: int) -> Array:
    """The gradient of an input. ``back`` is the weight with a row for each output channel, a column for each
    position and channel of a block."""
    positions = _positions(shape[0], stride)
    blocks = [(n - shape[0]) // stride + shape[0] // stride for n in x_shape[1:3]]
    products = product(gradient.astype(back.dtype).reshape((-1, shape[-1])), back)
    products = products.reshape((*gradient.shape[:3], len(positions), -1))
    parts = [_placed(products[:, :, :, k], position, blocks) for k, position in enumerate(positions)]
    image = _from_blocks(sum(parts[1:], parts[0]), stride)
    return jnp.pad(image, [(0, whole - part) for whole, part in zip(x_shape, image.shape, strict=True)])


def _positions(size: int, stride: int) -> list[tuple[int, int]]:
    """Positions of the blocks in a kernel of ``size``, row by row."""
    return [(i, j) for i in range(size // stride) for j in range(size // stride)]


def _placed(part: Array, position: tuple[int, int], blocks: Sequence[int]) -> Array:
    """``part`` at the blocks that the kernel's ``position`` reads, padded with zeros to all blocks."""
    edges = [(k, whole - inner - k) for k, whole, inner in zip(position, blocks, part.shape[1:3], strict=True)]
    return jnp.pad(part, [(0, 0), *edges, (0, 0)])


def _to_blocks(x: Array, size: int, stride: int) -> Array:
    """``[B, H, W, C] -> [B, H / stride, W / stride, stride · stride · C]``, without the last pixels, which no kernel of ``size`` reaches."""
    batch, *_, channels = x.shape
    height, width = ((n - size) // stride * stride + size for n in x.shape[1:3])
    x = x[:, :height, :width].reshape((batch, height // stride, stride, width // stride, stride * channels))
    return concatenated([x[:, :, i] for i in range(stride)])


def _from_blocks(x: Array, stride: int) -> Array:
    """The inverse of ``_to_blocks``, for an image from which it crops nothing."""
    batch, rows, columns, _ = x.shape
    x = x.reshape((batch, rows, columns, stride, stride, -1)).swapaxes(2, 3)
    return x.reshape((batch, rows * stride, columns * stride, -1))


def _weight_to_matrix(weight: Array, stride: int) -> Array:
    """``[size, size, C, out] -> [stride · stride · C, n · n · out]`` with ``n = size / stride`` positions along each axis."""
    size, _, channels, out = weight.shape
    n = size // stride
    blocks = weight.reshape((n, stride, n, stride, channels, out)).transpose(1, 3, 4, 0, 2, 5)
    return blocks.reshape((stride * stride * channels, n * n * out))


def _in_chunks(function: Callable[..., tuple[PyTree, PyTree]], *arrays: Array) -> tuple[PyTree, PyTree]:
    """``function(*arrays)`` on ``CHUNK`` images at a time. It returns sums over images, and arrays with an entry for each image."""
    whole = arrays[0].shape[0] // CHUNK
    if whole < 2:
        return function(*arrays)
    chunks = tuple(as_bits(a)[: whole * CHUNK].reshape((whole, CHUNK, *a.shape[1:])) for a in arrays)
    sums, image = jax.eval_shape(function, *(jax.ShapeDtypeStruct((CHUNK, *a.shape[1:]), a.dtype) for a in arrays))
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), sums)

    def step(total: PyTree, chunk: tuple[Array, ...]) -> tuple[PyTree, PyTree]:
        part, images = function(*(from_bits(c, a.dtype) for c, a in zip(chunk, arrays, strict=True)))
        return jax.tree.map(jnp.add, total, part), jax.tree.map(as_bits, images)

    total, images = jax.lax.scan(step, zero, chunks)
    images = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), images)
    if arrays[0].shape[0] % CHUNK:
        part, rest = function(*(a[whole * CHUNK :] for a in arrays))
        total = jax.tree.map(jnp.add, total, part)
        images = jax.tree.map(lambda x, y: jnp.concatenate([x, as_bits(y)]), images, rest)
    return total, jax.tree.map(lambda x, like: from_bits(x, like.dtype), images, image)
