"""The one resolution of settings: default < defaults of a kind, or preset < file < flag.

Files, flags and Python only make layers: flat mappings from names to values. ``with_layer`` puts one over others.
"""

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from proximo import other_libraries
from proximo.config.coercion import coerce, coerce_entries, plain
from proximo.config.custom import Custom, is_custom, is_lost
from proximo.config.schema import ALTERNATIVES, BY_NAME, ENTRIES, GIVEN, GROUPS, LEAVES, REMOVED, RENAMED, WORKER_SETTINGS, Config
from proximo.config.validation import validate, without_effect
from proximo.errors import ConfigError, command, nearest, shown
from proximo.serialization import read_yaml

RESUMABLE = {
    "total_steps", "total_updates", "eval_every", "eval_episodes", "eval_max_steps", "eval_num_envs", "checkpoint_every",
    "keep_checkpoints", "tensorboard", "updates_per_call", "track", "histograms", "video_every", "devices", *WORKER_SETTINGS,
}  # fmt: skip
"""Settings that a resumed run may change."""
ATARI_ID = re.compile(r"(ale_py:)?(ALE/\w+-v\d+|\w+NoFrameskip-v\d+)")
"""Atari games have defaults: raw pictures need 23 million parameters, and one does not show velocities."""


class Layer(NamedTuple):
    """Settings by name, not checked yet, and their origin: ``GIVEN`` by the user, or what messages call a preset, the
    defaults of a kind, or a file. A mapping (``env_settings``) that is ``GIVEN`` adds its entries to the one below;
    otherwise it replaces it."""

    settings: Mapping[str, Any]
    origin: str = GIVEN


def merged(layers: Iterable[Layer]) -> dict[str, Any]:
    """The value that the highest of ``layers`` has for each setting, as it was given."""
    return {name: value for layer in layers for name, value in layer.settings.items()}


def resolve(layers: Sequence[Layer]) -> Config:
    """The defaults with ``layers``, the lowest first. The result is not validated."""
    given = merged(layers)
    is_atari = isinstance(given.get("id"), str) and ATARI_ID.fullmatch(given["id"])
    if is_atari and given.get("preprocessing") in (None, "atari"):
        layers = [Layer({"preprocessing": "atari", "frame_stack": 4}, "the defaults for Atari games"), *layers]
    return functools.reduce(with_layer, layers, Config())


def with_layer(config: Config, layer: Layer) -> Config:
    """``config`` with the settings of a higher layer. Settings that lose their effect by them get their defaults,
    unless the user gave both by name."""
    is_given = layer.origin == GIVEN
    try:
        flat = _flat(config, layer.settings, join=is_given)
    except ConfigError as error:
        raise ConfigError(str(error) if is_given else f"{layer.origin}: {error}") from None
    changed, names = _replaced(config, flat), {*flat, *(name.partition(".")[0] for name in flat)}
    used = {ALTERNATIVES.get(name, name) for name in names & LEAVES.keys() if name not in ALTERNATIVES or flat[name]}
    kept = names | without_effect(config).keys()
    kept |= {name for name in BY_NAME if is_given and config.origins.get(name.partition(".")[0]) == GIVEN}
    origins = {name: origin for name, origin in config.origins.items() if name not in used} | dict.fromkeys(used, layer.origin)
    while found := without_effect(changed).keys() - kept:
        changed = _replaced(changed, {name: BY_NAME[name].default for name in found})
        origins = {name: origin for name, origin in origins.items() if name not in found}
    return replace(changed, origins=origins, given={**config.given, **(layer.settings if is_given else {})})


def with_given(config: Config, settings: Mapping[str, Any], num_agents: int = 1) -> Config:
    """``config`` with the user's ``settings`` as its highest layer, validated for an environment of ``num_agents`` agents."""
    return validate(with_layer(config, Layer(settings)), num_agents)


def override(config: Config, settings: Mapping[str, Any], join: bool = True) -> Config:
    """``config`` with other values of settings or entries, by name, not validated. ``join`` adds the entries of a mapping
    to those in ``config``; an empty one removes all. Raises ``ConfigError`` for an unknown name or a wrong value."""
    return _replaced(config, _flat(config, settings, join))


