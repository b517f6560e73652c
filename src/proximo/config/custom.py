"""Settings that accept custom code: its name, such as ``my_package.module:MyEncoder``, or the object itself."""

import functools
import inspect
import sys
from dataclasses import dataclass
from typing import Any

from proximo.custom_code import follow, imported, is_users_function
from proximo.errors import ConfigError

OPTIMIZERS = ("optimizer", "critic_optimizer")
"""Settings that accept optax transformations and optax's functions by name, such as ``optax:lion``."""


@dataclass(frozen=True, eq=False)
class Custom:
    """A custom object as the value of a setting. Two are equal if the object is the same one."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Custom) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __str__(self) -> str:
        """The name by which ``resolve`` finds the object; if there is none, a description in angle brackets."""
        module = getattr(self.value, "__module__", None) or type(self.value).__module__
        name = getattr(self.value, "__qualname__", None)
        is_optax = _is_optax_function(self.value)  # defined in modules from which users do not import it
        if name and (is_optax or inspect.isclass(self.value) or is_users_function(self.value)):
            for home in ("optax", "optax.contrib") if is_optax else (module,):
                if home in sys.modules and home != "__main__" and follow(sys.modules[home], name) is self.value:
                    return f"{home}:{name}"
        return f"<{module}.{name or type(self.value).__qualname__}>".replace("<locals>.", "")


def is_custom(value: Any) -> bool:
    """Whether the value of a setting is custom code, or its name."""
    return isinstance(value, Custom) or is_name(value) or is_lost(value)


def is_name(value: Any) -> bool:
    """Whether ``value`` is a name to import."""
    return isinstance(value, str) and ":" in value


def is_lost(value: Any) -> bool:
    """Whether ``value`` describes an object that has no name to import it by."""
    return isinstance(value, str) and value.startswith("<") and value.endswith(">")


def is_transformation(code: Any) -> bool:
    """Whether ``code`` is an optax transformation, which has a learning rate. Does not import optax."""
    return getattr(code, "_fields", ()) == ("init", "update")


def _is_optax_function(code: Any) -> bool:
    code = code.func if isinstance(code, functools.partial) else code  # such as optax.nadam
    return inspect.isfunction(code) and str(code.__module__).split(".")[0] == "optax"


def resolve(setting: str, value: str | Custom, methods: tuple[str, ...]) -> Any:
    """The custom code that ``value`` is or names. ``setting`` is its name, for messages.

    Settings may come from a stranger, so the code is checked before anything calls it. It must be a class with
    ``methods``, or a function of a module that is not part of an installed library. An optimizer may also be an optax
    transformation or a function of optax. Raises ``ConfigError`` if the code is not found or fails the check.
    """
    if is_lost(value):
        raise ConfigError(
            f"{setting} = {value} was an object in the program that trained the run: pass it again from Python, as the argument "
            f"{setting}=…."
        )
    found = value.value if isinstance(value, Custom) else imported(value, f"{setting} = {value!r}")
    check_not_torch(setting, found)
    if isinstance(value, str):  # a library may have made other objects
        is_accepted, what = inspect.isclass(found), "a class, or a function of a custom module. Pass objects from Python"
        if setting in OPTIMIZERS:
            is_accepted = is_transformation(found) or _is_optax_function(found)
            what = "an optax transformation, or a function of optax or of a custom module that makes one from the learning rate"
        if not (is_accepted or is_users_function(found)):
            raise ConfigError(f"{setting} = {value!r} is {type(found).__name__}: expected {what}.")
    # Searched in the class itself: its metaclass makes every class callable.
    known = {name for base in found.__mro__ for name in vars(base)} if inspect.isclass(found) else {*methods}
    if lacking := [method for method in methods if method not in known]:
        raise ConfigError(f"{setting} = {value}: the class lacks {' and '.join(lacking)} (docs/custom-networks.md).")
    return found


def check_not_torch(setting: str, code: Any) -> None:
    """Raise ``ConfigError`` if ``code`` is a PyTorch module or a class of them."""
    cls = code if inspect.isclass(code) else type(code)
    if any(base.__module__.split(".")[0] == "torch" for base in cls.__mro__):
        raise ConfigError(
            f"{setting}: {cls.__name__} is a PyTorch module, and proximo computes with JAX, which cannot differentiate PyTorch's "
            "modules: write the network with Equinox or Flax (docs/custom-networks.md)."
        )
