"""``proximo.json`` of a published folder. It lists every file with its SHA-256; no other file is ever copied."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from pathlib import Path
from typing import Any

from proximo.errors import CheckpointError, shown
from proximo.serialization import read_json
from proximo.storage.checkpoint_format import CONFIG, META, STATE
from proximo.storage.run_directory import METRICS, PUBLISHED, SYSTEM

MANIFEST, CARD, CLIP, EVALUATION = PUBLISHED, "README.md", "replay.mp4", "evaluation.json"
"""The Hub displays ``README.md`` and ``replay.mp4`` automatically."""
FORMAT, VERSION = "proximo-published", 1
_NAMES = (CLIP, EVALUATION, CONFIG, SYSTEM, METRICS)
LISTED = re.compile(rf"{'|'.join(map(re.escape, _NAMES))}|checkpoints/\d{{1,20}}/({re.escape(STATE)}|{re.escape(META)})")
"""The only names that a folder may list. The card is not listed, because people edit it after it is published."""
PATTERNS = [MANIFEST, CARD, *_NAMES, f"checkpoints/*/{STATE}", f"checkpoints/*/{META}"]
MAX_TEXT, MAX_FILE = 10_000_000, 4 * 2**30
"""Maximum size in bytes of ``proximo.json`` and of a card, and of any other file: a training state of 350 million parameters."""
_SCHEMA = {"name": str, "environment": str, "step": int, "files": dict}


def write(folder: Path, **fields: Any) -> None:
    """Write ``proximo.json`` with the ``fields`` and a list of the files in ``folder``."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    files = {name: _described((folder / name).read_bytes()) for name in names if LISTED.fullmatch(name)}
    content = {"format": FORMAT, "format_version": VERSION, **fields, "files": files}
    (folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _described(data: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def read(folder: Path) -> dict[str, Any]:
    """Read ``proximo.json``. Raises ``CheckpointError`` for another format, and for a name or size that must not be listed."""
    try:
        content = read_json(_bytes(folder, MANIFEST, range(MAX_TEXT)))
    except ValueError as error:
        raise CheckpointError(f"{folder / MANIFEST} is damaged: it is not valid JSON ({error}).") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{folder} is not a published policy: expected format {FORMAT!r} in {MANIFEST}.")
    if content.get("format_version") != VERSION:
        version = shown(content.get("format_version"))
        raise CheckpointError(
            f"{folder} has the format version {version}; this proximo reads version {VERSION}: use a newer one."
        )
    wrong = [key for key, kind in _SCHEMA.items() if not isinstance(content.get(key), kind)]
    if wrong := wrong or [name for name in (CONFIG, SYSTEM, EVALUATION) if name not in content["files"]]:
        raise CheckpointError(f"{folder / MANIFEST} is damaged: it lacks {', '.join(wrong)}.")
    for name, described in content["files"].items():
        if not LISTED.fullmatch(name):
            raise CheckpointError(f"{folder / MANIFEST} lists {shown(name)}, which is not a file of a published policy.")
        size = described.get("size") if isinstance(described, dict) else None
        if type(size) is not int or not 0 <= size <= MAX_FILE:
            raise CheckpointError(
                f"{folder / MANIFEST} gives {name} the size {shown(size)}: expected at most {MAX_FILE:,} bytes."
            )
    return content


def contents(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Read ``proximo.json`` and the files that it lists, and verify each of them. The card, if any, is not verified.

    Raises ``CheckpointError`` if a file is missing or damaged.
    """
    manifest, files = read(folder), {}
    for name, expected in manifest["files"].items():
        files[name] = _bytes(folder, name, range(expected["size"], expected["size"] + 1))
        if (found := _described(files[name])) != expected:
            sha256 = found["sha256"][:12]
            raise CheckpointError(f"{folder} is damaged: {name} has the sha256 {sha256}…, which differs from {MANIFEST}.")
    if (folder / CARD).exists():
        files[CARD] = _bytes(folder, CARD, range(MAX_TEXT))
    return manifest, files


def _bytes(folder: Path, name: str, sizes: range) -> bytes:
    """Read a regular file. Links, pipes and endless files raise ``CheckpointError``."""
    try:
        for path in (folder / name, *(folder / parent for parent in Path(name).parents[:-1])):
            if path.is_symlink():
                raise CheckpointError(f"{path} is a link: a published policy must contain only regular files.")
        about = (folder / name).lstat()
        if not stat.S_ISREG(about.st_mode):
            raise CheckpointError(f"{folder / name} is not a regular file.")
        if about.st_size not in sizes:
            expected = f"{sizes[0]:,} to {sizes[-1]:,}"
            raise CheckpointError(f"{folder} is damaged: {name} has {about.st_size:,} bytes, expected {expected}.")
        return (folder / name).read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{folder} is not a published policy, or damaged: cannot read {name} ({error.strerror})."
        ) from error
