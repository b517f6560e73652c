"""Reporters of commands: a bar on a terminal, lines elsewhere. For a training, they also print the settings and the result."""

import contextlib
import functools
import importlib.util
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from proximo.cli import print_warnings
from proximo.config import Config, text_of
from proximo.errors import command
from proximo.streams import discard_output
from proximo.tracking.progress import (
    DisplayReporter,
    TerminalBar,
    TrainingProgress,
    amount,
    console_on,
    draws_in_place,
    duration,
    number,
)

Kind = TypeVar("Kind", bound=DisplayReporter)


@contextlib.contextmanager
def open_reporter(kind: type[Kind], quiet: bool = False, as_json: bool = False) -> Iterator[Kind]:
    """The reporter of a command. It prints to standard output, or with ``as_json`` to standard error. If ``quiet``, it prints only
    warnings, to standard error."""

    def warn_of_stream(message: str) -> None:
        try:
            print_warnings([message])
        except OSError:
            discard_output(sys.stderr)

    stream = sys.stderr if as_json or quiet else sys.stdout
    console = console_on(stream, warn_of_stream)
    bar = functools.partial(TerminalBar, transient=True) if draws_in_place(stream) and not quiet else None
    answering = os.fdopen(os.dup(1), "wb") if as_json else contextlib.nullcontext()
    with answering as answer, contextlib.closing(kind(console, bar, answer=answer and answer.fileno(), quiet=quiet)) as reporter:
        reporter.owns_process = True
        yield reporter


class TrainingReporter(TrainingProgress):
    """Also prints the settings and the result."""

    _how = ""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._home = Path.cwd()  # now, because an environment may change the working folder

    def _from_home(self, path: Path) -> Path:
        """``path`` relative to the folder in which the command was started."""
        return path.relative_to(self._home) if path.is_relative_to(self._home) else path

    def started(self, config: Config, run_dirs: list[Path], summary: dict[str, str]) -> None:
        self.config = config
        self.where = self._from_home(run_dirs[0] if len(run_dirs) == 1 else run_dirs[0].parent)
        self.rows(summary | {"run": str(self.where)})
        super().started(config, run_dirs, summary)

    def compiled(self, how: str) -> None:
        super().compiled(how)
        if how and how != self._how:
            self.rows({"stepping": how})
        self._how = how

    def finished(self, results: list[Any]) -> None:
        super().finished(results)
        if any(r.interrupted for r in results):
            return
        for result in results:
            run_dir, best = self._from_home(result.run_dir), result.best
            name = f"{run_dir}: " if len(results) > 1 else ""
            self.line(name + _outcome(result))
            if best is not None and result.return_mean is not None and best["return_mean"] > result.return_mean:
                self.line(f"{name}best: {number(best['return_mean'])} at step {best['step']:,.0f} ({run_dir}@best)")
        if self.seeds > 1 and (mean := _mean_outcome(results, self.seeds)):
            self.line(mean)
        following = _next_commands(self.config, self.where, self._from_home(results[0].run_dir))
        self.line("\n".join(f"{'' if i else 'Next:':<7}{line}" for i, line in enumerate(following)))


def _outcome(result: Any) -> str:
    """The result of one seed. After a resume, the steps count from the start of the run."""
    episodes = "training episodes"
    if (last := result.evaluation) is not None:
        earlier = f" at step {last['step']:,}" if last["step"] != result.steps else ""
        episodes = f"{amount(last['episodes'], 'greedy episode')}{earlier}"
    now = f", {result.steps - result.resumed_at:,} of them now," if result.resumed_at else ""
    speed = f"{result.steps_per_second * result.num_agents:,.0f} {'agent ' if result.num_agents > 1 else ''}steps/s"
    return (
        f"mean return {number(result.return_mean)} ({episodes}) after {result.steps:,} steps{now} in {duration(result.seconds)} "
        f"({speed}), evaluated in {duration(result.evaluation_seconds)}, compiled in "
        f"{duration(result.compile_seconds)}"
    )


def _mean_outcome(results: list[Any], seeds: int) -> str:
    """The mean over the seeds that have a return, and how many have failed; empty if no seed has one."""
    returns, failed = [r.return_mean for r in results if r.return_mean is not None], seeds - len(results)
    if not returns:
        return ""
    named = f"{len(returns)} of {seeds} seeds" if failed else f"{len(returns)} seeds"
    left_out = f"; the {failed} that failed are not included, but `proximo report` counts them" if failed else ""
    spread = f"{number(statistics.fmean(returns))} ± {number(statistics.pstdev(returns))} (standard deviation)"
    return f"{named}: mean return {spread}{left_out}. All seeds together: {total_speed(results):,.0f} steps/s"


def _next_commands(config: Config, where: Path, policy: Path) -> list[str]:
    """The commands for the run ``where`` and ``policy``, the run of one seed, on the evaluation environment."""
    run = config.run
    env = ["--env", run.eval_env] if run.eval_env else []
    env += ["--env-settings", text_of(run.eval_env_settings)] if run.eval_env_settings else []
    missing = "" if importlib.util.find_spec("tensorboard") else "   # after: pip install tensorboard"
    return [
        command("proximo", "watch", where, *env),
        command("proximo", "eval", where, *env, "--episodes", 100),
        command("proximo", "report", where),
        command("proximo", "export", policy),
        *([command("tensorboard", "--logdir", where) + missing] if run.tensorboard else []),
    ]


def total_speed(results: list[Any]) -> float:
    """Environment steps of all seeds per second of their updates."""
    seconds = sum(result.seconds / result.seeds_together for result in results)
    return sum(result.steps - result.resumed_at for result in results) / seconds if seconds else 0.0
