"""Networks of the user's, made and asked what they give: for one observation of one environment, no base class behind them.

Over rows and environments they are vmapped here, so that what they compute for one cannot depend on another, and a wrong shape is a sentence,
not a broadcast.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from proximo.errors import ConfigError
from proximo.networks.memory.memory import MemoryCell, select
from proximo.own_code import Own, resolve
from proximo.types import Observation
from proximo.users_code import users_code

_LIBRARIES = ("builtins", "functools", "jax", "jaxlib", "equinox", "optax", "flax")
"""Whose objects are what they are: ``jax.nn.relu`` is one with attributes."""


class Rest:
    """What of an object is no array: compared by content, so that two objects which are made alike are the same to JAX."""

    def __init__(self, tree: PyTree):
        self.tree = tree
        leaves, structure = jax.tree.flatten(tree)
        self._content = structure, tuple(map(_content, leaves))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rest) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)


def _is_circular(x: Any, above: tuple[int, ...]) -> bool:
    """Whether an object holds itself. Looked for beforehand, because the process is of no use behind JAX's attempt to flatten one."""
    if id(x) in above:
        return True
    if isinstance(x, dict):
        parts = x.values()
    elif isinstance(x, list | tuple):
        parts = x
    else:
        parts = () if _is_itself(x) else (_attributes(x) or {}).values()
    return any(_is_circular(part, (*above, id(x))) for part in parts)


def _is_itself(x: Any) -> bool:
    """Whether nothing of the user's is within: a function, a class, an array, an object of a library's such as ``jax.nn.relu``."""
    return inspect.isroutine(x) or inspect.isclass(x) or type(x).__module__.split(".")[0] in _LIBRARIES


def _content(x: Any) -> Any:
    """Equal, and with the same hash, for two that are made alike: objects of the user's by their attributes, all else by itself."""
    if isinstance(x, jax.Array):
        raise ConfigError(
            "an array lies in an object that JAX cannot look into, where it would never be learned: make its class an equinox.Module, or a NumPy "
            "array of what is no parameter."
        )
    if isinstance(x, np.ndarray):
        return x.shape, x.dtype, x.tobytes()
    if isinstance(x, float):
        return float, repr(x)  # one that is not a number equals nothing, itself neither
    if isinstance(x, list | tuple):
        return type(x), tuple(map(_content, x))
    if isinstance(x, dict):
        return dict, tuple((name, _content(value)) for name, value in x.items())
    if _is_itself(x) or type(x).__eq__ is not object.__eq__:
        return x
    held = _attributes(x)
    return x if held is None else (type(x), _content(held))


def _attributes(x: Any) -> dict[str, Any] | None:
    """Attributes of an object, those in slots too; None where it can have none."""

    def names_of(slots: str | Iterable[str]) -> list[str]:
        return [slots] if isinstance(slots, str) else list(slots)

    slots = [name for base in type(x).__mro__ for name in names_of(getattr(base, "__slots__", ()))]
    if not slots and not hasattr(x, "__dict__"):
        return None
    return {name: getattr(x, name) for name in slots if hasattr(x, name)} | getattr(x, "__dict__", {})


class Held(eqx.Module):
    """An object of the user's as a module: its JAX arrays are parameters (where they are floating-point numbers), all else is fixed."""

    parameters: PyTree
    rest: Rest = eqx.field(static=True)
    setting: str = eqx.field(static=True)

    @classmethod
    def of(cls, setting: str, made: Any) -> Held:
        """Raises ``ConfigError`` for an object that JAX cannot hold."""
        if _is_circular(made, ()):
            raise ConfigError(f"{setting}: {type(made).__name__} holds itself, directly or through another object: JAX cannot.")
        arrays, rest = eqx.partition(made, lambda x: isinstance(x, jax.Array))
        if any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in jax.tree.leaves(arrays)):
            raise ConfigError(
                f"{setting}: {type(made).__name__} has complex numbers as parameters: keep them as two of real numbers."
            )
        try:
            rest = Rest(rest)
            hash(rest)
        except ConfigError as error:
            raise ConfigError(f"{setting}: {error}") from None
        except TypeError as error:
            raise ConfigError(
                f"{setting}: {type(made).__name__} holds what is neither an array nor hashable ({error}): make it an array, a tuple or a module."
            ) from error
        return cls(arrays, rest, setting)

    @property
    def module(self) -> Any:
        """The object itself, with the parameters of this moment."""
        return eqx.combine(self.parameters, self.rest.tree)


