"""Encoders: from an observation to a vector of features. Each kind of observation has its own."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

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
    MultiBinary,
    MultiDiscrete,
    Space,
    Tuple,
    components,
    flatdim,
    tree,
)
from proximo.types import Observation

MIN_IMAGE_SIZE = 36
"""Smallest height and width that the three convolutions of the nature CNN reduce to at least one pixel."""


class VectorEncoder(eqx.Module):
    """Flattens the observation and applies an MLP. Integers and bits become ``scale · x + shift`` first."""

    mlp: MLP
    observation_ndim: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    shift: float = eqx.field(static=True)

    def __call__(self, x: Shaped[Array, "..."]) -> Float[Array, "*batch features"]:
        batch = x.shape[: x.ndim - self.observation_ndim]
        x = x.reshape((*batch, -1))
        return self.mlp(x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(self.mlp.dtype) * self.scale + self.shift)


class OneHotEncoder(eqx.Module):
    """Concatenates one-hot vectors of integers and applies an MLP. Component ``i`` lies in ``start_i … start_i + nvec_i - 1``."""

    mlp: MLP
    nvec: tuple[int, ...] = eqx.field(static=True)
    start: tuple[int, ...] = eqx.field(static=True)
    observation_ndim: int = eqx.field(static=True)

    def __call__(self, x: Integer[Array, "..."]) -> Float[Array, "*batch features"]:
        x = x.reshape((*x.shape[: x.ndim - self.observation_ndim], -1))
        # Entry k of the result is 1 where component[k] of the observation equals number[k].
        component = np.repeat(np.arange(len(self.nvec)), self.nvec)
        number = np.concatenate([start + np.arange(n) for n, start in zip(self.nvec, self.start, strict=True)])
        return self.mlp((x[..., component] == number).astype(self.mlp.dtype))


class NatureCNN(eqx.Module):
    """The nature CNN: convolutions 8×8 stride 4, 4×4 stride 2, 3×3 stride 1 with 32, 64, 64 channels, then 512 units, all with ReLU.

    It scales bytes to 0 … 1. Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", Methods, "Model
    architecture".
    """

    convolutions: tuple[ConvReLU, ...]
    dense: Linear
    axes: tuple[int, ...] = eqx.field(static=True)
    """The axes of one image in the order height, width, then the axes that become channels."""

    @classmethod
    def create(cls, key: Key[Array, ""], shape: tuple[int, ...]) -> NatureCNN:
        """The network for images of ``shape``, in one of the orders of ``image_axes``.

        Raises:
            EnvError: The images are smaller than ``MIN_IMAGE_SIZE``.
        """
        axes = image_axes(shape)
        height, width = shape[axes[0]], shape[axes[1]]
        if min(height, width) < MIN_IMAGE_SIZE:
            raise EnvError(
                f"Images of {height}×{width} are too small for nature_cnn: expected at least "
                f"{MIN_IMAGE_SIZE}×{MIN_IMAGE_SIZE}; set encoder = mlp."
            )
        keys = jax.random.split(key, 4)
        channels = math.prod(shape[axis] for axis in axes[2:])
        layers = ((channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1))  # in channels, out channels, size, stride
        convolutions = tuple(ConvReLU.create(k, *layer) for k, layer in zip(keys, layers, strict=False))
        for _, _, size, stride in layers:
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
    """The axes of an image in the order height, width, then stack and channels.

    The shape is (H, W), (H, W, C), (C, H, W), or a stack (S, H, W, C) or (S, C, H, W). The channels are the smaller of the two candidates.
    """
    if len(shape) == 2:
        return (0, 1)
    stack = tuple(range(len(shape) - 3))
    first, last = len(shape) - 3, len(shape) - 1
    return (first + 1, last, *stack, first) if shape[first] < shape[last] else (first, first + 1, *stack, last)


class PartsEncoder(eqx.Module):
    """Encodes each part of a Dict or Tuple and concatenates the features. Entries without an encoder (the action mask) are ignored."""

    parts: dict[str, Encoder] | tuple[Encoder, ...]

    def __call__(self, x: Observation) -> Float[Array, "*batch features"]:
        pairs = self.parts.items() if isinstance(self.parts, dict) else enumerate(self.parts)
        return jnp.concatenate([encoder(x[where]) for where, encoder in pairs], axis=-1)


Encoder = VectorEncoder | OneHotEncoder | NatureCNN | PartsEncoder


def make_encoder(key: Key[Array, ""], space: Space, config: NetworkConfig) -> tuple[Encoder, int]:
    """The encoder for observations of ``space`` (without the action mask), and its number of features.

    Raises:
        EnvError: ``encoder = nature_cnn`` without an image, or an image that is too small.
    """
    if config.encoder == "nature_cnn" and not any(
        jax.tree.leaves(tree(lambda leaf: isinstance(leaf, Box) and leaf.is_image, space))
    ):
        raise EnvError(f"encoder = nature_cnn reads uint8 images (as height, width, channels), not {space}: set encoder = mlp.")
    return _make(key, space, config)


def _make(key: Key[Array, ""], space: Space, config: NetworkConfig) -> tuple[Encoder, int]:
    if isinstance(space, Dict | Tuple):
        parts: dict[Any, Space] = dict(space.spaces if isinstance(space, Dict) else enumerate(space.spaces))
        # A Dict with one part has the same weights as that part alone.
        keys = jax.random.split(key, len(parts)) if len(parts) > 1 else [key]
        # The previous action and reward have no hidden layers: they go to the memory as they are.
        without_layers = dataclasses.replace(config, hidden_sizes=())
        configs = [without_layers if where in (PREVIOUS_ACTION, PREVIOUS_REWARD) else config for where in parts]
        encoders, features = zip(*map(_make, keys, parts.values(), configs), strict=True)
        return PartsEncoder(dict(zip(parts, encoders, strict=True)) if isinstance(space, Dict) else encoders), sum(features)
    if isinstance(space, Box) and space.is_image and _is_encoded_by_cnn(space, config):
        return NatureCNN.create(key, space.shape), 512
    mlp = MLP.create(key, flatdim(space), config.hidden_sizes, config.activation)
    features = (flatdim(space), *config.hidden_sizes)[-1]
    if isinstance(space, Discrete | MultiDiscrete):
        return OneHotEncoder(mlp, *components(space), len(space.shape)), features
    scale = 1.0 / 255.0 if isinstance(space, Box) and space.dtype == "uint8" else 1.0
    # Bits become -1 and 1, which are centered: with 0 and 1 a policy learns more slowly in its first updates.
    scale, shift = (2.0, -1.0) if isinstance(space, MultiBinary) else (scale, 0.0)
    return VectorEncoder(mlp, len(space.shape), scale, shift), features


def _is_encoded_by_cnn(space: Box, config: NetworkConfig) -> bool:
    """With ``encoder = auto``, three axes of bytes are an image of any size; two or four may be a board or a table, unless they are large."""
    large = min(space.shape[axis] for axis in image_axes(space.shape)[:2]) >= MIN_IMAGE_SIZE
    return config.encoder == "nature_cnn" or (config.encoder == "auto" and (len(space.shape) == 3 or large))
