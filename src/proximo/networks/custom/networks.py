"""Custom encoders, memories, heads and whole actor-critics, wrapped as the parts of an ``ActorCritic``.

The user writes a network for one observation of one environment, without a base class of proximo. The
wrappers vmap it over time and environments. So its outputs for one environment cannot depend on another one,
and a wrong shape raises an error instead of broadcasting.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from proximo.config import NetworkConfig
from proximo.math.selection import select
from proximo.networks.custom.module import CustomModule, describe_shape, make_module, vmap_leading
from proximo.networks.recurrent.protocol import MemoryCell, NoMemory
from proximo.spaces import Box, Dict, Space, zeros
from proximo.types import Observation


class PassThrough(eqx.Module):
    """Passes the observation on to a memory that reads observations itself."""

    space: Space = eqx.field(static=True)
    """Space of the observation that is passed on. Other entries of a Dict observation are dropped."""

    def __call__(self, x: Observation) -> Observation:
        return {name: x[name] for name, _ in self.space.spaces} if isinstance(self.space, Dict) else x


class CustomNetwork(PassThrough):
    """An encoder, ``module(observation) -> features``; a head, ``module(features) -> numbers``; or a whole
    actor-critic, ``module(observation) -> (parameters, value)``."""

    custom: CustomModule

    def __call__(self, x: Observation) -> Float[Array, "*batch features"]:
        x = super().__call__(x)
        ndim = jax.tree.leaves(x)[0].ndim - jax.tree.leaves(zeros(self.space, ()))[0].ndim
        return vmap_leading(lambda x: _vector(self.custom.module(x)), ndim, x)


class Slice(eqx.Module):
    """The part of a whole actor-critic's outputs that belongs to one head."""

    start: int = eqx.field(static=True)
    stop: int = eqx.field(static=True)

    def __call__(self, features: Float[Array, "*batch features"]) -> Float[Array, "*batch out_size"]:
        return features[..., self.start : self.stop]


class CustomCell(MemoryCell):
    """A custom memory: ``init() -> state`` and ``step(state, x) -> (state, out)`` of one environment.

    The wrapper resets the state at episode starts and leaves it unchanged on padding steps. A module with its
    own ``unroll(state, x, episode_start, valid) -> (state, out)`` over ``T`` steps must do both there. A
    whole actor-critic with a memory reads observations and returns ``(state, parameters, value)``.
    """

    custom: CustomModule
    space: Space = eqx.field(static=True)
    """Space of one input ``x``."""

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

    def step(self, state: PyTree, x: PyTree, episode_start: Array, valid: Array) -> tuple[PyTree, Array]:
        def step_one(state: PyTree, x: PyTree) -> tuple[PyTree, Array]:
            state, *out = self.custom.module.step(state, x)
            return state, _vector(out)

        # With another compute_dtype, the given state has that type, but arrays that the module creates may be float32.
        state = select(episode_start, _cast_like(self.init(episode_start.shape[0]), state), state)
        new_state, out = jax.vmap(step_one)(state, x)
        return select(valid, _cast_like(new_state, state), state), out

    def unroll(self, state: PyTree, x: PyTree, episode_start: Array, valid: Array) -> tuple[PyTree, Array]:
        if not self.has_unroll:
            return super().unroll(state, x, episode_start, valid)

        def unroll_one(state: PyTree, x: PyTree, episode_start: Array, valid: Array) -> tuple[PyTree, Array]:
            last, *out = self.custom.module.unroll(state, x, episode_start, valid)
            out = jnp.concatenate([part.reshape((episode_start.shape[0], -1)) for part in out], axis=-1)
            return _cast_like(last, state), out

        return jax.vmap(unroll_one, in_axes=(0, 1, 1, 1), out_axes=(0, 1))(state, x, episode_start, valid)


def _vector(out: Any) -> Array:
    """An output, or the parameters and the value of a whole actor-critic, as one vector."""
    return jnp.concatenate([jnp.atleast_1d(x) for x in (out if isinstance(out, tuple | list) else (out,))])


def _cast_like(tree: PyTree[Array], like: PyTree[Array]) -> PyTree[Array]:
    return jax.tree.map(lambda x, y: x.astype(y.dtype), tree, like)


def make_network(
    setting: str, key: Key[Array, ""], inputs: Space | int, config: NetworkConfig, count: int | None = None
) -> tuple[CustomNetwork, int]:
    """The network for ``setting`` (``encoder``, ``actor`` or ``critic``), and its number of outputs, which is
    ``count`` (None: any).

    ``inputs`` is the space of the observations, or for a head the number of its features. Raises
    ``ConfigError`` for other outputs.
    """
    arguments = (inputs, count) if setting == "actor" else (inputs,)
    custom = make_module(setting, getattr(config, setting), ("__call__",), key, *arguments)
    space, what = (Box((inputs,)), f"{inputs} features") if isinstance(inputs, int) else (inputs, f"observation of {inputs}")
    call = f"{setting}({what})"
    out = custom.outputs(call, "__call__", zeros(space, ()))
    return CustomNetwork(space, custom), custom.check_vector(call, out, count, or_scalar=setting == "critic")


def make_memory(key: Key[Array, ""], features: int, config: NetworkConfig) -> tuple[CustomCell, int]:
    """The memory that ``config.memory`` names, for ``features`` inputs, and its number of outputs."""
    custom, space = make_module("memory", config.memory, ("init", "step"), key, features), Box((features,))
    (out,) = _step_outputs(custom, space, "features")
    return CustomCell(custom, space), custom.check_vector("the second output of step(state, x)", out)


def make_actor_critic(
    key: Key[Array, ""], space: Space, count: int, config: NetworkConfig
) -> tuple[CustomNetwork | PassThrough, MemoryCell]:
    """The whole actor-critic that ``config.actor_critic`` names, as an encoder and a memory, with ``count +
    1`` outputs: the parameters of the distribution, and the value. Raises ``ConfigError`` for others."""
    custom = make_module("actor_critic", config.actor_critic, ("init", "step") if config.remembers else (), key, space, count)
    if config.remembers:
        encoder, cell = PassThrough(space), CustomCell(custom, space)
        out = _step_outputs(custom, space, "parameters", "value")
    else:
        encoder, cell = CustomNetwork(space, custom), NoMemory()
        out = custom.outputs(f"actor_critic(observation of {space})", "__call__", zeros(space, ()))
        is_pair = isinstance(out, tuple) and len(out) == 2
        custom.expect(is_pair, f"it gives {describe_shape(out)}, expected two arrays (parameters, value)")
    custom.check_vector("its first output, the parameters of the distribution,", out[0], count)
    custom.check_vector("its second output, the value,", out[1], 1, or_scalar=True)
    return encoder, cell


def _step_outputs(custom: CustomModule, space: Space, *names: str) -> tuple[PyTree, ...]:
    """Shapes of the outputs of ``step(init(), x)`` after the state, which must keep its shapes. ``names``: what they are."""
    state = custom.outputs("init()", "init")
    stepped = custom.outputs("step(state, x)", "step", state, zeros(space, ()))
    is_tuple, wanted = isinstance(stepped, tuple) and len(stepped) == 1 + len(names), describe_shape(state)
    keeps = is_tuple and jax.tree.structure(stepped[0]) == jax.tree.structure(state) and describe_shape(stepped[0]) == wanted
    gives = f"step(state, x) gives {describe_shape(stepped)}"
    custom.expect(keeps, f"{gives}, expected a tuple of the state as init() gives it, {wanted}, and {' and '.join(names)}")
    return stepped[1:]
