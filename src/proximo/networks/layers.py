"""Dense layers over any leading axes, with the orthogonal initialization that is usual for PPO."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, Key

from proximo.networks.cpu_kernels.products import dense

HIDDEN_GAIN = math.sqrt(2.0)
"""Gain of hidden layers (Huang et al. 2022, "The 37 implementation details of PPO", detail 2)."""


class LayerNorm(eqx.Module):
    """Layer normalization over the last axis. Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450, section 3."""

    gain: Float[Array, " size"]
    bias: Float[Array, " size"]

    @classmethod
    def create(cls, size: int) -> "LayerNorm":
        """Gains of one and biases of zero."""
        return cls(jnp.ones(size), jnp.zeros(size))

    def __call__(self, x: Float[Array, "*batch size"]) -> Float[Array, "*batch size"]:
        wide = jnp.promote_types(x.dtype, jnp.float32)  # the mean and the variance of bfloat16 numbers are inaccurate
        return jax.nn.standardize(x.astype(wide), epsilon=1e-5).astype(x.dtype) * self.gain + self.bias


class Linear(eqx.Module):
    """``x W + b``. ``W`` is stored as (in, out), so any number of leading axes is one matrix product."""

    weight: Float[Array, "in_size out_size"]
    bias: Float[Array, " out_size"]

    @classmethod
    def create(cls, key: Key[Array, ""], in_size: int, out_size: int, gain: float = HIDDEN_GAIN) -> "Linear":
        """Orthogonal weights times ``gain``, and a zero bias. Source: Saxe et al. 2014, arXiv:1312.6120."""
        return cls(jax.nn.initializers.orthogonal(gain)(key, (in_size, out_size)), jnp.zeros(out_size))

    def __call__(self, x: Float[Array, "*batch in_size"]) -> Float[Array, "*batch out_size"]:
        # As matrices: with more axes the gradients of the weights are slow (on the CPU, 2 × 64 units: 1.7 times). A single row
        # may be one of many under vmap, where the gradient of dense would multiply each of them by itself.
        multiply = dense if x.ndim > 1 and x.dtype == self.weight.dtype else jnp.matmul
        y = multiply(x.reshape((-1, x.shape[-1])), self.weight) + self.bias
        return y.reshape((*x.shape[:-1], -1))


class MLP(eqx.Module):
    """Linear layers, each followed by an activation: a function of ``jax.nn``, by its name."""

    layers: tuple[Linear, ...]
    norms: tuple[LayerNorm, ...]
    """Normalize the output of each layer before the activation; empty without layer normalization."""
    activation: str = eqx.field(static=True)

    @classmethod
    def create(
        cls, key: Key[Array, ""], in_size: int, sizes: tuple[int, ...], activation: str, layer_norm: bool = False
    ) -> "MLP":
        """Layers of these ``sizes``; an empty tuple makes the identity."""
        keys = jax.random.split(key, max(1, len(sizes)))
        layers = tuple(Linear.create(k, i, o) for k, i, o in zip(keys, (in_size, *sizes), sizes, strict=False))
        return cls(layers, tuple(map(LayerNorm.create, sizes)) if layer_norm else (), activation)

    @property
    def dtype(self) -> jnp.dtype:
        """Type of the weights; float32 without layers."""
        return self.layers[0].weight.dtype if self.layers else jnp.dtype(jnp.float32)

    def __call__(self, x: Float[Array, "*batch in_size"]) -> Float[Array, "*batch out_size"]:
        activation = getattr(jax.nn, self.activation)
        for i, layer in enumerate(self.layers):
            x = layer(x)
            x = activation(self.norms[i](x) if self.norms else x)
        return x


def one_hot(x: Integer[Array, "*batch components"], nvec: tuple[int, ...], start: tuple[int, ...]) -> Bool[Array, "*batch total"]:
    """The one-hot vectors of all components, concatenated. Component ``i`` has ``nvec_i`` values from ``start_i`` on."""
    component = np.repeat(np.arange(len(nvec)), nvec)
    return x[..., component] == np.concatenate([first + np.arange(n) for n, first in zip(nvec, start, strict=True)])
