"""Flax modules as networks of a policy: thin, their parameters as one more pytree.

    proximo.PPO("CartPole-v1", encoder=linen(MyEncoder()))
    proximo.PPO("CartPole-v1", memory=linen(nn.GRUCell(features=64)))
    proximo.PPO("CartPole-v1", actor_critic=nnx(lambda space, count, rngs: MyNetwork(space.size, count, rngs=rngs)))

A module is called for one observation of one environment, without a batch axis, as every network of the user's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from proximo.errors import ConfigError, lacking
from proximo.spaces import Space, zeros

try:
    import flax.linen
    import flax.nnx
except ImportError as error:
    raise lacking("proximo.integrations.flax", "flax") from error


def linen(module: flax.linen.Module) -> Callable[..., Any]:
    """What makes a network of a linen ``module``: an encoder, an actor, a critic or a whole actor-critic; of a recurrent cell a memory. Where the
    size of the output depends on the environment, give a function: ``actor=lambda key, features, count: linen(nn.Dense(count))(key, features)``.
    Raises ``ConfigError``, when it is made, for a module whose variables are not all parameters."""
    return functools.partial(_of_linen, module)


def nnx(make: Callable[..., flax.nnx.Module]) -> Callable[..., Any]:
    """What makes a network of the nnx module that ``make(…, rngs=…)`` gives: the arguments before are those of a network of the user's without the
    key, as the space of observations for an encoder. Raises ``ConfigError``, when it is made, as ``linen``."""
    return functools.partial(_of_nnx, make)


class LinenModule(eqx.Module):
    """``module(x)``, with its parameters."""

    variables: PyTree[Array]
    module: Any = eqx.field(static=True)

    def __call__(self, x: PyTree[Array]) -> Any:
        return self.module.apply(self.variables, x)


class LinenCell(eqx.Module):
    """A recurrent cell, as a memory."""

    variables: PyTree[Array]
    module: Any = eqx.field(static=True)
    in_size: int = eqx.field(static=True)

    def init(self) -> PyTree[Array]:
        return self.module.initialize_carry(jax.random.key(0), (self.in_size,))

    def step(self, state: PyTree[Array], x: Array) -> tuple[PyTree[Array], Array]:
        return self.module.apply(self.variables, state, x)


def _of_linen(module: flax.linen.Module, key: Key[Array, ""], reads: Space | int, *sizes: int) -> LinenModule | LinenCell:
    x = _example(reads)
    if isinstance(module, flax.linen.RNNCellBase):
        cell = LinenCell({}, module, x.shape[0])
        return LinenCell(_parameters(module, module.init(key, cell.init(), x)), module, x.shape[0])
    return LinenModule(_parameters(module, module.init(key, x)), module)


def _parameters(module: flax.linen.Module, variables: Any) -> Any:
    if more := set(variables) - {"params"}:
        raise ConfigError(
            f"{type(module).__name__} has the variables {', '.join(sorted(more))}, which change as it runs: a policy has parameters only (LayerNorm in "
            "place of BatchNorm)."
        )
    return variables


class NnxModule(eqx.Module):
    """``module(x)``, with its parameters; of a recurrent cell a memory."""

    parameters: PyTree[Array]
    graph: Any = eqx.field(static=True)

    @property
    def module(self) -> Any:
        """The module with the parameters of this moment."""
        return flax.nnx.merge(self.graph, flax.nnx.State(self.parameters))

    def __call__(self, x: PyTree[Array]) -> Any:
        return self.module(x)


class NnxCell(NnxModule):
    """A recurrent cell, as a memory."""

    in_size: int = eqx.field(static=True)

    def init(self) -> PyTree[Array]:
        return self.module.initialize_carry((self.in_size,), flax.nnx.Rngs(0))

    def step(self, state: PyTree[Array], x: Array) -> tuple[PyTree[Array], Array]:
        return self.module(state, x)


def _of_nnx(make: Callable[..., flax.nnx.Module], key: Key[Array, ""], reads: Space | int, *sizes: int) -> NnxModule:
    module = make(reads, *sizes, rngs=flax.nnx.Rngs(key))
    graph, parameters, rest = flax.nnx.split(module, flax.nnx.Param, ...)
    if jax.tree.leaves(rest):
        raise ConfigError(
            f"{type(module).__name__} has variables beside its parameters, which change as it runs: a policy has parameters only (LayerNorm in place "
            "of BatchNorm, no Dropout)."
        )
    held = flax.nnx.to_pure_dict(parameters)
    return NnxCell(held, graph, _example(reads).shape[0]) if isinstance(module, flax.nnx.RNNCellBase) else NnxModule(held, graph)


def _example(reads: Space | int) -> Any:
    return jnp.zeros(reads) if isinstance(reads, int) else jax.tree.map(jnp.asarray, zeros(reads, ()))
