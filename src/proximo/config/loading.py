"""Settings that a user gave, in files and by name, over others; and what a resumed run may change."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proximo.config import GROUPS, LEAVES, Config, check_names, custom_settings, from_mapping, may_replace, override
from proximo.config.custom import is_custom
from proximo.config.schema import ALTERNATIVES, GIVEN, WORKER_SETTINGS
from proximo.config.validation import NEED_MEMORY, OF_NETWORKS, ONLY_WITH, is_met, replaced_by, replaced_by_optimizers, validate
from proximo.errors import ConfigError, ProximoError
from proximo.serialization import MAX_YAML, read_yaml

RESUMABLE = {
    "total_steps", "total_updates", "eval_every", "eval_episodes", "eval_max_steps", "eval_num_envs", "checkpoint_every", "keep_checkpoints",
    "tensorboard", "updates_per_call",
    "track", "histograms", "video_every", "devices", *WORKER_SETTINGS,
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


def check_complete(content: bytes, path: Path, kind: type[ProximoError]) -> None:
    """Raise an error of ``kind`` if the ``config.yaml`` is truncated. It would be read with defaults for the missing settings."""
    if END_NOTE.encode() in content and END.encode() not in content:
        raise kind(
            f"{path} is damaged: its end is missing, expected {END!r} as its last line. Restore the file from a copy, or add this line if nothing else is missing."
        )


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
    if mapping is None:  # only comments
        return {}
    if not isinstance(mapping, dict):
        raise ConfigError(f"{path}: expected {expected}, found {type(mapping).__name__}.")
    mapping.pop("provenance", None)
    return mapping


@dataclass(frozen=True)
class Given:
    """The settings that a user gave: the groups of a file, and settings by name, which override them."""

    mapping: dict[str, Any]
    settings: dict[str, Any]
    source: str = ""
    """Name of the file, for messages."""

    @classmethod
    def read(cls, settings: Mapping[str, Any], file: str | Path | None = None) -> Given:
        """Read ``file``, if there is one. Raises ``ConfigError`` if it cannot be read."""
        return cls(read_file(Path(file)) if file is not None else {}, dict(settings), str(file))

    @property
    def by_name(self) -> dict[str, Any]:
        """The values by name, of any type, because they are not checked yet."""
        groups = [group for group in self.mapping.values() if isinstance(group, dict)]
        return {name: value for group in (*groups, self.settings) for name, value in group.items()}

    def over(self, lower: Mapping[str, Any] | None = None, source: str = "") -> Config:
        """Replace settings of the layer below, groups of settings that ``source`` names in messages, or of the defaults of all settings.

        The result is not validated. Values of ``lower`` that have no meaning with the given ones are left out.
        """
        given, config, origins = self.by_name, Config(), {}
        env_id = given.get("id")
        if isinstance(env_id, str) and ATARI_ID.fullmatch(env_id) and given.get("preprocessing") in (None, "atari"):
            config = override(config, ATARI)
            origins = dict.fromkeys(ATARI, "the defaults for Atari games")
        if lower:
            groups = _fitting(_for_memory(lower, given.get("memory")), given)
            config = from_mapping(groups, config, source)
            origins = _joined(origins, groups, source)
        config = from_mapping(self.mapping, config, self.source)
        origins = _joined(origins, self.mapping, self.source)
        return with_given(dataclasses.replace(config, origins=origins), self.settings)


def with_given(config: Config, settings: Mapping[str, Any]) -> Config:
    """``config`` with the settings that a user gave by name. Raises ``ConfigError`` as ``override`` does."""
    origins = _joined(config.origins, {"by name": settings}, GIVEN)
    return dataclasses.replace(override(config, settings), origins=origins, given={**config.given, **settings})


def with_later(config: Config, settings: Mapping[str, Any]) -> Config:
    """``with_given`` for settings that a user gave later than the others. What a preset has and has no meaning with them gets its default.
    The result is validated."""
    lower = [name for name, origin in config.origins.items() if origin != GIVEN]
    kept = _fitting({"": dict.fromkeys(lower)}, {**config.given, **settings})[""]
    return validate(with_given(override(config, {name: LEAVES[name].default for name in lower if name not in kept}), settings))


def _joined(origins: Mapping[str, str], groups: Mapping[str, Mapping[str, Any]], origin: str) -> dict[str, str]:
    """``origins`` after the settings in ``groups``, which come from ``origin``, have replaced others."""
    new = {
        ALTERNATIVES.get(name, name): origin
        for content in groups.values()
        for name, value in content.items()
        if name not in ALTERNATIVES or str(value) != "0"
    }
    return {name: earlier for name, earlier in origins.items() if name not in new} | new


def _for_memory(tuned: Mapping[str, Any], memory: Any) -> dict[str, Any]:
    """The groups of ``tuned``, with the settings that it has for the requested memory."""
    changes = tuned.get("memories", {}).get(memory, {}) if isinstance(memory, str) else {}
    groups = {name: content for name, content in tuned.items() if name not in ("provenance", "memories")}
    return {**groups, **{name: {**groups.get(name, {}), **content} for name, content in changes.items() if name != "provenance"}}


def _fitting(tuned: Mapping[str, Any], requested: Mapping[str, Any]) -> dict[str, Any]:
    """The groups ``tuned`` without the settings that have no meaning with the ``requested`` ones: those of another memory, and those that
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
    if requested.get("distribution") == "beta":
        removed |= set(OF_NETWORKS["distribution"])
    for name, other in (("sde_every", "state_dependent_std"), ("state_dependent_std", "sde_every")):
        if str(requested.get(name) or 0).lower() not in ("0", "false", "no", "off"):
            removed.add(other)
    removed |= replaced_by_optimizers(requested.get("optimizer"), requested.get("critic_optimizer", "same"))
    return {group: {name: value for name, value in content.items() if name not in removed} for group, content in tuned.items()}


