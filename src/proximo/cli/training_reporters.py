"""Reporters of a training: a live table on a terminal, elsewhere a line every ten seconds."""

from __future__ import annotations

import functools
import importlib.util
import statistics
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from proximo.cli.console_reporters import PLAIN_SECONDS, ConsoleReporter, LiveDisplay, duration, open_reporter
from proximo.config import Config
from proximo.errors import command
from proximo.tracking.reporter import Reporter


def _number(x: float | None) -> str:
    return "–" if x is None else f"{x:,.1f}" if abs(x) < 10_000 else f"{x:,.0f}"


class QuietReporter(ConsoleReporter, Reporter):
    """Prints only warnings and an early stop."""

    owns_process = True


class LineReporter(QuietReporter):
    """Prints the banner, a line every ten seconds, and the result."""

    def __init__(self, console: Console, answer: int | None = None):
        super().__init__(console, answer)
        self.total = self.steps = 0
        self.where, self.home = Path(), Path.cwd()
        self.group = ""
        """The seed that trains now, if seeds train one after another."""
        self.seeds_together = self.seeds_left = 1
        self.seeds, self.tensorboard = 1, True
        self.speed = 0.0
        self.recent: float | None = None
        self.evaluation: float | None = None
        self._printed = 0.0
        self._announced = False
        self._how = ""

    def started(self, config: Config, run_dirs: list[Path], summary: dict[str, Any]) -> None:
        self.total, self.seeds, self.seeds_left = config.total_updates * config.batch_size, len(run_dirs), len(run_dirs)
        self.tensorboard = config.run.tensorboard
        self.where = self._from_home(run_dirs[0] if len(run_dirs) == 1 else run_dirs[0].parent)
        seeds = f", {len(run_dirs)} seeds ({summary['seeds_mode']})" if len(run_dirs) > 1 else f", seed {config.run.seed}"
        resumed = f", resumed at step {summary['resumed_at']:,}" if "resumed_at" in summary else ""
        asked = config.ppo.total_steps
        rounded = f" (of {asked:,} requested: only whole updates)" if asked != self.total else ""
        ppo = config.ppo
        rows = {
            "environment": f"{config.env.id}: {summary['observation']} → {summary['action']}",
            "network": f"{summary['network']}: {summary['parameters']:,} parameters",
            "batch": summary["batch"],
            "training": f"{self.total:,} steps{rounded} in {summary['updates']:,} updates{seeds}{resumed}",
            "settings": f"learning rate {ppo.learning_rate.text}, γ {ppo.gamma:g}, λ {ppo.gae_lambda:g}, clip {ppo.clip_eps.text}, "
            f"entropy {ppo.ent_coef.text}",
            "device": summary["device"],
            "run": str(self.where),
        }
        if summary.get("twin"):
            rows["in JAX"] = f"{summary['twin']} is the same task and trains many times faster"
        self.banner(rows)

    def seeds_started(self, run_dirs: list[Path], steps: int) -> None:
        self.steps, self.recent, self.evaluation = steps, None, None
        self.seeds_together = len(run_dirs)
        self.seeds_left -= len(run_dirs)
        self.group = run_dirs[0].name if self.seeds > len(run_dirs) else ""

    def compiling(self) -> None:
        if not self._announced:
            self.print("compiling…")
        self._announced = True

    def compiled(self, how: str) -> None:
        if how and how != self._how:
            self.print(f"{'stepping':>12}  {how}")
        self._how = how

    def advanced(self, steps: int, steps_per_second: float, recent_return: float | None) -> None:
        now = time.monotonic()
        self._printed = self._printed or now
        self.steps, self.recent = steps, recent_return
        self.speed = steps_per_second if not self.speed else 0.7 * self.speed + 0.3 * steps_per_second
        if now - self._printed >= PLAIN_SECONDS:
            self._printed = now
            self.print(self.line())

    def evaluated(self, steps: int, summaries: list[dict[str, Any]]) -> None:
        self.evaluation = sum(s["return_mean"] for s in summaries) / len(summaries)

    def line(self) -> str:
        """The progress of the training."""
        parts = [self.group] if self.group else []
        parts += [f"step {self.steps:,} of {self.total:,}", f"return {_number(self.recent)}", f"{self.speed:,.0f} steps/s"]
        parts += [f"{duration(self.seconds_left)} left", f"evaluated {_number(self.evaluation)}"]
        return " · ".join(parts)

    @property
    def seconds_left(self) -> float:
        """Estimated from the current speed, for the seeds that train together and those that wait."""
        steps = (self.total - self.steps) * self.seeds_together + self.total * self.seeds_left
        return steps / self.speed if self.speed else 0.0

    def _from_home(self, path: Path) -> Path:
        """``path`` relative to the folder in which the command was started."""
        return path.relative_to(self.home) if path.is_relative_to(self.home) else path

    def stopping(self) -> None:
        self.print("stopping after the current update, which will be saved (press Ctrl-C again to stop at once)")

    def finished(self, results: list[Any]) -> None:
        if not results or any(r.interrupted for r in results):
            return
        for r in results:
            run_dir = self._from_home(r.run_dir)
            text = f"{run_dir}: " if len(results) > 1 else ""
            self.print(
                f"{text}mean return {_number(r.return_mean)} after {r.steps:,} steps in {duration(r.seconds)} "
                f"({r.steps_per_second:,.0f} steps/s, {r.compile_seconds:.1f} s to compile)"
            )
            if r.best is not None and r.return_mean is not None and r.best["return_mean"] > r.return_mean:
                best = f"{_number(r.best['return_mean'])} at step {r.best['step']:,.0f}"
                self.print(f"{text}best: {best} ({run_dir}@best)")
        returns = [r.return_mean for r in results if r.return_mean is not None]
        failed = self.seeds - len(results)
        if returns and self.seeds > 1:
            mean, deviation = statistics.fmean(returns), statistics.pstdev(returns)
            # Failed seeds have no return to average, so the line reports their number.
            named = f"{len(returns)} of {self.seeds} seeds" if failed else f"{len(returns)} seeds"
            left_out = f"; the {failed} that failed are not included, but `proximo report` counts them" if failed else ""
            self.print(f"{named}: mean return {_number(mean)} ± {_number(deviation)} (standard deviation){left_out}")
        self.print(f"Next:  {command('proximo', 'watch', self.where)}")
        self.print(f"       {command('proximo', 'eval', self.where, '--episodes', 100)}")
        if self.tensorboard:
            missing = "" if importlib.util.find_spec("tensorboard") else "   # after: pip install tensorboard"
            self.print(f"       {command('tensorboard', '--logdir', self.where)}{missing}")


