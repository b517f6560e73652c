"""Publishes a run: evaluates its policy, records a clip, and writes the files."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from proximo.collect.environment import evaluation_environment
from proximo.config import LEAVES, Config, override
from proximo.errors import ConfigError, ProximoError, RunDirectoryError
from proximo.evaluation.evaluate import check_numbers, evaluate_policy
from proximo.evaluation.policy import Policy, load_policy
from proximo.publish import card, hub, manifest
from proximo.rendering.watching import film
from proximo.serialization import json_object, jsonable
from proximo.storage import checkpoint, run_directory, run_lookup
from proximo.storage.atomic_files import move_files, sync_folder, write_synced
from proximo.storage.checkpoint_format import encode
from proximo.storage.named_folders import seed_run_dirs
from proximo.storage.run_directory import METRICS
from proximo.storage.system_info import EXACT_VARIABLES
from proximo.tracking.json_lines import truncate_after
from proximo.tracking.progress import amount

EPISODES = 100
CLIP_STEPS = 1000
"""Maximum number of steps of the clip: half a minute at the usual frame rate."""
WORKPLACE = ".proximo-push"
"""Subfolder in which the new content is prepared. The next push removes what an interrupted one left there."""


@dataclasses.dataclass(frozen=True)
class Published:
    """The result of ``push``."""

    place: str
    """What ``proximo pull`` takes to download the policy."""
    evaluation: dict[str, Any]
    """What ``evaluation.json`` contains: the results of the greedy and the sampled actions."""
    files: tuple[str, ...]
    """Names of the published files."""
    warnings: tuple[str, ...]
    """Warnings, for example that the environment cannot draw a clip."""
    url: str | None = None
    """The page on the Hub; None for a folder."""

    def __repr__(self) -> str:
        return f"Published({self.place!r}: {', '.join(self.files)})"


def push(
    run: str | Path,
    to: str | Path,
    *,
    episodes: int = EPISODES,
    seed: int = 0,
    levels: str | None = None,
    env_settings: dict[str, Any] | None = None,
    clip: bool = True,
    policy_only: bool = False,
    private: bool = False,
    runs_dir: str = "runs",
    on_progress: Callable[[str], None] = lambda sentence: None,
) -> Published:
    """Publish the policy of a run in a folder or on the Hugging Face Hub.

    The policy is evaluated on whole episodes, with its most probable and with sampled actions. An earlier publication in the same place
    is replaced.

    Args:
        run: A path, a name or ``last``, optionally with ``@best``, ``@last`` or ``@STEP``.
        to: A folder, or ``hf:OWNER/NAME`` on the Hub.
        episodes: Number of episodes of each evaluation.
        seed: Seed of the environments.
        levels: Levels to evaluate on, such as ``1000:1050``.
        env_settings: Parameters of the environment to change for the evaluation.
        clip: Record an episode, if the environment can be drawn.
        policy_only: Publish the networks and their normalizer, without the rest of the training state. The checkpoint is about a third as
            large; training continues from it with a new optimizer.
        private: Make a new repository on the Hub private.
        runs_dir: Folder of all runs.
        on_progress: Called with a description of each stage.

    Returns:
        The place, the evaluation, the files and warnings.

    Raises:
        CheckpointError: The run is unknown or damaged.
        ConfigError: An argument is invalid, or the folder contains anything other than a published policy.
        EnvError: The library of the Hub is not installed, or the environment cannot be made.
        RunDirectoryError: The folder cannot be written.
        HubError: The Hub cannot be reached or refuses.
    """
    check_numbers(episodes, seed)
    path, which = run_lookup.find_run(str(run), Path(runs_dir), with_zoo=False)
    policy = load_policy(f"{path}@{which}", runs_dir)
    repository, url = hub.parse(str(to)), None
    if repository is not None:
        url = hub.begin(repository, private)
    elif private:
        raise ConfigError(f"private = True needs a repository on the Hub, hf:OWNER/NAME: {to} is a folder.")
    else:
        _check_folder(Path(to), str(to))
    # Read now, because a running training may delete the checkpoint during the evaluation.
    checkpoint_files = _checkpoint(path, policy, policy_only)
    with _workplace(None if repository is not None else Path(to)) as made:
        on_progress(f"evaluating {path} at step {policy.step:,} on {amount(episodes, 'episode')}")
        evaluated = evaluate_policy(policy, episodes, seed=seed, levels=levels, env_settings=env_settings)
        evaluation = {**evaluated.played, **{mode: played.summary() for mode, played in evaluated.episodes.items()}}
        warnings = evaluated.warnings
        if clip:
            on_progress("recording an episode")
            warnings += _record(policy, made / manifest.CLIP, seed, levels, env_settings)
        place = None if repository is None else str(to)
        with _write_errors(to):
            _fill(
                made,
                path,
                policy,
                evaluation,
                checkpoint_files,
                card.CardContext(place, (made / manifest.CLIP).is_file(), tuple(warnings)),
            )
            files = tuple(sorted(file.relative_to(made).as_posix() for file in made.rglob("*") if file.is_file()))
            if repository is None:
                _install(made, Path(to))
        if repository is not None:
            on_progress(f"uploading {len(files)} files")
            hub.upload(repository, made, f"{policy.config.env.id} at step {policy.step:,}")
    return Published(str(to), jsonable(evaluation), files, tuple(warnings), url)


def _checkpoint(run_dir: Path, policy: Policy, policy_only: bool) -> dict[str, bytes]:
    """The files of the checkpoint of ``policy``, verified, by their paths in a run directory."""
    saved = checkpoint.load(run_dir / "checkpoints" / str(policy.step))
    files = encode(saved.step, {"learner": {"policy": policy.actor_critic}}, saved.info) if policy_only else saved.files
    return {f"checkpoints/{policy.step}/{name}": data for name, data in files.items()}


def _record(policy: Policy, path: Path, seed: int, levels: str | None, env_settings: dict[str, Any] | None) -> list[str]:
    """Record an episode as an mp4. Returns a warning if the environment cannot be drawn or ffmpeg is missing."""
    env, config = evaluation_environment(policy.config, policy.env, None, env_settings, levels)
    try:
        film(dataclasses.replace(policy, env=env, config=config), path, seed, CLIP_STEPS)
    except ProximoError as error:
        return [f"no clip was recorded: {error}"]
    return []


def _fill(
    folder: Path,
    run_dir: Path,
    policy: Policy,
    evaluation: dict[str, Any],
    checkpoint_files: Mapping[str, bytes],
    context: card.CardContext,
) -> None:
    """Write all files except the clip."""
    config, system = shareable(policy.config), _shareable_system(run_dir)
    texts = {
        manifest.CONFIG: run_directory.render_config(config),
        manifest.SYSTEM: json.dumps(system, indent=2) + "\n",
        manifest.EVALUATION: json.dumps(jsonable(evaluation), indent=1) + "\n",
        manifest.CARD: card.render(config, evaluation, system, context),
    }
    for name, content in {**{name: text.encode() for name, text in texts.items()}, **checkpoint_files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_synced(folder / name, content)
    if (run_dir / METRICS).is_file():
        shutil.copyfile(run_dir / METRICS, folder / METRICS)
        truncate_after(folder / METRICS, policy.step)
    manifest.write(folder, {"name": _name(run_dir), "environment": config.env.id, "step": policy.step})


def _name(run_dir: Path) -> str:
    """The name that the run has after it is pulled. For one of several seeds, it is the name of the parent folder and that of the seed."""
    path = run_dir.resolve()
    name = f"{path.parent.name}-{path.name}" if path in seed_run_dirs(path.parent) else path.name
    return re.sub(r"[^\w.+-]+", "-", name).lstrip(".-") or "policy"


OF_THE_MACHINE = ("runs_dir", "name", "track", "devices", "num_workers", "actors", "ray", "actor_cpus")
"""Settings that are not published, and not taken from what others have published."""


def shareable(config: Config) -> Config:
    """``config`` without what belongs to one machine: the folder and name of the run, workers, devices and the address of a Ray cluster; and
    without trackers, which could name code to import."""
    return override(config, {name: LEAVES[name].default for name in OF_THE_MACHINE})


def _shareable_system(run_dir: Path) -> dict[str, Any]:
    """The recorded system of a run without variables that may name folders of this machine. Empty if there is no record."""
    recorded = json_object(run_dir / "system.json")
    variables = recorded.get("environment")
    if not isinstance(variables, dict):
        return {}
    return {**recorded, "environment": {name: text for name, text in variables.items() if name in EXACT_VARIABLES}}


def _check_folder(folder: Path, given: str) -> None:
    """Raise ``ConfigError`` if ``folder`` contains links, or anything other than a published policy."""
    if given == "":
        raise ConfigError("No folder given: expected an empty folder, or hf:OWNER/NAME.")
    with _write_errors(folder):
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{folder} is a file: choose a folder.")
        content = sorted(path.name for path in folder.iterdir() if path.name != WORKPLACE) if folder.is_dir() else []
        if content and not (folder / manifest.MANIFEST).is_file():
            raise ConfigError(
                f"{folder} contains {content[0]!r} but no {manifest.MANIFEST}, so it is not a published policy: choose an empty folder."
            )
        if content:
            for name in manifest.read(folder)["files"]:
                manifest.check_no_link(folder, name)


@contextlib.contextmanager
def _write_errors(folder: str | Path) -> Iterator[None]:
    """Convert an operating system's error to ``RunDirectoryError``."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a name that contains a null character
        reason = getattr(error, "strerror", None) or error
        raise RunDirectoryError(f"Cannot write to {folder} ({reason}): choose another folder.") from error


@contextlib.contextmanager
def _workplace(folder: Path | None) -> Iterator[Path]:
    """An empty temporary folder, on the same disk as ``folder`` if that is given."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="proximo-") as place:
            yield Path(place)
        return
    made, existed = folder / WORKPLACE, folder.is_dir()
    with _write_errors(folder):
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        if not existed:
            with contextlib.suppress(OSError):
                folder.rmdir()  # removes the folder only if it is still empty


def _install(made: Path, folder: Path) -> None:
    """Move the new files to ``folder``. They replace the earlier publication; other files, such as those of a repository, stay."""
    before = manifest.read(folder)["files"] if (folder / manifest.MANIFEST).is_file() else {}
    # Removed first: after a crash, the folder counts as not published instead of damaged. Its other files are still there.
    (folder / manifest.MANIFEST).unlink(missing_ok=True)
    move_files(made, folder, last=manifest.MANIFEST)
    for name in set(before) - set(manifest.read(folder)["files"]):
        (folder / name).unlink(missing_ok=True)
        if "/" in name:
            with contextlib.suppress(OSError):
                (folder / name).parent.rmdir()
    sync_folder(folder)
