"""Encoders: from an observation to a vector of features. Each kind of observation has its own.

To add an encoder of images, write a subclass of ``ImageEncoder``, add it to ``IMAGE_ENCODERS``, and add its word to the
``encoder`` setting in ``config/schema.py``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Shaped

from proximo import spaces
from proximo.config import NetworkConfig
from proximo.errors import EnvError
from proximo.networks.cpu_kernels.convolution import convolve
from proximo.networks.layers import HIDDEN_GAIN, MLP, LayerNorm, Linear, one_hot
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, flatdim
from proximo.types import Observation

Images = Shaped[Array, "batch height width channels"]
Maps = Float[Array, "batch rows columns out_channels"]


class Convolution(eqx.Module):
    """A convolution over (height, width, channels), then ReLU unless ``relu`` is false."""

    weight: Float[Array, "height width in_channels out_channels"]
    bias: Float[Array, " out_channels"]
    stride: int = eqx.field(static=True)
    relu: bool = eqx.field(static=True)
    padding: int = eqx.field(static=True)
    """Zeros added on each side of the image."""

    @classmethod
    def create(
        cls, key: Key[Array, ""], channels: int, out_channels: int, size: int, stride: int, relu: bool = True, padding: int = 0
    ) -> Convolution:
        """Orthogonal weights, times √2 before a ReLU, and a zero bias. ``size`` is a multiple of ``stride``."""
        initialize = jax.nn.initializers.orthogonal(HIDDEN_GAIN if relu else 1.0)
        weight = initialize(key, (size, size, channels, out_channels))
        return cls(weight, jnp.zeros(out_channels), stride, relu, padding)

    def __call__(self, x: Images, scale: float = 1.0) -> Maps:
        """Apply the layer to ``scale * x``; bytes are converted a few images at a time, for the cache."""
        if self.padding:
            x = jnp.pad(x, [(0, 0), *[(self.padding, self.padding)] * 2, (0, 0)])
        return convolve(x, self.weight * scale, self.bias, self.stride, self.relu)


class Section(eqx.Module):
    """A convolution, max pooling, which halves the image, and two residual blocks: a third of the IMPALA CNN."""

    convolution: Convolution
    blocks: tuple[tuple[Convolution, Convolution], ...]
    relu: bool = eqx.field(static=True)
    """Whether a ReLU follows the last block."""

    @classmethod
    def create(cls, key: Key[Array, ""], channels: int, out_channels: int, relu: bool) -> Section:
        """Kernels of 3×3 that keep the size of the image."""
        keys, made = jax.random.split(key, 5), partial(Convolution.create, out_channels=out_channels, size=3, stride=1, padding=1)
        a, b, c, d = (made(k, out_channels, relu=relu) for k, relu in zip(keys[1:], (True, False) * 2, strict=True))
        return cls(made(keys[0], channels, relu=False), ((a, b), (c, d)), relu)

    def __call__(self, x: Images, scale: float = 1.0) -> Maps:
        x = max_pool(self.convolution(x, scale))
        for first, second in self.blocks:
            x = x + second(first(jax.nn.relu(x)))
        return jax.nn.relu(x) if self.relu else x


def max_pool(x: Float[Array, "batch height width channels"]) -> Float[Array, "batch rows columns channels"]:
    """The maximum of 3×3 pixels around every second one, padded as little as possible. Maxima of shifted
    images train the IMPALA CNN 1.7 times as fast on the CPU as XLA's ``reduce_window``."""
    for axis in (1, 2):
        out = -(-x.shape[axis] // 2)
        outside = 2 * out + 1 - x.shape[axis]
        edges = [(outside // 2, outside - outside // 2) if i == axis else (0, 0) for i in range(4)]
        padded = jnp.pad(x, edges, constant_values=-jnp.inf)
        first, second, third = (jax.lax.slice_in_dim(padded, i, i + 2 * out - 1, 2, axis) for i in range(3))
        x = jnp.maximum(jnp.maximum(first, second), third)
    return x


class ImageEncoder(eqx.Module):
    """Convolutions, then a dense layer with ReLU, of ``cnn_features`` units. Bytes are scaled to 0 … 1."""

    convolutions: tuple[Any, ...]
    dense: Linear | None
    """None if ``cnn_features`` is 0: the outputs of the convolutions are the features."""
    norm: LayerNorm | None
    axes: tuple[int, ...] = eqx.field(static=True)
    """The axes of one image in the order height, width, then the axes that become channels."""
    scale: float = eqx.field(static=True)

    word: ClassVar[str]
    """Its value of the setting ``encoder``."""
    min_size: ClassVar[int]
    """Smallest height and width of an image."""
    layer: ClassVar[type[Convolution | Section]] = Convolution
    layers: ClassVar[tuple[tuple[Any, ...], ...]]
    """Arguments of ``layer.create`` for each layer: output channels first."""
    units: ClassVar[int]
    """Units of the dense layer in the paper."""

    @classmethod
    def create(cls, key: Key[Array, ""], space: Box, config: NetworkConfig) -> tuple[ImageEncoder, int]:
        """The network for ``space``, and its number of features. Raises ``EnvError`` below ``min_size``."""
        axes = image_axes(space.shape)
        height, width, *others = (space.shape[axis] for axis in axes)
        if min(height, width) < cls.min_size:
            raise EnvError(
                f"Images of {height}×{width} are too small for {cls.word}: expected at least {cls.min_size}×{cls.min_size}; set encoder = "
                f"{'mlp' if cls is SmallCNN else SmallCNN.word}."
            )
        *keys, key_dense = jax.random.split(key, len(cls.layers) + 1)
        channels = (math.prod(others), *(out for out, *_ in cls.layers))
        made = tuple(cls.layer.create(k, n, *layer) for k, n, layer in zip(keys, channels, cls.layers, strict=False))
        image = jnp.zeros((1, height, width, channels[0]))
        outputs = math.prod(jax.eval_shape(lambda layers: _apply(layers, image, 1.0), made).shape)
        units = cls.units if config.cnn_features < 0 else config.cnn_features
        dense = Linear.create(key_dense, outputs, units) if units else None
        norm = LayerNorm.create(units) if units and config.layer_norm else None
        return cls(made, dense, norm, axes, byte_scale(space)), units or outputs

    def __call__(self, x: Shaped[Array, "..."]) -> Float[Array, "*batch features"]:
        batch = x.shape[: x.ndim - len(self.axes)]
        x = x.reshape((-1, *x.shape[len(batch) :])).transpose((0, *(1 + axis for axis in self.axes)))
        x = _apply(self.convolutions, x.reshape((*x.shape[:3], -1)), self.scale)
        x = x.reshape((x.shape[0], -1))
        if self.dense is not None:
            x = self.dense(x)
            x = jax.nn.relu(x if self.norm is None else self.norm(x))
        return x.reshape((*batch, -1))


def _apply(layers: tuple[Any, ...], x: Images, scale: float) -> Maps:
    x = layers[0](x, scale=scale)
    for layer in layers[1:]:
        x = layer(x)
    return x


class NatureCNN(ImageEncoder):
    """The nature CNN: three convolutions, then 512 units, all with ReLU. Source: Mnih et al. 2015,
    "Human-level control through deep reinforcement learning", Methods, "Model architecture"."""

    word, min_size, units = "nature_cnn", 36, 512
    layers = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # out channels, size, stride


class ImpalaCNN(ImageEncoder):
    """The IMPALA CNN: three sections, then 256 units. Source: Espeholt et al. 2018, "IMPALA: Scalable
    Distributed Deep-RL with Importance Weighted Actor-Learner Architectures", arXiv:1802.01561, figure 3
    (right)."""

    word, min_size, units = "impala_cnn", 1, 256
    layer = Section
    layers = ((16, False), (32, False), (32, True))  # out channels, ReLU at the end


class SmallCNN(ImageEncoder):
    """For images of few pixels: one convolution, then 128 units, both with ReLU. Source: Young & Tian 2019,
    "MinAtar: An Atari-Inspired Testbed", arXiv:1903.03176, section 3."""

    word, min_size, units = "small_cnn", 3, 128
    layers = ((16, 3, 1),)


IMAGE_ENCODERS: dict[str, type[ImageEncoder]] = {cls.word: cls for cls in (NatureCNN, ImpalaCNN, SmallCNN)}
"""Encoders of images by the word of the ``encoder`` setting."""


def image_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of an image in the order height, width, stack, channels. The shape is (H, W), (H, W, C), (C,
    H, W), (S, H, W, C) or (S, C, H, W); the channels are the smaller of the two candidates."""
    if len(shape) == 2:
        return (0, 1)
    *stack, first, _, last = range(len(shape))
    return (first + 1, last, *stack, first) if shape[first] < shape[last] else (first, first + 1, *stack, last)


def byte_scale(space: Box) -> float:
    """The factor of the numbers of ``space``: bytes are divided by their upper bound."""
    return 1.0 / float(np.clip(np.max(space.high), 1.0, 255.0)) if space.dtype == "uint8" else 1.0


class VectorEncoder(eqx.Module):
    """Flattens the observation and applies an MLP. Integers and bits become ``scale · x + shift`` first."""

    mlp: MLP
    observation_ndim: int = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    shift: float = eqx.field(static=True)

    def __call__(self, x: Shaped[Array, "..."]) -> Float[Array, "*batch features"]:
        x = x.reshape((*x.shape[: x.ndim - self.observation_ndim], -1))
        return self.mlp(x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(self.mlp.dtype) * self.scale + self.shift)


class OneHotEncoder(eqx.Module):
    """Concatenates one-hot vectors of integers, from their ``start``, and applies an MLP."""

    mlp: MLP
    nvec: tuple[int, ...] = eqx.field(static=True)
    start: tuple[int, ...] = eqx.field(static=True)
    observation_ndim: int = eqx.field(static=True)

    def __call__(self, x: Shaped[Array, "..."]) -> Float[Array, "*batch features"]:
        x = x.reshape((*x.shape[: x.ndim - self.observation_ndim], -1))
        return self.mlp(one_hot(x, self.nvec, self.start).astype(self.mlp.dtype))


class PartsEncoder(eqx.Module):
    """Concatenates the features of the parts of a Dict or Tuple. An entry without an encoder (the mask) is ignored."""

    parts: dict[str, Encoder] | tuple[Encoder, ...]

    def __call__(self, x: Observation) -> Float[Array, "*batch features"]:
        pairs = self.parts.items() if isinstance(self.parts, dict) else enumerate(self.parts)
        return jnp.concatenate([encoder(x[where]) for where, encoder in pairs], axis=-1)


Encoder = VectorEncoder | OneHotEncoder | ImageEncoder | PartsEncoder


def previous_entries(config: NetworkConfig) -> tuple[str, ...]:
    """The entries of the previous action and reward that are added to the observations."""
    requested = {spaces.PREVIOUS_ACTION: config.observe_action, spaces.PREVIOUS_REWARD: config.observe_reward}
    return tuple(name for name, is_observed in requested.items() if is_observed)


def make_encoder(key: Key[Array, ""], space: Space, config: NetworkConfig) -> tuple[Encoder, int]:
    """The encoder for observations of ``space``, without a mask, and its number of features. Raises
    ``EnvError`` if ``encoder`` is a CNN and there is no image, or an image is too small."""
    if config.encoder in IMAGE_ENCODERS and not any(jax.tree.leaves(spaces.tree(lambda leaf: cnn_for(leaf, config), space))):
        raise EnvError(
            f"encoder = {config.encoder} reads images: uint8 with two to four axes, or other numbers with the three axes height, width, "
            f"channels and at least {IMAGE_ENCODERS[str(config.encoder)].min_size} pixels along each side; not {space}: set encoder = auto."
        )
    return _make(key, space, config, previous_entries(config))


def _make(key: Key[Array, ""], space: Space, config: NetworkConfig, added: Sequence[str] = ()) -> tuple[Encoder, int]:
    """The encoder of ``space``, of whose entries those ``added`` are the previous action and reward."""
    if isinstance(space, Dict | Tuple):
        parts: dict[Any, Space] = dict(space.spaces if isinstance(space, Dict) else enumerate(space.spaces))
        if not parts:
            raise EnvError("The policy reads no entry of the observation besides masks and privileged ones: add one.")
        # A Dict with one part has the same weights as that part alone.
        keys = jax.random.split(key, len(parts)) if len(parts) > 1 else [key]
        # The previous action and reward have no hidden layers: they go to the memory as they are.
        configs = [dataclasses.replace(config, hidden_sizes=()) if where in added else config for where in parts]
        encoders, features = zip(*map(_make, keys, parts.values(), configs), strict=True)
        return PartsEncoder(dict(zip(parts, encoders, strict=True)) if isinstance(space, Dict) else encoders), sum(features)
    if isinstance(space, Box) and (cnn := cnn_for(space, config)):
        return cnn.create(key, space, config)
    mlp = MLP.create(key, flatdim(space), config.hidden_sizes, config.activation, config.layer_norm)
    features = (flatdim(space), *config.hidden_sizes)[-1]
    if isinstance(space, Discrete | MultiDiscrete):
        return OneHotEncoder(mlp, *spaces.components(space), len(space.shape)), features
    # Bits become -1 and 1, which are centered: with 0 and 1 a policy learns more slowly in its first updates.
    scale, shift = (2.0, -1.0) if isinstance(space, MultiBinary) else (byte_scale(space), 0.0)
    return VectorEncoder(mlp, len(space.shape), scale, shift), features


def cnn_for(space: Space, config: NetworkConfig) -> type[ImageEncoder] | None:
    """The CNN that encodes ``space``, if one does. With ``encoder = auto``, three axes of bytes are an image
    of any size; two or four may be a board or a table, unless they are large."""
    if not isinstance(space, Box) or not 2 <= len(space.shape) <= 4:
        return None
    size = min(space.shape[axis] for axis in image_axes(space.shape)[:2])
    if config.encoder == "auto" and space.is_image:
        return NatureCNN if size >= NatureCNN.min_size else SmallCNN if len(space.shape) == 3 else None
    cnn = IMAGE_ENCODERS.get(str(config.encoder))
    return cnn if cnn and (space.is_image or (len(space.shape) == 3 and size >= cnn.min_size)) else None
