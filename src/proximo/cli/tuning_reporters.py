"""Reporters of a study: on a terminal a line for each trial and a live line for those in training, elsewhere a line when the best
score improves and every ten seconds."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from proximo.cli.console_reporters import ConsoleReporter, LiveDisplay, open_reporter
from proximo.config import text_of
from proximo.errors import command
from proximo.tracking.progress import amount
from proximo.tracking.progress_displays import LINE_SECONDS
from proximo.tuning.journal import FINAL, TEST, TRIAL, Record
from proximo.tuning.plan import StudyPlan
from proximo.tuning.progress import Lines, Reporter, number
from proximo.tuning.result import TuneResult
from proximo.tuning.space import SEARCHED, plain


class QuietReporter(ConsoleReporter, Reporter):
    """Prints only warnings and an early stop."""

    owns_process = True


class LineReporter(QuietReporter, Lines):
    """The banner, and a line for a trial that is better than all before; for others every ten seconds."""

    def __init__(self, console: Console, answer: int | None = None):
        super().__init__(console, answer)
        self.best: int | None = None
        self._printed = 0.0

    def started(self, folder: Path, plan: StudyPlan, trials: list[Record], shaping: set[str]) -> None:
        Lines.started(self, folder, plan, trials, shaping)
        gone = f", {self.over} of them finished" if self.over else ""
        seeds = plan.seeds_of(TRIAL)
        named = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]}–{seeds[-1]}"
        together = f", {plan.together} in one program" if plan.together > 1 else ""
        compiled = [name for name in plan.space if name in shaping]
        rows = {
            "environment": plan.base.env.id,
            "trials": f"{plan.trials}{gone}, of {plan.base.ppo.total_steps:,} steps each, {named}{together}",
            "searched": ", ".join(name for name in plan.space if name not in shaping),
            "by program": ", ".join(compiled),
            "study": str(folder),
        }
        self.banner(rows)

    def finished(self, trial: Record, best: Record | None, seconds_left: float) -> None:
        self.over += 1
        improved = best is not None and best.number != self.best
        self.best = best.number if best is not None else None
        if improved or self._is_time():
            self._printed = time.monotonic()
            self.print(self.line(trial, best, seconds_left))

    def _is_time(self) -> bool:
        return time.monotonic() - self._printed >= LINE_SECONDS

    def stopping(self) -> None:
        self.print("stopping: --resume restarts the trials in training (press Ctrl-C again to stop at once)")


class LiveReporter(LiveDisplay, LineReporter):
    """Shows a line for each trial on a terminal, and a live line for the trials in training."""

    _batch, _share = "", 0.0

    def started(self, folder: Path, plan: StudyPlan, trials: list[Record], shaping: set[str]) -> None:
        super().started(folder, plan, trials, shaping)
        self._live.start()

    def batch(self, numbers: list[int], shared: dict[str, Any]) -> None:
        named = f"trial {numbers[0]}" if len(numbers) == 1 else f"trials {numbers[0]}–{numbers[-1]}"
        listed = ", ".join(f"{name} {str(value).lower()}" for name, value in shared.items())
        self._batch, self._share = f"{named}{f' ({listed})' if listed else ''}", 0.0

    def advanced(self, share: float) -> None:
        self._share = share

    def final_round(self, trial: Record, kind: str, seeds: int) -> None:
        super().final_round(trial, kind, seeds)
        self._batch, self._share = "final round" if kind == "final" else kind, 0.0

    def _is_time(self) -> bool:
        return True

    def display(self) -> Text:
        state = "compiling…" if not self._share else f"{self._share:.0%}"
        return Text(f"{self._batch}: {state}" if self._batch else "", style="dim", no_wrap=True, overflow="ellipsis")


make_reporter = functools.partial(open_reporter, QuietReporter, LineReporter, LiveReporter)


def print_result(result: TuneResult) -> None:
    """Print the best settings, the scores of the base, and how to train with them."""
    best = result.best
    if best is None:
        return
    print(f"\n{len(result.trials)} trials: " + ", ".join(f"{n} {state}" for state, n in result.counts.items() if n))
    for trial in (result.trials[0], best) if best.number else (best,):
        parts = {TRIAL: ("seed", ""), FINAL: ("seed", " of the final round"), TEST: ("test seed", "")}
        scores = {kind: trial.scores[kind] for kind in parts if trial.scores.get(kind)}
        listed = [f"{number(trial.mean(k))} on {amount(len(x), parts[k][0])}{parts[k][1]}" for k, x in scores.items()]
        print(f"{trial.name.removeprefix('the '):>12}  {', '.join(listed)}")
    if best.scores.get(TEST):
        print("Report the score on the test seeds: no choice depends on them.")
    elif TEST in best.scores:
        print("The winner failed on its test seeds (NaN or infinity): its other scores are too high on average.")
    elif result.counts["done"] > 1:
        print(
            f"The winner was not tested on other seeds: its score is the highest of {result.counts['done']} and too high on average."
        )
    if best.number == 0:
        print("No trial was better than the base.")
    configs = (result.plan.base, result.plan.config(best))
    before, after = ({name: text_of(plain(SEARCHED[name].value_in(config))) for name in result.plan.space} for config in configs)
    for name in sorted(before, key=lambda name: (before[name] == after[name], SEARCHED[name].group)):
        changed = f"  (base {before[name]})" if before[name] != after[name] else ""
        print(f"    {name:<{max(map(len, before))}}  {after[name]}{changed}")
    print(f"See:   {result.folder / 'trials.csv'}")
    print(f"Next:  {command('proximo', 'train', '--config', result.preset)}")
