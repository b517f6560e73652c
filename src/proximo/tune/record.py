"""What is known of the trials of a study: read from Optuna's journal, which is all that is saved of them."""

from __future__ import annotations

import csv
import io
import statistics
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from proximo.errors import CheckpointError
from proximo.run.files import write_atomic
from proximo.tune.plan import JOURNAL

STUDY_NAME = "proximo"
FINAL = "final/"
"""Prefix of the attribute of the study with the scores of a trial in the final round, by seed; an empty list if a seed failed."""
TEST = "test/"
"""Prefix of the attribute with the scores of the winner on the test seeds."""


@dataclass(frozen=True)
class Record:
    """A trial."""

    number: int
    state: str
    """done, pruned, failed or running."""
    settings: dict[str, Any]
    """The searched ones, as text, numbers and flags."""
    score: float | None
    """Mean over the seeds at the last evaluation; of pruned trials at that behind which they were pruned."""
    seed_scores: list[float] = field(default_factory=list)
    evaluations: dict[int, float] = field(default_factory=dict)
    seconds: float = 0.0
    """Of the machine: those of its batch, shared out."""
    full_seconds: float = 0.0
    """What a batch of such trials takes from beginning to end, without compiling."""
    reason: str = ""
    final: list[float] = field(default_factory=list)
    """Scores of the final round, by seed."""
    final_failed: bool = False
    """Whether a seed failed in the final round."""
    test: list[float] = field(default_factory=list)
    """Scores of the winner on the test seeds."""
    test_failed: bool = False

    @property
    def final_score(self) -> float | None:
        """The mean over the seeds of the final round."""
        return statistics.fmean(self.final) if self.final else None

    @property
    def test_score(self) -> float | None:
        """The mean over the test seeds."""
        return statistics.fmean(self.test) if self.test else None


def open_study(folder: Path, pruner: optuna.pruners.BasePruner) -> optuna.Study:
    """The study in ``folder``, which this process alone must be writing to; made where there is none.

    Raises ``CheckpointError`` where its journal is damaged. A last line torn by a crash is dropped, and so is a lock that was left.
    """
    path = folder / JOURNAL
    Path(f"{path}.lock").unlink(missing_ok=True)
    if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        write_atomic(path, content[: content.rfind(b"\n") + 1])
    try:
        storage = JournalStorage(JournalFileBackend(str(path)))
        return optuna.create_study(
            storage=storage, study_name=STUDY_NAME, direction="maximize", pruner=pruner, load_if_exists=True
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged ({' '.join(str(error).split())}): the study cannot go on.") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's warnings of an evaluation that is told twice, which an interrupted trial's are."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="optuna")
        yield


def records(study: optuna.Study) -> list[Record]:
    """All trials, in their order."""
    told = study.user_attrs
    return [_record(t, told.get(f"{FINAL}{t.number}"), told.get(f"{TEST}{t.number}")) for t in study.get_trials(deepcopy=False)]


def _record(trial: FrozenTrial, final: list[float] | None, test: list[float] | None) -> Record:
    told = trial.user_attrs
    scores = list(told.get("seed_scores", []))
    return Record(
        number=trial.number,
        state=told.get("state", "failed") if trial.state.is_finished() else "running",
        settings=dict(told.get("settings", {})),
        score=statistics.fmean(scores) if scores else None,
        seed_scores=scores,
        evaluations=dict(trial.intermediate_values),
        seconds=told.get("seconds", 0.0),
        full_seconds=told.get("full_seconds", 0.0),
        reason=told.get("reason", ""),
        final=list(final or []),
        final_failed=final == [],
        test=list(test or []),
        test_failed=test == [],
    )


def tell(trial: optuna.Trial, record: Record, in_space: bool) -> None:
    """Finish ``trial`` as ``record`` says. One that NaN ended counts as pruned, before its first evaluation as the worst of all, so that
    the sampler keeps away; one whose settings lie outside the space (a base) is kept, and nothing is learned from it."""
    for name in ("settings", "state", "seed_scores", "seconds", "full_seconds", "reason"):
        trial.set_user_attr(name, getattr(record, name))
    study = trial.study
    if not in_space:
        study.tell(trial.number, state=TrialState.FAIL)
    elif record.state == "done":
        study.tell(trial.number, record.score)
    else:
        study.tell(trial.number, state=TrialState.PRUNED)


def best_of(trials: list[Record]) -> Record | None:
    """The best trial of the final round, if a trial other than the base took part; otherwise the trial with the best score.

    Of equal trials, it is the first. Trials that failed in the final round are skipped. None if no trial is left.
    """
    done = [t for t in trials if t.state == "done" and not t.final_failed]
    if any(t.final and t.number for t in done):
        return max((t for t in done if t.final), key=lambda t: t.final_score or 0.0)
    return max((t for t in done if t.score is not None), key=lambda t: t.score or 0.0, default=None)


def finalists(trials: list[Record], count: int) -> list[Record]:
    """Who is in the final round: the ``count`` best trials, and behind them the base, unless even its best seed is below what the best of
    them reaches on the mean (of the final round, where it has been there). A trial that failed there is replaced by the next best."""
    done = [t for t in trials if t.state == "done" and t.number and not t.final_failed]
    best = sorted(done, key=lambda t: -(t.score or 0.0))[:count]
    if not best or trials[0].state != "done":
        return best
    mark = max((t.final_score if t.final else t.score) or 0.0 for t in best)
    return best + [t for t in trials[:1] if max(t.seed_scores) >= mark]


def write_csv(path: Path, trials: list[Record], names: tuple[str, ...]) -> None:
    """A row for each trial."""
    out = io.StringIO()
    writer = csv.writer(out)
    lists = ("seed_scores", "final_scores", "test_scores", "evaluations", "reason")
    writer.writerow(["trial", "state", "score", "final_score", "test_score", *names, "seconds", *lists])
    for t in trials:
        settings = [t.settings.get(name, "") for name in names]
        listed = [" ".join(f"{x:g}" for x in values) for values in (t.seed_scores, t.final, t.test, t.evaluations.values())]
        writer.writerow(
            [t.number, t.state, t.score, t.final_score, t.test_score, *settings, round(t.seconds, 2), *listed, t.reason]
        )
    write_atomic(path, out.getvalue())
