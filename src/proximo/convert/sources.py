"""Reads what a user gives to ``proximo convert``: the library, and its settings by their names there."""

import ast
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from proximo.config import GROUPS, coercion
from proximo.errors import ConfigError, command, nearest, shown
from proximo.other_libraries import Library, load
from proximo.serialization import MAX_YAML, read_yaml

EXPECTED = (
    "a file of hyperparameters of RL Zoo, a config of recurrent-ppo-truncated-bptt, or a command line of CleanRL, "
    "pytorch-ppo, PPO-JAX or Baselines"
)


class Source(NamedTuple):
    """Settings of another library: the name of its file, the script, class or kind of environment (a key of
    ``Library.variants``), the settings ``given``, and the environment if they lack it."""

    library: str
    variant: str
    given: dict[str, Any]
    env: str = ""


def read_source(source: str, env: str) -> Source:
    """Read a file, or a command line as text. ``env`` chooses the entry of a file that has several. Raises
    ``ConfigError`` if there is no such file or entry, or if it is of no known library."""
    is_text, problem = len(source.split()) > 1 and not os.path.isfile(source), ""  # Path.is_file raises for long lines
    if not is_text and os.path.exists(source) and not os.path.isfile(source):  # a device has no end, and a pipe waits
        raise ConfigError(f"{source} is not a regular file: expected {EXPECTED}.")
    try:
        if not is_text and os.path.getsize(source) > 4 * MAX_YAML:
            raise ConfigError(f"{source} is larger than {4 * MAX_YAML / 1e6:g} MB: expected {EXPECTED}.")
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
        environment = content["environment"] if isinstance(content.get("environment"), Mapping) else {}
        kind, name = str(environment.get("type")), str(environment.get("name", ""))
        if kind not in (known := load("recurrent_ppo_truncated_bptt").variants):
            raise ConfigError(f"{source}: environment type {kind!r}: expected one of {', '.join(known)}.")
        name = name.removeprefix("MiniGrid-") if kind == "Minigrid" else name
        return Source("recurrent_ppo_truncated_bptt", kind, content, name.removesuffix("-v0"))
    known = load("rl_zoo").by_name
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
    return Source("rl_zoo", "RecurrentPPO" if "Lstm" in str(entry.get("policy")) else "PPO", dict(entry), env)


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
    values = {**{entry.name: entry.default for entry in library.settings}, **given}
    fitting = (
        name for name, variant in library.variants.items()
        if all(re.search(pattern, str(values[setting])) for setting, pattern in variant.get("where", {}).items())
    )  # fmt: skip
    return Source(libraries[program], program if program in library.variants else next(fitting), given)


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
        given[full[0] if len(full) == 1 else name] = scalar(value or "true")
    return given


def scalar(text: str) -> Any:
    """The number, truth value or None that ``text`` writes, or ``text``. YAML reads ``3e-4`` as text."""
    return None if text.lower() == "none" else coercion.scalar(text)


def expression(value: Any) -> Any:
    """The value of a Python expression, such as ``dict(net_arch=[64])``, where a name stands for itself; other objects
    are returned unchanged. Raises ``ValueError`` if it has more than calls of ``dict``, names and literals."""
    return _value(ast.parse(value.strip(), mode="eval").body) if isinstance(value, str) else value


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case ast.Call(func=ast.Name(id="dict"), args=[]):
            return {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
        case ast.Dict():
            return {_value(key): _value(value) for key, value in zip(node.keys, node.values, strict=True) if key is not None}
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
    return ast.literal_eval(node)
