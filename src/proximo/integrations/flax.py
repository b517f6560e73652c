"""Flax modules as networks of a policy.

    proximo.PPO("CartPole-v1", encoder=linen(MyEncoder()))
    proximo.PPO("CartPole-v1", memory=linen(nn.GRUCell(features=64)))
    proximo.PPO("CartPole-v1", actor_critic=nnx(lambda space, count, rngs: MyNetwork(space.size, count, rngs=rngs)))

Like every custom network, a module is called with one observation of one environment, without a batch axis.
"""

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
    """Use a linen module as a custom network.

    If the size of the output depends on the environment, pass a function:
    ``actor=lambda key, features, count: linen(nn.Dense(count))(key, features)``.

    Args:
        module: An encoder, an actor, a critic, a whole actor-critic, or a recurrent cell: a memory.

    Returns:
        A function that makes the network. It raises ``ConfigError`` if there are variables that are not parameters.
    """
    return functools.partial(_make_linen, module)


def nnx(make: Callable[..., flax.nnx.Module]) -> Callable[..., Any]:
    """Use an nnx module as a custom network.

    Args:
        make: Called as ``make(…, rngs=rngs)``; returns the module. The other arguments are those of a custom network without its key,
            for example the observation space for an encoder.

    Returns:
        A function that makes the network. It raises ``ConfigError`` if there are variables that are not parameters.
    """
    return functools.partial(_make_nnx, make)


class LinenModule(eqx.Module):
    """A linen module with its parameters."""

    variables: PyTree[Array]
    module: Any = eqx.field(static=True)

    def __call__(self, x: PyTree[Array]) -> Any:
        return self.module.apply(self.variables, x)


class LinenCell(LinenModule):
    """A recurrent linen cell with its parameters, as a memory."""

    in_size: int = eqx.field(static=True)

    def init(self) -> PyTree[Array]:
        return self.module.initialize_carry(jax.random.key(0), (self.in_size,))

    def step(self, state: PyTree[Array], x: Array) -> tuple[PyTree[Array], Array]:
        return self.module.apply(self.variables, state, x)


def _make_linen(module: flax.linen.Module, key: Key[Array, ""], input_type: Space | int, *sizes: int) -> LinenModule:
    x = _example(input_type)
    is_cell = isinstance(module, flax.linen.RNNCellBase)
    variables = module.init(key, LinenCell({}, module, x.shape[0]).init(), x) if is_cell else module.init(key, x)
    more = ", ".join(sorted(set(variables) - {"params"}))
    _check_parameters(module, more and f"the variables {more}")
    return LinenCell(variables, module, x.shape[0]) if is_cell else LinenModule(variables, module)


class NnxModule(eqx.Module):
    """An nnx module with its parameters."""

    parameters: PyTree[Array]
    graph: Any = eqx.field(static=True)

    @property
    def module(self) -> Any:
        """The module with the current parameters."""
        return flax.nnx.merge(self.graph, flax.nnx.State(self.parameters))

    def __call__(self, x: PyTree[Array]) -> Any:
        return self.module(x)


class NnxCell(NnxModule):
    """A recurrent nnx cell with its parameters, as a memory."""

    in_size: int = eqx.field(static=True)

    def init(self) -> PyTree[Array]:
        return self.module.initialize_carry((self.in_size,), flax.nnx.Rngs(0))

    def step(self, state: PyTree[Array], x: Array) -> tuple[PyTree[Array], Array]:
        return self.module(state, x)


def _make_nnx(make: Callable[..., flax.nnx.Module], key: Key[Array, ""], input_type: Space | int, *sizes: int) -> NnxModule:
    module = make(input_type, *sizes, rngs=flax.nnx.Rngs(key))
    graph, parameters, rest = flax.nnx.split(module, flax.nnx.Param, ...)
    _check_parameters(module, "variables besides its parameters" if jax.tree.leaves(rest) else "")
    values = flax.nnx.to_pure_dict(parameters)
    is_cell = isinstance(module, flax.nnx.RNNCellBase)
    return NnxCell(values, graph, _example(input_type).shape[0]) if is_cell else NnxModule(values, graph)


def _check_parameters(module: Any, others: str) -> None:
    if others:
        raise ConfigError(
            f"{type(module).__name__} has {others}, which change while it runs: a policy can only have parameters (use LayerNorm "
            "instead of BatchNorm, and no Dropout)."
        )


def _example(input_type: Space | int) -> Any:
    return jnp.zeros(input_type) if isinstance(input_type, int) else jax.tree.map(jnp.asarray, zeros(input_type, ()))
