"""Calls that a signature does not take, answered in a sentence."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from proximo import foreign_names
from proximo.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")


def answered(function: Callable[P, T]) -> Callable[P, T]:
    """``function``, which raises ``ConfigError`` in place of ``TypeError`` where it is called with arguments that it has not."""
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
                answer = foreign_names.of_call([*args, *kwargs.values()], unknown)
                name = function.__qualname__.removesuffix(".__init__")
                raise ConfigError(f"{name}: {error}; it takes {', '.join(names)}.{answer}") from None
            raise

    return call
