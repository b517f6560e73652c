"""The last clip of each group of runs, as far as the page has room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proximo.report.grouping import Group, Section

ROOM = 2_800_000
"""Bytes of all clips of a page; as text they take a third more, and the page is to stay below 5 MB."""


@dataclass(frozen=True)
class Clip:
    """A clip and what is said of it; ``content`` is None where it is left out."""

    label: str
    says: str
    content: bytes | None


def newest(group: Group) -> Path | None:
    """The newest ``videos/*.mp4`` of the group's runs."""
    folders = {run.path / "videos" for run in group.runs}
    found = [path for folder in folders for path in folder.glob("*.mp4") if path.is_file()]
    return max(found, key=lambda path: (path.stat().st_mtime, path.name), default=None)


def last_clips(sections: Sequence[Section], room: int = ROOM) -> list[list[Clip]]:
    """The clips of each section; one that does not fit into the ``room`` (bytes) that is left says so instead."""
    result: list[list[Clip]] = []
    for section in sections:
        clips = []
        for group in section.groups:
            path = newest(group)
            if path is None:
                continue
            size = path.stat().st_size
            fits = size <= room
            room -= size if fits else 0
            says = str(path) if fits else f"{path} is left out: {size / 1e6:.1f} MB would make the page too large."
            clips.append(Clip(group.label, says, path.read_bytes() if fits else None))
        result.append(clips)
    return result
