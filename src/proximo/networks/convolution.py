"""Convolutions without padding. On the CPU they are products of matrices, because XLA's own gradients are slow there
(docs/decisions/0005-convolutions-on-the-cpu.md has the measurements)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree, Shaped

from proximo.networks.layers import HIDDEN_GAIN

# Images that are worked on together: what they and their gradients take stays in the cache.
CHUNK = 32
# Fewer than these go forward through XLA: 650 µs for 870 at 4, but 1,070 for 1,020 at 8, and 6,400 for 2,200 under vmap.
FEW = 8


class ConvReLU(eqx.Module):
    """A convolution without padding over (height, width, channels), and ReLU."""

    weight: Float[Array, "height width in_channels out_channels"]
    bias: Float[Array, " out_channels"]
    stride: int = eqx.field(static=True)

    @classmethod
    def create(cls, key: Key[Array, ""], in_channels: int, out_channels: int, size: int, stride: int) -> ConvReLU:
        """Orthogonal weights times √2, zero bias; ``size`` is a multiple of ``stride``."""
        shape = (size, size, in_channels, out_channels)
        return cls(jax.nn.initializers.orthogonal(HIDDEN_GAIN)(key, shape), jnp.zeros(out_channels), stride)

    def __call__(
        self, x: Shaped[Array, "batch height width channels"], scale: float = 1.0
    ) -> Float[Array, "batch rows columns out_channels"]:
        """The layer for ``scale * x``, which may be bytes: they become numbers where they are multiplied, and not before,
        because four times as much memory takes as long to write as the products take."""
        return convolve(x, self.weight * scale, self.bias, self.stride)


def _primal(
    x: Shaped[Array, "batch height width channels"],
    weight: Float[Array, "size size channels out"],
    bias: Float[Array, " out"],
    stride: int,
) -> Float[Array, "batch rows columns out"]:
    """``y[b, r, c] = max(0, bias + Σ x[b, stride r + i, stride c + j] weight[i, j])``, on each platform in the way that is fast
    there.

    The way is chosen where the program is lowered, so that one exported for another platform has that platform's. Only ``x``,
    ``weight`` and ``y`` are kept for the gradient, and these are somebody's inputs anyway. Bias and ReLU belong to it, because
    on the CPU each pass over all images takes about as long as a product.
    """
    on_cpu = by_products if x.shape[0] >= FEW else by_xla
    ways = {"cpu": on_cpu, "default": by_xla}
    return jax.lax.platform_dependent(x, weight, bias, **{name: partial(way, stride=stride) for name, way in ways.items()})


def _forward(x: Array, weight: Array, bias: Array, stride: int) -> tuple[Array, tuple[Array, Array, Array]]:
    y = _primal(x, weight, bias, stride)
    return y, (x, weight, y)


def _backward(stride: int, kept: tuple[Array, Array, Array], gradient: Array) -> tuple[Array | None, Array, Array]:
    ways = {"cpu": gradients_by_products, "default": gradients_by_xla}
    return jax.lax.platform_dependent(*kept, gradient, **{name: partial(way, stride=stride) for name, way in ways.items()})


convolve = jax.custom_vjp(_primal, nondiff_argnums=(3,))
convolve.defvjp(_forward, _backward)


def by_xla(x: Array, weight: Array, bias: Array, stride: int) -> Array:
    """XLA's convolution."""
    return jax.nn.relu(_convolution(x, weight, stride) + bias)


