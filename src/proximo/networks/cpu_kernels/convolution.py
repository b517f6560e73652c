"""Convolutions with bias and ReLU: matrix products on the CPU (decision 0005), XLA's convolutions elsewhere.

With the pixels of each ``stride × stride`` block as channels, the stride is 1 and the kernel has ``n = size /
stride`` positions along each axis. One product multiplies all blocks with the matrices of all positions.
"""

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
Kernel = Float[Array, "size size channels out"]
MIN_BATCH = 8
"""Smaller batches use XLA forwards on the CPU, where it is faster."""


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def convolve(
    x: Shaped[Array, "batch height width channels"], weight: Kernel, bias: Float[Array, " out"], stride: int, relu: bool = True
) -> Float[Array, "batch rows columns out"]:
    """``y[b, r, c] = max(0, bias + Σ x[b, stride r + i, stride c + j] weight[i, j])``; no maximum without
    ``relu``.

    ``size`` is a multiple of ``stride``. Only ``x``, ``weight`` and ``y`` are kept for the gradient: other
    layers keep them anyway. On the CPU, each pass over all images for a bias or ReLU takes about as long as a
    product.
    """
    return _by_platform(by_products, by_xla, stride, relu, x, weight, bias)


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
    y = _convolution(x.astype(weight.dtype), weight, stride) + bias
    return jax.nn.relu(y) if relu else y