def make(setting: str, value: str | Own, methods: tuple[str, ...], *arguments: Any) -> Held:
    """What the user's class or function for ``setting`` makes of ``arguments``; an object that is made already, as it is. Raises
    ``ConfigError`` where it raises, or has not the ``methods``."""
    code = resolve(setting, value, methods)
    made = code
    if inspect.isclass(code) or inspect.isroutine(code) or isinstance(code, functools.partial):
        with users_code(f"{setting} = {value}, when it was made,", ConfigError):
            made = code(*arguments)
    lacking = [method for method in methods if not callable(getattr(made, method, None))]
    if lacking:
        raise ConfigError(f"{setting} = {value} gave {type(made).__name__}, which lacks {' and '.join(lacking)}.")
    return Held.of(setting, made)


def shape_of(held: Held, what: str, function: Callable[..., Any], *examples: Any) -> PyTree[jax.ShapeDtypeStruct]:
    """Shapes of ``function(object, *examples)``; ``what`` names the call in the error."""
    with users_code(f"{held.setting}: {what}", ConfigError):
        return jax.eval_shape(lambda held, *examples: function(held.module, *examples), held, *examples)


def vector_of(held: Held, what: str, shapes: PyTree, expected: int | None = None) -> int:
    """The length of the one vector that ``shapes`` describe. Raises ``ConfigError`` for anything else."""
    wanted = "a vector of floating-point numbers" if expected is None else f"a vector of {expected} floating-point numbers"
    vector = shapes if isinstance(shapes, jax.ShapeDtypeStruct) else None
    floats = vector is not None and jnp.issubdtype(vector.dtype, jnp.floating)
    if vector is None or not floats or vector.ndim != 1 or expected not in (None, vector.shape[0]):
        raise ConfigError(
            f"{held.setting}: {what} gives {described(shapes)}, expected {wanted}: it is called for one observation of one environment, "
            "without a batch axis."
        )
    return vector.shape[0]


def described(shapes: PyTree) -> str:
    """``(3, 4) float32``; of a structure, part by part."""
    if isinstance(shapes, jax.ShapeDtypeStruct | jax.Array):
        return f"{shapes.shape} {shapes.dtype}"
    leaves = [described(leaf) for leaf in jax.tree.leaves(shapes)]
    return f"{type(shapes).__name__} of {', '.join(leaves) or 'nothing'}"


def over_rows(function: Callable[..., Any], ndim: int, *arrays: PyTree[Array]) -> PyTree[Array]:
    """``function`` of each row of ``arrays``, which have ``ndim`` leading axes in common."""
    lead = jax.tree.leaves(arrays[0])[0].shape[:ndim]
    flat = jax.tree.map(lambda x: x.reshape((-1, *x.shape[ndim:])), arrays)
    return jax.tree.map(lambda y: y.reshape((*lead, *y.shape[1:])), jax.vmap(function)(*flat))


def joined(out: Any) -> Array:
    """Features; of a whole actor-critic the parameters of the distribution and the value behind them, as one vector."""
    return jnp.concatenate([jnp.atleast_1d(x) for x in out]) if isinstance(out, tuple) else out


