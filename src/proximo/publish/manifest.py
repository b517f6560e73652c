"""The files of a published policy. ``proximo.json`` lists each with its SHA-256; no other file is copied."""

import operator
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proximo.errors import CheckpointError, instead_of_os_errors, shown
from proximo.serialization import dump_json, read_json
from proximo.storage.checkpoint import CONFIG, META, STATE, described_file
from proximo.storage.run_directory import METRICS, PUBLISHED, SYSTEM

MANIFEST, CARD, CLIP, EVALUATION = PUBLISHED, "README.md", "replay.mp4", "evaluation.json"
"""The Hub displays ``README.md`` and ``replay.mp4`` automatically."""
FORMAT = "proximo-published, version 1"
_NAMES = (CLIP, EVALUATION, CONFIG, SYSTEM, METRICS)
LISTED = re.compile(rf"{'|'.join(map(re.escape, _NAMES))}|checkpoints/\d{{1,20}}/({re.escape(STATE)}|{re.escape(META)})")
"""The only names that a folder may list. The card is not listed, because people edit it."""
PATTERNS = [MANIFEST, CARD, *_NAMES, f"checkpoints/*/{STATE}", f"checkpoints/*/{META}"]
MAX_TEXT = 10_000_000
"""Bytes that ``proximo.json`` and a card have at most."""


def listing(files: Mapping[str, bytes], **fields: Any) -> bytes:
    """The content of ``proximo.json``: the ``fields``, and a list of ``files``."""
    described = {name: described_file(data) for name, data in sorted(files.items()) if LISTED.fullmatch(name)}
    return dump_json({"format": "proximo-published", "format_version": 1, **fields, "files": described}).encode()


def read(folder: Path) -> tuple[dict[str, str], dict[str, bytes]]:
    """Read ``name``, ``environment`` and ``step`` in ``proximo.json``, and verify the files that it lists.

    Raises ``CheckpointError`` if it lists a name that it must not, or if a file is missing or damaged.
    """
    try:
        content = read_json(_bytes(folder, MANIFEST))
        if (found := f"{content['format']}, version {content['format_version']}") != FORMAT:
            raise CheckpointError(f"{folder} has the format {shown(found, 'text')}: this proximo reads {FORMAT}.")
        listed = content["files"]
        if wrong := [name for name in listed if not LISTED.fullmatch(name)]:
            raise CheckpointError(f"{folder / MANIFEST} lists {shown(wrong[0])}, which is not a file of a published policy.")
        fields = {"name": str(content["name"]), "environment": str(content["environment"]), "step": f"{content['step']:d}"}
        sizes = {name: operator.index(listed[name]["size"]) for name in {CONFIG, SYSTEM, EVALUATION, *listed}}
        files = {name: _bytes(folder, name, size) for name, size in sizes.items()}
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / MANIFEST} is damaged ({type(error).__name__}: {shown(str(error), 'text')}).") from error
    for name, data in files.items():
        if (described := described_file(data)) != listed[name]:
            sha256 = described["sha256"][:12]
            raise CheckpointError(f"{folder} is damaged: {name} has the sha256 {sha256}…, which differs from {MANIFEST}.")
    return fields, files | ({CARD: _bytes(folder, CARD)} if (folder / CARD).exists() else {})


def _bytes(folder: Path, name: str, size: int | None = None) -> bytes:
    """A regular file of ``size`` bytes, or of a text. A link could lead anywhere, and a pipe has no end."""
    path, cannot = folder / name, f"{folder} is not a published policy, or damaged: cannot read {name}"
    with instead_of_os_errors(CheckpointError, cannot, "check its path, or publish it again."):
        if path.resolve() != folder.resolve() / name or (path.exists() and not path.is_file()):
            raise CheckpointError(
                f"{path} is a link or another special file: a published policy must contain only regular files."
            )
        found, expected = path.stat().st_size, f"at most {MAX_TEXT:,}" if size is None else f"{size:,}"
        if found > MAX_TEXT if size is None else found != size:
            raise CheckpointError(f"{folder} is damaged: {name} has {found:,} bytes, expected {expected}.")
        return path.read_bytes()
