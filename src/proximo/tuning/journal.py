"""The journal of a study, which Optuna writes: the plan, the trials, and their scores in the final round."""

from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from proximo.errors import CheckpointError
from proximo.storage.atomic_files import write_atomic
from proximo.storage.named_folders import FolderKind

JOURNAL, TRIAL, FINAL, TEST = "journal.log", "trial", "final", "test"
optuna.logging.set_verbosity(optuna.logging.ERROR)  # it announces every study and trial, as the reporters do


START = "start one with `proximo tune ENV`, or set --tune-dir"
STUDIES = FolderKind("study", "studies", START, lambda x: (x / JOURNAL).is_file(), lambda x: (x / JOURNAL).stat().st_mtime)


@dataclass
class Record:
    """A trial: its searched settings, how it ended and why, and its scores by seed.

    ``scores`` has the scores of the ``trial`` at its last evaluation and, if it took part, of the ``final``
    round and of the ``test``; an empty list if a seed failed. ``evaluations`` has the means of all evaluations.
    """

    number: int
    settings: dict[str, Any]
    state: str = "running"
    """running, done, pruned or failed."""
    reason: str = ""
    scores: dict[str, list[float]] = field(default_factory=dict)
    evaluations: list[float] = field(default_factory=list)
    seconds: float = 0.0
    """The trial's share of the seconds of its batch."""
    full_seconds: float = 0.0
    """Seconds of a whole batch of such trials, without compiling."""

    @property
    def name(self) -> str:
        """``the base`` or ``trial 3``."""
        return f"trial {self.number}" if self.number else "the base"

    @property
    def score(self) -> float | None:
        """The mean over the seeds of the trial."""
        return self.mean(TRIAL)

    def mean(self, kind: str) -> float | None:
        """The mean over the seeds of the ``trial``, of the ``final`` round or of the ``test``."""
        return fmean(scores) if (scores := self.scores.get(kind)) else None


def open_journal(folder: Path) -> optuna.Study:
    """Open the study in ``folder``, or make a new one. Repairs what a crash has left: a lock, and an incomplete last line."""
    path = folder / JOURNAL
    Path(f"{path}.lock").unlink(missing_ok=True)
    if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        write_atomic(path, content[: content.rfind(b"\n") + 1])
    try:
        storage = JournalStorage(JournalFileBackend(str(path)))
        return optuna.create_study(storage=storage, study_name="proximo", direction="maximize", load_if_exists=True)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged ({' '.join(str(error).split())}): the study cannot continue.") from error


def records(journal: optuna.Study) -> list[Record]:
    """All trials, in their order."""
    found = [Record(**trial.user_attrs["record"]) for trial in journal.get_trials(deepcopy=False)]
    for name, scores in journal.user_attrs.items():
        kind, _, number = name.partition("/")
        if number:
            found[int(number)].scores[kind] = scores
    return found


def best_of(trials: list[Record]) -> Record | None:
    """The best trial of the final round, if any trial besides the base took part; otherwise the trial with the
    best score. Trials that failed in the final round are skipped."""
    done = [t for t in trials if t.state == "done" and t.scores.get(FINAL) != []]
    kind = FINAL if any(FINAL in t.scores and t.number for t in done) else TRIAL
    return max((t for t in done if kind in t.scores), key=lambda t: t.mean(kind) or 0.0, default=None)


def finalists(trials: list[Record], count: int) -> list[Record]:
    """The trials of the final round: the ``count`` best trials, then the base if its best seed reaches their highest mean score (in the
    final round, if they have finished it). The next best trial replaces one that failed in the final round."""
    done = [t for t in trials if t.state == "done" and t.number and t.scores.get(FINAL) != []]
    best = sorted(done, key=lambda t: -(t.score or 0.0))[:count]
    if not best or trials[0].state != "done":
        return best
    mark = max(t.mean(FINAL if FINAL in t.scores else TRIAL) or 0.0 for t in best)
    return best + [t for t in trials[:1] if max(t.scores[TRIAL]) >= mark]
