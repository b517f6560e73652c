"""What a published folder holds: ``proximo.json`` names every file with its SHA-256, and nothing else is ever taken from it."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proximo.errors import CheckpointError, shown
from proximo.run.checkpoint import META, STATE
from proximo.run.directory import PUBLISHED
from proximo.run.files import plain, write_synced
from proximo.run.sinks import METRICS
from proximo.serialization import read_json

MANIFEST, CARD, CLIP, EVALUATION = PUBLISHED, "README.md", "replay.mp4", "evaluation.json"
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
MOST_TEXT = 10_000_000
"""Bytes of ``proximo.json``, and of a card."""
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
        content = read_json(_bytes(folder, MANIFEST, MOST_TEXT))
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} is no published policy: cannot read {MANIFEST} ({error.strerror}).") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: it is not valid JSON ({error}).") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{folder} is no published policy: {MANIFEST} does not say format {FORMAT!r}.")
    if content.get("format_version") != VERSION:
        raise CheckpointError(
            f"{folder} has the format version {shown(content.get('format_version'))}; this proximo reads version {VERSION}: use the proximo "
            "that wrote it."
        )
    wrong = [key for key, kind in _SCHEMA.items() if not isinstance(content.get(key), kind)]
    lacking = wrong or [name for name in _NEEDED if name not in content["files"]]
    if lacking:
        raise CheckpointError(f"{path} is damaged: it lacks {', '.join(lacking)}.")
    for name in content["files"]:
        if not _LISTED.fullmatch(name):
            raise CheckpointError(f"{path} lists {shown(name)}, which is no file of a published policy: it was not taken.")
    return content


def contents(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """``proximo.json`` and the files that it names, each proven to be what was published; the card as it is, where there is one.

    Raises ``CheckpointError``.
    """
    manifest = read(folder)
    taken = {name: _taken(folder, name, expected) for name, expected in manifest["files"].items()}
    if (folder / CARD).exists():
        taken[CARD] = _bytes(folder, CARD, MOST_TEXT)
    return manifest, taken


def _taken(folder: Path, name: str, expected: Any) -> bytes:
    size = expected.get("size") if isinstance(expected, dict) else None
    if not isinstance(size, int):
        raise CheckpointError(f"{folder / MANIFEST} is damaged: it does not say how large {name} is.")
    try:
        data = _bytes(folder, name, size)
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} is damaged: cannot read {name} ({error.strerror}).") from error
    found = _described(data)
    if found != expected:
        raise CheckpointError(f"{folder} is damaged: {name} has the sha256 {found['sha256'][:12]}…, {MANIFEST} says otherwise.")
    return data


def hold_no_link(folder: Path, name: str) -> None:
    """Raise ``CheckpointError`` where ``name``, or a folder on the way to it, is a link."""
    path = folder
    for part in Path(name).parts:
        path = path / part
        if path.is_symlink():
            raise CheckpointError(f"{path} is a link: a published policy has files of its own only.")


def _bytes(folder: Path, name: str, most: int) -> bytes:
    """The content of an ordinary file of at most ``most`` bytes, which no pipe and no endless file is waited for."""
    hold_no_link(folder, name)
    path = folder / name
    try:
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode):
            raise CheckpointError(f"{path} is no ordinary file: it was not taken.")
        if about.st_size > most:
            raise CheckpointError(f"{folder} is damaged: {name} has {about.st_size:,} bytes, expected {most:,} at most.")
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise CheckpointError(f"Cannot read {path} ({getattr(error, 'strerror', None) or error}).") from error
