"""Runs a study: trains batches of trials until trials or time are used up, then the final round; and its result with its files."""

import contextlib
import csv
import io
import math
import os
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
from optuna.trial import TrialState

from proximo.config import BY_NAME, to_mapping
from proximo.errors import ConfigError, EnvError, TrainingError, command, is_number, shown
from proximo.serialization import JsonObject, csv_cell, dump_yaml
from proximo.storage.atomic_files import write_atomic
from proximo.storage.run_directory import locked
from proximo.storage.system_info import versions
from proximo.tracking.reporter import Reporter
from proximo.training.interrupts import AbandonedError, Interrupts
from proximo.tuning.batch import Batch, StoppedError
from proximo.tuning.plan import FINAL, PRUNERS, TEST, TRIAL, Record, StudyPlan, best_of, draw, finalists, open_journal, records
from proximo.tuning.space import base_parameters, plain, shaping

EXPLORING_BATCHES, EXPLORE_EVERY = 3, 4
"""This many batches after the base's, and later every fourth one, draw the settings that need a compilation at random: TPE would soon
stop exploring them, because all trials of a batch share them."""
MIN_SHARE = 0.03
"""After this share of a batch, its measured speed is used to predict its end."""
MEANS = {TRIAL: "score", FINAL: "final_score", TEST: "test_score"}
SCORES = {TRIAL: "seed_scores", FINAL: "final_scores", TEST: "test_scores"}
KEPT_OF_RUN = ("matmul_precision", "updates_per_call", "eval_episodes", "eval_max_steps")
"""Settings of the group ``run`` that a preset contains, because they change results."""


@dataclass
class TuneResult:
    """The result of a study."""

    folder: Path
    """The folder of the study."""
    plan: StudyPlan
    """What was searched, and how."""
    trials: list[Record]
    """All trials that are over."""
    interrupted: int | None = None
    """Number of the signal that ended the study early; None if none did."""

    @property
    def best(self) -> Record | None:
        """The best trial, with its ``settings`` and ``score``; None if no trial was trained to its end."""
        return best_of(self.trials)

    @property
    def preset(self) -> Path | None:
        """The preset of the best trial; None before a trial has a score."""
        return None if self.best is None else self.folder / "preset.yaml"

    @property
    def counts(self) -> dict[str, int]:
        """The number of trials that are done, pruned and failed."""
        return {state: sum(t.state == state for t in self.trials) for state in ("done", "pruned", "failed")}

    def __repr__(self) -> str:
        best = "no score" if self.best is None else f"best score {self.best.score:.4g} by {self.best.name}"
        return f"TuneResult({str(self.folder)!r}: {len(self.trials)} trials, {best})"

    def summary(self) -> JsonObject:
        """Summarize the result for JSON.

        Returns:
            What ``proximo tune --json`` prints.
        """
        return {
            "study": str(self.folder),
            "env": self.plan.base.env.id,
            "trials": self.counts,
            "best": self.best and _figures(self.best),
            "base": _figures(self.trials[0]) if self.trials else None,
            "preset": self.preset and str(self.preset),
            "command": self.preset and command("proximo", "train", "--config", self.preset),
        }

    def write(self) -> None:
        """Write ``trials.csv``, and the best trial as ``preset.yaml``, with all settings, so that no later default changes them."""
        out = io.StringIO()
        writer, names = csv.writer(out), list(self.plan.space)
        writer.writerow(["trial", "state", *MEANS.values(), *names, "seconds", *SCORES.values(), "evaluations", "reason"])
        for t in self.trials:
            settings = [csv_cell(t.settings.get(name, "")) for name in names]
            lists = [*(t.scores.get(kind, []) for kind in SCORES), t.evaluations]
            texts = [" ".join(f"{score:g}" for score in scores) for scores in lists]
            means = [t.mean(kind) for kind in MEANS]
            writer.writerow([t.number, t.state, *means, *settings, round(t.seconds, 2), *texts, csv_cell(t.reason)])
        write_atomic(self.folder / "trials.csv", out.getvalue())
        if self.best is not None and self.preset is not None:
            groups = to_mapping(self.plan.config(self.best))
            groups["run"] = {name: groups["run"][name] for name in KEPT_OF_RUN}
            header = f"# Found by `proximo tune`. Train with it: {command('proximo', 'train', '--config', self.preset)}\n"
            write_atomic(self.preset, header + dump_yaml({"provenance": self._provenance(self.best), **groups}))

    def _provenance(self, best: Record) -> JsonObject:
        plan, base = self.plan, self.trials[0]
        found: JsonObject = {
            "study": str(self.folder),
            "trial": best.number,
            "trials": self.counts,
            "searched": list(plan.space),
        }
        for kind, name in MEANS.items():
            if kind in best.scores:
                seeds = plan.seeds_of(kind)
                found |= {name.replace("score", "seeds"): f"{seeds[0]}-{seeds[-1]}", name: best.mean(kind)}
            if kind in base.scores:
                found[f"base_{name}"] = base.mean(kind)
        scored_by = f"mean over the seeds of {plan.base.run.eval_episodes} greedy episodes with the final policy"
        return found | {"scored_by": scored_by, "date": datetime.now(UTC).date().isoformat(), "versions": versions()}


