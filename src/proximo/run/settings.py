"""How the settings of a run come about: default < preset < file < flag."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proximo import presets
from proximo.config import GROUPS, LEAVES, Config, from_mapping, may_replace, override, own_code, unknown
from proximo.errors import ConfigError
from proximo.own_code import is_own
from proximo.run.validation import NEED_MEMORY, OF_NETWORKS, ONLY_WITH, replaced_by, validate
from proximo.serialization import read_yaml
from proximo.signatures import answered

# What a resumed run may change without becoming another run.
RESUMABLE = {
    "total_steps", "eval_every", "eval_episodes", "eval_max_steps", "checkpoint_every", "keep_checkpoints", "tensorboard", "updates_per_call",
    "num_workers", "step_timeout", "reset_timeout", "max_restarts", "track", "histograms", "video_every",
}  # fmt: skip
SMOKE_UPDATES = 3
SMOKE_EPISODE = 1000


def read_file(path: Path, flag: str = "--config", expected: str = f"groups of settings ({', '.join(GROUPS)})") -> dict[str, Any]:
    """The mapping in a YAML file (the groups of settings of a ``--config``), without its ``provenance``. Raises ``ConfigError`` when
    it cannot be read."""
    try:
        mapping = read_yaml(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"Cannot read {flag} {path} ({error.strerror}).") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if mapping is None:  # nothing but comments
        return {}
    if not isinstance(mapping, dict):
        raise ConfigError(f"{path}: expected {expected}, found {type(mapping).__name__}.")
    mapping.pop("provenance", None)
    return mapping


@answered
def make_config(
    env: str = "", settings: Mapping[str, Any] | None = None, file: str | Path | None = None, preset: bool = True
) -> Config:
    """The validated settings for ``env`` (or the one that ``file`` or ``settings`` name).

    Args: ``settings`` maps names of settings to values and wins over ``file``, that over the preset (where ``preset``).
    Raises ``ConfigError`` for an unknown name, a value of a wrong type or out of range, or settings at odds.
    """
    settings = {**(settings or {}), **({"id": env} if env else {})}
    mapping = read_file(Path(file)) if file is not None else {}
    group = mapping.get("env")
    env_id = settings.get("id") or (group.get("id", "") if isinstance(group, dict) else "")
    tuned = presets.load(env_id) if preset and isinstance(env_id, str) else None
    config = Config()
    if tuned:
        tuned.pop("provenance", None)
        tuned = _fitting(tuned, {**_settings_of(mapping), **settings})
        config = from_mapping(tuned, config, f"the preset of {env_id}")
    config = from_mapping(mapping, config, str(file)) if mapping else config
    return validate(override(config, settings))


def _settings_of(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Names and values in a file's groups."""
    return {name: value for group in mapping.values() if isinstance(group, dict) for name, value in group.items()}


def _fitting(tuned: dict[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """A preset without what only its own memory has, where another ``memory`` is asked for; and without what networks of the user's that
    are asked for stand in the place of."""
    memory = asked.get("memory")
    gone = replaced_by({name for name, value in asked.items() if name in OF_NETWORKS and _is_own(name, value)})
    if memory is not None:
        gone |= {name for name, memories in ONLY_WITH.items() if memory not in memories}
    if memory == "none":
        gone |= set(NEED_MEMORY)
    return {group: {name: value for name, value in content.items() if name not in gone} for group, content in tuned.items()}


def _is_own(name: str, value: Any) -> bool:
    """Whether the setting ``name`` has code of the user's in ``value``, which nobody has looked at yet."""
    return is_own(value) if isinstance(value, str) else value is not None and value != LEAVES[name].default


def shortened(config: Config) -> Config:
    """``config`` for a trial of seconds: three updates, and two short episodes of evaluation in the end."""
    steps, most = SMOKE_UPDATES * config.batch_size, config.run.eval_max_steps or SMOKE_EPISODE
    changes = {"total_steps": steps, "eval_every": steps, "eval_max_steps": min(most, SMOKE_EPISODE)}
    return validate(override(config, {**changes, "eval_episodes": min(2, config.run.eval_episodes)}))


def changed_for_resume(config: Config, settings: Mapping[str, Any]) -> Config:
    """``config`` of a run with ``settings`` that a resumed run may change; raises ``ConfigError`` for any other."""
    for name, value in settings.items():
        if name not in LEAVES:
            raise unknown(name)
        if name not in RESUMABLE and not (name in own_code(config) and may_replace(config, name, value)):
            raise ConfigError(
                f"{name} cannot change when a run is resumed (only {', '.join(sorted(RESUMABLE))} can): "
                "start a new run with --config RUN/config.yaml and the new value."
            )
    return validate(override(config, settings))
