"""Presets: tuned settings of an environment, in ``<library>/<name>.yaml`` with their provenance.

An id without a library is one of Gymnasium. ``also_for`` in a file lists other environments of the library that use the same preset.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from proximo.serialization import read_yaml

GYMNASIUM = "gymnasium"


def load(env_id: str) -> dict[str, Any] | None:
    """The groups of settings tuned for ``env_id``, with their ``provenance``; None if it has no preset."""
    library, _, name = env_id.rpartition(":")
    folder = resources.files(__name__) / (library or GYMNASIUM)
    if not name or not folder.is_dir():
        return None
    file = folder / f"{name}.yaml"
    found = [file] if file.is_file() else _files(folder)  # reading all files takes as long as a short evaluation
    return next((groups for served, groups in map(_read, found) if name in served), None)


def names() -> list[str]:
    """The environment ids that have a preset."""
    folders = [f for f in resources.files(__name__).iterdir() if f.is_dir()]
    ids = [(folder.name, name) for folder in folders for path in _files(folder) for name in _read(path)[0]]
    return sorted(name if library == GYMNASIUM else f"{library}:{name}" for library, name in ids)


def _files(folder: Traversable) -> list[Traversable]:
    return [path for path in folder.iterdir() if path.name.endswith(".yaml")]


def _read(path: Traversable) -> tuple[list[str], dict[str, Any]]:
    """The environments that a file is for, and its settings."""
    groups = read_yaml(path.read_bytes())
    return [path.name.removesuffix(".yaml"), *groups.pop("also_for", ())], groups
