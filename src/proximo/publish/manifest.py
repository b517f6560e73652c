"""``proximo.json`` of a published folder. It lists every file with its SHA-256; no other file is ever copied."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proximo.errors import CheckpointError, shown
from proximo.serialization import jsonable, read_json
from proximo.storage.atomic_files import write_synced
from proximo.storage.checkpoint_format import META, STATE
from proximo.storage.run_directory import METRICS, PUBLISHED

MANIFEST, CARD, CLIP, EVALUATION = PUBLISHED, "README.md", "replay.mp4", "evaluation.json"
"""The Hub displays ``README.md`` and ``replay.mp4`` automatically."""
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
"""The only names that a folder may list. The card is not listed, because people edit it after it is published."""
MAX_TEXT = 10_000_000
"""Maximum size of ``proximo.json`` and of a card, in bytes."""
MAX_FILE = 4 * 2**30
"""Maximum size of any other file: a training state of 350 million parameters."""
_NEEDED = (CONFIG, SYSTEM, EVALUATION)
_SCHEMA = {"name": str, "environment": str, "step": int, "files": dict}


def write(folder: Path, fields: Mapping[str, Any]) -> None:
    """Write ``proximo.json`` with the ``fields`` and a list of the files in ``folder``."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    files = {name: _described(path.read_bytes()) for name, path in paths.items() if _LISTED.fullmatch(name)}
    content = {"format": FORMAT, "format_version": VERSION, **fields, "files": files}
    write_synced(folder / MANIFEST, (json.dumps(jsonable(content), indent=1) + "\n").encode())


def _described(data: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def read(folder: Path) -> dict[str, Any]:
    """Read ``proximo.json``. Raises ``CheckpointError`` for another format, or for a file name that must not be listed."""
    path = folder / MANIFEST
    try:
        content = read_json(_bytes(folder, MANIFEST, MAX_TEXT))
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} is not a published policy: cannot read {MANIFEST} ({error.strerror}).") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: it is not valid JSON ({error}).") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{folder} is not a published policy: expected format {FORMAT!r} in {MANIFEST}.")
    if content.get("format_version") != VERSION:
        raise CheckpointError(
            f"{folder} has the format version {shown(content.get('format_version'))}; this proximo reads version {VERSION}: use the proximo "
            "that wrote it."
        )
    wrong = [key for key, kind in _SCHEMA.items() if not isinstance(content.get(key), kind)]
    lacking = wrong or [name for name in _NEEDED if name not in content["files"]]
    if lacking:
        raise CheckpointError(f"{path} is damaged: it lacks {', '.join(lacking)}.")
    for name, described in content["files"].items():
        if not _LISTED.fullmatch(name):
            raise CheckpointError(f"{path} lists {shown(name)}, which is not a file of a published policy: nothing was copied.")
        size = described.get("size") if isinstance(described, dict) else None
        if type(size) is not int or not 0 <= size <= MAX_FILE:
            raise CheckpointError(f"{path} gives {name} the size {shown(size)}: expected at most {MAX_FILE:,} bytes.")
    return content


def contents(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read ``proximo.json`` and the files that it lists, and verify each of them. The card, if any, is not verified.

    Raises ``CheckpointError`` if a file is missing or damaged.
    """
    manifest = read(folder)
    files = {name: _verified(folder, name, expected) for name, expected in manifest["files"].items()}
    if (folder / CARD).exists():
        files[CARD] = _bytes(folder, CARD, MAX_TEXT)
    return manifest, files


def _verified(folder: Path, name: str, expected: Any) -> bytes:
    try:
        data = _bytes(folder, name, expected["size"], expected["size"])
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} is damaged: cannot read {name} ({error.strerror}).") from error
    found = _described(data)
    if found != expected:
        raise CheckpointError(
            f"{folder} is damaged: {name} has the sha256 {found['sha256'][:12]}…, which differs from {MANIFEST}."
        )
    return data


def check_no_link(folder: Path, name: str) -> None:
    """Raise ``CheckpointError`` if ``name``, or a folder in its path, is a link."""
    path = folder
    for part in Path(name).parts:
        path = path / part
        if path.is_symlink():
            raise CheckpointError(f"{path} is a link: a published policy must contain only regular files.")


def _bytes(folder: Path, name: str, most: int, least: int = 0) -> bytes:
    """Read a regular file of ``least`` to ``most`` bytes. Pipes and endless files raise ``CheckpointError`` instead of blocking."""
    check_no_link(folder, name)
    path = folder / name
    try:
        about = path.lstat()
        if not stat.S_ISREG(about.st_mode):
            raise CheckpointError(f"{path} is not a regular file: nothing was copied.")
        if not least <= about.st_size <= most:
            raise CheckpointError(f"{folder} is damaged: {name} has {about.st_size:,} bytes, expected {least:,} to {most:,}.")
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise CheckpointError(f"Cannot read {path} ({getattr(error, 'strerror', None) or error}).") from error
