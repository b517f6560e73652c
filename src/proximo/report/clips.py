"""The last clip of each group of runs, if it fits on the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proximo.rendering.recorder import videos
from proximo.report.grouping import Group, Section

MAX_BYTES = 2_800_000
"""Maximum size of all clips of a page, in bytes. Encoded as text they take a third more, and the page should stay below 5 MB."""


@dataclass(frozen=True)
class Clip:
    """A clip with its caption. If it is omitted, ``content`` is None and ``message`` has the reason."""

    label: str
    message: str
    content: bytes | None


def last_clip(group: Group) -> tuple[Path, str] | None:
    """The clip to show, and its description: the last one recorded in training, else that of a pulled run, else the last one of `proximo watch`.

    ``watch-random.mp4`` is never shown, because no policy plays in it.
    """
    files = [
        path
        for folder in dict.fromkeys(videos(run.path) for run in group.runs)
        for path in folder.glob("*.mp4")
        if path.is_file() and path.resolve().parent == folder.resolve()  # a link could embed any other file in the page
    ]
    for pattern, shows in (
        (r"(\d+)", "recorded in training, greedy actions"),
        ("(replay)", "from the publication, greedy actions"),
        (r"watch-(\d+)", "written by `proximo watch`"),
    ):
        fitting = [(match[1], path) for path in files if (match := re.fullmatch(pattern, path.stem))]
        if fitting:
            found, path = max(fitting, key=lambda entry: int(entry[0]) if entry[0].isdecimal() else 0)
            return path, f"step {int(found):,}, {shows}" if found.isdecimal() else shows
    return None


def last_clips(sections: Sequence[Section], room: int = MAX_BYTES) -> list[list[Clip]]:
    """The clips of each section. A clip that does not fit into the remaining ``room`` (bytes) is omitted, with a message."""
    result: list[list[Clip]] = []
    for section in sections:
        clips = []
        for group in section.groups:
            found = last_clip(group)
            if found is None:
                continue
            path, shows = found
            size = path.stat().st_size
            if size <= room:
                room -= size
                clips.append(Clip(group.label, f"{shows}: {path}", path.read_bytes()))
            else:
                omitted = f"{path} is omitted: its {size / 1e6:.1f} MB would make the page too large."
                clips.append(Clip(group.label, omitted, None))
        result.append(clips)
    return result
