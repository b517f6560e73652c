"""Tuned settings by environment: ``<library>/<name>.yaml``, each with its provenance. A plain id is Gymnasium's."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

GYMNASIUM = "gymnasium"


def load(env_id: str) -> dict[str, Any] | None:
    """The groups of settings tuned for ``env_id``, or None; ``provenance`` says where they come from."""
    library, _, name = env_id.rpartition(":")
    library = library or GYMNASIUM
    path = resources.files(__name__) / library / f"{name}.yaml"
    return yaml.safe_load(path.read_text()) if name and path.is_file() else None


def names() -> list[str]:
    """The environment ids that have a preset."""
    folders = [f for f in resources.files(__name__).iterdir() if f.is_dir()]
    files = [(folder.name, f.name) for folder in folders for f in folder.iterdir() if f.name.endswith(".yaml")]
    ids = [(library, name.removesuffix(".yaml")) for library, name in files]
    return sorted(name if library == GYMNASIUM else f"{library}:{name}" for library, name in ids)
