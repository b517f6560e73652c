"""The search space: one Optuna distribution for each searched setting, from a YAML file or by default."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import create_trial

from proximo.config import BY_NAME, GROUPS, GYMNASIUM_ONLY, LEAVES, WORKER_SETTINGS, Config, coercion, unknown
from proximo.config.coercion import Leaf, ScheduleText, coerce
from proximo.config.custom import is_custom
from proximo.config.schema import ALTERNATIVES
from proximo.errors import ConfigError, nearest, shown
from proximo.networks.normalizer import make_statistics
from proximo.serialization import read_yaml

Space = dict[str, BaseDistribution]
RANGE = ("low", "high", "step", "log")
NOT_SEARCHED = {
    **dict.fromkeys(("id", "levels", "env_settings", "max_episode_steps"), "it changes the task that trials are compared on"),
    "total_steps": "trials would be compared on trainings of different lengths",
    **{name: f"it is another way to give {setting}: search that one" for name, setting in ALTERNATIVES.items()},
    **{name: f"search its entries, such as {leaf.entries[0].name}" for name, leaf in LEAVES.items() if leaf.entries},
    **dict.fromkeys(
        ("overlap", *WORKER_SETTINGS, *(entry.name for entry in LEAVES["worker_settings"].entries)),
        "it changes how fast training is, not what it learns",
    ),
    **{name: "it is about runs and how they are evaluated" for name, leaf in LEAVES.items() if leaf.group == "run"},
}  # fmt: skip
NOT_IN_JAX = dict.fromkeys(GYMNASIUM_ONLY, "it is for Gymnasium environments, and this is a JAX environment")
DEFAULT: dict[str, Any] = read_yaml(Path(__file__).with_name("default_space.yaml").read_bytes())


def read_space(mapping: Mapping[str, Any], base: Config, source: str, in_jax: bool, fixed: Collection[str] = ()) -> Space:
    """Read lists and ranges by the name of a setting; ``source`` names the file in messages. A JAX environment (``in_jax``) has no
    settings of Gymnasium environments. Settings that are ``fixed`` keep their value in ``base``."""
    not_searched = NOT_SEARCHED | (NOT_IN_JAX if in_jax else {})
    fixed = {*fixed, *(ALTERNATIVES[name] for name in fixed if name in ALTERNATIVES)}
    space: Space = {}
    for name, given in mapping.items():
        if name in GROUPS:
            raise ConfigError(f"{source}: {name} is a group: name its settings without it, such as `gamma: [0.9, 0.99]`.")
        if name not in BY_NAME:
            raise unknown(str(name), f" in {source}")
        if name in not_searched:
            raise ConfigError(f"{source}: {name} cannot be searched: {not_searched[name]}.")
        if fixed & {name, name.partition(".")[0]}:
            continue
        try:
            space[name] = _distribution(BY_NAME[name], given, base)
        except (ConfigError, TypeError, ValueError) as error:
            raise ConfigError(f"{source}: {error}" if isinstance(error, ConfigError) else f"{source}: {name}: {error}") from None
    return space


def _distribution(leaf: Leaf, given: Any, base: Config) -> BaseDistribution:
    if isinstance(given, list):
        return CategoricalDistribution([plain(coerce(leaf, value)) for value in given])
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{leaf.name}: {shown(given)} is neither a list of values, such as [64, 128], nor a range, such as {{low: 0.9, high: 0.99}}. "
            "To fix a value, give it as a flag or in --config."
        )
    if wrong := [word for word in given if word not in RANGE]:
        hint = f"{nearest(str(wrong[0])[:80], RANGE)}; expected {', '.join(RANGE)}"
        raise ConfigError(f"{leaf.name}: unknown word {shown(wrong[0])}{hint}.")
    ends = {end: plain(coerce(leaf, given.get(end))) for end in ("low", "high")}
    if leaf.base not in (int, float, ScheduleText) or any(isinstance(end, str) for end in ends.values()):
        raise ConfigError(f"{leaf.name}: a range has numbers: give a list of values.")
    value = leaf.value_in(base)
    if leaf.base is ScheduleText and (
        not isinstance(value, ScheduleText) or (value.initial == 0 and isinstance(value.plain(), str))
    ):
        raise ConfigError(f"{leaf.name}: a range scales {value} of the base, which is not possible: give a list of values.")
    kind: Any = IntDistribution if leaf.base is int else FloatDistribution
    return kind(**{**given, **ends})


def as_mapping(space: Space) -> dict[str, Any]:
    """The form of ``space`` in a YAML file, which ``read_space`` reads."""

    def listed(distribution: Any) -> Any:
        if isinstance(distribution, CategoricalDistribution):
            return list(distribution.choices)
        return {word: x for word in RANGE if (x := getattr(distribution, word)) is not None and x is not False}

    return {name: listed(distribution) for name, distribution in space.items()}


def shaping(space: Space) -> set[str]:
    """The settings whose values change the program: all that are not traced, and those that a 0 switches off."""

    def is_off_at_zero(name: str) -> bool:
        distribution: Any = space[name]
        return BY_NAME[name].zero_is_off and 0 in (getattr(distribution, "choices", None) or (distribution.low,))

    return {name for name in space if not BY_NAME[name].traced or is_off_at_zero(name)}


def default_space(base: Config, env: Any, fixed: Collection[str]) -> Space:
    """The default space, which contains ``base``. It does not search a normalization that has no effect."""
    observation, reward = base.ppo.normalize_observation or "auto", base.ppo.normalize_reward or "auto"
    declared = DEFAULT | {"normalize_observation": [False, observation], "normalize_reward": [False, reward]}
    if make_statistics(env.observation_space, observation) is None:
        del declared["normalize_observation"]
    if not replace(base.ppo, normalize_reward=reward).normalizes_reward:
        del declared["normalize_reward"]
    for name, given in declared.items():
        value = _parameter(base, name, given)
        if isinstance(given, list) and value not in given and not is_custom(value):
            declared[name] = [*given, value]
        elif isinstance(given, dict) and isinstance(value, float) and (value > 0 or "log" not in given):
            declared[name] = {**given, "low": min(given["low"], value), "high": max(given["high"], value)}
    return read_space(declared, base, "the default search space", in_jax=True, fixed=fixed)


def _parameter(base: Config, name: str, drawn_from: Any) -> Any:
    """The parameter of a setting of the base: of a schedule in a range, the number that it starts from."""
    value = BY_NAME[name].value_in(base)
    in_range = isinstance(value, ScheduleText) and not isinstance(drawn_from, list | CategoricalDistribution)
    return value.initial if in_range else plain(value)


def base_parameters(space: Space, base: Config) -> dict[str, Any] | None:
    """The parameters that give the settings of ``base``; None if it lies outside of ``space``."""
    parameters = {name: _parameter(base, name, distribution) for name, distribution in space.items()}
    try:
        create_trial(params=parameters, distributions=space, value=0.0)
    except ValueError:
        return None
    return parameters


def drawn_settings(parameters: Mapping[str, Any], space: Space, base: Config) -> dict[str, Any]:
    """Settings by name, for drawn parameters. Traced numbers of ranges have six digits, and scale the schedule of ``base``."""
    settings = dict(parameters)
    for name, distribution in space.items():
        if isinstance(distribution, FloatDistribution) and BY_NAME[name].traced:
            number, value = float(f"{parameters[name]:.6g}"), BY_NAME[name].value_in(base)
            settings[name] = _scaled(value, number) if isinstance(value, ScheduleText) else number
    return settings


def _scaled(schedule: ScheduleText, initial: float) -> float | str:
    """``schedule``, with its values scaled so that it starts at ``initial``."""
    if isinstance(schedule.plain(), float):
        return initial
    kind, _, _, *others, _ = re.split(r"[(,)]", schedule.text.replace(" ", ""))
    final = schedule.final * initial / schedule.initial
    return f"{kind}({', '.join([f'{initial:g}', f'{final:g}', *others])})"


def plain(value: Any) -> Any:
    """The value of a setting in types that Optuna, CSV and YAML store: a number, a boolean or text."""
    value = coercion.plain(value)
    return ",".join(map(str, value)) if isinstance(value, list) else value
