"""The plan of a study, and its folder ``tune/<env>/<name>/``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proximo.config import MAX_SEED, Config, from_mapping, to_mapping
from proximo.config.validation import validate
from proximo.errors import CheckpointError, ConfigError, nearest, shown
from proximo.serialization import dump_yaml, read_yaml
from proximo.storage.atomic_files import write_atomic
from proximo.storage.named_folders import FolderKind
from proximo.tuning.space import Space, read_space, with_settings

FORMAT = 2
FIRST_SEED = 100
"""First seed of the trials. Lower seeds are left for the report."""
PLAN, JOURNAL = "study.yaml", "journal.log"
PRUNERS = ("median", "halving", "none")
_LIMITS = {"trials": (1, 100_000), "seeds": (1, 100), "together": (1, 1000), "evaluations": (1, 100), "finalists": (0, 100)}
_HEADER = "# The plan of this study. Continue with: proximo tune --resume. Its trials are in trials.csv and journal.log.\n"


@dataclass(frozen=True)
class StudyPlan:
    """What a study searches, and how. ``make_plan`` makes it.

    Raises:
        ConfigError: a number is out of range.
    """

    base: Config
    """Settings of the base, trial 0."""
    space: Space
    """The settings that are searched, and their values."""
    trials: int = 64
    """Number of trials, including the base."""
    seeds: int = 2
    """Seeds of a trial; its score is the mean over them."""
    together: int = 8
    """Trials in one compiled program (Gymnasium environments: 1)."""
    pruner: str = "median"
    """Rule that ends trials early: ``median``, ``halving`` or ``none``."""
    evaluations: int = 4
    """Evaluations of a trial, evenly spaced; it may be pruned at each but the last."""
    finalists: int = 3
    """Best trials that are trained again on other seeds in the end, in addition to the base."""

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ConfigError(f"{name} = {value!r}: expected a whole number, {low} … {high:,}.")
        if self.pruner not in PRUNERS:
            raise ConfigError(f"pruner = {self.pruner!r}: expected one of {', '.join(PRUNERS)}{nearest(self.pruner, PRUNERS)}.")
        if self.test_seeds[-1] > MAX_SEED:
            raise ConfigError(
                f"seed = {self.base.run.seed}: the study needs seeds up to {self.test_seeds[-1]}, and the largest is {MAX_SEED}."
            )
        if not self.base.run.eval_episodes:
            raise ConfigError("eval_episodes = 0: trials are compared by evaluations; expected 1 or more.")

    @property
    def trial_seeds(self) -> list[int]:
        """The seeds that every trial is trained and evaluated with."""
        return [self.base.run.seed + i for i in range(self.seeds)]

    @property
    def final_seeds(self) -> list[int]:
        """The seeds of the final round: as many as fill the program that the search has compiled."""
        first = self.base.run.seed + self.seeds
        return [first + i for i in range(self.seeds * self.together)]

    @property
    def test_seeds(self) -> list[int]:
        """As many seeds as in the final round. The winner is trained on them once more, and nothing is selected by the result."""
        first = self.final_seeds[-1] + 1
        return [first + i for i in range(len(self.final_seeds))]

    def config(self, number: int, settings: dict[str, Any]) -> Config:
        """All settings of trial ``number``, with its searched ``settings``. Trial 0 is the base, even if the space does not have it.

        Raises ``ConfigError`` if the settings do not fit together.
        """
        return self.base if number == 0 else validate(with_settings(self.base, settings))

    def write(self, folder: Path) -> None:
        """Write the plan into ``folder``, atomically."""
        search = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("base", "space")}
        space, constant = self.space.as_mapping(), self.space.constant
        # A version that knows only format 1 would ignore the constant settings.
        content = {"format": FORMAT, "constant": constant} if constant else {"format": 1}
        content |= {"search": search, "space": space, "base": to_mapping(self.base)}
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / PLAN, _HEADER + dump_yaml(content))


def read_plan(folder: Path) -> StudyPlan:
    """Read the plan of a study. Raises ``CheckpointError`` if it is missing, damaged, or of a newer format."""
    path = folder / PLAN
    try:
        content: Any = read_yaml(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"Cannot read {path} ({error.strerror}): is {folder} the folder of a study?") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged, it is not valid YAML: {error}") from error
    try:
        if content["format"] > FORMAT:
            raise CheckpointError(
                f"{path} is of format {shown(content['format'])}, and this version of proximo knows {FORMAT}: update it."
            )
        base = from_mapping(content["base"], Config(), str(path))
        space = read_space(content["space"], base, str(path), in_jax=False)
        space = dataclasses.replace(space, constant=dict(content.get("constant", {})))
        return StudyPlan(base, space, **content["search"])
    except (TypeError, KeyError, AttributeError, ConfigError) as error:
        raise CheckpointError(f"{path} is damaged, or was edited: {' '.join(str(error).split())}") from error


def _is_study(path: Path) -> bool:
    return (path / PLAN).is_file()


def _written(folder: Path) -> float:
    """When the study was last written."""
    return (folder / JOURNAL if (folder / JOURNAL).exists() else folder / PLAN).stat().st_mtime


STUDIES = FolderKind("study", "studies", PLAN, "start one with `proximo tune ENV`, or set --tune-dir", _is_study, _written)
