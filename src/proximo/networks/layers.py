"""Dense layers over any leading axes, with the orthogonal initialization that is usual for PPO."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

HIDDEN_GAIN = math.sqrt(2.0)
"""Gain of hidden layers (Saxe et al. 2014; Huang et al. 2022, "The 37 implementation details of PPO", detail 2)."""
ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu}


class Linear(eqx.Module):
    """``x W + b``. ``W`` is stored as (in, out), so any number of leading axes is one matrix product."""

    weight: Float[Array, "in_size out_size"]
    bias: Float[Array, " out_size"]

    @classmethod
    def create(cls, key: Key[Array, ""], in_size: int, out_size: int, gain: float = HIDDEN_GAIN) -> Linear:
        """Orthogonal weights times ``gain``, and a zero bias. Source: Saxe, McClelland & Ganguli 2014, arXiv:1312.6120."""
        return cls(jax.nn.initializers.orthogonal(gain)(key, (in_size, out_size)), jnp.zeros(out_size))

    def __call__(self, x: Float[Array, "*batch in_size"]) -> Float[Array, "*batch out_size"]:
        # As matrices: with more axes the gradients of the weights are slow (measured on the CPU, 2 × 64 units: 1.7 times).
        y = x.reshape((-1, x.shape[-1])) @ self.weight + self.bias
        return y.reshape((*x.shape[:-1], -1))


class MLP(eqx.Module):
    """Linear layers, each followed by an activation (a key of ``ACTIVATIONS``)."""

    layers: tuple[Linear, ...]
    activation: str = eqx.field(static=True)

    @classmethod
    def create(cls, key: Key[Array, ""], in_size: int, sizes: tuple[int, ...], activation: str) -> MLP:
        """Layers of these ``sizes``; an empty tuple makes the identity."""
        keys = jax.random.split(key, max(1, len(sizes)))
        ins = (in_size, *sizes)
        return cls(tuple(Linear.create(k, i, o) for k, i, o in zip(keys, ins, sizes, strict=False)), activation)

    @property
    def dtype(self) -> jnp.dtype:
        """Type of the weights; float32 without layers."""
        return self.layers[0].weight.dtype if self.layers else jnp.dtype(jnp.float32)

    def __call__(self, x: Float[Array, "*batch in_size"]) -> Float[Array, "*batch out_size"]:
        for layer in self.layers:
            x = ACTIVATIONS[self.activation](layer(x))
        return x
