"""From an observation to a vector, one encoder for each kind of observation."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer, Key, Shaped, UInt8

from proximo.config import NetworkConfig
from proximo.errors import EnvError
from proximo.networks.convolution import ConvReLU
from proximo.networks.layers import MLP, Linear
from proximo.spaces import (
    PREVIOUS_ACTION,
    PREVIOUS_REWARD,
    Box,
    Dict,
    Discrete,
    LeafSpace,
    MultiBinary,
    MultiDiscrete,
    Space,
    Tuple,
    tree,
)
from proximo.types import Observation

SMALLEST_IMAGE = 36


class VectorEncoder(eqx.Module):
    """Flattens the observation and applies an MLP; numbers that are not floating-point ones become ``scale · x + shift``."""

    mlp: MLP
    observation_ndim: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    shift: float = eqx.field(static=True)

    def __call__(self, x: Shaped[Array, "..."]) -> Float[Array, "*batch features"]:
        batch = x.shape[: x.ndim - self.observation_ndim]
        x = x.reshape((*batch, -1))
        return self.mlp(x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(self.mlp.dtype) * self.scale + self.shift)


class OneHotEncoder(eqx.Module):
    """Integers, component ``i`` one of ``nvec_i`` from ``start_i`` on, as one-hot vectors one after the other, then an MLP."""

    mlp: MLP
    nvec: tuple[int, ...] = eqx.field(static=True)
    start: tuple[int, ...] = eqx.field(static=True)
    observation_ndim: int = eqx.field(static=True)

    def __call__(self, x: Integer[Array, "..."]) -> Float[Array, "*batch features"]:
        x = x.reshape((*x.shape[: x.ndim - self.observation_ndim], -1))
        # Each entry of the result asks its own component for its own number.
        component = np.repeat(np.arange(len(self.nvec)), self.nvec)
        number = np.concatenate([start + np.arange(n) for n, start in zip(self.nvec, self.start, strict=True)])
        return self.mlp((x[..., component] == number).astype(self.mlp.dtype))


class NatureCNN(eqx.Module):
    """Three convolutions (8×8 stride 4, 4×4 stride 2, 3×3 stride 1; 32, 64, 64 channels) and 512 units, all with ReLU.

    Reads bytes as 0 … 1. Source: Mnih et al. 2015, "Human-level control", Methods.
    """

    convolutions: tuple[ConvReLU, ...]
    dense: Linear
    axes: tuple[int, ...] = eqx.field(static=True)
    """The axes of an image in the order height, width, then those that become channels."""

    @classmethod
    def create(cls, key: Key[Array, ""], shape: tuple[int, ...]) -> NatureCNN:
        """For images of ``shape``, in one of the orders of ``image_axes``; raises ``EnvError`` when they are too small."""
        axes = image_axes(shape)
        height, width = shape[axes[0]], shape[axes[1]]
        if min(height, width) < SMALLEST_IMAGE:
            raise EnvError(
                f"Images of {height}×{width} are too small for nature_cnn: expected at least "
                f"{SMALLEST_IMAGE}×{SMALLEST_IMAGE}; set encoder = mlp."
            )
        keys = jax.random.split(key, 4)
        channels = int(np.prod([shape[axis] for axis in axes[2:]]))
        plan = ((channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1))
        convolutions = tuple(ConvReLU.create(k, *layer) for k, layer in zip(keys, plan, strict=False))
        for _, _, size, stride in plan:
            height, width = (height - size) // stride + 1, (width - size) // stride + 1
        return cls(convolutions, Linear.create(keys[3], height * width * 64, 512), axes)

    def __call__(self, x: UInt8[Array, "..."]) -> Float[Array, "*batch 512"]:
        batch = x.shape[: x.ndim - len(self.axes)]
        x = x.reshape((-1, *x.shape[len(batch) :])).transpose((0, *(1 + axis for axis in self.axes)))
        x = x.reshape((*x.shape[:3], -1))
        first, *others = self.convolutions
        x = first(x, scale=1.0 / 255.0)
        for convolution in others:
            x = convolution(x)
        return jax.nn.relu(self.dense(x.reshape((x.shape[0], -1)))).reshape((*batch, -1))


def image_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Height, width and channels among the axes of an image: (H, W); (H, W, C) or (C, H, W); stacks (S, H, W, C) or
    (S, C, H, W). The channels are the smaller of the two candidates; a stack's axis becomes channels too."""
    if len(shape) == 2:
        return (0, 1)
    stack = tuple(range(len(shape) - 3))
    first, last = len(shape) - 3, len(shape) - 1
    return (first + 1, last, *stack, first) if shape[first] < shape[last] else (first, first + 1, *stack, last)


