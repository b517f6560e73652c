"""Answers for ids that no environment has: known from elsewhere, or the cause and the id to type instead.

``other_libraries`` has the names of settings.
"""

import re
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import yaml

from proximo.envs.libraries import ID_FORMS
from proximo.errors import EnvError, closest

MUJOCO = (
    "Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum", "Pusher", "Reacher",
    "Swimmer", "Walker2d",
)  # fmt: skip
"""MuJoCo tasks of Gymnasium, whose newest version is 5."""
IDS_OF_OTHERS = Path(__file__).with_name("ids_of_others.yaml")
MIN_SIMILARITY = 0.75
"""Of names without their versions: FetchReach is not Reacher."""


def elsewhere(env_id: str) -> str | None:
    """What to use instead of ``env_id``, as sentences; None if the id is not known from elsewhere."""
    if match := re.fullmatch(r"(?P<path>.+)\.py:(?P<name>\w+)", env_id):
        path = Path(match["path"])
        is_here = not path.is_absolute() and ".." not in path.parts
        module, place = (".".join(path.parts), "") if is_here else (path.name, f", in the folder {str(path.parent)!r}")
        return f"expected the name of a module instead of a file: '{module}:{match['name']}'{place}."
    if re.fullmatch(rf"({'|'.join(MUJOCO)})-v[0-3]|Pusher-v4", env_id):  # MuJoCo 3 changes the model of Pusher
        return newer_version(env_id)
    others = yaml.safe_load(IDS_OF_OTHERS.read_bytes())
    return next((match.expand(words) for pattern, words in others.items() if (match := re.fullmatch(pattern, env_id))), None)


def newer_version(env_id: str) -> str | None:
    """What to use instead of an earlier version of a MuJoCo task; None for any other id."""
    if not re.fullmatch(rf"({'|'.join(MUJOCO)})-v[0-4]", env_id):
        return None
    return f"use '{env_id[:-1]}5'. Gymnasium's page of the task shows how the versions differ."


def unknown(env_id: str, ids: list[str]) -> EnvError:
    """The error for ``env_id``, whose module was imported if it exists. ``ids`` are all that libraries have."""
    module, separator, name = env_id.rpartition(":")
    found = ""
    if not separator:
        found = _similar(env_id, {re.split("[:/]", i)[-1]: i for i in reversed(ids)} | {i: i for i in ids})
        problem = f"expected {ID_FORMS}; `proximo envs` lists them."
        if found:
            problem = "expected an id that `proximo envs` lists, or my_package.module:MyEnv."
    elif module not in sys.modules:
        # The package highway-env has the module highway_env.
        found = _similar(env_id, {i: i for i in ids if ":" in i}) or ("-" in module and f"{module.replace('-', '_')}:{name}")
        problem = f"no library or module {module!r} is installed or on Python's path (expected {ID_FORMS})."
    elif registered := {i: f"{module}:{i}" for i, spec in gym.registry.items() if _package(spec) == module.partition(".")[0]}:
        found = _similar(name, {i.rpartition("/")[2]: typed for i, typed in registered.items()} | registered)
        problem = f"expected an id that {module} registers, such as {next(iter(registered.values()))!r}."
    else:
        problem = f"the module {module!r} registers no environments: name one of its classes, as my_package.module:MyEnv."
    return EnvError(f"Unknown environment {env_id!r}{f' (did you mean {found!r}?)' if found else ''}: {problem}")


def _package(spec: Any) -> str:
    """The package whose code makes a registered environment."""
    entry = spec.entry_point or spec.vector_entry_point
    code = entry if isinstance(entry, str) else getattr(getattr(entry, "func", entry), "__module__", "")  # of a partial function
    return re.split("[.:]", code)[0]


def _stem(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id)


def _similar(name: str, typed: dict[str, str]) -> str:
    """What to type for the name that is nearest to ``name``, or begins with it. Versions are not compared."""
    plain_last = sorted(typed.items(), key=lambda item: not re.search("[:/]", item[1]))  # they replace others of the same name
    names = {_stem(i): shown for i, shown in plain_last}
    if near := closest(_stem(name), names, MIN_SIMILARITY):
        return names[near]
    longer = [shown for known, shown in names.items() if name and known.lower().startswith(name.lower())]
    return min(longer, key=len, default="")
