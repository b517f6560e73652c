"""Groups runs: one section for each environment, one group for runs with equal settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proximo.config import LEAVES, WORKER_SETTINGS, text_of, unknown
from proximo.errors import ConfigError, nearest
from proximo.report.read import RunRecord

RESULT_SETTINGS = {"matmul_precision", "eval_env", "eval_env_settings", "eval_max_steps"}
"""Settings of the group ``run`` that change what is learned, or which episodes measure it."""
IRRELEVANT_SETTINGS = {leaf.name for leaf in LEAVES.values() if leaf.group == "run"} - RESULT_SETTINGS | {*WORKER_SETTINGS}
"""Settings that change neither what is learned nor how it is measured. They never separate groups by default."""
MAX_NAMED = 3


@dataclass(frozen=True)
class Group:
    """Runs of one environment that are aggregated, normally seeds with equal settings."""

    label: str
    runs: list[RunRecord]
    mixed: list[str]
    """Settings that differ between its runs, except irrelevant ones."""

    def setting(self, name: str) -> str:
        """The value of a setting as text; all values if they differ."""
        return " | ".join(dict.fromkeys(text_of(run.settings.get(name, "–")) for run in self.runs))


@dataclass(frozen=True)
class Section:
    """The groups of one environment, and the settings that differ between them."""

    environment: str
    groups: list[Group]
    differing: list[str]

    @property
    def runs(self) -> list[RunRecord]:
        return [run for group in self.groups for run in group.runs]


def setting_of(text: str, runs: Iterable[RunRecord]) -> str:
    """The setting that ``--by`` names, for example ``memory``, ``network.memory``, ``memory-size``, ``env_settings.key`` or ``name``.

    Raises ``ConfigError`` with the nearest name if the setting is unknown.
    """
    name = text.strip().replace("-", "_")
    known = dict.fromkeys(key for run in runs for key in run.settings)
    prefix, dot, rest = name.partition(".")
    if name in ("env", "id", "env.id"):
        return "id"
    if name in known:
        return name
    if text.strip() in known:  # keys of mappings keep their dashes
        return text.strip()
    if not dot:
        raise unknown(text, " for --by")
    if rest in LEAVES and LEAVES[rest].group == prefix:
        return rest
    meant = f"{LEAVES[rest].group}.{rest}" if rest in LEAVES else name
    full = [f"{leaf.group}.{leaf.name}" for leaf in LEAVES.values()] + [key for key in known if "." in key]
    raise ConfigError(f"Unknown setting {text!r} for --by{nearest(meant, full)}: expected the name of a setting, such as memory.")


def sections_of(runs: Sequence[RunRecord], by: Sequence[str] = ()) -> list[Section]:
    """One section for each environment, in the order of ``runs``. ``by``: settings to group by; empty for all that differ."""
    keys = [setting_of(text, runs) for text in by]
    environments = dict.fromkeys(run.environment for run in runs)
    return [_section(environment, [run for run in runs if run.environment == environment], keys) for environment in environments]


def _section(environment: str, runs: list[RunRecord], by: list[str]) -> Section:
    differing = _differing(runs)
    group_by = by or differing
    parts: dict[tuple[str, ...], list[RunRecord]] = {}
    for run in runs:
        parts.setdefault(tuple(_value(run, key) for key in group_by), []).append(run)
    values = _sorted(list(parts))
    labels = [_label(environment, runs, group_by, value, bool(by)) for value in values]
    if not by and len(values) > 1:
        labels = _names([parts[value] for value in values]) or labels
    groups = []
    for i, (label, value) in enumerate(zip(labels, values, strict=True)):
        again = labels[:i].count(label)
        groups.append(Group(f"{label} ({again + 1})" if again else label, parts[value], _differing(parts[value])))
    return Section(environment, groups, differing)


def _value(run: RunRecord, key: str) -> str:
    return run.name if key == "name" else text_of(run.settings.get(key, "–"))


def _differing(runs: Sequence[RunRecord]) -> list[str]:
    """Relevant settings that differ between ``runs``, in the order of the configuration."""
    names = dict.fromkeys(name for run in runs for name in run.settings if name not in IRRELEVANT_SETTINGS)
    return [name for name in names if len({text_of(run.settings.get(name, "–")) for run in runs}) > 1]


def _sorted(values: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Sorted by number if every value is a number, else in the given order."""
    try:
        return sorted(values, key=lambda value: [float(part) for part in value])
    except ValueError:
        return values


def _names(groups: list[list[RunRecord]]) -> list[str]:
    """The names that the user gave, if each group has exactly one and all differ; else an empty list."""
    names = [list(dict.fromkeys(run.name if run.settings["name"] else "" for run in runs)) for runs in groups]
    found = [name for name, *others in names if name and not others]
    return found if len(set(found)) == len(groups) else []


def _grouped(key: str, text: str) -> str:
    """A large integer with separators."""
    return f"{int(text):,}" if key != "seed" and text.isdecimal() and len(text) > 4 else text


def _label(environment: str, runs: list[RunRecord], group_by: list[str], value: tuple[str, ...], asked: bool) -> str:
    if not group_by:
        names = dict.fromkeys(run.name for run in runs)
        return next(iter(names)) if len(names) == 1 else environment
    if asked and group_by == ["name"]:
        return value[0]
    pairs = [f"{key}={_grouped(key, text)}" for key, text in zip(group_by, value, strict=True)]
    if asked or len(pairs) <= MAX_NAMED:
        return ", ".join(pairs)
    named = list(dict.fromkeys(run.name for run in runs if tuple(_value(run, key) for key in group_by) == value))
    others = {run.name for run in runs if tuple(_value(run, key) for key in group_by) != value}
    if len(named) == 1 and named[0] not in others:
        return named[0]
    return f"{', '.join(pairs[:MAX_NAMED])} … {len(pairs) - MAX_NAMED} more"
