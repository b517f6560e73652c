"""What a study searches and how, its trials, and the journal that stores both, which Optuna writes."""

import dataclasses
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import PartialFixedSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from proximo.checks import quick_check
from proximo.collect.environment import environment
from proximo.collect.learning import policy_shapes
from proximo.config import Config, from_mapping, override, to_mapping
from proximo.config.loading import read_file
from proximo.config.validation import validate
from proximo.errors import CheckpointError, ConfigError, ProximoError, nearest
from proximo.evaluation.evaluate import check_number
from proximo.jax_setup import prepare_jax
from proximo.serialization import JsonObject
from proximo.storage.atomic_files import write_atomic
from proximo.storage.named_folders import FolderKind
from proximo.tracking.reporter import Reporter
from proximo.training.backends import make_backend
from proximo.tuning.space import Space, as_mapping, default_space, drawn_settings, read_space

JOURNAL, TRIAL, FINAL, TEST = "journal.log", "trial", "final", "test"
optuna.logging.set_verbosity(optuna.logging.ERROR)  # it announces every study and trial, as the reporters do
START = "start one with `proximo tune ENV`, or set --tune-dir"
STUDIES = FolderKind("study", "studies", START, lambda x: (x / JOURNAL).is_file(), lambda x: (x / JOURNAL).stat().st_mtime)
FIRST_SEED = 100
"""First seed of the trials. Lower seeds are left for the report."""
DRAWS = 200
PRUNERS: dict[str, Callable[[], BasePruner]] = {
    "median": lambda: MedianPruner(n_startup_trials=10),
    "halving": lambda: SuccessiveHalvingPruner(min_resource=1, reduction_factor=2),
    "none": NopPruner,
}
LIMITS = {"trials": (1, 100_000), "seeds": (1, 100), "together": (1, 1000), "evaluations": (1, 100), "finalists": (0, 100)}


@dataclass
class Record:
    """A trial: its searched settings, how it ended and why, and its scores by seed.

    ``scores`` has the scores of the ``trial`` at its last evaluation and, if it took part, of the ``final``
    round and of the ``test``; an empty list if a seed failed. ``evaluations`` has the means of all evaluations.
    """

    number: int
    settings: JsonObject
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


@dataclass(frozen=True)
class StudyPlan:
    """The arguments of ``proximo.tune``, checked. Raises ``ConfigError`` if a number is out of range."""

    base: Config
    space: Space
    constant: JsonObject = field(default_factory=dict)
    """Other settings that every trial but the base has: a fixed ``minibatch_size``."""
    trials: int = 64
    seeds: int = 2
    together: int = 8
    pruner: str = "median"
    evaluations: int = 4
    finalists: int = 3

    def __post_init__(self) -> None:
        for name, limits in LIMITS.items():
            check_number(name, getattr(self, name), *limits)
        if self.pruner not in PRUNERS:
            raise ConfigError(f"pruner = {self.pruner!r}: expected one of {', '.join(PRUNERS)}{nearest(self.pruner, PRUNERS)}.")
        if not self.base.run.eval_episodes:
            raise ConfigError("eval_episodes = 0: trials are compared by evaluations; expected 1 or more.")

    def seeds_of(self, kind: str) -> range:
        """The seeds of every ``trial``; or of the ``final`` round or the ``test``, as many as the compiled program trains together."""
        count = self.seeds if kind == TRIAL else self.seeds * self.together
        first = self.base.run.seed + {TRIAL: 0, FINAL: self.seeds, TEST: self.seeds + count}[kind]
        return range(first, first + count)

    def config(self, trial: Record) -> Config:
        """All settings of a trial."""
        return self.base if trial.number == 0 else validate(override(self.base, trial.settings, join=False))

    def store(self, journal: optuna.Study) -> None:
        journal.set_user_attr("plan", {**vars(self), "base": to_mapping(self.base), "space": as_mapping(self.space)})


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


