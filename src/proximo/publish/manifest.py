"""What a published folder holds: ``proximo.json`` names every file with its SHA-256, and nothing else is ever taken from it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proximo.errors import CheckpointError
from proximo.run.checkpoint import META, STATE
from proximo.run.files import plain, write_synced
from proximo.run.sinks import METRICS

MANIFEST, CARD, CLIP, EVALUATION = "proximo.json", "README.md", "replay.mp4", "evaluation.json"
"""``README.md`` and ``replay.mp4`` are the names that the Hub shows by themselves."""
CONFIG, SYSTEM = "config.yaml", "system.json"
FORMAT, VERSION = "proximo-published", 1

_LISTED = re.compile(
    "|".join(
        [
            *map(re.escape, (CLIP, EVALUATION, CONFIG, SYSTEM, METRICS)),
            rf"checkpoints/\d{{1,20}}/({re.escape(STATE)}|{re.escape(META)})",
        ]
    )
)
"""The only names that a folder may list. The card is not among them: people edit it where it is published."""
_NEEDED = (CONFIG, SYSTEM, EVALUATION)
_SCHEMA = {"name": str, "environment": str, "step": int, "files": dict}


def write(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write ``proximo.json`` about the files that ``folder`` holds."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    files = {name: _described(path.read_bytes()) for name, path in paths.items() if _LISTED.fullmatch(name)}
    content = {"format": FORMAT, "format_version": VERSION, **facts, "files": files}
    write_synced(folder / MANIFEST, (json.dumps(plain(content), indent=1) + "\n").encode())


def _described(data: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def read(folder: Path) -> dict[str, Any]:
    """``proximo.json``, of our format and with no name in it that leads out of the folder. Raises ``CheckpointError``."""
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{folder} is no published policy: cannot read {MANIFEST} ({error.strerror}).") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: it is not valid JSON ({error}).") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{folder} is no published policy: {MANIFEST} does not say format {FORMAT!r}.")
    if content.get("format_version") != VERSION:
        raise CheckpointError(
            f"{folder} has the format version {content.get('format_version')}; this proximo reads version {VERSION}: use the proximo "
            "that wrote it."
        )
    wrong = [key for key, kind in _SCHEMA.items() if not isinstance(content.get(key), kind)]
    lacking = wrong or [name for name in _NEEDED if name not in content["files"]]
    if lacking:
        raise CheckpointError(f"{path} is damaged: it lacks {', '.join(lacking)}.")
    for name in content["files"]:
        if not _LISTED.fullmatch(name):
            raise CheckpointError(f"{path} lists {name!r}, which is no file of a published policy: it was not taken.")
    return content


def contents(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """``proximo.json`` and the files that it names, each proven to be what was published; the card as it is, where there is one.

    Raises ``CheckpointError``.
    """
    manifest = read(folder)
    taken = {name: _taken(folder, name, expected) for name, expected in manifest["files"].items()}
    card = folder / CARD
    if card.is_file() and not card.is_symlink():
        taken[CARD] = card.read_bytes()
    return manifest, taken


def _taken(folder: Path, name: str, expected: Any) -> bytes:
    path = folder / name
    # Every part of it: a folder `checkpoints` that is a link leads out as well.
    if any(part.is_symlink() for part in (path, *path.parents) if part.is_relative_to(folder) and part != folder):
        raise CheckpointError(f"{path} is a link: a published policy has files of its own only.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{folder} is damaged: cannot read {name} ({error.strerror}).") from error
    found = _described(data)
    if found != expected:
        raise CheckpointError(f"{folder} is damaged: {name} has the sha256 {found['sha256']}, {MANIFEST} says otherwise.")
    return data
