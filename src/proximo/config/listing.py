"""Lists the settings in the docstrings of functions that take them, for ``help``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from proximo.config.mapping import LEAVES, text_of

T = TypeVar("T")


def lists_settings(settings: Any) -> Callable[[T], T]:
    """Decorator: append the names of the ``TypedDict`` ``settings``, with default and help text, to the docstring of a function or class."""

    def decorate(documented: T) -> T:
        if documented.__doc__ is not None:  # python -OO
            leaves = [LEAVES[name] for name in LEAVES if name in settings.__optional_keys__]
            lines = [f"    {leaf.name} ({_default(leaf.default)}): {leaf.help}." for leaf in leaves]
            documented.__doc__ = "\n".join([inspect.cleandoc(documented.__doc__), "", "Settings:", *lines, ""])
        return documented

    return decorate


def _default(value: Any) -> str:
    text = text_of(value) if value != {} else ""
    return text or "empty"