def _flat(config: Config, settings: Mapping[str, Any], join: bool) -> dict[str, Any]:
    """The values of ``settings``, converted, with each entry by its own name."""
    check_names(settings)
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        leaf = BY_NAME[name]
        if leaf.entries:
            flat |= {} if join and value else {entry.name: entry.default for entry in leaf.entries}
            flat |= coerce_entries(leaf, value)
            continue
        new = coerce(leaf, value)
        flat[name] = {**leaf.value_in(config), **new} if join and new and isinstance(new, dict) else new
    for alternative, name in ALTERNATIVES.items():
        if name in flat:  # It overrides the alternative of an earlier layer.
            if flat.get(alternative):
                given = shown(settings[alternative]), shown(settings[name])
                raise ConfigError(f"{alternative} = {given[0]} and {name} = {given[1]}: give one of them.")
            flat[alternative] = 0
    return flat


def _replaced(config: Config, flat: Mapping[str, Any]) -> Config:
    for name, value in flat.items():
        config = BY_NAME[name].with_value(config, value)
    return config


def unknown(name: str, where: str = "") -> ConfigError:
    """The error for an unknown setting, with the nearest name or the name of the same setting in proximo."""
    name = shown(name, "text")
    plain = name.replace("-", "_")
    renamed = RENAMED.get(plain, plain)
    if name.endswith(")"):  # of {learning_rate: linear(1e-3, 0)}, which YAML divides at the comma
        hint = ": in braces of YAML, a schedule needs quotation marks, as in 'linear(1e-3, 0)'."
    elif answer := other_libraries.answer(plain):
        hint = f": {answer}"
    elif renamed in ENTRIES:
        setting, _, entry = renamed.partition(".")
        flag = setting.replace("_", "-")
        hint = f": it is the entry {entry} of {setting}, as in --{flag} {entry}=VALUE or {setting} = {{'{entry}': VALUE}}."
    else:
        hint = f"{nearest(plain, LEAVES, 0.8)}."
    return ConfigError(f"Unknown setting {name!r}{where}{hint}")


def check_names(names: Iterable[str]) -> None:
    """Raise one ``ConfigError`` for all ``names`` that are not settings."""
    if messages := [str(unknown(name)) for name in names if name not in BY_NAME]:
        raise ConfigError(" ".join(messages))


def read_file(path: Path, flag: str = "--config", expected: str = f"groups of settings ({', '.join(GROUPS)})") -> dict[str, Any]:
    """The mapping in a YAML file, without its ``provenance``. Messages have the ``flag`` that named it and what is
    ``expected``. Raises ``ConfigError`` if it cannot be read, or is not a mapping in YAML."""
    try:
        mapping = read_yaml(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"Cannot read {flag} {path} ({error.strerror}).") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(mapping, dict | None):
        raise ConfigError(f"{path}: expected {expected}, found {type(mapping).__name__}.")
    return {name: content for name, content in (mapping or {}).items() if name != "provenance"}


def tree_layer(groups: Any, source: str) -> Layer:
    """The settings in a tree ``{group: {name: value}}``, without its ``provenance``. ``source`` is its name in messages.
    Raises ``ConfigError`` for an unknown group or name."""
    if not isinstance(groups, Mapping):
        raise ConfigError(f"{source}: expected groups of settings ({', '.join(GROUPS)}), found {type(groups).__name__}.")
    settings: dict[str, Any] = {}
    for group, content in groups.items():
        if group == "provenance":
            continue
        if group in LEAVES:
            raise ConfigError(f"{source}: {group} is at the top level; it belongs under `{LEAVES[group].group}:`.")
        if group not in GROUPS:
            names = [group, *(content if isinstance(content, Mapping) else ())]
            hint = f"{nearest(str(group)[:80], (*GROUPS, *LEAVES))}; the groups are {', '.join(GROUPS)}."
            if any(other_libraries.answer(str(name)) for name in names):
                hint = f"; if the file is of another library: `{command('proximo', 'convert', source)}`."
            raise ConfigError(f"{source}: unknown group {shown(group)}{hint}")
        if not isinstance(content, Mapping):
            raise ConfigError(f"{source}: under {group!r} expected settings as name: value, found {shown(content)}.")
        for name, value in content.items():
            if (name, value) in REMOVED.items():
                continue
            leaf = BY_NAME.get(RENAMED.get(name, str(name)))
            if leaf is None:
                raise unknown(str(name), f" under {group!r} in {source}")
            if leaf.group != group:
                raise ConfigError(f"{source}: {name} is under `{group}:`; it belongs under `{leaf.group}:`.")
            settings[leaf.name] = value
    return Layer(settings, source)


