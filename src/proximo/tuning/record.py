"""The trials of a study, as Optuna's journal stores them."""

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
from proximo.serialization import csv_cell
from proximo.storage.atomic_files import write_atomic
from proximo.tuning.plan import JOURNAL

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
    """The searched settings and a fixed ``minibatch_size``, as text, numbers and booleans."""
    score: float | None
    """Mean over the seeds at the last evaluation before the trial ended or was pruned."""
    seed_scores: list[float] = field(default_factory=list)
    evaluations: dict[int, float] = field(default_factory=dict)
    seconds: float = 0.0
    """Its share of the seconds of its batch."""
    full_seconds: float = 0.0
    """Seconds of a batch of such trials from beginning to end, without compiling."""
    reason: str = ""
    final: list[float] | None = None
    """Scores of the final round, by seed; empty if a seed failed, None if the trial took no part."""
    test: list[float] | None = None
    """Scores of the winner on the test seeds; empty if a seed failed, None if it was not tested."""

    @property
    def name(self) -> str:
        """``the base`` or ``trial 3``."""
        return f"trial {self.number}" if self.number else "the base"

    @property
    def final_score(self) -> float | None:
        """The mean over the seeds of the final round."""
        return statistics.fmean(self.final) if self.final else None

    @property
    def test_score(self) -> float | None:
        """The mean over the test seeds."""
        return statistics.fmean(self.test) if self.test else None


def open_study(folder: Path, pruner: optuna.pruners.BasePruner) -> optuna.Study:
    """Open the study in ``folder``, or make a new one. No other process may write to it.

    A last line that a crash has cut short is dropped, and so is a lock that was left. Raises ``CheckpointError`` if the journal is
    damaged.
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
        raise CheckpointError(f"{path} is damaged ({' '.join(str(error).split())}): the study cannot continue.") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress Optuna's warnings of an evaluation that is reported twice, as after an interruption."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="optuna")
        yield


def records(study: optuna.Study) -> list[Record]:
    """All trials, in their order."""
    stored = study.user_attrs
    return [
        _record(t, stored.get(f"{FINAL}{t.number}"), stored.get(f"{TEST}{t.number}")) for t in study.get_trials(deepcopy=False)
    ]


def _record(trial: FrozenTrial, final: list[float] | None, test: list[float] | None) -> Record:
    stored = trial.user_attrs
    scores = list(stored.get("seed_scores", []))
    return Record(
        number=trial.number,
        state=stored.get("state", "failed") if trial.state.is_finished() else "running",
        settings=dict(stored.get("settings", {})),
        score=statistics.fmean(scores) if scores else None,
        seed_scores=scores,
        evaluations=dict(trial.intermediate_values),
        seconds=stored.get("seconds", 0.0),
        full_seconds=stored.get("full_seconds", 0.0),
        reason=stored.get("reason", ""),
        final=final,
        test=test,
    )


def tell(trial: optuna.Trial, record: Record, in_space: bool) -> None:
    """Finish ``trial`` with the result in ``record``.

    A failed trial counts as pruned, so that the sampler avoids its settings. A base outside of the space is recorded, but the
    sampler does not learn from it.
    """
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
    done = [t for t in trials if t.state == "done" and t.final != []]
    if any(t.final and t.number for t in done):
        return max((t for t in done if t.final), key=lambda t: t.final_score or 0.0)
    return max((t for t in done if t.score is not None), key=lambda t: t.score or 0.0, default=None)


def finalists(trials: list[Record], count: int) -> list[Record]:
    """The trials of the final round: the ``count`` best trials, then the base. The base takes part only if its best seed reaches the
    highest mean score of these trials (in the final round, for those that have finished it). The next best trial replaces one that failed
    in the final round."""
    done = [t for t in trials if t.state == "done" and t.number and t.final != []]
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
        settings = [csv_cell(t.settings.get(name, "")) for name in names]
        listed = [
            " ".join(f"{x:g}" for x in values) for values in (t.seed_scores, t.final or [], t.test or [], t.evaluations.values())
        ]
        writer.writerow(
            [t.number, t.state, t.score, t.final_score, t.test_score, *settings, round(t.seconds, 2), *listed, csv_cell(t.reason)]
        )
    write_atomic(path, out.getvalue())
