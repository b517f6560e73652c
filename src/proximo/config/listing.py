"""Names the settings in signatures and docstrings of functions that take them, for ``help`` and notebooks."""

import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from proximo.config.coercion import text_of
from proximo.config.schedule_text import ScheduleText
from proximo.config.schema import LEAVES

T = TypeVar("T")


def lists_settings(settings: Any, without: Collection[str] = ()) -> Callable[[T], T]:
    """Decorator of a function or class with the keyword arguments ``Unpack[settings]``: replaces them in its signature
    by the settings of this ``TypedDict`` that are not in ``without``, and appends their help texts to its docstring."""
    leaves = [leaf for leaf in LEAVES.values() if leaf.name in settings.__annotations__ and leaf.name not in without]

    def decorate(listed: Any) -> Any:
        signature = inspect.signature(listed)
        parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        for leaf in leaves:
            default = leaf.default.plain() if isinstance(leaf.default, ScheduleText) else leaf.default
            kind = settings.__annotations__[leaf.name].__forward_arg__
            parameters.append(inspect.Parameter(leaf.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))
        listed.__signature__ = signature.replace(parameters=parameters)
        if listed.__doc__ is not None:  # python -OO
            lines = [f"    {leaf.name} ({text_of(leaf.default) or 'empty'}): {leaf.help}." for leaf in leaves]
            listed.__doc__ = "\n".join([inspect.cleandoc(listed.__doc__), "", "Settings:", *lines, ""])
        return listed

    return decorate
