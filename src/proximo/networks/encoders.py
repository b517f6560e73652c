"""Encoders: from an observation to a vector of features. Each kind of observation has its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, Shaped

from proximo import spaces
from proximo.config import NetworkConfig
from proximo.errors import EnvError
from proximo.networks.image_encoders import IMAGE_ENCODERS, ImageEncoder, NatureCNN, SmallCNN, byte_scale, image_axes
from proximo.networks.layers import MLP, one_hot
from proximo.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple, flatdim
from proximo.types import Observation


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
