"""``convert``: settings files and command lines of other libraries as a settings file of ours."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from proximo.config import BY_NAME, GROUPS, LEAVES, Config, override, presets, text_of, to_mapping
from proximo.config.coercion import UNREADABLE
from proximo.config.loading import Layer, resolve
from proximo.config.schema import ALTERNATIVES
from proximo.config.validation import largest_divisor, validate
from proximo.convert import values
from proximo.errors import ConfigError, command, nearest, shown
from proximo.other_libraries import Entry, Library, load
from proximo.serialization import dump_yaml, read_yaml

EXPECTED = (
    "a file of hyperparameters of RL Zoo, a config of recurrent-ppo-truncated-bptt, or a command line of CleanRL, "
    "pytorch-ppo, PPO-JAX or Baselines"
)


@dataclass(frozen=True)
class Converted:
    """Settings of another library as ours."""

    config: Config
    """The settings, valid and without a preset."""
    yaml: str
    """The same as a file for ``--config``, without the defaults."""
    report: str
    """Each conversion that was made, and what has no equal."""


class Source(NamedTuple):
    """Settings of another library: those ``given``, and the environment and the program if they lack it."""

    library: Library
    given: dict[str, Any]
    env: str = ""
    program: str = ""


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
    library, given = read.library, dict(_flattened(read.given, read.library))
    defaults = {entry.name: entry.default for entry in library.by_name.values() if entry.default is not None}
    kind = read.program if read.program in library.variants else _variant(library, {**defaults, **given})
    if not kind:
        raise ConfigError(
            f"{source}: environment type {shown(given.get('type'))}: expected one of {', '.join(library.variants)}."
        )
    variant = library.variants[kind]
    theirs = values.Theirs({**defaults, **variant.get("defaults", {}), **given}, library)
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
        except UNREADABLE:
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
    parts = [f"{config.env.id}, from {library.name} ({kind}):", *(f"  {line}" for line in lines)]
    parts += ["Not converted:", *(f"  {line}" for line in missing)] if missing else []
    return Converted(config, _yaml(config), "\n".join(parts))


def _variant(library: Library, theirs: Mapping[str, Any]) -> str:
    """The first of ``Library.variants`` whose ``where`` matches; empty if none does."""
    for name, variant in library.variants.items():
        if all(re.search(pattern, str(theirs.get(setting))) for setting, pattern in variant.get("where", {}).items()):
            return name
    return ""


def _flattened(given: Mapping[str, Any], library: Library) -> Iterator[tuple[str, Any]]:
    """The settings, with the content of groups such as ``policy_kwargs`` in their place."""
    for name, value in given.items():
        entry = library.by_name.get(str(name))
        if entry is None or entry.convert != "nested":
            yield str(name), value
            continue
        try:
            yield from _flattened(dict(values.expression(value) or {}), library)
        except UNREADABLE:
            raise ConfigError(f"{name} = {shown(value)}: expected names with values, as in dict(net_arch=[64, 64]).") from None


def _converted(entry: Entry, value: Any, theirs: values.Theirs) -> dict[str, Any] | None:
    """Our settings for one of theirs; None if nothing corresponds to it."""
    new = value
    if entry.values is not None and value in entry.values:
        new = entry.values[value]
        if new is None:  # the default, which ``policy`` has converted
            return {}
    elif entry.values is not None and isinstance(value, str | bool) and not entry.convert:
        return None
    if entry.convert:
        new = values.RULES[entry.convert](new, theirs)
        if new is None or isinstance(new, dict):
            return new
    elif len(entry.ours) != 1:  # nothing, or the note explains what to do
        return None
    return dict.fromkeys(entry.ours, new * entry.times if entry.times != 1 else new)


def _shown(value: Any) -> str:
    """``value`` as a user writes it, the same for equal numbers."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_shown(item)}" for name, item in value.items()) or "{}"
    return f"{value:g}" if isinstance(value, float) else text_of(value)


def _yaml(config: Config) -> str:
    """The settings that differ from the defaults, or that a preset or the kind of environment would set."""
    tuned = presets.load(config.env.id) or {}
    preset = presets.settings_in(tuned, *tuned.get("memories", {}).values())
    usual = resolve([Layer({"id": config.env.id})])  # the defaults for Atari games
    named = {"memory", *presets.names_of_kinds(), *preset, *ALTERNATIVES.values()}
    kept = {name for name, x in LEAVES.items() if name in named or not x.value_in(config) == x.default == x.value_in(usual)}
    return dump_yaml(to_mapping(config, kept))


