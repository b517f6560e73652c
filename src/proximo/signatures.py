"""Calls that do not fit a function's signature raise a ``ConfigError`` that names the right arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from proximo import other_libraries
from proximo.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")


def answered(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap ``function`` so that a call with missing or unknown arguments raises ``ConfigError`` instead of ``TypeError``.

    The message lists the arguments of the function. If an argument has another name in another library, the message gives ours. A
    ``TypeError`` from inside the function is raised unchanged.
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
                unknown = [name for name in kwargs if name not in names]
                answer = other_libraries.answer_call([*args, *kwargs.values()], unknown)
                name = function.__qualname__.removesuffix(".__init__")
                raise ConfigError(f"{name}: {error}; it takes {', '.join(names)}.{answer}") from None
            raise

    return call
