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
    return functools.partial(_make, lambda *_: module)


def nnx(make: Callable[..., flax.nnx.Module]) -> Callable[..., Any]:
    """Use an nnx module as a custom network.

    Args:
        make: Called as ``make(…, rngs=rngs)``; returns the module. The other arguments are those of a custom network without its key,
            for example the observation space for an encoder.

    Returns:
        A function that makes the network. It raises ``ConfigError`` if there are variables that are not parameters.
    """
    return functools.partial(_make, lambda key, *arguments: make(*arguments, rngs=flax.nnx.Rngs(key)))


class FlaxModule(eqx.Module):
    """A Flax module with its parameters: those of linen are ``variables``, those of nnx ``parameters``, and the other
    field is None. Checkpoints contain the names of these fields."""

    variables: PyTree[Array] | None
    """Of a linen module."""
    parameters: PyTree[Array] | None
    """Of an nnx module."""
    definition: Any = eqx.field(static=True)
    """A linen module, or the graph of an nnx module."""

    def __call__(self, *inputs: PyTree[Array]) -> Any:
        if isinstance(self.definition, flax.linen.Module):
            return self.definition.apply(self.variables or {}, *inputs)
        return self.module(*inputs)

    @property
    def module(self) -> Any:
        """The module; of nnx, with its current parameters."""
        if isinstance(self.definition, flax.linen.Module):
            return self.definition
        return flax.nnx.merge(self.definition, flax.nnx.State(self.parameters or {}))


class FlaxCell(FlaxModule):
    """A recurrent cell with its parameters, as a memory."""

    in_size: int = eqx.field(static=True)

    def init(self) -> PyTree[Array]:
        if isinstance(self.definition, flax.linen.Module):
            return self.definition.initialize_carry(jax.random.key(0), (self.in_size,))
        return self.module.initialize_carry((self.in_size,), flax.nnx.Rngs(0))

    step = FlaxModule.__call__


def _make(make: Callable[..., Any], key: Key[Array, ""], inputs: Space | int, *sizes: int) -> FlaxModule:
    module = make(key, inputs, *sizes)
    is_cell = isinstance(module, flax.linen.RNNCellBase | flax.nnx.RNNCellBase)
    example: Any = jnp.zeros(inputs) if isinstance(inputs, int) else jax.tree.map(jnp.asarray, zeros(inputs, ()))
    if isinstance(module, flax.linen.Module):
        arguments = (FlaxCell({}, None, module, example.shape[0]).init(), example) if is_cell else (example,)
        variables, parameters, definition = module.init(key, *arguments), None, module
        more = ", ".join(sorted(set(variables) - {"params"}))
        others = more and f"the variables {more}"
    else:
        definition, state, rest = flax.nnx.split(module, flax.nnx.Param, ...)
        variables, parameters = None, flax.nnx.to_pure_dict(state)
        others = "variables besides its parameters" if jax.tree.leaves(rest) else ""
    if others:
        raise ConfigError(
            f"{type(module).__name__} has {others}, which change while it runs: a policy can only have parameters (use LayerNorm "
            "instead of BatchNorm, and no Dropout)."
        )
    if is_cell:
        return FlaxCell(variables, parameters, definition, example.shape[0])
    return FlaxModule(variables, parameters, definition)
