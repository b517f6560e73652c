"""Plays the episodes of `proximo watch` in a window or into files, and prints a line for each."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proximo.cli import print_warnings
from proximo.rendering import window
from proximo.rendering.play import PlayedStep
from proximo.rendering.video import recording
from proximo.rendering.watching import Subject
from proximo.storage import zoo
from proximo.tracking.progress import number
from proximo.training.interrupts import Interrupts


class Playback:
    """Shows or records the episodes of one call, and prints a line for each."""

    def __init__(self, subject: Subject, options: argparse.Namespace, interrupts: Interrupts):
        self.subject, self.options, self.interrupts = subject, options, interrupts
        self.fps = options.fps or subject.fps
        self.episodes: list[dict[str, Any]] = []
        self.files: list[Path] = []
        self.frames = 0

    def _announce(self) -> None:
        """Print warnings and what is played, once the first frame exists."""
        print_warnings(self.subject.warnings)
        if self.subject.seeds:
            first, *rest = self.subject.seeds
            others = f" (others: {', '.join(rest)})" if rest else ""
            print(f"showing {first}{others}")
        print(self.subject, flush=True)

    def _frames(self, shows_itself: bool = False) -> Iterator[PlayedStep]:
        """All frames until Ctrl-C. Prints a line at the end of each episode."""
        rows = self.subject.play(self.options.episodes, self.options.seed, self.options.max_steps, shows_itself)
        with contextlib.closing(rows):  # pyright: ignore[reportArgumentType]
            for row in rows:
                if self.interrupts.requested:
                    return
                if not self.frames:
                    self._announce()
                self.frames += 1
                yield row
                if row.ended:
                    self._print_episode(row)

    def _print_episode(self, row: PlayedStep) -> None:
        self.episodes.append(row.outcome)
        success = "" if row.success is None else ", success" if row.success else ", no success"
        cut = f", cut after {row.step:,} steps" if row.ended == "cut" else ""
        print(f"episode {row.episode + 1}: return {number(row.episode_return)}, length {row.step:,}{success}{cut}", flush=True)

    def in_window(self) -> None:
        """Show episodes in the environment's own window if it has one and --fps is not given, else in ours."""
        window.show(self.subject, self._frames, self.options.fps)

    def into_files(self, paths: list[Path]) -> None:
        """Record all frames. Files get their names only when they are complete."""
        with contextlib.ExitStack() as stack:
            recorders = [
                stack.enter_context(recording(path, self.fps)) for path in reversed(paths)
            ]  # they are completed in the order of paths
            for row in self._frames():
                frame = row.draw()
                assert frame is not None
                for recorder in recorders:
                    recorder.add(frame)
        self.files = [path for path in paths if self.frames]
        for recorder in reversed(recorders if self.frames else []):
            print(f"{recorder.path} ({self.frames:,} frames, {recorder.fps:g} per second)", flush=True)
        self.fps = recorders[-1].fps

    def report(self) -> dict[str, Any]:
        """The JSON object of the command."""
        subject = self.subject
        return {
            "run": None if subject.run_dir is None else zoo.label(subject.run_dir),
            "step": subject.step,
            "env": subject.config.env.id,
            "agent": subject.acts,
            "seed": self.options.seed,
            "episodes": self.episodes,
            "files": [str(path) for path in self.files],
            "frames": self.frames,
            "fps": self.fps,
        }
