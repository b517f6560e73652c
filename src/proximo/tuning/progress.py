"""The progress of a study in words, on a display."""

from pathlib import Path

from proximo.tracking.progress import DisplayReporter, duration, number
from proximo.tuning.plan import Record, StudyPlan


class StudyProgress(DisplayReporter):
    """Shows what is searched, a line for each finished trial, and how far the trials in training are."""

    total = over = 0
    _what = ""

    def study_started(self, folder: Path, plan: StudyPlan, trials: list[Record], shaping: set[str]) -> None:
        self.total, self.over = plan.trials, len(trials)
        seeds = plan.seeds_of("trial")
        named = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]}–{seeds[-1]}"
        finished = f", {self.over} of them finished" if self.over else ""
        together = f", {plan.together} in one program" if plan.together > 1 else ""
        self.rows(
            {
                "environment": plan.base.env.id,
                "trials": f"{plan.trials}{finished}, of {plan.base.ppo.total_steps:,} steps each, {named}{together}",
                "searched": ", ".join(name for name in plan.space if name not in shaping),
                "by program": ", ".join(name for name in plan.space if name in shaping),
                "study": str(folder),
            }
        )
        self.start()

    def trials_started(self, what: str) -> None:
        self.line(what)
        self._what, self.share = what.partition(" (")[0], None  # a bar has no room for the settings
        self.update()

    def trials_advanced(self, share: float) -> None:
        self.share = share
        self.update()

    def trial_finished(self, trial: Record, best: Record | None, seconds_left: float) -> None:
        self.over += 1
        score = {"done": number(trial.score), "pruned": f"{number(trial.score)} pruned", "failed": f"failed: {trial.reason}"}
        best_score = "" if best is None else f" · best {number(best.score)} ({best.name.removeprefix('the ')})"
        left = f"{self.over} of {self.total} finished · {duration(seconds_left)} left"
        self.line(f"{trial.name.removeprefix('the '):<10} {score[trial.state]}{best_score} · {left}")

    def stopping(self) -> None:
        self.line("stopping: --resume restarts the trials in training (press Ctrl-C again to stop at once)")

    @property
    def activity(self) -> str:
        return self._what if self.share is not None or not self._what else f"{self._what}: compiling…"

    @property
    def figures(self) -> str:
        return "" if self.share is None else f"{self.share:.0%}"
