"""Layers of settings: what a preset, a file or the user gives; and what a resumed run may change."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proximo.config.coercion import coerce_entries
from proximo.config.mapping import ENTRIES, GROUPS, LEAVES, by_name, check_names, custom_settings, may_replace, override
from proximo.config.schema import ALTERNATIVES, GIVEN, WORKER_SETTINGS, Config
from proximo.config.validation import validate, without_effect
from proximo.errors import ConfigError, ProximoError
from proximo.serialization import MAX_YAML, read_yaml

RESUMABLE = {
    "total_steps", "total_updates", "eval_every", "eval_episodes", "eval_max_steps", "eval_num_envs", "checkpoint_every",
    "keep_checkpoints", "tensorboard", "updates_per_call", "track", "histograms", "video_every", "devices", *WORKER_SETTINGS,
}  # fmt: skip
"""Settings that a resumed run may change."""
ATARI_ID = re.compile(r"(ale_py:)?(ALE/\w+-v\d+|\w+NoFrameskip-v\d+)")
ATARI = {"preprocessing": "atari", "frame_stack": 4}
"""Defaults of these ids, unless ``preprocessing`` is switched off: their raw pictures of 210×160×3 would need a network of 23 million
parameters, and one picture does not show velocities."""
END_NOTE, END = "# The last line marks the end of the file.", "# end of config.yaml"
"""Second and last line of the ``config.yaml`` of a run. Older files and files of users have neither."""
SMOKE_UPDATES = 3
SMOKE_EPISODE = 1000


@dataclass(frozen=True)
class Layer:
    """Settings by name, and their origin: ``GIVEN`` by the user, or what messages call a preset, the defaults of a kind, or a file.

    The values are not checked yet. The entries of a mapping (``env_settings``) are added to the entries below if they are
    ``GIVEN``; otherwise the mapping replaces the one below.
    """

    settings: Mapping[str, Any]
    origin: str = GIVEN


def given_layers(settings: Mapping[str, Any], file: str | Path | None = None) -> list[Layer]:
    """The layers of a user: ``file``, if there is one, and ``settings``."""
    files = [] if file is None else [Layer(by_name(read_file(Path(file)), str(file)), str(file))]
    return [*files, Layer(settings)]


def merged(layers: Iterable[Layer]) -> dict[str, Any]:
    """The value that the highest of ``layers`` has for each setting, as it was given."""
    return {name: value for layer in layers for name, value in layer.settings.items()}


def resolve(layers: Sequence[Layer]) -> Config:
    """The defaults with ``layers``, the lowest first. The result is not validated."""
    given = merged(layers)
    is_atari = isinstance(given.get("id"), str) and ATARI_ID.fullmatch(given["id"])
    if is_atari and given.get("preprocessing") in (None, "atari"):
        layers = [Layer(ATARI, "the defaults for Atari games"), *layers]
    return functools.reduce(with_layer, layers, Config())


def with_layer(config: Config, layer: Layer) -> Config:
    """``config`` with the settings of a higher layer. Settings that thereby lose their effect get their defaults,
    unless the user gave both by name."""
    given, is_given = layer.settings, layer.origin == GIVEN
    try:
        changed = override(config, given, join=is_given)
    except ConfigError as error:
        raise ConfigError(str(error) if is_given else f"{layer.origin}: {error}") from None
    kept = {*without_effect(config), *_names_in(given), *(_names_in(config.given) if is_given else ())}
    meaningless = set[str]()
    while found := without_effect(changed).keys() - kept:
        meaningless |= found
        changed = override(changed, {name: (LEAVES | ENTRIES)[name].default for name in found}, join=False)
    used = (ALTERNATIVES.get(name, name) for name in given if name not in ALTERNATIVES or str(given[name]) != "0")
    new = dict.fromkeys((name.partition(".")[0] for name in used), layer.origin)
    origins = {name: origin for name, origin in config.origins.items() if name not in {*new, *meaningless}} | new
    return dataclasses.replace(changed, origins=origins, given={**config.given, **(given if is_given else {})})


def _names_in(settings: Mapping[str, Any]) -> Iterator[str]:
    """The names of ``settings`` and of the entries that they have."""
    for name, value in settings.items():
        setting = name.partition(".")[0]
        yield from (name, setting)
        if LEAVES[setting].entries and name == setting:
            yield from (f"{name}.{entry}" for entry in coerce_entries(LEAVES[name], value))


def with_given(config: Config, settings: Mapping[str, Any]) -> Config:
    """``config`` with the user's ``settings`` as its highest layer, validated."""
    return validate(with_layer(config, Layer(settings)))


def read_file(path: Path, flag: str = "--config", expected: str = f"groups of settings ({', '.join(GROUPS)})") -> dict[str, Any]:
    """The mapping in a YAML file, without its ``provenance``. For messages, ``flag`` is the flag that named it, and ``expected`` what
    it should contain. Raises ``ConfigError`` if it cannot be read, or is not a mapping in YAML."""
    try:
        with path.open("rb") as file:
            content = file.read(4 * MAX_YAML + 1)  # a device has no end
        check_complete(content, path, ConfigError)
        mapping = read_yaml(content)
    except OSError as error:
        raise ConfigError(f"Cannot read {flag} {path} ({error.strerror}).") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(mapping, dict | None):
        raise ConfigError(f"{path}: expected {expected}, found {type(mapping).__name__}.")
    return {name: content for name, content in (mapping or {}).items() if name != "provenance"}


def check_complete(content: bytes, path: Path, kind: type[ProximoError]) -> None:
    """Raise an error of ``kind`` if the ``config.yaml`` is truncated: what is missing would have defaults."""
    if END_NOTE.encode() in content and END.encode() not in content:
        raise kind(
            f"{path} is damaged: its end is missing, expected {END!r} as its last line. Restore the file from a copy, or add this line if "
            "nothing else is missing."
        )


def shortened(config: Config) -> Config:
    """``config`` for a short test: three updates, then an evaluation of at most two short episodes."""
    run, steps = config.run, SMOKE_UPDATES * config.batch_size
    limits = {
        "eval_max_steps": min(run.eval_max_steps or SMOKE_EPISODE, SMOKE_EPISODE),
        "eval_episodes": min(2, run.eval_episodes),
    }
    return validate(override(config, {"total_steps": steps, "eval_every": steps, **limits}))


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
    """``config`` of a saved run with new ``settings``. Raises ``ConfigError`` if a resume cannot change one."""
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
