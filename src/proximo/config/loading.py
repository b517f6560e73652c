"""Settings of a run from all their sources: default < preset < file < flag."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from proximo.config import GROUPS, Config, check_names, custom_settings, from_mapping, may_replace, override, presets
from proximo.config.custom import is_custom
from proximo.config.listing import lists_settings
from proximo.config.schema import WORKER_SETTINGS
from proximo.config.typed_settings import Settings
from proximo.config.validation import NEED_MEMORY, OF_NETWORKS, ONLY_WITH, is_met, replaced_by, replaced_by_optimizers, validate
from proximo.errors import ConfigError
from proximo.serialization import read_yaml
from proximo.signatures import answered

RESUMABLE = {
    "total_steps", "total_updates", "eval_every", "eval_episodes", "eval_max_steps", "eval_num_envs", "checkpoint_every", "keep_checkpoints",
    "tensorboard", "updates_per_call",
    "track", "histograms", "video_every", *WORKER_SETTINGS,
}  # fmt: skip
"""Settings that a resumed run may change."""
ATARI_ID = re.compile(r"(ale_py:)?(ALE/\w+-v\d+|\w+NoFrameskip-v\d+)")
ATARI = {"preprocessing": "atari", "frame_stack": 4}
"""Defaults of these ids, unless ``preprocessing`` is switched off: their raw pictures of 210×160×3 would need a network of 23 million
parameters, and one picture does not show velocities."""
SMOKE_UPDATES = 3
SMOKE_EPISODE = 1000


def read_file(path: Path, flag: str = "--config", expected: str = f"groups of settings ({', '.join(GROUPS)})") -> dict[str, Any]:
    """The mapping in a YAML file, without its ``provenance``. For messages, ``flag`` is the flag that named it, and ``expected`` what
    it should contain. Raises ``ConfigError`` if it cannot be read, or is not a mapping in YAML."""
    try:
        mapping = read_yaml(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"Cannot read {flag} {path} ({error.strerror}).") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if mapping is None:  # only comments
        return {}
    if not isinstance(mapping, dict):
        raise ConfigError(f"{path}: expected {expected}, found {type(mapping).__name__}.")
    mapping.pop("provenance", None)
    return mapping


@lists_settings(Settings)
@answered
def make_config(
    env: str = "",
    settings: Mapping[str, Any] | None = None,
    file: str | Path | None = None,
    preset: bool = True,
    **more: Unpack[Settings],
) -> Config:
    """Make the validated settings of a run.

    Args:
        env: id of the environment; by default the one in ``settings`` or ``file``.
        settings: values by name, such as ``{"gamma": 0.99}``. They override ``file``.
        file: a YAML file with groups of settings. It overrides the preset.
        preset: whether to start from the preset of the environment, if it has one. Defaults that depend on the kind of environment
            (``preprocessing`` of Atari games) always apply.
        more: further settings by name, such as ``gamma=0.99``. They override ``settings``.

    Returns:
        All settings.

    Raises:
        ConfigError: a name is unknown, a value has a wrong type or is out of range, or two settings contradict each other.
    """
    settings = {**(settings or {}), **more, **({"id": env} if env else {})}
    mapping = read_file(Path(file)) if file is not None else {}
    groups = [group for group in mapping.values() if isinstance(group, dict)]
    requested = {name: value for group in (*groups, settings) for name, value in group.items()}
    env_id = requested.get("id")
    tuned = presets.load(env_id) if preset and isinstance(env_id, str) else None
    config = Config()
    if isinstance(env_id, str) and ATARI_ID.fullmatch(env_id) and requested.get("preprocessing") in (None, "atari"):
        config = override(config, ATARI)
    if tuned:
        tuned.pop("provenance", None)
        config = from_mapping(_fitting(tuned, requested), config, f"the preset of {env_id}")
    return validate(override(from_mapping(mapping, config, str(file)), settings))


def _fitting(tuned: dict[str, Any], requested: Mapping[str, Any]) -> dict[str, Any]:
    """The preset ``tuned`` without the settings that have no meaning with the ``requested`` ones: those of another memory, and those that
    custom networks replace."""
    networks = {name: value for name, value in requested.items() if name in OF_NETWORKS}
    # The values are not checked yet: an object is custom code.
    removed = replaced_by({name for name, value in networks.items() if is_custom(value) or not isinstance(value, str | None)})
    removed |= {
        name
        for name, condition in ONLY_WITH.items()
        if (value := requested.get(condition[0])) is not None and not is_met(condition, value, requested.get("critic_optimizer"))
    }
    if requested.get("memory") == "none":
        removed |= set(NEED_MEMORY)
    removed |= replaced_by_optimizers(requested.get("optimizer"), requested.get("critic_optimizer", "same"))
    return {group: {name: value for name, value in content.items() if name not in removed} for group, content in tuned.items()}


def shortened(config: Config) -> Config:
    """``config`` for a test of some seconds: three updates, then an evaluation of at most two short episodes."""
    steps, limit = SMOKE_UPDATES * config.batch_size, config.run.eval_max_steps or SMOKE_EPISODE
    changes = {"total_steps": steps, "eval_every": steps, "eval_max_steps": min(limit, SMOKE_EPISODE)}
    return validate(override(config, {**changes, "eval_episodes": min(2, config.run.eval_episodes)}))


def resume_warnings(before: Config, after: Config) -> list[str]:
    """What a resume with the settings ``after`` changes about a run that was saved with the settings ``before``."""
    if before.ppo.total_steps == after.ppo.total_steps:
        return []
    sentence = "schedules stretch over the new total, so this run differs from one that had the new total from the start."
    return [f"total_steps {before.ppo.total_steps} → {after.ppo.total_steps}: {sentence}"]


def changed_for_resume(config: Config, settings: Mapping[str, Any]) -> Config:
    """``config`` of a saved run with the new values ``settings``. Raises ``ConfigError`` if a resumed run cannot change one of them."""
    check_names(settings)
    for name, value in settings.items():
        if name not in RESUMABLE and not (name in custom_settings(config) and may_replace(config, name, value)):
            raise ConfigError(
                f"{name} cannot change when a run is resumed (only {', '.join(sorted(RESUMABLE))} can): "
                "start a new run with --config RUN/config.yaml and the new value."
            )
    return validate(override(config, settings))
