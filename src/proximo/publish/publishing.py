"""From a run to a folder that is ready to publish: judged, filmed, described."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from proximo.config import Config, override
from proximo.errors import CheckpointError, ConfigError, ProximoError, RunDirectoryError
from proximo.publish import card, hub, manifest
from proximo.run import checkpoint, directory
from proximo.run.files import plain, sync_folder, write_synced
from proximo.run.judgement import judge, judging_environment, told_unfinished
from proximo.run.policy import Policy, load_policy
from proximo.run.sinks import METRICS, truncate_after
from proximo.run.system import published
from proximo.run.watching import film

EPISODES = 100
CLIP_STEPS = 1000
"""After which the episode of the clip is cut: half a minute at the usual pace."""
WORKPLACE = ".proximo-push"
"""Where a folder's new content is made, within it; what a killed push has left there goes with the next one."""


@dataclasses.dataclass(frozen=True)
class Published:
    """Where a policy went, as `proximo pull` takes it, what was measured, and what is to be said."""

    place: str
    evaluation: dict[str, Any]
    files: tuple[str, ...]
    warnings: tuple[str, ...]
    url: str | None = None
    """The page on the Hub."""


def push(
    run: str | Path,
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
    filmed in the same environment where it draws. What was published there before by this function is replaced. ``said`` is told
    what is done. Raises ``ConfigError`` for a folder or repository that holds anything else, ``EnvError`` without the library of the Hub,
    ``hub.HubError`` where it refuses, ``CheckpointError`` for what is no run.
    """
    path, which = directory.resolve(str(run), Path(runs_dir))
    policy = load_policy(f"{path}@{which}", runs_dir)
    repository, url = hub.parse(str(to)), None
    if repository is not None:
        url = hub.begin(repository, private)
    elif private:
        raise ConfigError(f"private is for the Hub, as hf:OWNER/NAME: {to} is a folder.")
    else:
        _hold_folder(Path(to), str(to))
    # Read before minutes of judging, in which a training may drop it.
    taken = _checkpoint(path, policy.step)
    with _workplace(None if repository is not None else Path(to)) as made:
        said(f"judging {path} at step {policy.step:,} on {episodes} episodes")
        judgement = judge(policy, episodes, seed=seed, levels=levels, env_settings=env_settings)
        evaluation = {**judgement.played, **{how: played.summary() for how, played in judgement.episodes.items()}}
        warnings = [*policy.warnings, *told_unfinished(judgement), *judgement.episodes["greedy"].warnings]
        if clip:
            said("filming an episode")
            warnings += _film(policy, made / manifest.CLIP, seed, levels, env_settings)
        place = None if repository is None else str(to)
        with _told(to):
            _fill(made, path, policy, evaluation, taken, card.Said(place, (made / manifest.CLIP).is_file(), tuple(warnings)))
            files = tuple(sorted(file.relative_to(made).as_posix() for file in made.rglob("*") if file.is_file()))
            if repository is None:
                _install(made, Path(to))
        if repository is not None:
            said(f"uploading {len(files)} files")
            hub.upload(repository, made, f"{policy.config.env.id} at step {policy.step:,}")
    return Published(str(to), plain(evaluation), files, tuple(warnings), url)


def _checkpoint(run_dir: Path, step: int) -> dict[str, bytes]:
    """The files of a checkpoint that is whole."""
    folder = run_dir / "checkpoints" / str(step)
    checkpoint.verify(folder)
    try:
        return {f"checkpoints/{step}/{name}": (folder / name).read_bytes() for name in (checkpoint.STATE, checkpoint.META)}
    except OSError as error:
        raise CheckpointError(f"Cannot read {folder} ({error.strerror}).") from error


def _film(policy: Policy, path: Path, seed: int, levels: str | None, env_settings: dict[str, Any] | None) -> list[str]:
    """An episode as an mp4, as `proximo watch` shows it; why not, where the environment draws nothing or ffmpeg is missing."""
    env, config = judging_environment(policy, levels, env_settings or {})
    try:
        film(dataclasses.replace(policy, env=env, config=config), path, seed, CLIP_STEPS)
    except ProximoError as error:
        return [f"there is no clip: {error}"]
    return []


def _fill(
    folder: Path, run_dir: Path, policy: Policy, evaluation: dict[str, Any], taken: Mapping[str, bytes], said: card.Said
) -> None:
    """Everything but the clip."""
    config, system = shareable(policy.config), published(run_dir)
    texts = {
        manifest.CONFIG: directory.render_config(config),
        manifest.SYSTEM: json.dumps(system, indent=2) + "\n",
        manifest.EVALUATION: json.dumps(plain(evaluation), indent=1) + "\n",
        manifest.CARD: card.render(config, evaluation, system, said),
    }
    for name, content in {**{name: text.encode() for name, text in texts.items()}, **taken}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_synced(folder / name, content)
    if (run_dir / METRICS).is_file():
        shutil.copyfile(run_dir / METRICS, folder / METRICS)
        truncate_after(folder / METRICS, policy.step)
    manifest.write(folder, {"name": _name(run_dir), "environment": config.env.id, "step": policy.step})


def _name(run_dir: Path) -> str:
    """What the run is called when it is pulled: a seed of a group by the group's name too."""
    path = run_dir.resolve()
    name = f"{path.parent.name}-{path.name}" if path in directory.members(path.parent) else path.name
    return re.sub(r"[^\w.+-]+", "-", name).lstrip(".-") or "policy"


def shareable(config: Config) -> Config:
    """``config`` without what belongs to one machine or could name somebody's code to run: folder and name of the run, sinks."""
    defaults = Config().run
    return override(config, {name: getattr(defaults, name) for name in ("runs_dir", "name", "track")})


def _hold_folder(folder: Path, given: str) -> None:
    """Raise ``ConfigError`` where ``folder`` holds anything but what was published there, or leads elsewhere."""
    if given == "":
        raise ConfigError("No folder given: name an empty one, or hf:OWNER/NAME.")
    with _told(folder):
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{folder} is a file: choose a folder.")
        content = sorted(path.name for path in folder.iterdir() if path.name != WORKPLACE) if folder.is_dir() else []
        if content and not (folder / manifest.MANIFEST).is_file():
            raise ConfigError(
                f"{folder} holds {content[0]!r} and no {manifest.MANIFEST}, so it is no published policy: choose an empty folder."
            )
        if content:
            for name in manifest.read(folder)["files"]:
                manifest.hold_no_link(folder, name)


@contextlib.contextmanager
def _told(folder: str | Path) -> Iterator[None]:
    """A system that does not let us read or write, as one sentence."""
    try:
        yield
    except (OSError, ValueError) as error:  # a name with a zero in it is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise RunDirectoryError(f"Cannot write into {folder} ({reason}): choose another folder.") from error


@contextlib.contextmanager
def _workplace(folder: Path | None) -> Iterator[Path]:
    """An empty folder to fill: within ``folder``, which may be a disk of its own, or anywhere for None."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="proximo-") as place:
            yield Path(place)
        return
    made, existed = folder / WORKPLACE, folder.is_dir()
    with _told(folder):
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        if not existed:
            with contextlib.suppress(OSError):
                folder.rmdir()  # it is empty where this came to nothing


def _install(made: Path, folder: Path) -> None:
    """Move what was made into ``folder``, in place of what was published there; other files in it (a repository's) stay."""
    before = manifest.read(folder)["files"] if (folder / manifest.MANIFEST).is_file() else {}
    # First, so that a crash leaves a folder that is told to be none rather than one that is damaged. What it holds is all there still.
    (folder / manifest.MANIFEST).unlink(missing_ok=True)
    new = sorted((file for file in made.rglob("*") if file.is_file()), key=lambda file: file.name == manifest.MANIFEST)
    for file in new:
        target = folder / file.relative_to(made)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, target)
    for name in set(before) - set(manifest.read(folder)["files"]):
        (folder / name).unlink(missing_ok=True)
        if "/" in name:
            with contextlib.suppress(OSError):
                (folder / name).parent.rmdir()
    sync_folder(folder)
