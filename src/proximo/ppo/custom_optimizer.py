"""Custom optimizers: any optax transformation, or a function that makes one from the learning rate."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from proximo.config.custom import Custom, is_custom, is_transformation, resolve
from proximo.custom_code import custom_code_errors
from proximo.errors import ConfigError

CustomOptimizer = optax.GradientTransformation | Callable[[Float[Array, ""]], optax.GradientTransformation]


def resolve_optimizer(setting: str, value: str | Custom) -> str | CustomOptimizer:
    """The custom code that ``optimizer`` or ``critic_optimizer`` (``setting``) is or names; a word such as ``adam`` stays a word.

    Raises:
        ConfigError: if it is not found, or is neither an optax transformation nor a function.
    """
    if not is_custom(value):
        return str(value)
    found: Any = resolve(setting, value, ("__call__",))
    if not is_transformation(found) and (inspect.isclass(found) or not callable(found)):
        raise ConfigError(
            f"{setting} = {value}: expected an optax transformation, such as optax.adam(3e-4), or a function that makes one from the "
            "learning rate, such as optax.sgd."
        )
    return cast("CustomOptimizer", found)


def transformation_of(setting: str, custom: CustomOptimizer, rate: Float[Array, ""]) -> optax.GradientTransformation:
    """The transformation that ``custom`` is, or makes from the learning rate ``rate``.

    Raises:
        ConfigError: if its function raises, or returns something else.
    """
    if isinstance(custom, optax.GradientTransformation):
        return _with_worded_errors(setting, custom)
    with custom_code_errors(f"The function of {setting}", ConfigError):
        made: Any = custom(rate)
    if not is_transformation(made):
        raise ConfigError(f"{setting}: the function returns {type(made).__name__}, expected an optax transformation.")
    return _with_worded_errors(setting, made)


def _with_worded_errors(setting: str, transformation: optax.GradientTransformation) -> optax.GradientTransformation:
    def init(parameters: Any) -> Any:
        with custom_code_errors(f"{setting}: init(parameters)", ConfigError):
            return transformation.init(parameters)

    def update(gradient: Any, state: Any, parameters: Any = None) -> tuple[Any, Any]:
        with custom_code_errors(f"{setting}: update(gradient, state, parameters)", ConfigError):
            return transformation.update(gradient, state, parameters)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def on_vector(transformation: optax.GradientTransformation, tree: PyTree) -> optax.GradientTransformation:
    """``transformation`` of trees like ``tree`` for vectors that contain all their parameters."""
    _, unflatten = ravel_pytree(tree)

    def init(parameters: Array) -> Any:
        return transformation.init(unflatten(parameters))

    def update(gradient: Array, state: Any, parameters: Array | None = None) -> tuple[Array, Any]:
        updates, state = transformation.update(unflatten(gradient), state, None if parameters is None else unflatten(parameters))
        return ravel_pytree(updates)[0], state

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]
