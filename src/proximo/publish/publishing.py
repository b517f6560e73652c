"""From a run to a folder that is ready to publish: judged, filmed, described."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proximo.config import Config, override
from proximo.envs.registry import is_own_class
from proximo.errors import ConfigError, ProximoError, RunDirectoryError
from proximo.publish import card, hub, manifest
from proximo.run import directory
from proximo.run.files import plain, sync_folder, write_synced
from proximo.run.judgement import judge
from proximo.run.policy import Policy, load_policy
from proximo.run.sinks import METRICS, truncate_after
from proximo.run.system import published
from proximo.run.watching import film

EPISODES = 100
CLIP_STEPS = 1000
"""After which the episode of the clip is cut: half a minute at the usual pace."""


@dataclasses.dataclass(frozen=True)
class Published:
    """Where a policy went, as `proximo pull` takes it, what was measured, and what is to be said."""

    place: str
    evaluation: dict[str, Any]
    files: tuple[str, ...]
    warnings: tuple[str, ...]


def push(
    run: str,
    to: str | Path,
    *,
    episodes: int = EPISODES,
    seed: int = 0,
    levels: str | None = None,
    env_settings: dict[str, Any] | None = None,
    clip: bool = True,
    private: bool = False,
    runs_dir: str = "runs",
    said: Callable[[str], None] = lambda sentence: None,
) -> Published:
    """Publish the policy of ``run`` (as ``last@best``) into a folder, or as ``hf:OWNER/NAME`` on the Hugging Face Hub.

    It is judged on ``episodes`` whole episodes, greedy and sampled (``seed``, ``levels`` and ``env_settings`` as in ``evaluate``), and one is
    filmed where the environment draws. What was published there before by this function is replaced. ``said`` is told
    what is done. Raises ``ConfigError`` for a folder that holds anything else, ``EnvError`` without the library of the Hub,
    ``hub.HubError`` where it refuses, ``CheckpointError`` for what is no run.
    """
    repository = hub.parse(str(to))
    folder = Path(to)
    if repository is not None:
        hub.hold(repository)
    else:
        if private:
            raise ConfigError(f"private is for the Hub, as hf:OWNER/NAME: {to} is a folder.")
        _hold_folder(folder)
    policy = load_policy(run, runs_dir)
    run_dir = directory.resolve(run, Path(runs_dir))[0]
    said(f"judging {run_dir} at step {policy.step:,} on {episodes} episodes")
    judgement = judge(policy, episodes, seed=seed, levels=levels, env_settings=env_settings)
    evaluation = {**judgement.played, **{how: played.summary() for how, played in judgement.episodes.items()}}
    warnings = [*policy.warnings, *_unfinished(evaluation), *judgement.episodes["greedy"].warnings]
    with _workplace(folder if repository is None else None) as made:
        if clip:
            said("filming an episode")
            warnings += _film(policy, made / manifest.CLIP, seed)
        _fill(made, run_dir, policy, evaluation, None if repository is None else str(to))
        files = tuple(sorted(path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()))
        if repository is None:
            _install(made, folder)
        else:
            said(f"uploading {len(files)} files")
            hub.upload(repository, made, f"{policy.config.env.id} at step {policy.step:,}", private)
    return Published(str(to), plain(evaluation), files, tuple(warnings))


def _unfinished(evaluation: dict[str, Any]) -> list[str]:
    hows = [how for how in ("greedy", "sampled") if evaluation[how].get("unfinished")]
    return [f"{evaluation[how]['unfinished']} {how} episodes did not end and count as they stood." for how in hows]


def _film(policy: Policy, path: Path, seed: int) -> list[str]:
    """An episode of the seed as an mp4, as `proximo watch` shows it; why not, where the environment draws nothing or ffmpeg is missing."""
    try:
        film(policy, path, seed, CLIP_STEPS)
    except ProximoError as error:
        return [f"there is no clip: {error}"]
    return []


def _fill(folder: Path, run_dir: Path, policy: Policy, evaluation: dict[str, Any], place: str | None) -> None:
    """Everything but the clip."""
    config, step = shareable(policy.config), str(policy.step)
    system = published(run_dir)
    write_synced(folder / manifest.CONFIG, directory.render_config(config).encode())
    write_synced(folder / manifest.SYSTEM, (json.dumps(system, indent=2) + "\n").encode())
    write_synced(folder / manifest.EVALUATION, (json.dumps(plain(evaluation), indent=1) + "\n").encode())
    if (run_dir / METRICS).is_file():
        shutil.copyfile(run_dir / METRICS, folder / METRICS)
        truncate_after(folder / METRICS, policy.step)
    shutil.copytree(run_dir / "checkpoints" / step, folder / "checkpoints" / step)
    has_clip = (folder / manifest.CLIP).is_file()
    own = is_own_class(config.env.id)
    write_synced(folder / manifest.CARD, card.render(config, evaluation, system, place, has_clip, own).encode())
    manifest.write(folder, {"name": _name(run_dir), "environment": config.env.id, "step": policy.step})


def _name(run_dir: Path) -> str:
    """What the run is called when it is pulled: a seed of a group by the group's name too."""
    path = run_dir.resolve()
    return f"{path.parent.name}-{path.name}" if path.parent.joinpath(path.name) in directory.members(path.parent) else path.name


def shareable(config: Config) -> Config:
    """``config`` without what belongs to one machine or could name somebody's code to run: folder and name of the run, sinks."""
    defaults = Config().run
    return override(config, {name: getattr(defaults, name) for name in ("runs_dir", "name", "track")})


def _hold_folder(folder: Path) -> None:
    """Raise ``ConfigError`` where ``folder`` holds anything but what was published there."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: choose a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / manifest.MANIFEST).is_file():
        strange = min(path.name for path in folder.iterdir())
        raise ConfigError(
            f"{folder} holds {strange!r} and no {manifest.MANIFEST}, so it is no published policy: choose an empty folder."
        )


class _workplace:  # noqa: N801
    """Context manager: an empty folder to fill, beside ``folder`` (renames must stay on one disk), or anywhere for None."""

    def __init__(self, folder: Path | None):
        self._beside = None if folder is None else folder.resolve()
        self._path: Path

    def __enter__(self) -> Path:
        try:
            if self._beside is None:
                self._path = Path(tempfile.mkdtemp(prefix="proximo-"))
            else:
                self._path = self._beside.with_name(f".{self._beside.name}-{secrets.token_hex(4)}")
                self._path.mkdir(parents=True)
        except OSError as error:
            raise RunDirectoryError(
                f"Cannot make {self._beside or tempfile.gettempdir()} ({error.strerror}): choose another folder."
            ) from error
        return self._path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def _install(made: Path, folder: Path) -> None:
    """Move what was made into ``folder``, in place of what was published there; other files in it (a repository's) stay."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / manifest.MANIFEST).is_file():
            old = manifest.read(folder)["files"]
            # First, so that a crash leaves a folder that says it is none rather than a damaged one.
            (folder / manifest.MANIFEST).unlink()
            for name in old:
                (folder / name).unlink(missing_ok=True)
            for step in {(folder / name).parent for name in old if "/" in name}:
                step.rmdir()
        for path in sorted(made.rglob("*"), key=lambda path: path.name == manifest.MANIFEST):
            if path.is_file():
                target = folder / path.relative_to(made)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, target)
        sync_folder(folder)
    except OSError as error:
        raise RunDirectoryError(f"Cannot write into {folder} ({error.strerror}): choose another folder.") from error
