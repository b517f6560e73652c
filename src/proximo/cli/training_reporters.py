"""Reporters of a training: the settings, a bar on a terminal or a line every ten seconds elsewhere, and the result."""

from __future__ import annotations

import functools
import importlib.util
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from proximo.cli.console_reporters import ConsoleReporter, open_reporter
from proximo.config import Config, text_of
from proximo.errors import command
from proximo.tracking.progress import Progress, amount, duration, number
from proximo.tracking.progress_displays import ProgressBar, ProgressLines, TerminalBar
from proximo.tracking.reporter import Reporter


def total_speed(results: list[Any]) -> float:
    """Environment steps of all seeds per second of their updates."""
    seconds = sum(result.seconds / result.seeds_together for result in results)
    return sum(result.steps - result.resumed_at for result in results) / seconds if seconds else 0.0


ELSEWHERE = {"id", "seed", "seeds", "name", "runs_dir"}
"""Settings that other rows of the banner show."""


def _shown(settings: Mapping[str, Any]) -> str:
    """Settings and their values for the banner."""

    def word(value: Any) -> str:
        is_code = not isinstance(value, str | int | float | tuple | list | dict)
        return getattr(value, "__qualname__", type(value).__name__) if is_code else text_of(value) or "none"

    return ", ".join(f"{name} {word(value)}" for name, value in settings.items() if name not in ELSEWHERE)


class QuietReporter(ConsoleReporter, Reporter):
    """Prints only warnings and an early stop."""

    owns_process = True