class LiveReporter(LiveDisplay, LineReporter):
    """Shows a table on a terminal, redrawn in place."""

    _state = "compiling…"

    def started(self, config: Config, run_dirs: list[Path], summary: dict[str, Any]) -> None:
        super().started(config, run_dirs, summary)
        self._live.start()

    def compiling(self) -> None:
        self._state = "compiling…"
        self._live.refresh()

    def evaluating(self) -> None:
        self._state = "evaluating…"
        self._live.refresh()

    def stopping(self) -> None:
        self._state = "stopping…"
        self._live.refresh()

    def advanced(self, steps: int, steps_per_second: float, recent_return: float | None) -> None:
        self._printed = time.monotonic()  # no plain lines here
        self._state = "training"
        super().advanced(steps, steps_per_second, recent_return)

    def finished(self, results: list[Any]) -> None:
        self._live.stop()
        super().finished(results)

    def display(self) -> Table:
        table = Table("", "steps", "return", "evaluated", "steps/s", "time left")
        done = f"{self.steps:,} ({self.steps / self.total:.0%})" if self.total else "–"
        left = duration(self.seconds_left) if self.speed else "–"
        state = " ".join(filter(None, (self.group, self._state)))
        table.add_row(state, done, _number(self.recent), _number(self.evaluation), f"{self.speed:,.0f}", left)
        return table


make_reporter = functools.partial(open_reporter, QuietReporter, LineReporter, LiveReporter)