def _convolution(x: Array, weight: Array, stride: int) -> Array:
    strides = (stride, stride)
    return jax.lax.conv_general_dilated(
        x.astype(weight.dtype), weight, strides, "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def gradients_by_xla(x: Array, weight: Array, y: Array, gradient: Array, stride: int) -> tuple[Array | None, Array, Array]:
    """Gradients of ``x`` (None for bytes), ``weight`` and ``bias`` by ``by_xla``."""
    gradient = _before_relu(y, gradient)
    of_bias = gradient.sum((0, 1, 2))
    if _has_gradient(x):
        return *jax.vjp(partial(_convolution, stride=stride), x, weight)[1](gradient), of_bias
    return None, *jax.vjp(lambda weight: _convolution(x, weight, stride), weight)[1](gradient), of_bias


def _before_relu(y: Array, gradient: Array) -> Array:
    return jnp.where(y > 0, gradient, 0)


def _has_gradient(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def by_products(x: Array, weight: Array, bias: Array, stride: int) -> Array:
    """With the pixels of a ``stride × stride`` block as channels the stride is 1 and the kernel ``size / stride``. One product of
    all blocks with the matrices of all its positions; then, position by position, the shifted products are added up."""
    matrix, size = _weight_to_matrix(weight, stride)
    wide = jnp.promote_types(weight.dtype, jnp.float32)

    def chunk(x: Array) -> tuple[None, Array]:
        image = _to_blocks(_cropped(x, weight.shape[0], stride), stride).astype(weight.dtype)
        images, rows, columns, channels = image.shape
        products = jnp.matmul(image.reshape((-1, channels)), matrix, preferred_element_type=wide)
        products = products.reshape((images, rows, columns, size, size, -1))
        inner = (rows - size + 1, columns - size + 1)
        parts = [products[:, i : i + inner[0], j : j + inner[1], i, j] for i in range(size) for j in range(size)]
        return None, jax.nn.relu(sum(parts, bias)).astype(weight.dtype)

    return _in_chunks(chunk, x)[1]


def gradients_by_products(x: Array, weight: Array, y: Array, gradient: Array, stride: int) -> tuple[Array | None, Array, Array]:
    """Gradients of ``x`` (None for bytes), ``weight`` and ``bias``: the transposes of ``by_products``, each one product too."""
    back = _back_matrix(weight, stride) if _has_gradient(x) else None
    wide = jnp.promote_types(weight.dtype, jnp.float32)

    def chunk(x: Array, y: Array, gradient: Array) -> tuple[tuple[Array, Array], Array | None]:
        gradient = _before_relu(y, gradient)
        of_x = None if back is None else _gradient_of_input(x.shape, back, gradient, weight.shape, stride).astype(x.dtype)
        of_weight = _gradient_of_matrix(x, gradient, weight.shape, stride)
        return (of_weight, gradient.sum((0, 1, 2), dtype=wide)), of_x

    (of_matrix, of_bias), of_x = _in_chunks(chunk, x, y, gradient)
    return of_x, _matrix_to_weight(of_matrix, weight.shape, stride).astype(weight.dtype), of_bias.astype(weight.dtype)


def _gradient_of_matrix(x: Array, gradient: Array, shape: tuple[int, ...], stride: int) -> Array:
    """The gradient of a weight of ``shape``, as the matrix that it is in ``by_products``.

    One side is shifted to all positions: the one that takes less memory so. The other is transposed beforehand: a product
    takes up to twice as long for a matrix that lies across.
    """
    image = _to_blocks(_cropped(x, shape[0], stride), stride).astype(gradient.dtype)
    rows, columns, channels = image.shape[1:]
    inner, out, positions = gradient.shape[1:3], shape[-1], _positions(shape[0], stride)
    wide = jnp.promote_types(gradient.dtype, jnp.float32)
    if math.prod(inner) * channels < rows * columns * out:
        parts = [image[:, i : i + inner[0], j : j + inner[1]] for i, j in positions]
        patches = jnp.concatenate(parts, axis=-1).reshape((-1, len(positions) * channels))
        found = jnp.matmul(_turned(gradient.reshape((-1, out))), patches, preferred_element_type=wide)
        return found.reshape((out, len(positions), channels)).transpose(2, 1, 0).reshape((channels, -1))
    shifted = jnp.stack([_placed(gradient, position, (rows, columns)) for position in positions], axis=3)
    flat = shifted.reshape((-1, len(positions) * out))
    return jnp.matmul(_turned(image.reshape((-1, channels))), flat, preferred_element_type=wide)


def _turned(matrix: Array) -> Array:
    """The transposed matrix, which lies in memory as such."""
    return jax.lax.optimization_barrier(matrix.T)


def _back_matrix(weight: Array, stride: int) -> Array:
    """A row for each output channel, a column for each position and channel of the block."""
    matrix, size = _weight_to_matrix(weight, stride)
    out = weight.shape[-1]
    return matrix.reshape((-1, size * size, out)).transpose(2, 1, 0).reshape((out, -1))


def _gradient_of_input(x_shape: tuple[int, ...], back: Array, gradient: Array, shape: tuple[int, ...], stride: int) -> Array:
    """The gradient of an input of ``x_shape``, for a weight of ``shape``."""
    wide = jnp.promote_types(back.dtype, jnp.float32)
    positions = _positions(shape[0], stride)
    blocks = [(n - shape[0]) // stride + shape[0] // stride for n in x_shape[1:3]]
    products = jnp.matmul(gradient.reshape((-1, shape[-1])), back, preferred_element_type=wide)
    products = products.reshape((*gradient.shape[:3], len(positions), -1))
    parts = [_placed(products[:, :, :, k], position, blocks) for k, position in enumerate(positions)]
    image = _from_blocks(sum(parts[1:], parts[0]).astype(back.dtype), stride)
    outside = [(0, whole - part) for whole, part in zip(x_shape[1:3], image.shape[1:3], strict=True)]
    return jnp.pad(image, [(0, 0), *outside, (0, 0)])


def _positions(size: int, stride: int) -> list[tuple[int, int]]:
    """The places of a kernel of ``size`` in blocks, row by row."""
    return [(i, j) for i in range(size // stride) for j in range(size // stride)]


def _placed(part: Array, position: tuple[int, int], blocks: Sequence[int]) -> Array:
    """``part`` in the place among all blocks that the kernel's ``position`` reads, zeros around it."""
    edges = [(k, whole - inner - k) for k, whole, inner in zip(position, blocks, part.shape[1:3], strict=True)]
    return jnp.pad(part, [(0, 0), *edges, (0, 0)])


def _cropped(x: Array, size: int, stride: int) -> Array:
    """Without the pixels at the end that no kernel of ``size`` reaches: height and width are multiples of the stride."""
    height, width = ((n - size) // stride * stride + size for n in x.shape[1:3])
    return x[:, :height, :width]


def _to_blocks(x: Array, stride: int) -> Array:
    """``[B, H, W, C] -> [B, H / stride, W / stride, stride · stride · C]``."""
    batch, height, width, channels = x.shape
    x = x.reshape((batch, height // stride, stride, width // stride, stride, channels)).swapaxes(2, 3)
    return x.reshape((batch, height // stride, width // stride, -1))


def _from_blocks(x: Array, stride: int) -> Array:
    """The inverse of ``_to_blocks``."""
    batch, rows, columns, _ = x.shape
    x = x.reshape((batch, rows, columns, stride, stride, -1)).swapaxes(2, 3)
    return x.reshape((batch, rows * stride, columns * stride, -1))


def _weight_to_matrix(weight: Array, stride: int) -> tuple[Array, int]:
    """``[size, size, C, out] -> [stride · stride · C, n · n · out]`` with ``n = size / stride`` positions along each axis, and ``n``."""
    size, _, channels, out = weight.shape
    n = size // stride
    blocks = weight.reshape((n, stride, n, stride, channels, out)).transpose(1, 3, 4, 0, 2, 5)
    return blocks.reshape((stride * stride * channels, n * n * out)), n


def _matrix_to_weight(matrix: Array, shape: tuple[int, ...], stride: int) -> Array:
    """The inverse of ``_weight_to_matrix``."""
    size, _, channels, out = shape
    n = size // stride
    return matrix.reshape((stride, stride, channels, n, n, out)).transpose(3, 0, 4, 1, 2, 5).reshape(shape)


def _in_chunks(function: Callable[..., tuple[PyTree, PyTree]], *arrays: Array) -> tuple[PyTree, PyTree]:
    """``function(*arrays)``, which gives sums over rows and what has a row for each, by ``CHUNK`` rows at a time and those that
    are left."""
    whole = arrays[0].shape[0] // CHUNK
    if whole < 2:
        return function(*arrays)
    chunks = tuple(a[: whole * CHUNK].reshape((whole, CHUNK, *a.shape[1:])) for a in arrays)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function, *(c[0] for c in chunks))[0])

    def step(total: PyTree, chunk: tuple[Array, ...]) -> tuple[PyTree, PyTree]:
        part, rows = function(*chunk)
        return jax.tree.map(jnp.add, total, part), rows

    total, rows = jax.lax.scan(step, nothing, chunks)
    rows = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), rows)
    if arrays[0].shape[0] % CHUNK == 0:
        return total, rows
    part, left = function(*(a[whole * CHUNK :] for a in arrays))
    return jax.tree.map(jnp.add, total, part), jax.tree.map(lambda *x: jnp.concatenate(x), rows, left)