class PartsEncoder(eqx.Module):
    """An encoder for each part of a dict or tuple, their features one after the other. Entries without an encoder, as the
    action mask, are not read."""

    parts: dict[str, Encoder] | tuple[Encoder, ...]

    def __call__(self, x: Observation) -> Float[Array, "*batch features"]:
        pairs = self.parts.items() if isinstance(self.parts, dict) else enumerate(self.parts)
        return jnp.concatenate([encoder(x[where]) for where, encoder in pairs], axis=-1)


Encoder = VectorEncoder | OneHotEncoder | NatureCNN | PartsEncoder


def make_encoder(key: Key[Array, ""], space: Space, config: NetworkConfig) -> tuple[Encoder, int]:
    """The encoder for observations of ``space``, and its number of features. Raises ``EnvError`` when none fits."""
    if config.encoder == "nature_cnn" and not any(jax.tree.leaves(tree(_is_image, space))):
        raise EnvError(f"encoder = nature_cnn reads uint8 images (as height, width, channels), not {space}: set encoder = mlp.")
    return _make(key, space, config)


def _make(key: Key[Array, ""], space: Space, config: NetworkConfig) -> tuple[Encoder, int]:
    if isinstance(space, Dict | Tuple):
        spaces = tuple(part for _, part in space.spaces) if isinstance(space, Dict) else space.spaces
        # A single part behaves as if it stood alone: the same key.
        keys = jax.random.split(key, len(spaces)) if len(spaces) > 1 else [key]
        bare = dataclasses.replace(config, hidden_sizes=())
        names = [name for name, _ in space.spaces] if isinstance(space, Dict) else [""] * len(spaces)
        # What a driver adds goes to the memory as it is.
        configs = [bare if name in (PREVIOUS_ACTION, PREVIOUS_REWARD) else config for name in names]
        made = [_make(k, part, c) for k, part, c in zip(keys, spaces, configs, strict=True)]
        encoders, features = zip(*made, strict=True)
        named = (
            {name: encoder for (name, _), encoder in zip(space.spaces, encoders, strict=True)}
            if isinstance(space, Dict)
            else None
        )
        return PartsEncoder(named or encoders), sum(features)
    if isinstance(space, Box) and _is_image(space) and _by_cnn(space, config):
        return NatureCNN.create(key, space.shape), 512
    if isinstance(space, Discrete | MultiDiscrete):
        nvec, start = ((space.n,), (space.start,)) if isinstance(space, Discrete) else (space.nvec, space.start)
        mlp = MLP.create(key, sum(nvec), config.hidden_sizes, config.activation)
        return OneHotEncoder(mlp, nvec, start, len(space.shape)), (config.hidden_sizes or (sum(nvec),))[-1]
    mlp = MLP.create(key, space.size, config.hidden_sizes, config.activation)
    scale = 1.0 / 255.0 if isinstance(space, Box) and space.dtype == "uint8" else 1.0
    # Bits become -1 and 1: with 0 and 1 all inputs lean to one side, which takes a policy of few updates longer to learn.
    scale, shift = (2.0, -1.0) if isinstance(space, MultiBinary) else (scale, 0.0)
    return VectorEncoder(mlp, len(space.shape), scale, shift), (config.hidden_sizes or (space.size,))[-1]


def _is_image(space: LeafSpace) -> bool:
    return isinstance(space, Box) and space.is_image


def _by_cnn(space: Box, config: NetworkConfig) -> bool:
    """Bytes with three axes are meant as an image, whatever their size; with two or four they may be a board or a table, which
    only its size tells."""
    large = min(space.shape[axis] for axis in image_axes(space.shape)[:2]) >= SMALLEST_IMAGE
    return config.encoder == "nature_cnn" or (config.encoder == "auto" and (len(space.shape) == 3 or large))
