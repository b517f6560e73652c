"""``convert``: settings files and command lines of other libraries as a settings file of ours."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proximo.config import LEAVES, Config, override, presets, text_of, to_mapping
from proximo.config.loading import Layer, resolve
from proximo.config.schema import ALTERNATIVES, BY_NAME
from proximo.config.validation import largest_divisor, validate
from proximo.convert import values
from proximo.convert.sources import expression, read_source, scalar
from proximo.errors import ConfigError, shown
from proximo.other_libraries import Entry, Library, load
from proximo.serialization import dump_yaml


@dataclass(frozen=True)
class Converted:
    """Settings of another library as ours."""

    config: Config
    """The settings, valid and without a preset."""
    yaml: str
    """The same as a file for ``--config``, without the defaults."""
    report: str
    """Each conversion that was made, and what has no equal."""


def convert(source: str, env: str = "") -> Converted:
    """Convert settings of another library.

    Args:
        source: path of a file of hyperparameters of RL Zoo, or of a config of recurrent-ppo-truncated-bptt; or a command
            line of CleanRL, pytorch-ppo, PPO-JAX or Baselines, as a file or as text.
        env: the environment whose settings are read, if the file has several.

    Returns:
        The settings, and a report. Settings that are not given have the values of the other library.

    Raises:
        ConfigError: the source cannot be read, is of no known library, or its settings are invalid.
    """
    read = read_source(source, env)
    library = load(read.library)
    variant, given = library.variants.get(read.variant, {}), dict(_flattened(read.given, library))
    defaults = {entry.name: entry.default for entry in library.all_settings if entry.default is not None}
    policy = {"policy": given["policy"]} if "policy" in given else {}  # first: what follows overrides it
    theirs = {**policy, **defaults, **variant.get("defaults", {}), **given}
    theirs = values.Theirs({name: scalar(x) if isinstance(x, str) else x for name, x in theirs.items()})
    prefix, always = variant.get("prefix", ""), {**library.always, **variant.get("always", {})}
    ours = {**always, **({"id": prefix + read.env} if read.env else {})}
    changed, unchanged, missing = list[str](), list[str](), theirs.unconverted
    for name, value in theirs.items():
        entry, was, is_given = library.by_name.get(name), f"{name} = {_shown(value)}", name in given
        if entry is None:
            missing.append(f"{was}: proximo does not know it")
            continue
        try:
            new = _converted(entry, value, theirs)
            for setting, x in (new or {}).items():
                merged = {**ours.get(setting, {}), **x} if isinstance(x, Mapping) else x
                ours[setting] = prefix + str(x) if setting == "id" else merged
        except (ValueError, TypeError, KeyError, SyntaxError, AttributeError, ArithmeticError):
            raise ConfigError(f"{source}: {name} = {shown(value)} is no value that {library.name} accepts.") from None
        if new is None and is_given and value != entry.default:
            missing.append(f"{was}: {entry.note or 'proximo has no setting for this value'}")
        settings = [x for x in new or () if is_given or _shown(ours[x]) != _shown(BY_NAME[x].default)]
        now = [f"{x} = {_shown(ours[x])}" for x in settings]
        if now == [was]:
            unchanged.append(name)
        elif now:
            is_same = {_shown(ours[x]) for x in new or ()} == {_shown(value)}
            note = f" ({entry.note})" if entry.note and not is_same else ""
            changed.append(f"{was}{'' if is_given else ', the default'}  →  {', '.join(now)}{note}")
    if ours.get("memory") == "lstm":
        ours["memory_settings.horizon"] = 2
        changed.append("memory_settings.horizon = 2 (biases of 0; proximo's LSTM otherwise adds 1 to the forget gate)")
    config = override(Config(), ours)
    count, wanted = config.batch_size // config.sequence_length, config.ppo.num_minibatches
    if (fitting := largest_divisor(count, wanted)) != wanted:
        why = f"the number must divide the {count} sequences or steps of a rollout"
        changed.append(f"num_minibatches = {wanted}  →  {fitting} ({why})")
    config = validate(override(config, {"num_minibatches": fitting}))
    fixed = ", ".join(f"{name} = {_shown(value)}" for name, value in always.items() if name != "id")
    lines = [f"{library.name} always has {fixed}"] if fixed else []
    lines += [*changed, *([f"unchanged: {', '.join(unchanged)}"] if unchanged else [])]
    parts = [f"{config.env.id}, from {library.name} ({read.variant}):", *(f"  {line}" for line in lines)]
    parts += ["Not converted:", *(f"  {line}" for line in missing)] if missing else []
    return Converted(config, _yaml(config), "\n".join(parts))


def _flattened(given: Mapping[str, Any], library: Library) -> Iterator[tuple[str, Any]]:
    """The settings, with the content of groups such as ``policy_kwargs`` in their place."""
    for name, value in given.items():
        entry = library.by_name.get(str(name))
        if entry is None or entry.convert != "nested":
            yield str(name), value
            continue
        try:
            yield from _flattened(dict(expression(value) or {}), library)
        except (ValueError, TypeError, SyntaxError):
            raise ConfigError(f"{name} = {shown(value)}: expected names with values, as in dict(net_arch=[64, 64]).") from None


def _converted(entry: Entry, value: Any, theirs: values.Theirs) -> dict[str, Any] | None:
    """Our settings for one of theirs; None if nothing corresponds to it."""
    if entry.convert:
        return values.RULES[entry.convert](value, theirs, entry)
    if len(entry.ours) != 1:  # nothing, or the note explains what to do
        return None
    if entry.values is not None and value in entry.values:
        value = entry.values[value]
    elif entry.values is not None and isinstance(value, str | bool):
        return None
    return {entry.ours[0]: value * entry.times if entry.times != 1 else value}


def _shown(value: Any) -> str:
    """``value`` as a user writes it, the same for equal numbers."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_shown(item)}" for name, item in value.items()) or "{}"
    if isinstance(value, list | tuple):
        return text_of(value) or "none"
    return f"{value:g}" if isinstance(value, float) else text_of(value)


def _yaml(config: Config) -> str:
    """The settings that differ from the defaults, or that a preset or the kind of environment would set."""
    tuned = presets.load(config.env.id) or {}
    sections = (tuned, *tuned.get("memories", {}).values())
    preset = {name for section in sections for group in section.values() if isinstance(group, dict) for name in group}
    usual = resolve([Layer({"id": config.env.id})])  # the defaults for Atari games
    named = {"memory", *presets.names_of_kinds(), *preset, *ALTERNATIVES.values()}
    kept = {name for name, x in LEAVES.items() if name in named or not x.value_in(config) == x.default == x.value_in(usual)}
    content = {name: {key: x for key, x in group.items() if key in kept} for name, group in to_mapping(config).items()}
    return dump_yaml({name: group for name, group in content.items() if group})
