"""From an observation to a vector, one encoder for each kind of observation."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Shaped, UInt8

from proximo.config import NetworkConfig
from proximo.errors import EnvError
from proximo.networks.layers import MLP, Conv, Linear
from proximo.spaces import Box, Discrete, Space


class VectorEncoder(eqx.Module):
    """Flattens the observation and applies an MLP; bytes are read as 0 … 1."""

    mlp: MLP
    observation_ndim: int = eqx.field(static=True)

    def __call__(self, x: Shaped[Array, "..."]) -> Float[Array, "*batch features"]:
        batch = x.shape[: x.ndim - self.observation_ndim]
        x = x.reshape((*batch, -1))
        if jnp.issubdtype(x.dtype, jnp.floating):
            return self.mlp(x)
        scale = 1.0 / 255.0 if x.dtype == jnp.uint8 else 1.0
        return self.mlp(x.astype(self.mlp.dtype) * scale)


class OneHotEncoder(eqx.Module):
    """A discrete observation as a one-hot vector, then an MLP."""

    mlp: MLP
    n: int = eqx.field(static=True)

    def __call__(self, x: Int[Array, "*batch"]) -> Float[Array, "*batch features"]:
        return self.mlp(jax.nn.one_hot(x, self.n, dtype=self.mlp.dtype))


class NatureCNN(eqx.Module):
    """Three convolutions (8×8 stride 4, 4×4 stride 2, 3×3 stride 1; 32, 64, 64 channels) and 512 units, all with ReLU.

    Reads bytes (height, width, channels) as 0 … 1. Source: Mnih et al. 2015, "Human-level control", Methods.
    """

    convolutions: tuple[Conv, ...]
    dense: Linear

    @classmethod
    def create(cls, key: Key[Array, ""], shape: tuple[int, ...]) -> NatureCNN:
        """For images of ``shape`` (height, width, channels); raises ``EnvError`` when they are smaller than 36 × 36."""
        height, width, channels = shape
        if min(height, width) < 36:
            raise EnvError(
                f"Images of {height}×{width} are too small for nature_cnn: expected at least 36×36; set encoder = mlp."
            )
        keys = jax.random.split(key, 4)
        plan = ((channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1))
        convolutions = tuple(Conv.create(k, *layer) for k, layer in zip(keys, plan, strict=False))
        for _, _, size, stride in plan:
            height, width = (height - size) // stride + 1, (width - size) // stride + 1
        return cls(convolutions, Linear.create(keys[3], height * width * 64, 512))

    def __call__(self, x: UInt8[Array, "*batch height width channels"]) -> Float[Array, "*batch 512"]:
        batch = x.shape[:-3]
        x = x.reshape((-1, *x.shape[-3:])).astype(self.dense.weight.dtype) / 255.0
        for convolution in self.convolutions:
            x = jax.nn.relu(convolution(x))
        return jax.nn.relu(self.dense(x.reshape((x.shape[0], -1)))).reshape((*batch, -1))


Encoder = VectorEncoder | OneHotEncoder | NatureCNN


def make_encoder(key: Key[Array, ""], space: Space, config: NetworkConfig) -> tuple[Encoder, int]:
    """The encoder for observations of ``space``, and its number of features. Raises ``EnvError`` when none fits."""
    is_image = isinstance(space, Box) and space.is_image
    if config.encoder == "nature_cnn" and not is_image:
        raise EnvError(f"encoder = nature_cnn reads uint8 images (height, width, channels), not {space}: set encoder = mlp.")
    if isinstance(space, Box) and is_image and config.encoder != "mlp":
        return NatureCNN.create(key, space.shape), 512
    if isinstance(space, Discrete):
        mlp = MLP.create(key, space.n, config.hidden_sizes, config.activation)
        return OneHotEncoder(mlp, space.n), (config.hidden_sizes or (space.n,))[-1]
    mlp = MLP.create(key, space.size, config.hidden_sizes, config.activation)
    return VectorEncoder(mlp, len(space.shape)), (config.hidden_sizes or (space.size,))[-1]
