"""Presets: tuned settings with their provenance, of one environment or of a family of environments.

``<library>/<name>.yaml`` is for one environment; an id without a library is one of Gymnasium. ``also_for`` in a file lists other environments
of the library that use the same preset.

``<family>.yaml`` is for all ids that its list ``match`` contains; an entry may be a pattern with ``*``. Its mapping ``exceptions`` has the
settings that differ for some of them, again by id or pattern. Files of one environment precede those of families.

In either file, ``memories`` has the settings that differ if the user requests this memory (``none``: no memory), with their provenance.

An environment of EnvPool has the preset of Gymnasium's environment of the same name, unless it has its own, or the preset has a
setting of ``NOT_IN_ENVPOOL``.

Environments that have no preset have the defaults of their kind: ``config/kinds/KIND.yaml``.
"""

import functools
import re
from fnmatch import fnmatchcase
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from proximo.serialization import read_yaml

GYMNASIUM = "gymnasium"
NOT_IN_ENVPOOL = {"stagger_steps", "preprocessing", "frame_stack", "action_repeat", "levels", "max_episode_steps"}
"""Settings of single environments. A preset that has one of them is not for a vector environment."""
ROOT = resources.files(__name__)
KINDS = {
    "images": "images", "memory": "a policy with memory", "continuous": "continuous control", "discrete": "discrete actions",
}  # fmt: skip
"""What each kind is called in messages."""


def load(env_id: str) -> dict[str, Any] | None:
    """The groups of settings tuned for ``env_id``, with ``provenance`` and ``memories``; None without a preset."""
    env_id = env_id.removeprefix(f"{GYMNASIUM}:")
    library, _, name = env_id.rpartition(":")
    folder = ROOT / (library or GYMNASIUM)
    if name and re.fullmatch("[a-z-]*", library) and folder.is_dir():  # a path would lead elsewhere
        file = folder / f"{name}.yaml"
        found = [file] if file.is_file() else _files(folder)  # reading all files takes as long as a short evaluation
        for served, groups in map(_read, found):
            if name in served:
                return groups
    for _, family in map(_read, _files(ROOT)):
        if any(fnmatchcase(env_id, pattern) for pattern in family["match"]):
            changes = [x for pattern, x in family.get("exceptions", {}).items() if fnmatchcase(env_id, pattern)]
            return _with_changes({name: x for name, x in family.items() if name not in ("match", "exceptions")}, *changes)
    if library == "envpool" and (preset := load(name)) is not None and not preset["env"].keys() & NOT_IN_ENVPOOL:
        return preset
    return None


def names() -> list[str]:
    """The environment ids that have a preset, without those that only a pattern matches."""
    ids = {name for path in _files(ROOT) for name in _read(path)[1]["match"] if "*" not in name}
    for folder in (folder for folder in ROOT.iterdir() if folder.is_dir()):
        library = "" if folder.name == GYMNASIUM else f"{folder.name}:"
        ids |= {library + name for path in _files(folder) for name in _read(path)[0]}
    return sorted(ids)


def for_memory(preset: dict[str, Any], memory: Any) -> dict[str, Any]:
    """The groups of settings in ``preset`` if the user requests ``memory``, which is not checked yet."""
    groups = {name: content for name, content in preset.items() if name != "memories"}
    return _with_changes(groups, preset.get("memories", {}).get(memory, {}) if isinstance(memory, str) else {})


@functools.cache
def load_kind(kind: str) -> dict[str, Any]:
    """The groups of settings of a kind, with their ``provenance``."""
    return read_yaml((resources.files("proximo.config") / "kinds" / f"{kind}.yaml").read_bytes())


def names_of_kinds() -> set[str]:
    """Every setting that a kind has."""
    return settings_in(*map(load_kind, KINDS))


def settings_in(*sources: dict[str, Any]) -> set[str]:
    """The names of all settings in groups of settings."""
    return {name for groups in sources for group in groups.values() if isinstance(group, dict) for name in group}


def _files(folder: Traversable) -> list[Traversable]:
    return sorted((path for path in folder.iterdir() if path.name.endswith(".yaml")), key=lambda path: path.name)


@functools.cache
def _read(path: Traversable) -> tuple[list[str], dict[str, Any]]:
    """The environments that a file is for, and its settings, which nobody changes."""
    groups = read_yaml(path.read_bytes())
    return [path.name.removesuffix(".yaml"), *groups.pop("also_for", ())], groups


def _with_changes(groups: dict[str, Any], *changes: dict[str, Any]) -> dict[str, Any]:
    """``groups`` with other settings, and the texts of the provenance of all."""
    for name, content in (item for change in changes for item in change.items()):
        new = f"{groups[name]} {content}" if name == "provenance" else {**groups.get(name, {}), **content}
        groups = {**groups, name: new}
    return groups
