"""Encoders of images: convolutions, then a dense layer.

To add one, write a subclass of ``ImageEncoder``, add it to ``IMAGE_ENCODERS``, and add its word to the ``encoder`` setting in
``config/schema.py``.
"""

from __future__ import annotations

import abc
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, Shaped

from proximo.config import NetworkConfig
from proximo.errors import EnvError
from proximo.networks.convolution import Convolution, max_pool
from proximo.networks.layers import LayerNorm, Linear
from proximo.spaces import Box


class Section(eqx.Module):
    """A convolution that halves the image by max pooling, then two residual blocks: a third of the IMPALA CNN."""

    convolution: Convolution
    blocks: tuple[tuple[Convolution, Convolution], ...]
    relu: bool = eqx.field(static=True)
    """Whether a ReLU follows the last block."""

    @classmethod
    def create(cls, key: Key[Array, ""], in_channels: int, out_channels: int, relu: bool) -> Section:
        """Kernels of 3×3 that keep the size of the image."""
        first, *others = jax.random.split(key, 5)
        inner = [
            Convolution.create(k, out_channels, out_channels, 3, 1, relu=is_first, padding=1)
            for k, is_first in zip(others, (True, False) * 2, strict=True)
        ]
        convolution = Convolution.create(first, in_channels, out_channels, 3, 1, relu=False, padding=1)
        return cls(convolution, ((inner[0], inner[1]), (inner[2], inner[3])), relu)

    def __call__(
        self, x: Shaped[Array, "batch height width channels"], scale: float = 1.0
    ) -> Float[Array, "batch rows columns out_channels"]:
        """Apply the layers to ``scale * x``."""
        x = self.convolution(x, scale)
        x = max_pool(x)
        for first, second in self.blocks:
            x = x + second(first(jax.nn.relu(x)))
        return jax.nn.relu(x) if self.relu else x


def byte_scale(space: Box) -> float:
    """The factor of the numbers of ``space``: bytes are divided by their upper bound, which is 255 for images; other numbers stay as they are."""
    return 1.0 / float(np.clip(np.max(space.high), 1.0, 255.0)) if space.dtype == "uint8" else 1.0


class ImageEncoder(eqx.Module):
    """Convolutions, then a dense layer with ReLU, of ``cnn_features`` units. Bytes are scaled to 0 … 1."""

    convolutions: tuple[Any, ...]
    """``Convolution`` or ``Section``, each ending with a ReLU where the next layer is dense."""
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
    units: ClassVar[int]
    """Units of the dense layer in the paper."""

    @classmethod
    def create(cls, key: Key[Array, ""], space: Box, config: NetworkConfig) -> tuple[ImageEncoder, int]:
        """The network for images of ``space``, in one of the orders of ``image_axes``, and its number of features.

        Raises:
            EnvError: The images are smaller than ``min_size``.
        """
        axes = image_axes(space.shape)
        height, width, *others = (space.shape[axis] for axis in axes)
        if min(height, width) < cls.min_size:
            raise EnvError(
                f"Images of {height}×{width} are too small for {cls.word}: expected at least {cls.min_size}×{cls.min_size}; set encoder = "
                f"{'mlp' if cls is SmallCNN else SmallCNN.word}."
            )
        convolutions, key_dense = cls.make_convolutions(key, math.prod(others))
        image = jnp.zeros((1, height, width, math.prod(others)))
        outputs = math.prod(jax.eval_shape(lambda layers: _apply(layers, image, 1.0), convolutions).shape)
        units = cls.units if config.cnn_features < 0 else config.cnn_features
        dense = Linear.create(key_dense, outputs, units) if units else None
        norm = LayerNorm.create(units) if units and config.layer_norm else None
        return cls(convolutions, dense, norm, axes, byte_scale(space)), units or outputs

    @classmethod
    @abc.abstractmethod
    def make_convolutions(cls, key: Key[Array, ""], channels: int) -> tuple[tuple[Any, ...], Key[Array, ""]]:
        """The layers before the dense one, for images with these ``channels``, and a random key for the dense layer."""

    def __call__(self, x: Shaped[Array, "..."]) -> Float[Array, "*batch features"]:
        batch = x.shape[: x.ndim - len(self.axes)]
        x = x.reshape((-1, *x.shape[len(batch) :])).transpose((0, *(1 + axis for axis in self.axes)))
        x = _apply(self.convolutions, x.reshape((*x.shape[:3], -1)), self.scale)
        x = x.reshape((x.shape[0], -1))
        if self.dense is not None:
            x = self.dense(x)
            x = jax.nn.relu(x if self.norm is None else self.norm(x))
        return x.reshape((*batch, -1))


