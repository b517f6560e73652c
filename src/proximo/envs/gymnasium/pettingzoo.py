"""``pettingzoo:sisl.multiwalker_v9``: environments of PettingZoo whose agents act at the same time."""

import importlib
import importlib.util
import inspect
import pkgutil
import re
from functools import partial
from typing import Any

from proximo.envs.gymnasium.environment import GymnasiumEnvironment, from_factory
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.envs.libraries import check_names

FAMILIES = ("atari", "butterfly", "sisl")
"""The agents of the others take turns."""


def names() -> list[str]:
    """Return all environments. None is imported, because each may need another library."""
    return [f"{family}.{name}" for family in FAMILIES for name in versions(f"pettingzoo.{family}")]


def from_name(name: str, settings: dict[str, Any], preprocessing: Preprocessing) -> GymnasiumEnvironment:
    """Make an environment; ``settings`` are arguments of its ``parallel_env``."""
    return from_module(f"pettingzoo.{name}", f"pettingzoo:{name}", settings, preprocessing)


def versions(package: str) -> list[str]:
    """The modules of ``package`` that have a version in their name, as ``multiwalker_v9``."""
    spec = importlib.util.find_spec(package)
    modules = pkgutil.iter_modules(spec.submodule_search_locations if spec else None)
    return sorted(module.name for module in modules if re.search(r"_v\d+$", module.name))


def from_module(module: str, env_id: str, settings: dict[str, Any], preprocessing: Preprocessing) -> GymnasiumEnvironment:
    """The environment of a ``module`` of PettingZoo's form, with a function ``parallel_env``."""
    # parallel_env itself takes any argument and passes it on.
    if (inner := getattr(importlib.import_module(module), "raw_env", None)) is not None:
        parameters = inspect.signature(inner).parameters
        if all(p.kind is not p.VAR_KEYWORD for p in parameters.values()):
            check_names(settings, [name for name in parameters if name != "render_mode"], env_id)
    return from_factory(partial(make, module, settings), env_id, preprocessing)


def make(module: str, settings: dict[str, Any], render_mode: str | None = None) -> Any:
    """Make one environment."""
    return importlib.import_module(module).parallel_env(render_mode=render_mode, **settings)
