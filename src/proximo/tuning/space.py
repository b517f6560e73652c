"""The search space: the searched settings and their values, read from YAML and checked against the range of each setting."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any

from proximo.config import GROUPS, GYMNASIUM_ONLY, LEAVES, WORKER_SETTINGS, Config, override, unknown
from proximo.config.coercion import SCHEDULE, Leaf, coerce
from proximo.config.schedule_text import ScheduleText
from proximo.config.schema import ALTERNATIVES
from proximo.config.validation import validate
from proximo.errors import ConfigError, EnvError, nearest, shown
from proximo.tuning.dimension import SHAPES, Choices, Dimension, Parameters, Range, are_numbers, plain

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

RANGE_WORDS = ("low", "high", "log", "one_minus", "zero", "step", "schedule")
MAX_STEPS_OF_RANGE = 10**9
"""More steps than a float can tell apart make Optuna fail."""
NOT_SEARCHED = {
    **dict.fromkeys(("id", "levels", "env_settings", "max_episode_steps"), "it changes the task that trials are compared on"),
    "total_steps": "trials would be compared on trainings of different lengths",
    **{name: f"it is another way to give {setting}: search that one" for name, setting in ALTERNATIVES.items()},
    **dict.fromkeys(("overlap", *WORKER_SETTINGS), "it changes how fast training is, not what it learns"),
    **{name: "it is about runs and how they are evaluated" for name, leaf in LEAVES.items() if leaf.group == "run"},
}  # fmt: skip


@dataclass(frozen=True)
class Space:
    """The dimensions of a search, in the order of their declaration."""

    dimensions: tuple[Dimension, ...]
    constant: dict[str, Any] = field(default_factory=dict)
    """Settings that every trial but the base gets in addition to the searched ones: a ``minibatch_size`` that is fixed."""

    @property
    def names(self) -> tuple[str, ...]:
        """The settings that are searched."""
        return tuple(d.name for d in self.dimensions)

    def distributions(self) -> dict[str, BaseDistribution]:
        """All distributions that Optuna draws from for a trial."""
        return {key: value for d in self.dimensions for key, value in d.distributions().items()}

    def settings(self, parameters: Parameters) -> dict[str, Any]:
        """Settings by name, for drawn parameters."""
        return {d.name: d.value(parameters) for d in self.dimensions} | self.constant

    def parameters(self, config: Config) -> Parameters | None:
        """The parameters that give the settings of ``config``; None if one of them is outside of the space."""
        found: Parameters = {}
        for dimension in self.dimensions:
            part = dimension.parameters(LEAVES[dimension.name].value_in(config))
            if part is None:
                return None
            found |= part
        return found

    def without(self, names: Iterable[str]) -> Space:
        """The space of the other settings."""
        gone = set(names)
        return replace(self, dimensions=tuple(d for d in self.dimensions if d.name not in gone))

    def widened(self, config: Config) -> Space:
        """A space that contains the settings of ``config``."""
        return replace(self, dimensions=tuple(d.widened(LEAVES[d.name].value_in(config)) for d in self.dimensions))

    def as_mapping(self) -> dict[str, Any]:
        """The form in a YAML file, which ``read_space`` reads."""
        return {d.name: d.as_yaml() for d in self.dimensions}


def setting_values(config: Config, names: Iterable[str]) -> dict[str, Any]:
    """The settings ``names`` of ``config`` as text, numbers and booleans."""
    return {name: plain(LEAVES[name].value_in(config)) for name in names}


def read_space(mapping: Mapping[str, Any], base: Config, source: str, in_jax: bool, fixed: Collection[str] = ()) -> Space:
    """Read a space from ``mapping``: lists and ranges by the name of a setting. A JAX environment (``in_jax``) has no settings of
    Gymnasium environments. ``fixed`` settings have their value in ``base`` and are left out: their lists and ranges are not read.

    Raises:
        ConfigError: a name is unknown or cannot be searched, or values are out of range.
    """
    for name in mapping:
        _check_name(str(name), base, source, in_jax)
    gone = {*fixed, *(ALTERNATIVES[name] for name in fixed if name in ALTERNATIVES)}
    dimensions = tuple(_dimension(str(name), given, base, source) for name, given in mapping.items() if name not in gone)
    return Space(dimensions, {"minibatch_size": base.batch_size // base.ppo.num_minibatches} if "minibatch_size" in fixed else {})


def _check_name(name: str, base: Config, source: str, in_jax: bool) -> None:
    """Raise ``ConfigError`` if ``name`` is no setting, or cannot be searched."""
    if name in GROUPS:
        raise ConfigError(f"{source}: {name} is a group: name its settings without it, such as `gamma: [0.9, 0.99]`.")
    if name not in LEAVES:
        raise unknown(name, f" in {source}")
    if name in NOT_SEARCHED:
        raise ConfigError(f"{source}: {name} cannot be searched: {NOT_SEARCHED[name]}.")
    if in_jax and name in GYMNASIUM_ONLY:
        raise ConfigError(
            f"{source}: {name} is for Gymnasium environments: it has no effect on {base.env.id}, a JAX environment."
        )


def _dimension(name: str, given: Any, base: Config, source: str) -> Dimension:
    leaf = LEAVES[name]
    try:
        if isinstance(given, list):
            return _choices(leaf, given)
        if isinstance(given, Mapping):
            return _range(leaf, given, base)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    raise ConfigError(
        f"{source}: {name}: {shown(given)} is neither a list of values, such as [64, 128], nor a range, such as {{low: 0.9, high: 0.99}}. "
        "To fix a value, give it as a flag or in --config."
    )


def _choices(leaf: Leaf, given: list[Any]) -> Choices:
    values = [plain(coerce(leaf, value)) for value in given]
    if not values:
        raise ConfigError(f"{leaf.name}: the list is empty.")
    twice = next((v for i, v in enumerate(values) if v in values[:i]), None)
    if twice is not None:
        raise ConfigError(f"{leaf.name}: the list has {twice} twice.")
    return Choices(leaf.name, tuple(sorted(values) if are_numbers(values) else values))


def _range(leaf: Leaf, given: Mapping[str, Any], base: Config) -> Range:
    if leaf.type not in (int, float, SCHEDULE):
        raise ConfigError(f"{leaf.name} is not a number, so it has no range: give a list of values.")
    for word in given:
        if word not in RANGE_WORDS:
            raise ConfigError(
                f"{leaf.name}: unknown word {shown(word)}{nearest(str(word)[:80], RANGE_WORDS)}; expected {', '.join(RANGE_WORDS)}."
            )
    if "low" not in given or "high" not in given:
        raise ConfigError(f"{leaf.name}: a range needs low and high.")
    low, high = (_end(leaf, given[end]) for end in ("low", "high"))
    log, one_minus, zero = (_flag(leaf, given, word) for word in ("log", "one_minus", "zero"))
    if low >= high:
        raise ConfigError(f"{leaf.name}: low = {low:g} is not below high = {high:g}.")
    if log and low <= 0:
        raise ConfigError(f"{leaf.name}: a logarithmic scale needs low above 0, not {low:g} (zero: true adds 0 to it).")
    if one_minus and (high >= 1 or log or leaf.type is int):
        raise ConfigError(
            f"{leaf.name}: one_minus is a logarithmic scale of 1 - value: expected high below 1, a setting that is not a whole number, and no log."
        )
    if zero and (not log or leaf.type is int or one_minus):
        raise ConfigError(
            f"{leaf.name}: zero: true adds 0 to a logarithmic scale: expected log: true, and a setting that is not a whole number."
        )
    if zero:
        coerce(leaf, 0)
    step = given.get("step")
    if step is not None and (log or one_minus):
        raise ConfigError(f"{leaf.name}: step = {shown(step)}: a logarithmic scale has no step: leave one of them out.")
    if step is not None:
        high = _last_step(leaf, low, high, step)
    return Range(leaf.name, low, high, log, one_minus, zero, step, *_shapes(leaf, given, base))


def _last_step(leaf: Leaf, low: Any, high: Any, step: Any) -> Any:
    """The last number that steps from ``low`` reach within the range. Optuna warns about any other end."""
    whole, is_number = leaf.type is int, isinstance(step, int | float) and not isinstance(step, bool)
    # In binary, 0.9 - 0.8 is less than 0.1.
    first, last, each = (Decimal(str(number)) for number in (low, high, step if is_number and isfinite(step) else 0))
    if not 0 < each <= last - first or (whole and each % 1) or (last - first) / each > MAX_STEPS_OF_RANGE:
        raise ConfigError(
            f"{leaf.name}: step = {shown(step)}: expected a {'whole ' * whole}number above 0, and at most {float(last - first):g}, the "
            "length of the range."
        )
    return type(high)(first + (last - first) // each * each)


def _end(leaf: Leaf, given: Any) -> Any:
    value = coerce(leaf, given)
    if not isinstance(value, ScheduleText):
        return value
    if not isinstance(value.plain(), float):
        raise ConfigError(
            f"{leaf.name} = {given!r}: the ends of a range are numbers; choose its form with schedule: [constant, linear]."
        )
    return value.initial


def _flag(leaf: Leaf, given: Mapping[str, Any], word: str) -> bool:
    value = given.get(word, False)
    if not isinstance(value, bool):
        raise ConfigError(f"{leaf.name}: {word} = {shown(value)}: expected true or false.")
    return value


def _shapes(leaf: Leaf, given: Mapping[str, Any], base: Config) -> tuple[tuple[str, ...], ScheduleText | None]:
    """The shapes of a schedule that are tried, and the schedule of the base."""
    if leaf.type != SCHEDULE:
        if "schedule" in given:
            raise ConfigError(f"{leaf.name}: only some settings may be schedules, and {leaf.name} is not one of them.")
        return (), None
    own = leaf.value_in(base)
    if not isinstance(own, ScheduleText):
        raise ConfigError(
            f"{leaf.name} = {own}: a function cannot be scaled. Give a number in the base, or leave {leaf.name} out of the space."
        )
    shapes = given.get("schedule", ["base"])
    if not isinstance(shapes, list) or not shapes or any(s not in SHAPES for s in shapes) or len(set(shapes)) < len(shapes):
        raise ConfigError(f"{leaf.name}: schedule = {shown(shapes)}: expected a list of {', '.join(SHAPES)}.")
    if "base" in shapes and not isinstance(own.plain(), float) and own.initial == 0:
        raise ConfigError(
            f"{leaf.name}: the base has {own}, which begins at 0 and cannot be scaled: give schedule: [constant, linear]."
        )
    return tuple(shapes), own


def check_together(base: Config, env: Any, settings: Mapping[str, Any]) -> None:
    """Raise ``ConfigError`` or ``EnvError`` if a trial with these settings cannot be trained. ``env`` is the environment of ``base``, which has
    been checked, with ``settings`` empty."""
    from proximo.collect.environment import check_settings, environment, preprocessing_of
    from proximo.collect.learning import policy_shapes

    def read_by_network(config: Config) -> tuple[Any, ...]:
        return preprocessing_of(config), config.network, config.ppo.normalize_observation

    config = validate(with_settings(base, settings))
    if preprocessing_of(config) == preprocessing_of(base):
        check_settings(config, env)
    else:
        env = environment(config)  # of other observations
    if not settings or read_by_network(config) != read_by_network(base):
        policy_shapes(env, config)  # the network may not fit the spaces


def fit_together(base: Config, env: Any, settings: Mapping[str, Any]) -> bool:
    """Whether a trial with these settings can be trained on ``env``."""
    try:
        check_together(base, env, settings)
    except (ConfigError, EnvError):
        return False
    return True


def with_settings(base: Config, settings: Mapping[str, Any]) -> Config:
    """``base`` with the settings of a trial. This does not check whether they fit together."""
    return override(base, settings, join=False)
