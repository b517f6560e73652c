"""Groups runs: one section for each environment, one group for runs with equal settings."""

import contextlib
import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proximo.config import ENTRIES, GROUPS, LEAVES, WORKER_SETTINGS, unknown
from proximo.report.read import EVALUATION, TRAINING, RunRecord

RESULT_SETTINGS = {"matmul_precision", "eval_env", "eval_env_settings", "eval_max_steps"}
"""Settings of the group ``run`` that change what is learned, or which episodes measure it."""
IRRELEVANT_SETTINGS = {
    *({name for name, leaf in LEAVES.items() if leaf.group == "run"} - RESULT_SETTINGS),
    *(name for name in LEAVES | ENTRIES if name.partition(".")[0] in WORKER_SETTINGS),
}
"""Settings that change neither what is learned nor how it is measured."""
MAX_NAMED = 3
"""Groups that differ in more settings are labelled by the names of their runs, if possible."""


@dataclass(frozen=True)
class Section:
    """The groups of runs of one environment by their label, normally seeds with equal settings."""

    environment: str
    groups: dict[str, list[RunRecord]]

    @property
    def labelled(self) -> list[tuple[str, RunRecord]]:
        """The runs of all groups, each with the label of its group."""
        return [(label, run) for label, runs in self.groups.items() for run in runs]

    @functools.cached_property
    def runs(self) -> list[RunRecord]:
        """The runs of all groups."""
        return [run for _, run in self.labelled]

    @functools.cached_property
    def measure(self) -> str:
        """The metric that ranks the runs: the training return if no run was evaluated."""
        return EVALUATION if any(len(run.series(EVALUATION).value) for run in self.runs) else TRAINING

    @functools.cached_property
    def worst(self) -> float:
        """The lowest return that any run has measured, in evaluation or in training; NaN without one."""
        series = (run.series(name).value.tolist() for run in self.runs for name in (EVALUATION, TRAINING))
        return min((value for values in series for value in values), default=math.nan)


def sections_of(runs: Sequence[RunRecord], by: Sequence[str] = ()) -> list[Section]:
    """One section for each environment. ``by``: settings to group by; empty for all that differ."""
    keys = [setting_of(text, runs) for text in by]
    environments: dict[str, list[RunRecord]] = {}
    for run in runs:
        environments.setdefault(run.settings["id"], []).append(run)
    return [Section(name, _groups(name, found, keys)) for name, found in environments.items()]


def setting_of(text: str, runs: Iterable[RunRecord]) -> str:
    """The setting that ``--by`` names: ``memory``, ``network.memory``, ``env_settings.key`` or ``name``.

    Raises ``ConfigError`` with the nearest name if the setting is unknown.
    """
    known = {key for run in runs for key in run.settings}
    group, _, rest = (name := text.strip().replace("-", "_")).partition(".")
    without_group = rest if group in GROUPS else name
    for found in (text.strip(), without_group):  # keys of mappings may have dashes
        if found in known:
            return found
    raise unknown(without_group, " for --by")


def differing(runs: Sequence[RunRecord]) -> list[str]:
    """Relevant settings that differ between ``runs``, in the order of the configuration."""
    names = dict.fromkeys(name for run in runs for name in run.settings if name not in IRRELEVANT_SETTINGS)
    return [name for name in names if len({run.setting(name) for run in runs}) > 1]


def _groups(environment: str, runs: list[RunRecord], by: list[str]) -> dict[str, list[RunRecord]]:
    keys = by or differing(runs)
    groups: dict[tuple[str, ...], list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(tuple(run.setting(key) for key in keys), []).append(run)
    with contextlib.suppress(ValueError):  # by number; other values stay in the given order
        groups = dict(sorted(groups.items(), key=lambda group: [float(text) for text in group[0]]))
    names = [{run.settings["name"] for run in group} for group in groups.values()]
    distinct = all(len(found) == 1 for found in names) and len(set.union(*names)) == len(names)
    preferred = len(keys) not in range(1, MAX_NAMED + 1) or all(run.named for run in runs)
    if distinct and (by == ["name"] or (preferred and not by)):
        return {group[0].settings["name"]: group for group in groups.values()}
    pairs = (", ".join(f"{key}={text}" for key, text in zip(keys, values, strict=True)) for values in groups)
    return {label or environment: group for label, group in zip(pairs, groups.values(), strict=True)}
