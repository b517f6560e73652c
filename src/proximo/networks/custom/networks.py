"""Custom encoders, memories, heads and whole actor-critics, wrapped as the parts of an ``ActorCritic``.

The user writes a network for one observation of one environment, without a base class of proximo. The wrappers vmap it over time and
environments. So its outputs for one environment cannot depend on another one, and a wrong shape raises an error instead of broadcasting.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from proximo.config import NetworkConfig
from proximo.errors import ConfigError
from proximo.networks.custom.module import CustomModule, describe_shape, make_module, output_shape, vector_size, vmap_leading
from proximo.networks.recurrent.protocol import MemoryCell, NoMemory, select
from proximo.spaces import Dict, Space, zeros
from proximo.types import Observation


class PassThrough(eqx.Module):
    """Passes the observation on to a memory that reads observations itself."""

    space: Space = eqx.field(static=True)
    """Space of the observation that is passed on. Other entries of a Dict observation are dropped."""

    def __call__(self, x: Observation) -> Observation:
        return {name: x[name] for name, _ in self.space.spaces} if isinstance(self.space, Dict) else x


class CustomEncoder(PassThrough):
    """``module(observation) -> features``, or for a whole actor-critic ``module(observation) -> (parameters, value)``."""

    custom: CustomModule

    def __call__(self, x: Observation) -> Float[Array, "*batch features"]:
        x = super().__call__(x)
        ndim = jax.tree.leaves(x)[0].ndim - jax.tree.leaves(zeros(self.space, ()))[0].ndim
        return vmap_leading(lambda x: _concatenated(self.custom.module(x)), ndim, x)


class CustomReadout(eqx.Module):
    """A custom actor or critic: ``module(features) -> numbers``. A critic may return its value with or without an axis."""

    custom: CustomModule

    def __call__(self, features: Float[Array, "*batch features"]) -> Float[Array, "*batch out_size"]:
        return vmap_leading(lambda x: jnp.atleast_1d(self.custom.module(x)), features.ndim - 1, features)


class Slice(eqx.Module):
    """The part of a whole actor-critic's outputs that belongs to one head."""

    start: int = eqx.field(static=True)
    stop: int = eqx.field(static=True)

    def __call__(self, features: Float[Array, "*batch features"]) -> Float[Array, "*batch out_size"]:
        return features[..., self.start : self.stop]


class CustomCell(MemoryCell):
    """A custom memory: ``init() -> state`` and ``step(state, x) -> (state, out)`` of one environment.

    The wrapper resets the state at episode starts and leaves it unchanged on padding steps. A module with its own
    ``unroll(state, x, episode_start, valid) -> (state, out)`` over ``T`` steps must do both there. A whole actor-critic with a memory reads
    observations and returns ``(state, parameters, value)``.
    """

    custom: CustomModule

    @property
    def full_precision(self) -> bool:
        """The module's attribute of that name; without one, True for a module with its own ``unroll``."""
        return bool(getattr(self.custom.module, "full_precision", self.has_unroll))

    @property
    def has_unroll(self) -> bool:
        """Whether the module has its own ``unroll``."""
        return callable(getattr(self.custom.module, "unroll", None))

    def init(self, batch: Any) -> PyTree[Array]:  # a symbolic number in an export
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *np.shape(x))), self.custom.module.init())

    def step(self, state: PyTree, x: PyTree, episode_start: Bool[Array, " N"], valid: Bool[Array, " N"]) -> tuple[PyTree, Array]:
        # With another compute_dtype, the given state has that type, but arrays that the module creates may be float32.
        state = select(episode_start, _cast_like(self.init(episode_start.shape[0]), state), state)
        new_state, out = jax.vmap(self._step_one)(state, x)
        return select(valid, _cast_like(new_state, state), state), out

    def _step_one(self, state: PyTree, x: PyTree) -> tuple[PyTree, Array]:
        state, *out = self.custom.module.step(state, x)
        return state, _concatenated(tuple(out)) if len(out) > 1 else out[0]

    def unroll(
        self, state: PyTree, x: PyTree, episode_start: Bool[Array, "T N"], valid: Bool[Array, "T N"]
    ) -> tuple[PyTree, Array]:
        if not self.has_unroll:
            return jax.lax.scan(lambda s, inputs: self.step(s, *inputs), state, (x, episode_start, valid))

        def unroll_one(state: PyTree, x: PyTree, episode_start: Array, valid: Array) -> tuple[PyTree, Array]:
            last, *out = self.custom.module.unroll(state, x, episode_start, valid)
            out = jnp.concatenate([part.reshape((episode_start.shape[0], -1)) for part in out], axis=-1)
            return _cast_like(last, state), out

        return jax.vmap(unroll_one, in_axes=(0, 1, 1, 1), out_axes=(0, 1))(state, x, episode_start, valid)