class TrainingReporter(QuietReporter, Progress):
    """Prints the banner and the result."""

    def __init__(self, console: Console, answer: int | None = None):
        QuietReporter.__init__(self, console, answer)
        self.where, self.home = Path(), Path.cwd()
        self.tensorboard = True
        self.evaluated_on: list[str] = []
        """The flags of `proximo eval` and `proximo watch` for the environment of the training's evaluations."""
        self._how = ""

    def started(self, config: Config, run_dirs: list[Path], summary: dict[str, Any]) -> None:
        total, asked = config.total_updates * config.batch_size, config.ppo.total_steps
        self.tensorboard = config.run.tensorboard
        env, settings = config.run.eval_env, text_of(config.run.eval_env_settings)
        self.evaluated_on = [
            *(["--env", env] if isinstance(env, str) and env else []),
            *(["--env-settings", settings] if settings else []),
        ]
        self.where = self._from_home(run_dirs[0] if len(run_dirs) == 1 else run_dirs[0].parent)
        seeds = f", {len(run_dirs)} seeds ({summary['seeds']})" if len(run_dirs) > 1 else f", seed {config.run.seed}"
        resumed = f", resumed at step {summary['resumed_at']:,}" if "resumed_at" in summary else ""
        rounded = f" (of {asked:,} requested: only whole updates)" if asked != total else ""
        ppo = config.ppo
        rows = {
            "environment": f"{config.env.id}: {summary['observation']} → {summary['action']}",
            "based on": config.started_from,
            "given": _shown(config.given),
            "network": f"{summary['network']}: {summary['parameters']:,} parameters",
            "batch": summary["batch"],
            "training": f"{total:,} steps{rounded} in {amount(summary['updates'], 'update')}{seeds}{resumed}",
            "settings": f"learning rate {ppo.learning_rate}, γ {ppo.gamma:g}, λ {ppo.gae_lambda:g}, clip {ppo.clip_eps}, "
            f"entropy {ppo.ent_coef}",
            "preprocessed": summary["preprocessed"],
            "normalized": summary["normalized"],
            "device": summary["device"],
            "run": str(self.where),
        }
        if summary.get("twin"):
            rows["in JAX"] = f"{summary['twin']} is the same task, stepped on the device"
        self.banner(rows)
        super().started(config, run_dirs, summary)

    def compiled(self, how: str) -> None:
        super().compiled(how)
        if how and how != self._how:
            self.print(f"{'stepping':>12}  {how}")
        self._how = how

    def _from_home(self, path: Path) -> Path:
        """``path`` relative to the folder in which the command was started."""
        return path.relative_to(self.home) if path.is_relative_to(self.home) else path

    def finished(self, results: list[Any]) -> None:
        super().finished(results)
        if not results or any(r.interrupted for r in results):
            return
        for result in results:
            self._print_result(result, f"{self._from_home(result.run_dir)}: " if len(results) > 1 else "")
        if self.seeds > 1:
            self._print_mean(results)
        missing = "" if importlib.util.find_spec("tensorboard") else "   # after: pip install tensorboard"
        following = [
            command("proximo", "watch", self.where, *self.evaluated_on),
            command("proximo", "eval", self.where, *self.evaluated_on, "--episodes", 100),
            command("proximo", "report", self.where),
            command("proximo", "export", self._from_home(results[0].run_dir)),
            *([command("tensorboard", "--logdir", self.where) + missing] if self.tensorboard else []),
        ]
        self.print("\n".join(f"{'' if i else 'Next:':<7}{line}" for i, line in enumerate(following)))

    def _print_result(self, result: Any, name: str) -> None:
        """Print the result of one seed. After a resume, the steps count from the start of the run."""
        episodes = "training episodes"
        if (last := result.evaluation) is not None:
            earlier = f" at step {last['step']:,}" if last["step"] != result.steps else ""
            episodes = f"{amount(last['episodes'], 'greedy episode')}{earlier}"
        now = f", {result.steps - result.resumed_at:,} of them now," if result.resumed_at else ""
        self.print(
            f"{name}mean return {number(result.return_mean)} ({episodes}) after {result.steps:,} steps{now} in {duration(result.seconds)} "
            f"({result.steps_per_second:,.0f} steps/s), evaluated in {duration(result.evaluation_seconds)}, compiled in "
            f"{duration(result.compile_seconds)}"
        )
        if result.best is not None and result.return_mean is not None and result.best["return_mean"] > result.return_mean:
            best = f"{number(result.best['return_mean'])} at step {result.best['step']:,.0f}"
            self.print(f"{name}best: {best} ({self._from_home(result.run_dir)}@best)")

    def _print_mean(self, results: list[Any]) -> None:
        """Print the mean over the seeds that have a return. The line reports the number of those that failed."""
        returns, failed = [r.return_mean for r in results if r.return_mean is not None], self.seeds - len(results)
        if not returns:
            return
        mean, deviation = statistics.fmean(returns), statistics.pstdev(returns)
        named = f"{len(returns)} of {self.seeds} seeds" if failed else f"{len(returns)} seeds"
        left_out = f"; the {failed} that failed are not included, but `proximo report` counts them" if failed else ""
        spread = f"{number(mean)} ± {number(deviation)} (standard deviation)"
        self.print(f"{named}: mean return {spread}{left_out}. All seeds together: {total_speed(results):,.0f} steps/s")


class LineReporter(TrainingReporter, ProgressLines):
    """Prints the banner, a line every ten seconds, and the result."""

    def __init__(self, console: Console, answer: int | None = None):
        TrainingReporter.__init__(self, console, answer)
        ProgressLines.__init__(self, self.print)

    def stopping(self) -> None:
        self.print("stopping after the current update, which will be saved (press Ctrl-C again to stop at once)")


class LiveReporter(TrainingReporter, ProgressBar):
    """Prints the banner and the result, and between them shows a bar, redrawn in place."""

    def __init__(self, console: Console, answer: int | None = None):
        TrainingReporter.__init__(self, console, answer)
        ProgressBar.__init__(self, lambda progress: TerminalBar(progress, console, transient=True))

    def exiting(self, message: str) -> None:
        self.bar.stop()
        super().exiting(message)


make_reporter = functools.partial(open_reporter, QuietReporter, LineReporter, LiveReporter)