def read_plan(journal: optuna.Study, folder: Path) -> StudyPlan:
    """The plan of the study in ``folder``. Raises ``CheckpointError`` if another version has written it."""
    try:
        plan = dict(journal.user_attrs["plan"])
        base = from_mapping(plan.pop("base"), Config(), "base")
        return StudyPlan(base, read_space(plan.pop("space"), base, "space", in_jax=False), **plan)
    except (KeyError, TypeError, ConfigError) as error:
        raise CheckpointError(
            f"{folder} was written by another version of proximo and cannot be continued. Start a new study from its "
            f"best settings, with --config {folder / 'preset.yaml'}."
        ) from error


def make_plan(
    config: Config,
    fixed: Collection[str],
    file: str | Path | None,
    reporter: Reporter,
    together: int | None = None,
    **search: Any,
) -> StudyPlan:
    """The plan of a study around the base ``config``. Settings named in ``fixed`` are not searched. Raises ``ConfigError`` or ``EnvError``
    if the study would fail later."""
    prepare_jax(for_seeds=True)
    seed = config.run.seed if "seed" in fixed else FIRST_SEED
    run = dataclasses.replace(config.run, seed=seed, seeds=1, seeds_mode="auto", name="")
    base = validate(dataclasses.replace(config, run=run))
    env = environment(base)
    for warning in quick_check(env, base.env.id)[0]:
        reporter.warned(warning)
    backend = make_backend(base, env, stacked=True)
    _ = backend.template  # the network may not fit the spaces
    together = (8 if backend.stacked else 1) if together is None else together
    if not backend.stacked and isinstance(together, int) and together > 1:
        raise ConfigError(
            f"together = {together}: {base.env.id} is a Gymnasium environment, where trials train one after the other: use 1."
        )
    if file is None:
        space = default_space(base, env, fixed)
    else:
        given = read_file(Path(file), "--space", "settings with their values, such as `num_steps: [64, 128]`")
        space = read_space(given, base, str(file), backend.stacked, fixed)
    if not space:
        raise ConfigError("There is nothing to search: the space is empty, or every setting of it was given as a flag.")
    constant = {"minibatch_size": base.batch_size // base.ppo.num_minibatches} if "minibatch_size" in fixed else {}
    plan = StudyPlan(base, space, constant, together=together, **search)
    draw(plan, optuna.create_study(), 1, {}, at_random=True)  # raises if no trial can be trained
    return plan


def _read_by_network(config: Config) -> tuple[Any, ...]:
    return config.env, config.network, config.ppo.normalize_observation


def draw(
    plan: StudyPlan, study: optuna.Study, number: int, fixed: JsonObject, at_random: bool = False
) -> tuple[JsonObject, optuna.Trial]:
    """Settings of trial ``number`` that can be trained, and Optuna's trial. The parameters ``fixed`` are not drawn.

    Multivariate TPE (Falkner et al. 2018, arXiv:1807.01774) counts running trials as bad ones, so the trials of a batch differ. A draw
    depends only on the seed, the number and the trials of ``study``.
    """
    unfit: list[optuna.Trial] = []
    last = None
    for attempt in range(DRAWS):
        seed = int(np.random.SeedSequence([plan.base.run.seed, number, attempt]).generate_state(1)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            tpe = TPESampler(seed=seed, multivariate=True, constant_liar=True)
            study.sampler = PartialFixedSampler(fixed, RandomSampler(seed) if at_random else tpe)
        trial = study.ask(plan.space)
        settings = drawn_settings(trial.params, plan.space, plan.base) | plan.constant
        try:
            config = validate(override(plan.base, settings, join=False))
            if _read_by_network(config) != _read_by_network(plan.base):
                policy_shapes(environment(config), config)
        except ProximoError as error:
            unfit.append(trial)  # still running, and so a bad one
            last = error
        else:
            for other in unfit:
                study.tell(other, state=optuna.trial.TrialState.FAIL)
            return settings, trial
    raise ConfigError(f"None of {DRAWS} draws from the search space can be trained; the last one: {last}")