def _figures(trial: Record) -> JsonObject:
    scores = {name: trial.mean(kind) for kind, name in MEANS.items()}
    by_seed = {name: trial.scores.get(kind, []) for kind, name in SCORES.items()}
    return {"trial": trial.number, **scores, **by_seed, "settings": trial.settings}


class Study:
    """A study in ``folder``. ``deadline`` is a time of ``time.monotonic``.

    The journal has the trials of whole batches: a resumed study draws and trains an interrupted batch again. Optuna's
    sampler and pruner read ``sampled``, a copy in memory, which also has the trials in training: ``batch``.
    """

    def __init__(self, folder: Path, plan: StudyPlan, interrupts: Interrupts, reporter: Reporter, deadline: float = math.inf):
        self.folder, self.plan, self.interrupts, self.reporter, self.deadline = folder, plan, interrupts, reporter, deadline
        self.journal = open_journal(folder)
        self.trials, self.batch = records(self.journal), list[Record]()
        self.drawn: dict[int, optuna.Trial] = {}
        """Optuna's trial of each record of the batch, by its number."""
        self.sampled = optuna.create_study(direction="maximize", pruner=PRUNERS[plan.pruner]())
        self.sampled.add_trials(self.journal.get_trials(deepcopy=False))
        self.shaping = shaping(plan.space)
        self.base_parameters = base_parameters(plan.space, plan.base)

    def search(self) -> None:
        """Train batches until trials or time are used up. Raises ``StoppedError`` if the user stops it."""
        seconds: list[float] = []  # of each batch, with compiling
        while (first := len(self.trials)) < self.plan.trials and not (first and self._is_late(fmean(seconds or [0.0]))):
            started = time.monotonic()
            # The program of a base outside of the space may differ from the program of every other trial.
            width = self.plan.together if first or self.base_parameters is not None else 1
            self.batch = self._draw(range(first, min(self.plan.trials, first + width)))
            self._train(width)
            known = self.sampled.get_trials(deepcopy=False)
            self.journal.add_trials(known[self.drawn[record.number].number] for record in self.batch)
            self.trials += self.batch
            self.batch = []
            seconds.append(time.monotonic() - started)

    def _draw(self, numbers: range) -> list[Record]:
        """The trials of a batch. They share the settings that change the program, with the base in its batch."""
        given, together = self.base_parameters or {}, self.plan.together
        if numbers[0] and together > 1:
            batch = numbers[0] // together
            at_random = batch <= EXPLORING_BATCHES or batch % EXPLORE_EVERY == EXPLORE_EVERY - 1
            _, trial = draw(self.plan, self.sampled, numbers[0], {}, at_random)
            self.sampled.tell(trial, state=TrialState.FAIL)
            given = trial.params
        shared = {name: given[name] for name in self.shaping if name in given} if together > 1 else {}
        found = []
        for number in numbers:
            if number:
                settings, trial = draw(self.plan, self.sampled, number, shared)
            else:
                settings = {name: plain(BY_NAME[name].value_in(self.plan.base)) for name in self.plan.space}
                trial = draw(self.plan, self.sampled, 0, given)[1] if given else self.sampled.ask()
            self.drawn[number] = trial
            found.append(Record(number, settings))
        return found

    def _train(self, width: int) -> None:
        """Train the batch, in a program for ``width`` trials, until it ends or time is up. That of the base always ends."""
        trials = self.batch
        named = trials[0].name if len(trials) == 1 else f"trials {trials[0].number}–{trials[-1].number}"
        shared = [f"{name} {str(value).lower()}" for name, value in trials[0].settings.items() if name in self.shaping]
        self.reporter.trials_started(f"{named} ({', '.join(shared)})" if shared else named)
        state, reason, since = "pruned", "time was up", time.monotonic()
        try:
            configs = [self.plan.config(trial) for trial in trials]
            trainer = Batch(configs, self.plan.seeds_of(TRIAL), width, self.interrupts)
            with contextlib.closing(trainer.train(self.plan.evaluations)) as steps:
                for share, evaluation, results in steps:
                    self.reporter.trials_advanced(share)
                    for place, result in results.items():
                        trials[place].seconds += (time.monotonic() - since) / len(results)
                        trials[place].full_seconds = trainer.full_seconds * self.plan.together / width
                        self._evaluated(trials[place], result, evaluation, is_last=share == 1)
                    since = time.monotonic() if results else since
                    trainer.live = {place for place, trial in enumerate(trials) if trial.state == "running"}
                    if trials[0].number and share > MIN_SHARE and self._is_late((1 - share) * trainer.full_seconds):
                        break
        except Exception as error:
            if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
                state, reason = "failed", "there was not enough memory"
            elif isinstance(error, ConfigError | EnvError):
                state, reason = "failed", str(error)
            else:
                raise
        for record in trials:
            if record.state == "running":
                self._finish(record, state, reason)

    def _evaluated(self, record: Record, result: list[float] | str, number: int, is_last: bool) -> None:
        if isinstance(result, str):
            self._finish(record, "failed", result)
            return
        trial = self.drawn[record.number]
        record.scores[TRIAL] = result
        record.evaluations.append(score := fmean(result))
        trial.report(score, number)
        # The base is never pruned: all trials are compared with it.
        if is_last or (record.number and trial.should_prune()):
            self._finish(record, "done" if is_last else "pruned")

    def _finish(self, record: Record, state: str, reason: str = "") -> None:
        """Report a trial that is over. For the sampler, a failed one counts as pruned: it avoids its settings."""
        trial, record.state, record.reason = self.drawn[record.number], state, reason
        if state == "failed":
            record.scores.clear()
        trial.set_user_attr("record", asdict(record))
        if state == "done" and trial.params:
            self.sampled.tell(trial, record.score)
        else:
            self.sampled.tell(trial, state=TrialState.PRUNED if trial.params else TrialState.FAIL)
        over = [r for r in self._known if r.state != "running"]
        left = fmean(r.seconds for r in over) * (self.plan.trials - len(over)) + self._reserved
        self.reporter.trial_finished(record, best_of(over), max(0.0, min(left, self.deadline - time.monotonic())))

    def final_round(self) -> None:
        """Train the best trials again on other seeds, and the best of them on test seeds."""
        late: list[str] = []
        while left := [t for t in finalists(self.trials, self.plan.finalists) if not (FINAL in t.scores or t.name in late)]:
            self._train_again(left[0], FINAL, late)
        best = best_of(self.trials)
        if best is not None and FINAL in best.scores and TEST not in best.scores:
            self._train_again(best, TEST, late)
        if late:
            way = command("proximo", "tune", "--resume", self.folder)
            self.reporter.warned(f"time ran out before the final round or the test of {', '.join(late)}. Go on with: {way}")
        elif self.plan.finalists and best and FINAL not in best.scores:
            self.reporter.warned("there was no final round: no trial besides the base was trained to its end.")

    def _train_again(self, trial: Record, kind: str, late: list[str]) -> None:
        """Train a finalist on other seeds and store its scores. Without enough time, add its name to ``late``."""
        if time.monotonic() + trial.full_seconds > self.deadline:
            late.append(trial.name)
            return
        seeds = self.plan.seeds_of(kind)
        what = f"final round: {trial.name} on {len(seeds)} other seeds"
        self.reporter.trials_started(what if kind == FINAL else f"test: {trial.name}, the winner, on {len(seeds)} test seeds")
        trainer, result = Batch([self.plan.config(trial)], seeds, 1, self.interrupts), None
        for share, _, results in trainer.train(1):
            self.reporter.trials_advanced(share)
            result = results.get(0, result)
            if isinstance(result, str):
                trainer.live.clear()
        trial.scores[kind] = result if isinstance(result, list) else []
        self.journal.set_user_attr(f"{kind}/{trial.number}", trial.scores[kind])

    @property
    def _known(self) -> list[Record]:
        return self.trials + self.batch

    @property
    def _reserved(self) -> float:
        chosen = finalists(self._known, self.plan.finalists)
        left = [t.full_seconds for t in chosen if FINAL not in t.scores]
        return sum(left) + max((t.full_seconds for t in chosen), default=0.0)

    def _is_late(self, seconds: float = 0.0) -> bool:
        """Whether the final round has to begin within ``seconds``."""
        return time.monotonic() + seconds > self.deadline - self._reserved


