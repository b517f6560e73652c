"""The last clip of each group of runs, as far as the page has room."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proximo.report.grouping import Group, Section
from proximo.run.frames import videos

ROOM = 2_800_000
"""Bytes of all clips of a page; as text they take a third more, and the page is to stay below 5 MB."""


@dataclass(frozen=True)
class Clip:
    """A clip and what is said of it; ``content`` is None where it is left out."""

    label: str
    says: str
    content: bytes | None


@dataclass(frozen=True)
class Found:
    """A file with an episode of a group's policy, and what it shows."""

    path: Path
    shows: str


def last_clip(group: Group) -> Found | None:
    """The clip of the highest step that was recorded in training; without any that of a pulled run, else the highest step that `proximo
    watch` has written. Never ``watch-random.mp4``: no policy plays in it."""
    files = [
        path
        for folder in dict.fromkeys(videos(run.path) for run in group.runs)
        for path in folder.glob("*.mp4")
        if path.is_file() and path.resolve().parent == folder.resolve()  # a link could embed any other file in the page
    ]
    for pattern, shows in (
        (r"(\d+)", "recorded in training, greedy"),
        ("(replay)", "as it was published, greedy"),
        (r"watch-(\d+)", "written by `proximo watch`"),
    ):
        fitting = [(match[1], path) for path in files if (match := re.fullmatch(pattern, path.stem))]
        if fitting:
            found, path = max(fitting, key=lambda entry: int(entry[0]) if entry[0].isdecimal() else 0)
            return Found(path, f"step {int(found):,}, {shows}" if found.isdecimal() else shows)
    return None


def last_clips(sections: Sequence[Section], room: int = ROOM) -> list[list[Clip]]:
    """The clips of each section; one that does not fit into the ``room`` (bytes) that is left says so instead."""
    result: list[list[Clip]] = []
    for section in sections:
        clips = []
        for group in section.groups:
            found = last_clip(group)
            if found is None:
                continue
            size = found.path.stat().st_size
            fits = size <= room
            room -= size if fits else 0
            left_out = f"{found.path} is left out: {size / 1e6:.1f} MB would make the page too large."
            content = found.path.read_bytes() if fits else None
            clips.append(Clip(group.label, f"{found.shows}: {found.path}" if fits else left_out, content))
        result.append(clips)
    return result