def _convolution(x: Array, weight: Array, stride: int) -> Array:
    return jax.lax.conv_general_dilated(x, weight, (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def gradients_by_xla(
    x: Array, weight: Array, y: Array, gradient: Array, stride: int, relu: bool = True
) -> tuple[Array | None, Array, Array]:
    """Gradients of ``by_xla`` with respect to ``x`` (None for bytes), ``weight`` and ``bias``."""
    gradient = jnp.where(y > 0, gradient, 0) if relu else gradient
    d_x, d_weight = jax.vjp(partial(_convolution, stride=stride), x.astype(weight.dtype), weight)[1](gradient)
    return d_x.astype(x.dtype) if eqx.is_inexact_array(x) else None, d_weight, gradient.sum((0, 1, 2))


def by_products(x: Array, weight: Array, bias: Array, stride: int, relu: bool = True) -> Array:
    """``relu(convolution + bias)`` by one matrix product, whose parts are shifted and added up; few images by XLA."""
    if x.shape[0] < MIN_BATCH:
        return by_xla(x, weight, bias, stride, relu)
    matrix, positions, size = _weight_to_matrix(weight, stride), _positions(weight, stride), len(weight) // stride

    def chunk(x):
        image = _to_blocks(x, weight, stride).astype(weight.dtype)
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
    # A row for each output channel, a column for each position and channel of a block.
    back = matrix.reshape((len(matrix), -1, out)).transpose(2, 1, 0).reshape((out, -1)) if eqx.is_inexact_array(x) else None
    wide = jnp.promote_types(weight.dtype, jnp.float32)

    def chunk(x, y, gradient):
        gradient = gradient.astype(wide)
        gradient = jnp.where(y > 0, gradient, 0) if relu else gradient
        d_x = None if back is None else _gradient_of_input(x.shape, back, gradient, weight, stride).astype(x.dtype)
        return (_gradient_of_matrix(x, gradient, weight, stride), gradient.sum((0, 1, 2))), d_x

    (d_matrix, d_bias), d_x = _in_chunks(chunk, x, y, gradient)
    (d_weight,) = jax.linear_transpose(lambda w: _weight_to_matrix(w, stride), jnp.zeros_like(weight, d_matrix.dtype))(d_matrix)
    return d_x, d_weight.astype(weight.dtype), d_bias.astype(weight.dtype)


def _gradient_of_matrix(x: Array, gradient: Array, weight: Array, stride: int) -> Array:
    """The gradient of ``weight``, as a matrix. The smaller factor of the product is shifted to all positions."""
    # Of bytes, the blocks are written before and after they are converted: fused with the conversion, the transposition is slower.
    image = row_major(row_major(_to_blocks(x, weight, stride)).astype(weight.dtype))
    rows, columns, channels = image.shape[1:]
    inner, out, positions = gradient.shape[1:3], weight.shape[-1], _positions(weight, stride)
    if math.prod(inner) * channels < rows * columns * out:
        parts = [image[:, i : i + inner[0], j : j + inner[1]] for i, j in positions]
        patches = concatenated(parts).reshape((-1, len(positions) * channels))
        transposed = transposed_product(gradient.astype(weight.dtype).reshape((-1, out)), patches)
        return transposed.reshape((out, len(positions), channels)).transpose(2, 1, 0).reshape((channels, -1))
    shifted = jnp.stack([_placed(gradient, position, (rows, columns)) for position in positions], axis=3)
    flat = shifted.astype(weight.dtype).reshape((-1, len(positions) * out))
    return transposed_product(image.reshape((-1, channels)), flat)


def _gradient_of_input(x_shape: tuple[int, ...], back: Array, gradient: Array, weight: Array, stride: int) -> Array:
    positions, size = _positions(weight, stride), len(weight)
    blocks = [(n - size) // stride + size // stride for n in x_shape[1:3]]
    products = product(gradient.astype(back.dtype).reshape((-1, weight.shape[-1])), back)
    products = products.reshape((*gradient.shape[:3], len(positions), -1))
    parts = [_placed(products[:, :, :, k], position, blocks) for k, position in enumerate(positions)]
    x = sum(parts[1:], parts[0])  # of blocks, which become pixels again
    x = x.reshape((*x.shape[:3], stride, stride, -1)).swapaxes(2, 3)
    x = x.reshape((len(x), *(n * stride for n in blocks), -1))
    return jnp.pad(x, [(0, whole - part) for whole, part in zip(x_shape, x.shape, strict=True)])


def _positions(weight: Array, stride: int) -> list[tuple[int, int]]:
    """Positions of the blocks in a kernel, row by row."""
    n = len(weight) // stride
    return [(i, j) for i in range(n) for j in range(n)]


def _placed(part: Array, position: tuple[int, int], blocks: Sequence[int]) -> Array:
    """``part`` at the blocks that the kernel's ``position`` reads, padded with zeros to all blocks."""
    edges = [(k, whole - inner - k) for k, whole, inner in zip(position, blocks, part.shape[1:3], strict=True)]
    return jnp.pad(part, [(0, 0), *edges, (0, 0)])


def _to_blocks(x: Array, weight: Array, stride: int) -> Array:
    """``[B, H, W, C] -> [B, H / stride, W / stride, stride · stride · C]``, without pixels that no kernel reaches."""
    batch, *_, channels = x.shape
    height, width = ((n - len(weight)) // stride * stride + len(weight) for n in x.shape[1:3])
    x = x[:, :height, :width].reshape((batch, height // stride, stride, width // stride, stride * channels))
    return concatenated([x[:, :, i] for i in range(stride)])


def _weight_to_matrix(weight: Array, stride: int) -> Array:
    """``[size, size, C, out] -> [stride · stride · C, n · n · out]``."""
    size, _, channels, out = weight.shape
    n = size // stride
    blocks = weight.reshape((n, stride, n, stride, channels, out)).transpose(1, 3, 4, 0, 2, 5)
    return blocks.reshape((stride * stride * channels, n * n * out))


def _in_chunks(function: Callable[..., tuple[PyTree, PyTree]], *arrays: Array) -> tuple[PyTree, PyTree]:
    """``function(*arrays)``, which returns sums over images and arrays of images, on ``CHUNK`` images at a time."""
    whole = arrays[0].shape[0] // CHUNK
    if whole < 2:
        return function(*arrays)
    chunks = tuple(as_bits(a)[: whole * CHUNK].reshape((whole, CHUNK, *a.shape[1:])) for a in arrays)
    sums, image = jax.eval_shape(function, *(jax.ShapeDtypeStruct((CHUNK, *a.shape[1:]), a.dtype) for a in arrays))
    zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), sums)

    def step(total, chunk):
        part, images = function(*(from_bits(c, a.dtype) for c, a in zip(chunk, arrays, strict=True)))
        return jax.tree.map(jnp.add, total, part), jax.tree.map(as_bits, images)

    total, images = jax.lax.scan(step, zero, chunks)
    images = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), images)
    if arrays[0].shape[0] % CHUNK:
        part, rest = function(*(a[whole * CHUNK :] for a in arrays))
        total = jax.tree.map(jnp.add, total, part)
        images = jax.tree.map(lambda x, y: jnp.concatenate([x, as_bits(y)]), images, rest)
    return total, jax.tree.map(lambda x, like: from_bits(x, like.dtype), images, image)
