"""Checks of arguments. Errors about wrong arguments and attributes give the correct names, also for those of other libraries."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeGuard, TypeVar

from proximo import other_libraries
from proximo.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")


def is_integer(value: Any) -> TypeGuard[int]:
    """Whether ``value`` is an integer of Python or NumPy, and no boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether ``value`` is a real number of Python or NumPy, and no boolean."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def answered(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap ``function`` so that a call with missing or unknown arguments raises ``ConfigError`` instead of Python's errors.

    The message lists the arguments of the function. If an argument has another name in another library, the message gives ours. Errors
    from inside the function are raised unchanged.
    """
    signature = inspect.signature(function)
    names = [name for name in signature.parameters if name != "self"]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except TypeError:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                called = function.__qualname__.removesuffix(".__init__")
                unknown = [name for name in kwargs if name not in names]
                answer = other_libraries.answer_call([*args, *kwargs.values()], unknown)
                raise ConfigError(f"{called}: {error}; it takes {', '.join(names)}.{answer}") from None
            raise

    return call


class AnsweredAttributes:
    """Base class that names proximo's equivalent of an unknown attribute if another library has the attribute."""

    if not TYPE_CHECKING:  # type checkers would accept every attribute

        def __getattr__(self, name: str) -> Any:
            _answer_attribute(type(self).__name__, name)
            return object.__getattribute__(self, name)  # raises the usual error, or that of a property


class AnsweredClassAttributes(type):
    """Metaclass that does the same for attributes of the class, such as ``PPO.load``."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            _answer_attribute(cls.__name__, name)
            return type.__getattribute__(cls, name)


def _answer_attribute(owner: str, name: str) -> None:
    if not name.startswith("_") and (known := other_libraries.answer_attribute(name)):
        raise AttributeError(f"{owner} has no attribute {name!r}: {known}.")
