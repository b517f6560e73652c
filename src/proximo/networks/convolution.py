"""Convolutions without padding. On the CPU they are products of matrices, because XLA's own gradients are slow there
(docs/decisions/0005-convolutions-on-the-cpu.md has the measurements)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

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

    def __call__(self, x: Float[Array, "batch height width channels"]) -> Float[Array, "batch rows columns out_channels"]:
        return convolve(x, self.weight, self.stride) + self.bias


def _primal(
    x: Float[Array, "batch height width channels"], weight: Float[Array, "size size channels out"], stride: int
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


def _backward(stride: int, kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    ways = {"cpu": gradients_by_products, "default": gradients_by_xla}
    return jax.lax.platform_dependent(*kept, gradient, **{name: partial(way, stride=stride) for name, way in ways.items()})


convolve = jax.custom_vjp(_primal, nondiff_argnums=(2,))
convolve.defvjp(_forward, _backward)


def by_xla(x: Array, weight: Array, stride: int) -> Array:
    """XLA's convolution."""
    strides = (stride, stride)
    return jax.lax.conv_general_dilated(x, weight, strides, "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def gradients_by_xla(x: Array, weight: Array, gradient: Array, stride: int) -> tuple[Array, Array]:
    """Gradients of ``x`` and ``weight`` by ``by_xla``."""
    return jax.vjp(partial(by_xla, stride=stride), x, weight)[1](gradient)


def by_products(x: Array, weight: Array, stride: int) -> Array:
    """With the pixels of a ``stride × stride`` block as channels the stride is 1 and the kernel ``size / stride``: for each of
    its positions a product of the image, shifted, with a matrix, all added up."""
    blocks = _weight_to_blocks(weight, stride)
    size, channels, out = blocks.shape[1:]
    wide = jnp.promote_types(x.dtype, jnp.float32)

    def chunk(x: Array) -> tuple[Array, tuple[()]]:
        rows, columns = (n // stride - size + 1 for n in _cropped(x, weight.shape[0], stride).shape[1:3])
        image = _to_blocks(_cropped(x, weight.shape[0], stride), stride)
        shifted = [image[:, i : i + rows, j : j + columns].reshape((-1, channels)) for i in range(size) for j in range(size)]
        products = [
            jnp.matmul(a, b, preferred_element_type=wide)
            for a, b in zip(shifted, blocks.reshape((-1, channels, out)), strict=True)
        ]
        return sum(products[1:], products[0]).reshape((-1, rows, columns, out)).astype(x.dtype), ()

    return _over_chunks(chunk, x)[0]


def gradients_by_products(x: Array, weight: Array, gradient: Array, stride: int) -> tuple[Array, Array]:
    """Gradients of ``x`` and ``weight``, position by position as in ``by_products``."""
    blocks = _weight_to_blocks(weight, stride)
    size, _, channels, out = blocks.shape
    wide = jnp.promote_types(x.dtype, jnp.float32)
    positions = [(i, j) for i in range(size) for j in range(size)]

    def chunk(x: Array, gradient: Array) -> tuple[Array, Array]:
        rows, columns = gradient.shape[1:3]
        image, flat = _to_blocks(_cropped(x, weight.shape[0], stride), stride), gradient.reshape((-1, out))
        of_image, of_weight = jnp.zeros(image.shape, wide), []
        for i, j in positions:
            here = (slice(None), slice(i, i + rows), slice(j, j + columns))
            of_weight.append(jnp.matmul(image[here].reshape((-1, channels)).T, flat, preferred_element_type=wide))
            back = jnp.matmul(flat, blocks[i, j].T, preferred_element_type=wide)
            of_image = of_image.at[here].add(back.reshape((-1, rows, columns, channels)))
        of_image = _from_blocks(of_image.astype(x.dtype), stride)
        outside = [(0, whole - part) for whole, part in zip(x.shape, of_image.shape, strict=True)]
        return jnp.pad(of_image, outside), jnp.stack(of_weight)

    of_x, of_weight = _over_chunks(chunk, x, gradient)
    of_weight = of_weight.reshape((size, size, stride, stride, -1, out)).swapaxes(1, 2).reshape(weight.shape)
    return of_x, of_weight.astype(weight.dtype)


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


def _weight_to_blocks(weight: Array, stride: int) -> Array:
    """``[size, size, C, out] -> [size / stride, size / stride, stride · stride · C, out]``."""
    size, _, channels, out = weight.shape
    n = size // stride
    return weight.reshape((n, stride, n, stride, channels, out)).swapaxes(1, 2).reshape((n, n, -1, out))


def _over_chunks(function: Callable[..., tuple[Array, PyTree]], *arrays: Array) -> tuple[Array, PyTree]:
    """``function(*arrays) -> (rows, sum)``, over ``CHUNK`` rows of the arrays at a time and those that are left."""
    whole = arrays[0].shape[0] // CHUNK
    if whole < 2:
        return function(*arrays)
    chunks = tuple(a[: whole * CHUNK].reshape((whole, CHUNK, *a.shape[1:])) for a in arrays)
    shapes = jax.eval_shape(function, *(c[0] for c in chunks))[1]

    def body(total: PyTree, chunk: tuple[Array, ...]) -> tuple[PyTree, Array]:
        rows, added = function(*chunk)
        return jax.tree.map(jnp.add, total, added), rows

    total, rows = jax.lax.scan(body, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes), chunks)
    rows = rows.reshape((-1, *rows.shape[2:]))
    if arrays[0].shape[0] % CHUNK:
        last, added = function(*(a[whole * CHUNK :] for a in arrays))
        rows, total = jnp.concatenate([rows, last]), jax.tree.map(jnp.add, total, added)
    return rows, total
