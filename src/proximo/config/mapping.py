"""Settings by name: finding, replacing, reading and writing them. ``schema`` declares them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from proximo import other_libraries
from proximo.config.coercion import Leaf, coerce, coerce_entries
from proximo.config.custom import Custom, is_custom, is_lost, takes_custom
from proximo.config.schedule_text import ScheduleText
from proximo.config.schema import ALTERNATIVES, REMOVED, RENAMED, Config, Entries
from proximo.errors import ConfigError, command, nearest, shown

GROUPS: dict[str, type] = {
    name: cls for name, cls in typing.get_type_hints(Config).items() if isinstance(cls, type) and dataclasses.is_dataclass(cls)
}


def _leaves(group: str, cls: type, prefix: str = "") -> Iterator[Leaf]:
    types, defaults = typing.get_type_hints(cls), cls()
    for f in dataclasses.fields(cls):
        leaf = Leaf(group, prefix + f.name, types[f.name], getattr(defaults, f.name), **f.metadata)
        if isinstance(leaf.default, Entries):
            entries = tuple(_leaves(group, leaf.type, f"{f.name}."))
            listed = f"{leaf.help}: {', '.join(entry.entry for entry in entries)}"
            leaf = dataclasses.replace(leaf, entries=entries, help=listed)
        yield leaf


MIN_SIMILARITY = 0.8
"""Names of settings that are less similar to what was given are no typing mistakes of it."""
LEAVES: dict[str, Leaf] = {leaf.name: leaf for group, cls in GROUPS.items() for leaf in _leaves(group, cls)}
"""All settings by name, in the order of the tree."""
ENTRIES: dict[str, Leaf] = {entry.name: entry for leaf in LEAVES.values() for entry in leaf.entries}
"""All entries of settings by name, such as ``memory_settings.window``."""


def text_of(value: Any) -> str:
    """The value of a setting as a user writes it."""
    if isinstance(value, tuple | list):
        return ",".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return ",".join(f"{name}={item}" for name, item in value.items())
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    return str(value).lower() if isinstance(value, bool) else str(value)


def custom_settings(config: Config) -> dict[str, str | Custom]:
    """The settings of ``config`` whose value is custom code, or its name."""
    values = {name: leaf.value_in(config) for name, leaf in LEAVES.items() if takes_custom(leaf.type)}
    return {name: value for name, value in values.items() if is_custom(value)}


def may_replace(config: Config, name: str, value: Any) -> bool:
    """Whether ``value`` may replace the custom code of the setting ``name``: code of the same name, or any
    if the old code has no name by which it can be found."""
    was, now = str(custom_settings(config)[name]), value if isinstance(value, str | Custom) else Custom(value)
    return str(now) == was or (is_lost(was) and is_custom(now))


def unknown(name: str, where: str = "") -> ConfigError:
    """The error for an unknown setting, with the nearest name or the name of the same setting in proximo."""
    name = shown(name, "text")
    plain = name.replace("-", "_")
    setting, _, entry = RENAMED.get(plain, plain).partition(".")
    if plain == "id" or other_libraries.is_environment(plain):
        hint = ": give the environment without a flag, as in `proximo train CartPole-v1`; in a file it is `env: {id: ...}`."
    elif name.endswith(")"):  # of {learning_rate: linear(1e-3, 0)}, which YAML divides at the comma
        hint = ": in braces of YAML, a schedule needs quotation marks, as in 'linear(1e-3, 0)'."
    elif answer := other_libraries.answer(plain):
        hint = f": {answer}"
    elif f"{setting}.{entry}" in ENTRIES:
        flag = setting.replace("_", "-")
        hint = f": it is the entry {entry} of {setting}, as in --{flag} {entry}=VALUE or {setting} = {{'{entry}': VALUE}}."
    else:
        hint = f"{nearest(plain, LEAVES, MIN_SIMILARITY)}."
    return ConfigError(f"Unknown setting {name!r}{where}{hint}")


def check_names(names: Iterable[str]) -> None:
    """Raise one ``ConfigError`` for all ``names`` that are not settings."""
    if messages := [str(unknown(name)) for name in names if name not in LEAVES and name not in ENTRIES]:
        raise ConfigError(" ".join(messages))


def override(config: Config, settings: Mapping[str, Any], join: bool = True) -> Config:
    """Replace settings by name.

    Args:
        config: the settings to start from; they are not changed.
        settings: new values by name, for instance ``{"num_envs": 16}``; text is converted as on the command line.
            An entry has a name, too: ``{"memory_settings.window": 64}``.
        join: whether entries of a mapping (``env_settings``) are added to the entries in ``config``; an empty mapping removes all.

    Returns:
        The settings, which are not validated, with the origins of ``config``.

    Raises:
        ConfigError: for an unknown name, a value of the wrong type, or one out of range.
    """
    check_names(settings)
    new: dict[str, Any] = {}
    for alternative, name in ALTERNATIVES.items():
        if name in settings:  # It overrides the alternative of an earlier layer.
            if str(given := settings.get(alternative, 0)) != "0":
                raise ConfigError(f"{alternative} = {shown(given)} and {name} = {shown(settings[name])}: give one of them.")
            new[alternative] = 0
    for name, value in settings.items():
        name, _, entry = name.partition(".")
        leaf = LEAVES[name]
        before = new.get(name, leaf.value_in(config))
        if entry:
            new[name] = dataclasses.replace(before, **{entry: coerce(ENTRIES[f"{name}.{entry}"], value)})
        elif leaf.entries and join and value:
            new[name] = dataclasses.replace(before, **coerce_entries(leaf, value))
        else:
            value = coerce(leaf, value)
            new[name] = {**before, **value} if join and value and isinstance(value, dict) else value
    groups = {
        LEAVES[name].group: {other: new[other] for other in new if LEAVES[other].group == LEAVES[name].group} for name in new
    }
    return dataclasses.replace(config, **{group: dataclasses.replace(getattr(config, group), **x) for group, x in groups.items()})


def by_name(groups: Any, source: str) -> dict[str, Any]:
    """The settings by name in a tree ``{group: {name: value}}``. The values are not checked.

    Their ``provenance`` is left out. ``source`` names the file in messages. Raises ``ConfigError`` for an unknown group or name.
    """
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
            is_foreign = any(other_libraries.answer(str(name)) for name in names)
            hint = f"{nearest(str(group)[:80], (*GROUPS, *LEAVES))}; the groups are {', '.join(GROUPS)}."
            foreign = f"; if the file is of another library: `{command('proximo', 'convert', source)}`."
            raise ConfigError(f"{source}: unknown group {shown(group)}{foreign if is_foreign else hint}")
        if not isinstance(content, Mapping):
            raise ConfigError(f"{source}: under {group!r} expected settings as name: value, found {shown(content)}.")
        for name, value in content.items():
            if (name, value) in REMOVED.items():
                continue
            leaf = (LEAVES | ENTRIES).get(RENAMED.get(name, str(name)))
            if leaf is None:
                raise unknown(str(name), f" under {group!r} in {source}")
            if leaf.group != group:
                raise ConfigError(f"{source}: {name} is under `{group}:`; it belongs under `{leaf.group}:`.")
            settings[leaf.name] = value
    return settings


def from_mapping(mapping: Any, base: Config, source: str) -> Config:
    """Read settings from a tree ``{group: {name: value}}``, the inverse of ``to_mapping``. Names that it does not have keep their value in
    ``base``.

    A mapping (``env_settings``) replaces the one in ``base``, so that saved settings are restored exactly. ``source`` names the file in
    messages. Raises ``ConfigError`` for an unknown group or name, or a wrong value.
    """
    settings = by_name(mapping, source)
    try:
        return override(base, settings, join=False)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def to_mapping(config: Config) -> dict[str, dict[str, Any]]:
    """The tree of settings as plain numbers, text and lists, for YAML and JSON; ``from_mapping`` reads it.
    It has no ``ALTERNATIVES``: ``validation.validate`` replaced them."""

    def plain(value: Any) -> Any:
        if isinstance(value, ScheduleText):
            return value.plain()
        if isinstance(value, Entries):
            return dict(vars(value))
        return str(value) if isinstance(value, Custom) else list(value) if isinstance(value, tuple) else value

    groups = {group: vars(getattr(config, group)) for group in GROUPS}
    return {group: {name: plain(x) for name, x in values.items() if name not in ALTERNATIVES} for group, values in groups.items()}
