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
from pathlib import Path
from typing import Any

from proximo.serialization import read_yaml

GYMNASIUM = "gymnasium"
NOT_IN_ENVPOOL = {"stagger_steps", "preprocessing", "frame_stack", "action_repeat", "levels", "max_episode_steps"}
"""Settings of single environments. A preset that has one of them is not for a vector environment."""
ROOT = Path(__file__).parent
KINDS = {
    "images": "images", "memory": "a policy with memory", "continuous": "continuous control", "discrete": "discrete actions",
}  # fmt: skip
"""What each kind is called in messages."""


def load(env_id: str) -> dict[str, Any] | None:
    """The groups of settings tuned for ``env_id``, with ``provenance`` and ``memories``; None without a preset."""
    env_id = env_id.removeprefix(f"{GYMNASIUM}:")
    library, _, name = env_id.rpartition(":")
    files = sorted(ROOT.glob("*.yaml"))
    if name and re.fullmatch("[a-z-]*", library):  # a path would lead elsewhere
        folder = ROOT / (library or GYMNASIUM)
        file = folder / f"{name}.yaml"
        # Reading all files takes as long as a short evaluation.
        files = [file] if file.is_file() else [*sorted(folder.glob("*.yaml")), *files]
    for preset in map(_read, files):
        if any(fnmatchcase(env_id, pattern) for pattern in preset["match"]):
            changes = [x for pattern, x in preset.get("exceptions", {}).items() if fnmatchcase(env_id, pattern)]
            return _with_changes({name: x for name, x in preset.items() if name not in ("match", "exceptions")}, *changes)
    if library == "envpool" and (preset := load(name)) is not None and not preset["env"].keys() & NOT_IN_ENVPOOL:
        return preset
    return None


def names() -> list[str]:
    """The environment ids that have a preset, without those that only a pattern matches."""
    return sorted({name for path in ROOT.rglob("*.yaml") for name in _read(path)["match"] if "*" not in name})


def for_memory(preset: dict[str, Any], memory: Any) -> dict[str, Any]:
    """The groups of settings in ``preset`` if the user requests ``memory``, which is not checked yet."""
    groups = {name: content for name, content in preset.items() if name != "memories"}
    return _with_changes(groups, preset.get("memories", {}).get(memory, {}) if isinstance(memory, str) else {})


@functools.cache
def load_kind(kind: str) -> dict[str, Any]:
    """The groups of settings of a kind, with their ``provenance``."""
    return read_yaml((ROOT.parent / "kinds" / f"{kind}.yaml").read_bytes())


def names_of_kinds() -> set[str]:
    """Every setting that a kind has."""
    return settings_in(*map(load_kind, KINDS))


def settings_in(*sources: dict[str, Any]) -> set[str]:
    """The names of all settings in groups of settings."""
    return {name for groups in sources for group in groups.values() if isinstance(group, dict) for name in group}


@functools.cache
def _read(path: Path) -> dict[str, Any]:
    """The content of a file, which nobody changes, with the environments that it is for as ``match``."""
    groups, folder = read_yaml(path.read_bytes()), path.parent.name
    if path.parent != ROOT:
        prefix, names = "" if folder == GYMNASIUM else f"{folder}:", (path.stem, *groups.pop("also_for", ()))
        groups["match"] = [prefix + name for name in names]
    return groups


def _with_changes(groups: dict[str, Any], *changes: dict[str, Any]) -> dict[str, Any]:
    """``groups`` with other settings, and the texts of the provenance of all."""
    for name, content in (item for change in changes for item in change.items()):
        new = f"{groups[name]} {content}" if name == "provenance" else {**groups.get(name, {}), **content}
        groups = {**groups, name: new}
    return groups
