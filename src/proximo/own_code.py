"""Settings that take code of the user's: an object from Python, or its name, ``my_package.module:MyEncoder``, from anywhere."""

from __future__ import annotations

import inspect
import sys
import typing
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from proximo.errors import ConfigError, nearest
from proximo.users_code import imported, is_users_function

NAMED = "my_package.module:Name"


@dataclass(frozen=True, eq=False)
class Own:
    """An object of the user's as the value of a setting. Two are equal where the object is the same one."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __str__(self) -> str:
        """Its name, where ``resolve`` finds it again by that; else in angle brackets."""
        module = getattr(self.value, "__module__", None) or type(self.value).__module__
        name = getattr(self.value, "__qualname__", None)
        there = name and module in sys.modules and module != "__main__" and _follow(sys.modules[module], name) is self.value
        if there and (inspect.isclass(self.value) or is_users_function(self.value)):
            return f"{module}:{name}"
        return f"<{module}.{name or type(self.value).__qualname__}>".replace("<locals>.", "")


def choices(kind: Any) -> tuple[str, ...]:
    """The words that a setting of type ``kind`` takes: those of its ``Literal``; none where it is none."""
    parts = typing.get_args(kind) if takes_own(kind) else (kind,)
    return tuple(word for part in parts if typing.get_origin(part) is Literal for word in typing.get_args(part))


def takes_own(kind: Any) -> bool:
    """Whether a setting of type ``kind`` takes code of the user's."""
    return Own in typing.get_args(kind)


def read(value: Any, words: tuple[str, ...]) -> str | Own:
    """The value of a setting that takes one of ``words`` or code. Raises ``ValueError`` for what is neither."""
    if isinstance(value, Own):
        return value
    if not isinstance(value, str):
        if value is None or isinstance(value, bool | int | float | list | tuple | dict):
            raise ValueError
        return Own(value)
    if value not in words and not is_name(value) and not is_lost(value):
        raise ValueError
    return value


def is_own(value: Any) -> bool:
    """Whether the value of a setting is code of the user's, or its name."""
    return isinstance(value, Own) or is_name(value) or is_lost(value)


def is_name(value: Any) -> bool:
    """Whether it is a name to import."""
    return isinstance(value, str) and ":" in value


def is_lost(value: Any) -> bool:
    """Whether it stands for an object that had no name by which it could be found."""
    return isinstance(value, str) and value.startswith("<") and value.endswith(">")


def resolve(setting: str, value: str | Own, methods: tuple[str, ...]) -> Any:
    """The code that ``value`` of ``setting`` is or names, which has ``methods`` where it is a class.

    Settings may come from elsewhere, so that what a name leads to is looked at before anything calls it: a class with these methods, or a
    function in a module of the user's own. Raises ``ConfigError``.
    """
    if isinstance(value, Own):
        if inspect.isclass(value.value):
            _hold_methods(setting, str(value), value.value, methods)
        return value.value
    if is_lost(value):
        raise ConfigError(
            f"{setting} = {value} was an object of the program that trained: give it again from Python, as {setting}=… of the call."
        )
    module_name, _, name = value.rpartition(":")
    module = imported(module_name, f"{setting} = {value!r}")
    found = _follow(module, name)
    if found is None:
        raise ConfigError(f"{setting} = {value!r}: {module_name} has nothing of that name{nearest(name, _offered(module))}.")
    if is_users_function(found):
        return found
    if not inspect.isclass(found):
        raise ConfigError(
            f"{setting} = {value!r} is {type(found).__name__}: expected a class, or a function of a module of your own; objects are given "
            "from Python."
        )
    _hold_methods(setting, value, found, methods)
    return found


def _follow(module: ModuleType, name: str) -> Any:
    """What stands at ``name``, with dots for a class within a class; None where there is nothing, or it leads into another module."""
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None or inspect.ismodule(found):
            return None
    return found


def _offered(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if inspect.isclass(value) or inspect.isfunction(value)]


def _hold_methods(setting: str, name: str, cls: type, methods: tuple[str, ...]) -> None:
    # Looked for in the class itself: every class can be called, by its type, to make an object.
    lacking = [method for method in methods if not any(method in vars(base) for base in cls.__mro__)]
    if lacking:
        raise ConfigError(f"{setting} = {name}: the class lacks {' and '.join(lacking)} (docs/own-networks.md).")
