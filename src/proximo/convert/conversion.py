"""``convert``: a file of settings from the ones of another library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proximo.config import ENTRIES, LEAVES, Config, kinds, override, presets, text_of, to_mapping
from proximo.config.loading import Layer, resolve
from proximo.config.schema import ALTERNATIVES
from proximo.config.validation import validate
from proximo.convert import values
from proximo.convert.sources import Source, expression, read_source, scalar
from proximo.errors import ConfigError, shown
from proximo.other_libraries import Entry, Library, load
from proximo.serialization import dump_yaml


@dataclass(frozen=True)
class Converted:
    """Settings of another library as ours."""

    config: Config
    """The settings, valid and without a preset."""
    yaml: str
    """The same as a file for ``--config``, without what is the default anyway."""
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
    conversion = _Conversion(read, library)
    for name, value in conversion.theirs.items():
        try:
            conversion.add(name, value)
        except (ValueError, TypeError, KeyError, SyntaxError, AttributeError, ArithmeticError):
            raise ConfigError(f"{source}: {name} = {shown(value)} is no value that {library.name} accepts.") from None
    config = conversion.config()
    return Converted(config, _yaml(config), conversion.report(config.env.id))


class _Conversion:
    """The settings so far, and the lines of the report."""

    def __init__(self, source: Source, library: Library):
        self.source, self.library = source, library
        variant = library.variants.get(source.variant, {})
        flat = dict(_flattened(source.given, library))
        self.given = flat.keys()
        defaults = {entry.name: entry.default for entry in library.all_settings() if entry.default is not None}
        policy = {"policy": flat["policy"]} if "policy" in flat else {}  # first: others change what it means
        theirs = {**policy, **defaults, **variant.get("defaults", {}), **flat}
        self.theirs = values.Theirs({name: scalar(x) if isinstance(x, str) else x for name, x in theirs.items()})
        self.prefix, self.always = variant.get("prefix", ""), {**library.always, **variant.get("always", {})}
        self.ours = {**self.always, **({"id": self.prefix + source.env} if source.env else {})}
        self.unchanged, self.changed, self.missing = list[str](), list[str](), list[str]()

    def add(self, name: str, value: Any) -> None:
        """Convert one setting, and note what became of it, unless it is a default of both libraries."""
        entry, was, is_given = self.library.setting(name), _shown(value), name in self.given
        if entry is None:
            self.missing.append(f"{name} = {was}: proximo does not know it")
            return
        converted = _converted(entry, value, self.theirs)
        if converted is None:
            if is_given and value != entry.default:
                self.missing.append(f"{name} = {was}: {entry.note or 'proximo has no setting for this value'}")
            return
        for ours, new in converted.items():
            new = self.prefix + str(new) if ours == "id" else new
            converted[ours] = {**self.ours.get(ours, {}), **new} if isinstance(new, Mapping) else new
        self.ours |= converted
        texts = {ours: _shown(new) for ours, new in converted.items()}
        lines = [f"{ours} = {new}" for ours, new in texts.items() if is_given or new != _shown((LEAVES | ENTRIES)[ours].default)]
        if lines == [f"{name} = {was}"]:
            self.unchanged.append(name)
        elif lines:
            note = f" ({entry.note})" if entry.note and set(texts.values()) != {was} else ""
            self.changed.append(f"{name} = {was}{'' if is_given else ', the default'}  →  {', '.join(lines)}{note}")

    def report(self, env_id: str) -> str:
        """What was converted, what their code always does, and what has no equal."""
        always = ", ".join(f"{name} = {_shown(value)}" for name, value in self.always.items() if name != "id")
        lines = [f"{self.library.name} always has {always}"] if always else []
        lines += [*self.changed, *([f"unchanged: {', '.join(self.unchanged)}"] if self.unchanged else [])]
        missing = [*self.theirs.unconverted, *self.missing]
        parts = [f"{env_id}, from {self.library.name} ({self.source.variant}):", *(f"  {line}" for line in lines)]
        return "\n".join(parts + (["Not converted:", *(f"  {line}" for line in missing)] if missing else []))

    def config(self) -> Config:
        """Our settings, with a number of minibatches that divides the rollout."""
        if self.ours.get("memory") == "lstm":
            self.ours["memory_settings.horizon"] = 2
            self.changed.append("memory_settings.horizon = 2 (biases of 0; proximo's LSTM otherwise adds 1 to the forget gate)")
        config = override(Config(), self.ours)
        count, was = config.batch_size // config.sequence_length, config.ppo.num_minibatches
        fitting = max(n for n in range(1, was + 1) if count % n == 0)
        if fitting != was:
            why = f"the number must divide the {count} sequences or steps of a rollout"
            self.changed.append(f"num_minibatches = {was}  →  {fitting} ({why})")
        return validate(override(config, {"num_minibatches": fitting}))


def _flattened(given: Mapping[str, Any], library: Library) -> Iterator[tuple[str, Any]]:
    """The settings, with the content of groups such as ``policy_kwargs`` in their place."""
    for name, value in given.items():
        entry = library.setting(str(name))
        if entry is None or entry.convert != "nested":
            yield str(name), value
            continue
        try:
            yield from _flattened(dict(expression(value) or {}), library)
        except (ValueError, TypeError, SyntaxError):
            expected = "expected names with values, as in dict(net_arch=[64, 64])"
            raise ConfigError(f"{name} = {shown(value)}: {expected}.") from None


def _converted(entry: Entry, value: Any, theirs: values.Theirs) -> dict[str, Any] | None:
    """Our settings for one of theirs; None if nothing corresponds to it."""
    if entry.convert:
        return values.RULES[entry.convert](value, theirs, entry)
    if len(entry.ours) != 1:  # nothing, or the note says what to do
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
    named = {"memory", *kinds.names(), *preset, *ALTERNATIVES.values()}
    kept = {name for name, x in LEAVES.items() if name in named or not x.value_in(config) == x.default == x.value_in(usual)}
    content = {name: {key: x for key, x in group.items() if key in kept} for name, group in to_mapping(config).items()}
    return dump_yaml({name: group for name, group in content.items() if group})
