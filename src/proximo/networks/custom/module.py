"""Turns the user's code into Equinox modules, and checks the shapes of what it returns."""

from __future__ import annotations

import dataclasses
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


@dataclasses.dataclass(frozen=True)
class FixedLeaves:
    """A pytree of values that are not trained. They compare by content, so that networks made alike share one
    compiled program."""

    tree: PyTree = dataclasses.field(compare=False)
    content: tuple[Any, ...]


def _content(x: Any) -> Any:
    """What a value or a function compares by. Raises ``TypeError`` for any other object, which could hide arrays from JAX."""
    if isinstance(x, np.ndarray):
        return x.shape, x.dtype, x.tobytes()
    is_function = isinstance(x, functools.partial) or (callable(x) and hasattr(x, "__name__"))
    if type(x).__eq__ is object.__eq__ and not is_function:
        raise TypeError(f"{type(x).__name__} has no equality")
    hash(x)
    return type(x), repr(x) if isinstance(x, float) else x  # NaN does not equal itself


class CustomModule(eqx.Module):
    """A pytree of the user's as an Equinox module. Its JAX arrays are ``parameters``; training changes those
    of floating-point numbers. All other leaves are fixed."""

    parameters: PyTree
    fixed: FixedLeaves = eqx.field(static=True)
    setting: str = eqx.field(static=True)
    """Name of the setting that the object was given for; error messages begin with it."""

    @classmethod
    def wrap(cls, setting: str, module: Any) -> CustomModule:
        """Wrap a registered pytree, such as an Equinox module, or a function. Raises ``ConfigError`` for
        other objects, also inside it."""
        parameters, fixed = eqx.partition(module, lambda x: isinstance(x, jax.Array))
        leaves, content = jax.tree.leaves(fixed), [jax.tree.structure(fixed)]
        for leaf in leaves:
            try:
                content.append(_content(leaf))
            except TypeError:
                raise ConfigError(
                    f"{setting}: {type(leaf).__name__} is not a pytree, so JAX cannot find the arrays in it. Make the class a subclass of "
                    "equinox.Module, or register it with jax.tree_util.register_dataclass. A field of a module that has no arrays may also be "
                    "equinox.field(static=True). See docs/custom-networks.md."
                ) from None
        return cls(parameters, FixedLeaves(fixed, tuple(content)), setting)

    @property
    def module(self) -> Any:
        """The user's object with the current parameters."""
        return eqx.combine(self.parameters, self.fixed.tree)

    def expect(self, fits: bool, sentence: str) -> None:
        """Raise ``ConfigError`` with the name of the setting and ``sentence`` if not ``fits``."""
        if not fits:
            raise ConfigError(f"{self.setting}: {sentence}.")

    def outputs(self, call: str, method: str, *examples: PyTree) -> PyTree[jax.ShapeDtypeStruct]:
        """Shapes of what ``method`` returns for ``examples`` (arrays or shapes); nothing is computed.
        ``call`` is the call in words, for errors."""
        with custom_code_errors(f"{self.setting}: {call}", ConfigError):
            out = jax.eval_shape(lambda custom, *examples: getattr(custom.module, method)(*examples), self, *examples)
        is_complex = any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in jax.tree.leaves((self.parameters, out)))
        complex_numbers = f"{call} has complex parameters or outputs: store real and imaginary parts as two real arrays"
        self.expect(not is_complex, complex_numbers)
        return out

    def check_vector(self, call: str, given: PyTree, size: int | None = None, *, or_scalar: bool = False) -> int:
        """The length of an output ``given`` (its shape), which must be a vector of ``size`` floating-point
        numbers (None: any size), or with ``or_scalar`` one number."""
        shape: tuple[int, ...] = given.shape if is_array(given, floating=True) else (0, 0)
        shape = (1,) if or_scalar and shape == () else shape
        self.expect(
            len(shape) == 1 and size in (None, shape[0]),
            f"{call} gives {describe_shape(given)}, expected a vector of {'' if size is None else f'{size} '}floating-point numbers: it is called "
            "for one observation of one environment, without a batch axis",
        )
        return shape[0]


def make_module(setting: str, value: str | Custom, methods: tuple[str, ...], *arguments: Any) -> CustomModule:
    """Make and wrap the user's object for ``setting``: a class or a function is called with ``arguments``, an
    object is used as it is.

    Raises ``ConfigError`` if the code raises, if a class lacks one of ``methods``, or if the object is not a
    pytree.
    """
    made = resolve(setting, value, methods)
    if inspect.isclass(made) or inspect.isroutine(made) or isinstance(made, functools.partial):
        with custom_code_errors(f"{setting} = {value}, when it was made,", ConfigError):
            made = made(*arguments)
    check_not_torch(setting, made)
    return CustomModule.wrap(setting, made)


def is_array(shape: PyTree, *, floating: bool = False) -> bool:
    """Whether a result of ``CustomModule.outputs`` is one array, with ``floating`` one of floating-point numbers."""
    return isinstance(shape, jax.ShapeDtypeStruct) and (not floating or jnp.issubdtype(shape.dtype, jnp.floating))


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
