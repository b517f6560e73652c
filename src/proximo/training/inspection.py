"""Histograms of an update: what the backend sees before and after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proximo.backends import Backend
from proximo.training.interrupts import AbandonedError, Interrupts
from proximo.training.progress import Snapshot
from proximo.training.seed_run import SeedRun

GRACE_SECONDS = 1.0
"""How long an interrupted training waits for histograms."""


class Inspection:
    """Records the histograms of single updates. An interruption skips them, because they must not cost what was learned."""

    def __init__(self, backend: Backend, seed_runs: Sequence[SeedRun], interrupts: Interrupts):
        self.backend, self.seed_runs, self.interrupts = backend, seed_runs, interrupts

    def before(self, now: Snapshot) -> Any:
        """What the backend needs of the state that the next update uses up; None if an interruption cut this short."""
        return self._call(self.backend.inspect_before, now.state)

    def write(self, after: Snapshot, seen: Any) -> None:
        """Write the histograms of the update that led from ``seen`` to ``after``, for each active seed."""
        histograms = self._call(self.backend.inspect_after, after.state, seen) or []
        for index, made in enumerate(histograms):
            if self.seed_runs[index].is_active:
                self.seed_runs[index].write_histograms(after.step, made)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return self.interrupts.call(function, *arguments, grace=GRACE_SECONDS, is_computing=self.backend.is_computing)
        except AbandonedError:
            return None