def shortened(config: Config) -> Config:
    """``config`` for a test of some seconds: three updates, then an evaluation of at most two short episodes."""
    steps, limit = SMOKE_UPDATES * config.batch_size, config.run.eval_max_steps or SMOKE_EPISODE
    changes = {"total_steps": steps, "eval_every": steps, "eval_max_steps": min(limit, SMOKE_EPISODE)}
    return validate(override(config, {**changes, "eval_episodes": min(2, config.run.eval_episodes)}))


def resume_warnings(before: Config, after: Config) -> list[str]:
    """What a resume with the settings ``after`` changes about a run that was saved with the settings ``before``."""
    sentences = {
        "total_steps": "schedules stretch over the new total, so this run differs from one that had the new total from the start.",
        "devices": "minibatches are drawn in other groups and sums are rounded in another order, so this run differs from the uninterrupted one; "
        "the learning problem stays the same.",
    }
    values = {name: (LEAVES[name].value_in(before), LEAVES[name].value_in(after)) for name in sentences}
    return [f"{name} {old} → {new}: {sentences[name]}" for name, (old, new) in values.items() if old != new]


def changed_for_resume(config: Config, settings: Mapping[str, Any]) -> Config:
    """``config`` of a saved run with the new values ``settings``. Raises ``ConfigError`` if a resumed run cannot change one of them."""
    check_names(settings)
    for name, value in settings.items():
        if name in ("id", "eval_env") and value and value == LEAVES[name].value_in(config):
            continue  # repeated, because a file must not name a function of an installed library
        if name not in RESUMABLE and not (name in custom_settings(config) and may_replace(config, name, value)):
            raise ConfigError(
                f"{'The environment' if name == 'id' else name} cannot change when a run is resumed (only {', '.join(sorted(RESUMABLE))} can): "
                "start a new run with --config RUN/config.yaml, another --name and the new value."
            )
    return validate(with_given(config, settings))