def read_source(source: str, env: str) -> Source:
    """Read a file, or a command line as text. ``env`` chooses the entry of a file that has several. Raises
    ``ConfigError`` if there is no such file or entry, or if it is of no known library."""
    is_text, problem = len(source.split()) > 1 and not os.path.isfile(source), ""  # Path.is_file raises for long lines
    try:
        text = source if is_text else Path(source).read_text("utf-8")
        content = read_yaml(text, aliases=True)
    except OSError as error:
        raise ConfigError(f"Cannot read {source} ({error.strerror}).") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{source}: expected {EXPECTED}, found no text.") from None
    except ValueError as error:
        content, problem = None, f"; it is not valid YAML: {error}"
    if isinstance(content, Mapping):
        return _from_mapping({str(name): value for name, value in content.items()}, source, env)
    if re.search(r"\.py\b|-m\s+baselines\.run\b", text):
        return _from_command(text)
    raise ConfigError(f"{shown(source, 'text')}: expected {EXPECTED}{problem}.")


def _from_mapping(content: dict[str, Any], source: str, env: str) -> Source:
    if content.keys() <= GROUPS.keys():
        raise ConfigError(f"{source} has settings of proximo already: `{command('proximo', 'train', '--config', source)}`.")
    if {"recurrence", "worker_steps"} <= content.keys():
        return Source(load("recurrent_ppo_truncated_bptt"), content)
    library = load("rl_zoo")
    known = library.by_name
    entries = {name: value for name, value in content.items() if isinstance(value, Mapping) and value.keys() & known.keys()}
    if not entries and not content.keys() & known.keys():
        raise ConfigError(f"{source}: expected {EXPECTED}.")
    ids = [name for name in entries if name not in ("default", "atari")]
    if not env and len(ids) != 1:
        example = command("proximo", "convert", source, "--env", next(iter(ids), "CartPole-v1"))
        raise ConfigError(f"{source} names {len(ids) or 'no'} environments: choose one with --env, as in `{example}`.")
    env = env or ids[0]
    is_atari = "atari" in entries and re.search(r"NoFrameskip-v\d$", env)
    entry = entries.get(env, entries.get("atari" if is_atari else "default")) if entries else content  # as RL Zoo chooses
    if entry is None:
        raise ConfigError(f"{source} has no settings for {env!r}{nearest(env, ids)}.")
    return Source(library, dict(entry), env)


def _from_command(text: str) -> Source:
    """Settings of a command line such as ``python cleanrl/ppo.py --env-id CartPole-v1 --no-anneal-lr``."""
    try:
        words = shlex.split(re.sub(r"\\\r?\n", " ", text), comments=True)  # a shell joins such lines
    except ValueError as error:
        raise ConfigError(f"{shown(text, 'text')} is no command line ({error}).") from error
    libraries = {program: name for name in ("cleanrl", "pytorch_ppo", "ppo_jax", "baselines") for program in load(name).programs}
    programs = [i for i, word in enumerate(words) if word.endswith(".py") or words[i - 1 : i] == ["-m"]]
    program = PurePath(words[programs[0]]).name if len(programs) == 1 else ""
    if program not in libraries:
        found = ", ".join(words[i] for i in programs)
        raise ConfigError(f"{found}: expected one program that proximo knows: {', '.join(libraries)}.")
    library = load(libraries[program])
    given = _flags(words[programs[0] + 1 :], library)
    unknown = [name for name in given if name not in library.by_name]
    if unknown and program in ("main.py", "train.py"):  # other projects have programs of these names
        raise ConfigError(f"{program}: {library.name} has no flag --{unknown[0]}; expected {EXPECTED}.")
    if given.get("alg", "ppo2") != "ppo2":
        raise ConfigError(f"alg = {given['alg']}: proximo has one algorithm, PPO, which Baselines calls ppo2.")
    return Source(library, given, program=program)


def _flags(words: list[str], library: Library) -> dict[str, Any]:
    """The values of flags: ``--name value``, ``--name=value``, ``--name`` and ``--no-name``. As in argparse, the
    start of a name is enough."""
    given, rest = dict[str, Any](), list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise ConfigError(f"Unexpected {word!r} in the command line: expected flags, such as --num-envs 8.")
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not equals and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        elif not equals and name.startswith("no_"):
            name, value = name.removeprefix("no_"), "false"
        full = [entry.name for entry in library.settings if entry.name.startswith(name)]
        given[full[0] if len(full) == 1 else name] = value or "true"
    return given