def from_mapping(mapping: Any, base: Config, source: str) -> Config:
    """``base`` with the settings in a tree, the inverse of ``to_mapping``; a mapping (``env_settings``) replaces the one
    in ``base``. ``source`` is its name in messages. Raises ``ConfigError`` for an unknown name or a wrong value."""
    settings = tree_layer(mapping, source).settings
    try:
        return override(base, settings, join=False)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def to_flat(config: Config) -> dict[str, Any]:
    """The settings by name as plain numbers, text and lists, for YAML and JSON, without ``ALTERNATIVES``."""
    return {name: plain(leaf.value_in(config)) for name, leaf in LEAVES.items() if name not in ALTERNATIVES}


def to_mapping(config: Config, names: Collection[str] = LEAVES) -> dict[str, dict[str, Any]]:
    """``to_flat`` as a tree ``{group: {name: value}}``, as in a file, with the settings in ``names``."""
    tree: dict[str, dict[str, Any]] = {}
    for name, value in to_flat(config).items():
        if name in names:
            tree.setdefault(LEAVES[name].group, {})[name] = value
    return tree


def shortened(config: Config) -> Config:
    """``config`` for a short test: three updates, then an evaluation of at most two short episodes."""
    run, steps = config.run, 3 * config.batch_size
    limits = {"eval_max_steps": min(run.eval_max_steps or 1000, 1000), "eval_episodes": min(2, run.eval_episodes)}
    return validate(override(config, {"total_steps": steps, "eval_every": steps, **limits}))


def custom_settings(config: Config) -> dict[str, str | Custom]:
    """The settings of ``config`` whose value is custom code, or its name."""
    values = {name: leaf.value_in(config) for name, leaf in LEAVES.items() if leaf.takes_custom}
    return {name: value for name, value in values.items() if is_custom(value)}


def learner_code(config: Config) -> set[str]:
    """The settings among ``custom_settings`` whose code the learner or the policy computes."""
    return {name for name in custom_settings(config) if LEAVES[name].group != "env"}


def may_replace(config: Config, name: str, value: Any) -> bool:
    """Whether ``value`` may replace the custom code of a setting: code of the same name, or any if it is lost."""
    was, now = str(custom_settings(config)[name]), value if isinstance(value, str | Custom) else Custom(value)
    return str(now) == was or (is_lost(was) and is_custom(now))


def resume_warnings(before: Config, after: Config) -> list[str]:
    """Warnings for a resume that changes ``total_steps`` or ``devices``, from ``before`` to ``after``."""
    sentences = {
        "total_steps": "schedules stretch over the new total, so this run differs from one that had the new total from the start.",
        "devices": "minibatches are drawn in other groups and sums are rounded in another order, so this run differs from the "
        "uninterrupted one; the learning problem stays the same.",
    }
    values = {name: (LEAVES[name].value_in(before), LEAVES[name].value_in(after)) for name in sentences}
    return [f"{name} {old} → {new}: {sentences[name]}" for name, (old, new) in values.items() if old != new]


def changed_for_resume(config: Config, settings: Mapping[str, Any]) -> Config:
    """``config`` of a saved run with new ``settings``. Raises ``ConfigError`` if one cannot change."""
    check_names(settings)
    for name, value in settings.items():
        if name in ("id", "eval_env") and value and value == LEAVES[name].value_in(config):
            continue  # repeated, because a file must not name a function of an installed library
        if name.partition(".")[0] not in RESUMABLE and not (name in custom_settings(config) and may_replace(config, name, value)):
            raise ConfigError(
                f"{'The environment' if name == 'id' else name} cannot change when a run is resumed (only "
                f"{', '.join(sorted(RESUMABLE))} can): start a new run with --config RUN/config.yaml, another --name and the new value."
            )
    validate(override(config, settings))  # a setting of the run that has no effect any more is an error, and not dropped
    return with_given(config, settings)
