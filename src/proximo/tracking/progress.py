"""The progress of a training in words: a base class for reporters that print it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proximo.config import Config
from proximo.tracking.reporter import Reporter


def number(x: float | None) -> str:
    """A return with three significant digits or more, below 0.01 with two; a dash for None."""
    if x is None:
        return "–"
    size = abs(x)
    return f"{x:.2g}" if 0 < size < 0.01 else f"{x:#.3g}" if size < 9.995 else f"{x:,.1f}" if size < 10_000 else f"{x:,.0f}"


def amount(count: int, noun: str, plural: str = "s") -> str:
    """``1 update``, ``2 updates``."""
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class Progress(Reporter):
    """Follows a training: its steps, returns, speed and the time left. ``warn`` receives its warnings."""

    def __init__(self, warn: Callable[[str], None] = lambda message: None) -> None:
        self._warn = warn
        self.total = self.steps = 0
        self.state = ""
        """What takes time besides updates, such as ``compiling…``; empty during updates."""
        self.group = ""
        """The seed that trains now, if seeds train one after another."""
        self.seeds = self.seeds_together = self.seeds_left = 1
        self.speed = 0.0
        self.recent: float | None = None
        self.evaluation: float | None = None
        self.evaluation_seconds = 0.0
        """Seconds of the evaluations since the training began."""
        self.started_at = 0
        """Steps at which this training began, or was resumed."""
        self.state_since = 0.0
        """Time of ``time.monotonic`` at which ``state`` began."""

    def warned(self, message: str) -> None:
        self._warn(message)

    def started(self, config: Config, run_dirs: list[Path], summary: dict[str, Any]) -> None:
        self.total = config.total_updates * config.batch_size
        self.seeds = self.seeds_left = max(1, len(run_dirs))

    def seeds_started(self, run_dirs: list[Path], steps: int) -> None:
        self.steps, self.recent, self.evaluation = steps, None, None
        self.started_at, self.evaluation_seconds = steps, 0.0
        self.seeds_together = max(1, len(run_dirs))
        self.seeds_left -= self.seeds_together
        self.group = run_dirs[0].name if self.seeds > self.seeds_together else ""

    def compiling(self) -> None:
        self._begin("compiling…")

    def compiled(self, how: str) -> None:
        self._begin("")

    def evaluating(self) -> None:
        self._begin("evaluating…")

    def stopping(self) -> None:
        self._begin("stopping…")

    def _begin(self, state: str) -> None:
        self.state, self.state_since = state, time.monotonic()

    def advanced(self, steps: int, steps_per_second: float, recent_return: float | None) -> None:
        self._begin("")
        self.steps, self.recent = steps, recent_return
        self.speed = steps_per_second if not self.speed else 0.7 * self.speed + 0.3 * steps_per_second

    def evaluated(self, steps: int, summaries: list[dict[str, Any]]) -> None:
        self.evaluation_seconds += time.monotonic() - self.state_since
        self._begin("")
        self.evaluation = sum(s["return_mean"] for s in summaries) / len(summaries)

    @property
    def activity(self) -> str:
        """The seed, and what takes time besides updates, with its duration so far."""
        elapsed = duration(time.monotonic() - self.state_since) if self.state else ""
        return " ".join(filter(None, (self.group, self.state, elapsed)))

    @property
    def figures(self) -> str:
        """The figures that fit on a terminal beside a bar; empty before the first update."""
        if not self.speed:
            return ""
        parts = [f"{self.steps:,} ({self.steps / self.total:.0%})", f"return {number(self.recent)}"]
        if not self.state:  # then a terminal of 80 columns has room for them
            parts += [f"eval {number(self.evaluation)}", f"{self.speed:,.0f} steps/s"]
        return " · ".join([*parts, f"{duration(self.seconds_left)} left"])

    def line(self) -> str:
        """The progress as one line of a log."""
        parts = [self.group] if self.group else []
        parts += [f"step {self.steps:,} of {self.total:,}", f"return {number(self.recent)}", f"{self.speed:,.0f} steps/s"]
        parts += [f"{duration(self.seconds_left)} left", f"evaluated {number(self.evaluation)}"]
        return " · ".join(parts)

    @property
    def seconds_left(self) -> float:
        """Estimated from the current speed and the time of evaluations so far, for the seeds that train together and those that wait."""
        if not self.speed:
            return 0.0
        steps = (self.total - self.steps) * self.seeds_together + self.total * self.seeds_left
        done = max(1, self.steps - self.started_at) * self.seeds_together
        return steps / self.speed + steps * self.evaluation_seconds / done
