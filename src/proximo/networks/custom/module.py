"""Turns the user's code into Equinox modules and checks the shapes of what they return."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from proximo.config.custom import Custom, check_not_torch, resolve
from proximo.custom_code import custom_code_errors
from proximo.errors import ConfigError


class FixedLeaves:
    """A pytree of values that are not trained. It compares by content: networks that were made alike share one compiled program."""

    def __init__(self, tree: PyTree):
        self.tree = tree
        leaves, structure = jax.tree.flatten(tree)
        self._content = structure, tuple(map(_content, leaves))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FixedLeaves) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)


def _content(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return x.shape, x.dtype, x.tobytes()
    return type(x), repr(x) if isinstance(x, float) else x  # NaN does not equal itself


def _is_value(x: Any) -> bool:
    """Whether ``x`` is a function or a hashable value. Any other object could hide arrays from JAX."""
    if isinstance(x, np.ndarray | functools.partial) or (callable(x) and hasattr(x, "__name__")):
        return True
    try:
        hash(x)
    except TypeError:
        return False
    return type(x).__eq__ is not object.__eq__


class CustomModule(eqx.Module):
    """A pytree of the user's as an Equinox module. Its JAX arrays are ``parameters``; training changes those of floating-point
    numbers. All other leaves are fixed."""

    parameters: PyTree
    fixed: FixedLeaves = eqx.field(static=True)
    setting: str = eqx.field(static=True)
    """Name of the setting that the object was given for; error messages begin with it."""

    @classmethod
    def wrap(cls, setting: str, module: Any) -> CustomModule:
        """Wrap an Equinox module, a wrapped Flax module, any other registered pytree, or a function.

        Raises:
            ConfigError: ``module``, or an object in it, is not a pytree, or has complex parameters.
        """
        parameters, fixed = eqx.partition(module, lambda x: isinstance(x, jax.Array))
        name = type(module).__name__
        if any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in jax.tree.leaves(parameters)):
            raise ConfigError(f"{setting}: {name} has complex parameters: store real and imaginary parts as two real arrays.")
        for leaf in jax.tree.leaves(fixed):
            if not _is_value(leaf):
                raise ConfigError(
                    f"{setting}: {type(leaf).__name__} is not a pytree, so JAX cannot find the arrays in it. Make the class a subclass of "
                    "equinox.Module, or register it with jax.tree_util.register_dataclass. A field of a module that has no arrays may also be "
                    "equinox.field(static=True). See docs/custom-networks.md."
                )
        return cls(parameters, FixedLeaves(fixed), setting)

    @property
    def module(self) -> Any:
        """The user's object with the current parameters."""
        return eqx.combine(self.parameters, self.fixed.tree)


def make_module(setting: str, value: str | Custom, methods: tuple[str, ...], *arguments: Any) -> CustomModule:
    """Make and wrap the user's object for a setting.

    Args:
        setting: Name of the setting.
        value: A class or function, which is called with ``arguments``; an object, which is used as it is; or an importable name.
        methods: Methods that the object must have.
        *arguments: Arguments of the class or function.

    Raises:
        ConfigError: The code raises, a method is missing, or the object is not a pytree.
    """
    code = resolve(setting, value, methods)
    made = code
    if inspect.isclass(code) or inspect.isroutine(code) or isinstance(code, functools.partial):
        with custom_code_errors(f"{setting} = {value}, when it was made,", ConfigError):
            made = code(*arguments)
    check_not_torch(setting, made)
    lacking = [method for method in methods if not callable(getattr(made, method, None))]
    if lacking:
        raise ConfigError(f"{setting} = {value} gave {type(made).__name__}, which lacks {' and '.join(lacking)}.")
    return CustomModule.wrap(setting, made)


def output_shape(custom: CustomModule, call: str, method: str, *examples: PyTree) -> PyTree[jax.ShapeDtypeStruct]:
    """Shapes and types of what a method returns for ``examples`` (arrays or shapes), without computing it.

    ``call`` is the call in words, for the ``ConfigError`` if the user's code raises.
    """
    with custom_code_errors(f"{custom.setting}: {call}", ConfigError):
        return jax.eval_shape(lambda custom, *examples: getattr(custom.module, method)(*examples), custom, *examples)


def is_array(shape: PyTree, *, floating: bool = False) -> bool:
    """Whether a result of ``output_shape`` is one array, with ``floating`` one of floating-point numbers."""
    return isinstance(shape, jax.ShapeDtypeStruct) and (not floating or jnp.issubdtype(shape.dtype, jnp.floating))


def vector_size(custom: CustomModule, call: str, shape: PyTree, expected: int | None = None, *, or_scalar: bool = False) -> int:
    """The length of an output that must be one vector of floating-point numbers; ``or_scalar`` allows one number without an axis.

    ``shape`` is a result of ``output_shape``. Raises ``ConfigError`` for any other output, and for another length than ``expected``, unless
    that is None; ``call`` is the call in words, for its message.
    """
    if or_scalar and is_array(shape) and shape.shape == ():
        shape = jax.ShapeDtypeStruct((1,), shape.dtype)
    if not is_array(shape, floating=True) or shape.ndim != 1 or expected not in (None, shape.shape[0]):
        size = "" if expected is None else f"{expected} "
        raise ConfigError(
            f"{custom.setting}: {call} gives {describe_shape(shape)}, expected a vector of {size}floating-point numbers: it is called for one "
            "observation of one environment, without a batch axis."
        )
    return shape.shape[0]


def describe_shape(shape: PyTree) -> str:
    """``(3, 4) float32`` for an array; for any other pytree the type and the shape of each leaf."""
    if isinstance(shape, jax.ShapeDtypeStruct | jax.Array):
        return f"{shape.shape} {shape.dtype}"
    leaves = [describe_shape(leaf) for leaf in jax.tree.leaves(shape)]
    return f"{type(shape).__name__} of {', '.join(leaves) or 'nothing'}"


def vmap_leading(function: Callable[..., Any], ndim: int, *arrays: PyTree[Array]) -> PyTree[Array]:
    """Apply ``function`` to each element along the ``ndim`` leading axes that all ``arrays`` share."""
    lead = jax.tree.leaves(arrays[0])[0].shape[:ndim]
    flat = jax.tree.map(lambda x: x.reshape((-1, *x.shape[ndim:])), arrays)
    return jax.tree.map(lambda y: y.reshape((*lead, *y.shape[1:])), jax.vmap(function)(*flat))