def _concatenated(out: Any) -> Array:
    """Features as they are; the parameters and the value of a whole actor-critic as one vector."""
    return jnp.concatenate([jnp.atleast_1d(x) for x in out]) if isinstance(out, tuple) else out


def _cast_like(tree: PyTree[Array], like: PyTree[Array]) -> PyTree[Array]:
    return jax.tree.map(lambda x, y: x.astype(y.dtype), tree, like)


def make_encoder(key: Key[Array, ""], space: Space, config: NetworkConfig) -> tuple[CustomEncoder, int]:
    """The encoder that ``config.encoder`` names, and its number of features. Raises ``ConfigError`` if it does not return one vector."""
    custom = make_module("encoder", config.encoder, ("__call__",), key, space)
    call = f"encoder(observation of {space})"
    return CustomEncoder(space, custom), vector_size(custom, call, output_shape(custom, call, "__call__", zeros(space, ())))


def make_memory(key: Key[Array, ""], features: int, config: NetworkConfig) -> tuple[CustomCell, int]:
    """The memory that ``config.memory`` names, for ``features`` inputs, and its number of outputs.

    Raises ``ConfigError`` if it changes the shape of its state, or does not return one vector.
    """
    custom = make_module("memory", config.memory, ("init", "step"), key, features)
    (out,) = _step_outputs(custom, jnp.zeros(features), 1)
    return CustomCell(custom), vector_size(custom, "the second output of step(state, x)", out)


def make_readout(name: str, key: Key[Array, ""], features: int, count: int, config: NetworkConfig) -> CustomReadout:
    """The ``"actor"`` or ``"critic"`` (``name``) that the settings name, with ``features`` inputs and ``count`` outputs.

    Raises ``ConfigError`` if it does not return ``count`` numbers.
    """
    sizes = (features, count) if name == "actor" else (features,)
    custom = make_module(name, getattr(config, name), ("__call__",), key, *sizes)
    call = f"{name}({features} features)"
    shape = output_shape(custom, call, "__call__", jnp.zeros(features))
    vector_size(custom, call, shape, count, or_scalar=name == "critic")
    return CustomReadout(custom)


def make_actor_critic(
    key: Key[Array, ""], space: Space, count: int, config: NetworkConfig
) -> tuple[CustomEncoder | PassThrough, MemoryCell]:
    """The whole actor-critic that ``config.actor_critic`` names, as an encoder and a memory.

    Their ``count + 1`` outputs are the ``count`` parameters of the action distribution and the value. Raises ``ConfigError`` for others.
    """
    custom = make_module("actor_critic", config.actor_critic, ("init", "step") if config.remembers else (), key, space, count)
    if not config.remembers and hasattr(custom.module, "step"):
        raise ConfigError(
            "actor_critic: the function returned a network with a memory, which proximo must know before it calls the function: pass the class or the object itself."
        )
    if config.remembers:
        encoder, cell = PassThrough(space), CustomCell(custom)
        out = _step_outputs(custom, zeros(space, ()), 2)
    else:
        if not callable(custom.module):
            raise ConfigError(f"actor_critic = {config.actor_critic} gave {type(custom.module).__name__}, which lacks __call__.")
        encoder, cell = CustomEncoder(space, custom), NoMemory()
        out = output_shape(custom, f"actor_critic(observation of {space})", "__call__", zeros(space, ()))
        if not isinstance(out, tuple) or len(out) != 2:
            raise ConfigError(f"actor_critic: it gives {describe_shape(out)}, expected two arrays (parameters, value).")
    vector_size(custom, "its first output, the parameters of the distribution,", out[0], count)
    vector_size(custom, "its second output, the value,", out[1], 1, or_scalar=True)
    return encoder, cell


def _step_outputs(custom: CustomModule, x: PyTree, count: int) -> tuple[PyTree, ...]:
    """Shapes of the ``count`` outputs of ``step(init(), x)`` after the state. The new state must have the shapes of the old one."""
    state = output_shape(custom, "init()", "init")
    stepped = output_shape(custom, "step(state, x)", "step", state, x)
    if not isinstance(stepped, tuple) or len(stepped) != 1 + count:
        expected = "(state, features)" if count == 1 else "(state, parameters, value)"
        raise ConfigError(f"{custom.setting}: step(state, x) gives {describe_shape(stepped)}, expected {expected}.")
    given, returned = describe_shape(state), describe_shape(stepped[0])
    if any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in jax.tree.leaves(state)):
        raise ConfigError(
            f"{custom.setting}: init() gives the state {given}: store real and imaginary parts of complex numbers as two real arrays."
        )
    if jax.tree.structure(state) != jax.tree.structure(stepped[0]) or given != returned:
        raise ConfigError(
            f"{custom.setting}: init() gives the state {given}, and step {returned}: expected the same structure, shapes and types."
        )
    return stepped[1:]