def deadline_of(seconds: Any) -> float:
    """The time of ``time.monotonic`` after ``seconds``, or infinity. Raises ``ConfigError`` if they are not above 0."""
    if seconds is None:
        return math.inf
    if not is_number(seconds) or not seconds > 0:
        raise ConfigError(f"seconds = {shown(seconds)}: expected a number above 0.")
    return time.monotonic() + float(seconds)


def run_study(folder: Path, plan: StudyPlan, reporter: Reporter, deadline: float) -> TuneResult:
    """Run or continue the study in ``folder``. Raises ``TrainingError`` if every trial failed."""
    go_on = f"Go on with: {command('proximo', 'tune', '--resume', folder)}"
    hurried = f"Stopped at once; the finished trials are kept. {go_on}"
    with (
        locked(folder),
        Interrupts(reporter.stopping, reporter.owns_process, on_exit=lambda: reporter.exiting(hurried)) as interrupts,
    ):
        study = Study(folder, plan, interrupts, reporter, deadline)
        plan.store(study.journal)
        result = TuneResult(folder, plan, study.trials)
        reporter.study_started(folder, plan, study.trials, study.shaping)
        try:
            study.search()
            study.final_round()
        except (StoppedError, AbandonedError) as error:
            message = f"Stopped; the {len(study.trials)} finished trials are kept. {go_on}"
            reporter.stopped(message)
            if isinstance(error, AbandonedError):  # a call is still running and cannot be ended from outside
                if not interrupts.owns_process:
                    raise KeyboardInterrupt from None
                result.write()
                reporter.exiting(message)
                os._exit(128 + (interrupts.requested or 0))
        finally:
            result.write()
        result.interrupted = interrupts.requested
        if result.best is None and interrupts.requested is None:
            reasons = next((t.reason for t in study.trials if t.reason), "no trial was trained to its end")
            raise TrainingError(f"No trial of {folder} gave a score: {reasons}.")
        return result
