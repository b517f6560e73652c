"""Tuned settings by environment: ``<library>/<name>.yaml``, each with its provenance. A plain id is Gymnasium's.

A file may serve others of its library, which have none of their own: their names stand under ``also_for``.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

import yaml

GYMNASIUM = "gymnasium"


def load(env_id: str) -> dict[str, Any] | None:
    """The groups of settings tuned for ``env_id``, or None; ``provenance`` says where they come from."""
    library, _, name = env_id.rpartition(":")
    folder = resources.files(__name__) / (library or GYMNASIUM)
    if not name or not folder.is_dir():
        return None
    return next((groups for served, groups in _presets(folder) if name in served), None)


def names() -> list[str]:
    """The environment ids that have a preset."""
    folders = [f for f in resources.files(__name__).iterdir() if f.is_dir()]
    ids = [(folder.name, name) for folder in folders for served, _ in _presets(folder) for name in served]
    return sorted(name if library == GYMNASIUM else f"{library}:{name}" for library, name in ids)


def _presets(folder: Traversable) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """The names that each file of a library serves, and its settings."""
    for path in folder.iterdir():
        if path.name.endswith(".yaml"):
            groups = yaml.safe_load(path.read_text())
            yield [path.name.removesuffix(".yaml"), *groups.pop("also_for", ())], groups