class OwnEncoder(eqx.Module):
    """``object(observation) -> features``, or as a whole actor-critic ``-> (parameters, value)``."""

    held: Held
    names: tuple[str, ...] | None = eqx.field(static=True)
    """Which entries of a Dict it is given; None: the observation is no Dict."""
    ndim: int = eqx.field(static=True)
    """Axes of the first part of one observation."""

    def __call__(self, x: Observation) -> Float[Array, "*batch features"]:
        x = seen_of(x, self.names)
        return over_rows(lambda x: joined(self.held.module(x)), jax.tree.leaves(x)[0].ndim - self.ndim, x)


class PassOn(eqx.Module):
    """The observation as it is, for a memory that reads it itself."""

    names: tuple[str, ...] | None = eqx.field(static=True)

    def __call__(self, x: Observation) -> Observation:
        return seen_of(x, self.names)


def seen_of(x: Observation, names: tuple[str, ...] | None) -> Observation:
    """The entries ``names`` of an observation; all of one that is no Dict."""
    return x if names is None else {name: x[name] for name in names}


class OwnReadout(eqx.Module):
    """``object(features) -> numbers``; of the value one number, with or without an axis."""

    held: Held

    def __call__(self, features: Float[Array, "*batch features"]) -> Float[Array, "*batch out_size"]:
        return over_rows(lambda x: jnp.atleast_1d(self.held.module(x)), features.ndim - 1, features)


class Part(eqx.Module):
    """Some of the features: what a whole actor-critic gives for the head that this is a part of."""

    start: int = eqx.field(static=True)
    stop: int = eqx.field(static=True)

    def __call__(self, features: Float[Array, "*batch features"]) -> Float[Array, "*batch out_size"]:
        return features[..., self.start : self.stop]


class OwnCell(MemoryCell):
    """``init() -> state`` and ``step(state, x) -> (state, out)`` of one environment; resets and filler rows are dealt with here. Where the object
    has ``unroll(state, x, first, valid) -> (state, out)`` over ``T`` rows, it deals with them itself. As a whole actor-critic it reads observations,
    and ``out`` are two, the parameters of the distribution and the value."""

    held: Held

    @property
    def full_precision(self) -> bool:
        return bool(getattr(self.held.module, "full_precision", self.unrolls))

    @property
    def unrolls(self) -> bool:
        """Whether the object goes through many rows by a way of its own."""
        return callable(getattr(self.held.module, "unroll", None))

    def init(self, batch: int) -> PyTree[Array]:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *jnp.shape(x))), self.held.module.init())

    def step(self, state: PyTree, x: PyTree, first: Bool[Array, " N"], valid: Bool[Array, " N"]) -> tuple[PyTree, Array]:
        # In the types of the state: with another compute_dtype it is cast, and what the object makes anew is not.
        before = select(first, _like(self.init(first.shape[0]), state), state)
        after, out = jax.vmap(self.advance)(before, x)
        return select(valid, _like(after, state), before), out

    def advance(self, state: PyTree, x: PyTree) -> tuple[PyTree, Array]:
        """One row of one environment."""
        state, *out = self.held.module.step(state, x)
        return state, joined(tuple(out)) if len(out) > 1 else out[0]

    def unroll(self, state: PyTree, x: PyTree, first: Bool[Array, "T N"], valid: Bool[Array, "T N"]) -> tuple[PyTree, Array]:
        if not self.unrolls:
            return jax.lax.scan(lambda s, row: self.step(s, *row), state, (x, first, valid))

        def one(state: PyTree, x: PyTree, first: Array, valid: Array) -> tuple[PyTree, Array]:
            last, *out = self.held.module.unroll(state, x, first, valid)
            return _like(last, state), jnp.concatenate([part.reshape((first.shape[0], -1)) for part in out], axis=-1)

        return jax.vmap(one, in_axes=(0, 1, 1, 1), out_axes=(0, 1))(state, x, first, valid)


def _like(tree: PyTree[Array], like: PyTree[Array]) -> PyTree[Array]:
    """``tree`` in the types of ``like``."""
    return jax.tree.map(lambda x, y: x.astype(y.dtype), tree, like)