def _apply(layers: tuple[Any, ...], x: Shaped[Array, "batch height width channels"], scale: float) -> Array:
    first, *others = layers
    x = first(x, scale=scale)
    for layer in others:
        x = layer(x)
    return x


class NatureCNN(ImageEncoder):
    """The nature CNN: convolutions 8×8 stride 4, 4×4 stride 2, 3×3 stride 1 with 32, 64, 64 channels, then 512 units, all with ReLU.

    Source: Mnih et al. 2015, "Human-level control through deep reinforcement learning", Methods, "Model architecture".
    """

    word = "nature_cnn"
    min_size = 36
    units = 512

    @classmethod
    def make_convolutions(cls, key: Key[Array, ""], channels: int) -> tuple[tuple[Any, ...], Key[Array, ""]]:
        layers = ((channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1))  # in channels, out channels, size, stride
        *keys, key_dense = jax.random.split(key, 4)
        return tuple(Convolution.create(k, *layer) for k, layer in zip(keys, layers, strict=True)), key_dense


class ImpalaCNN(ImageEncoder):
    """The IMPALA CNN: three sections of a convolution, max pooling and two residual blocks, with 16, 32, 32 channels, then 256 units.

    Source: Espeholt et al. 2018, "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures",
    arXiv:1802.01561, figure 3 (right).
    """

    word = "impala_cnn"
    min_size = 1
    units = 256

    @classmethod
    def make_convolutions(cls, key: Key[Array, ""], channels: int) -> tuple[tuple[Any, ...], Key[Array, ""]]:
        layers = ((channels, 16, False), (16, 32, False), (32, 32, True))  # in channels, out channels, ReLU at the end
        *keys, key_dense = jax.random.split(key, 4)
        return tuple(Section.create(k, *layer) for k, layer in zip(keys, layers, strict=True)), key_dense


class SmallCNN(ImageEncoder):
    """For images of few pixels: one convolution 3×3 stride 1 with 16 channels, then 128 units, both with ReLU.

    Source: Young & Tian 2019, "MinAtar: An Atari-Inspired Testbed", arXiv:1903.03176, section 3.
    """

    word = "small_cnn"
    min_size = 3
    units = 128

    @classmethod
    def make_convolutions(cls, key: Key[Array, ""], channels: int) -> tuple[tuple[Any, ...], Key[Array, ""]]:
        key_convolution, key_dense = jax.random.split(key)
        return (Convolution.create(key_convolution, channels, 16, 3, 1),), key_dense


IMAGE_ENCODERS: dict[str, type[ImageEncoder]] = {cls.word: cls for cls in (NatureCNN, ImpalaCNN, SmallCNN)}
"""Encoders of images by the word of the ``encoder`` setting."""


def image_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of an image in the order height, width, then stack and channels.

    The shape is (H, W), (H, W, C), (C, H, W), or a stack (S, H, W, C) or (S, C, H, W). The channels are the smaller of the two candidates.
    """
    if len(shape) == 2:
        return (0, 1)
    stack = tuple(range(len(shape) - 3))
    first, last = len(shape) - 3, len(shape) - 1
    return (first + 1, last, *stack, first) if shape[first] < shape[last] else (first, first + 1, *stack, last)
