"""Convolutions without padding. On the CPU they are products of matrices, because XLA's own gradients are slow there
(docs/decisions/0005-convolutions-on-the-cpu.md has the measurements)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Shaped

from proximo.networks.layers import HIDDEN_GAIN

# Images that are worked on together: what they and their gradients take stays in the cache.
CHUNK = 32


class Conv(eqx.Module):
    """A convolution without padding over (height, width, channels)."""

    weight: Float[Array, "height width in_channels out_channels"]
    bias: Float[Array, " out_channels"]
    stride: int = eqx.field(static=True)

    @classmethod
    def create(cls, key: Key[Array, ""], in_channels: int, out_channels: int, size: int, stride: int) -> Conv:
        """Orthogonal weights times √2, zero bias; ``size`` is a multiple of ``stride``."""
        shape = (size, size, in_channels, out_channels)
        return cls(jax.nn.initializers.orthogonal(HIDDEN_GAIN)(key, shape), jnp.zeros(out_channels), stride)

    def __call__(
        self, x: Shaped[Array, "batch height width channels"], scale: float = 1.0
    ) -> Float[Array, "batch rows columns out_channels"]:
        """The convolution of ``scale * x``, which may be bytes: they become numbers where they are multiplied, and not before,
        because four times as much memory takes as long to write as the products take."""
        return convolve(x, self.weight * scale, self.stride) + self.bias


def _primal(
    x: Shaped[Array, "batch height width channels"], weight: Float[Array, "size size channels out"], stride: int
) -> Float[Array, "batch rows columns out"]:
    """``y[b, r, c] = Σ x[b, stride r + i, stride c + j] weight[i, j]``, on each platform in the way that is fast there.

    The way is chosen where the program is lowered, so that one exported for another platform has that platform's. Only ``x``
    and ``weight`` are kept for the gradient.
    """
    # A few images, as in acting, take XLA less time: 1.0 ms for 1.2 at 8, but 115 for 52 at 256.
    on_cpu = by_products if x.shape[0] >= CHUNK else by_xla
    return jax.lax.platform_dependent(x, weight, cpu=partial(on_cpu, stride=stride), default=partial(by_xla, stride=stride))


def _forward(x: Array, weight: Array, stride: int) -> tuple[Array, tuple[Array, Array]]:
    return _primal(x, weight, stride), (x, weight)


def _backward(stride: int, kept: tuple[Array, Array], gradient: Array) -> tuple[Array | None, Array]:
    ways = {"cpu": gradients_by_products, "default": gradients_by_xla}
    return jax.lax.platform_dependent(*kept, gradient, **{name: partial(way, stride=stride) for name, way in ways.items()})


convolve = jax.custom_vjp(_primal, nondiff_argnums=(2,))
convolve.defvjp(_forward, _backward)


def by_xla(x: Array, weight: Array, stride: int) -> Array:
    """XLA's convolution."""
    strides = (stride, stride)
    return jax.lax.conv_general_dilated(
        x.astype(weight.dtype), weight, strides, "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def gradients_by_xla(x: Array, weight: Array, gradient: Array, stride: int) -> tuple[Array | None, Array]:
    """Gradients of ``x`` (None for bytes) and ``weight`` by ``by_xla``."""
    if _has_gradient(x):
        return jax.vjp(partial(by_xla, stride=stride), x, weight)[1](gradient)
    return None, *jax.vjp(lambda weight: by_xla(x, weight, stride), weight)[1](gradient)


def _has_gradient(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def by_products(x: Array, weight: Array, stride: int) -> Array:
    """With the pixels of a ``stride × stride`` block as channels the stride is 1 and the kernel ``size / stride``. One product of
    all blocks with the matrices of all its positions; then, position by position, the shifted products are added up."""
    matrix, size = _weight_to_matrix(weight, stride)
    wide = jnp.promote_types(weight.dtype, jnp.float32)

    def chunk(x: Array) -> Array:
        image = _to_blocks(_cropped(x, weight.shape[0], stride), stride).astype(weight.dtype)
        images, rows, columns, channels = image.shape
        products = jnp.matmul(image.reshape((-1, channels)), matrix, preferred_element_type=wide)
        products = products.reshape((images, rows, columns, size, size, -1))
        inner = (rows - size + 1, columns - size + 1)
        parts = [products[:, i : i + inner[0], j : j + inner[1], i, j] for i in range(size) for j in range(size)]
        return sum(parts[1:], parts[0]).astype(weight.dtype)

    return _mapped(chunk, x)


def gradients_by_products(x: Array, weight: Array, gradient: Array, stride: int) -> tuple[Array | None, Array]:
    """Gradients of ``x`` (None for bytes) and ``weight``: the transposes of ``by_products``, each one product too."""
    of_x = _gradient_of_input(x.shape, weight, gradient, stride) if _has_gradient(x) else None
    wide = jnp.promote_types(weight.dtype, jnp.float32)
    positions = _positions(weight, stride)

    def chunk(x: Array, gradient: Array) -> Array:
        image = _to_blocks(_cropped(x, weight.shape[0], stride), stride).astype(weight.dtype)
        rows, columns, channels = image.shape[1:]
        # The shifts on the side of the gradient, which has fewer channels than the blocks.
        shifted = jnp.stack([_placed(gradient, position, (rows, columns)) for position in positions], axis=3)
        flat = image.reshape((-1, channels)), shifted.reshape((-1, len(positions) * weight.shape[-1]))
        return jax.lax.dot_general(*flat, (((0,), (0,)), ((), ())), preferred_element_type=wide)

    return of_x, _matrix_to_weight(_summed(chunk, x, gradient), weight.shape, stride).astype(weight.dtype)


def _gradient_of_input(shape: tuple[int, ...], weight: Array, gradient: Array, stride: int) -> Array:
    """The gradient of an input of ``shape``."""
    matrix, size = _weight_to_matrix(weight, stride)
    out, wide = weight.shape[-1], jnp.promote_types(weight.dtype, jnp.float32)
    positions = _positions(weight, stride)
    blocks = [(n - weight.shape[0]) // stride + size for n in shape[1:3]]
    # A row for each output channel, a column for each position and channel of the block.
    back = matrix.reshape((-1, size * size, out)).transpose(2, 1, 0).reshape((out, -1))

    def chunk(gradient: Array) -> Array:
        products = jnp.matmul(gradient.reshape((-1, out)), back, preferred_element_type=wide)
        products = products.reshape((*gradient.shape[:3], len(positions), -1))
        parts = [_placed(products[:, :, :, k], position, blocks) for k, position in enumerate(positions)]
        image = _from_blocks(sum(parts[1:], parts[0]).astype(weight.dtype), stride)
        outside = [(0, whole - part) for whole, part in zip(shape[1:3], image.shape[1:3], strict=True)]
        return jnp.pad(image, [(0, 0), *outside, (0, 0)])

    return _mapped(chunk, gradient)


def _positions(weight: Array, stride: int) -> list[tuple[int, int]]:
    """The places of a kernel in blocks, row by row."""
    size = weight.shape[0] // stride
    return [(i, j) for i in range(size) for j in range(size)]


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


def _mapped(function: Callable[[Array], Array], x: Array) -> Array:
    """``function(x)``, which maps rows to rows, over ``CHUNK`` rows at a time and those that are left."""
    whole = x.shape[0] // CHUNK
    if whole < 2:
        return function(x)
    rows = jax.lax.map(function, x[: whole * CHUNK].reshape((whole, CHUNK, *x.shape[1:])))
    rows = rows.reshape((-1, *rows.shape[2:]))
    return jnp.concatenate([rows, function(x[whole * CHUNK :])]) if x.shape[0] % CHUNK else rows


def _summed(function: Callable[..., Array], *arrays: Array) -> Array:
    """``function(*arrays)``, which adds up over rows, in the same parts."""
    whole = arrays[0].shape[0] // CHUNK
    if whole < 2:
        return function(*arrays)
    chunks = tuple(a[: whole * CHUNK].reshape((whole, CHUNK, *a.shape[1:])) for a in arrays)
    shape = jax.eval_shape(function, *(c[0] for c in chunks))
    total, _ = jax.lax.scan(lambda total, chunk: (total + function(*chunk), None), jnp.zeros(shape.shape, shape.dtype), chunks)
    return total + function(*(a[whole * CHUNK :] for a in arrays)) if arrays[0].shape[0] % CHUNK else total
