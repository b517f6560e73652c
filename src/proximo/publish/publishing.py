"""Publishes the policy of a run, and fetches a published one as a run, which every command accepts."""

import dataclasses
import functools
import hashlib
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proximo.collect.environment import evaluation_environment
from proximo.config import LEAVES, Config, override
from proximo.config.validation import check_name
from proximo.errors import CheckpointError, ConfigError, ProximoError, RunDirectoryError, shown
from proximo.evaluation.evaluate import check_numbers, evaluate_policy
from proximo.evaluation.policy import load_policy
from proximo.publish import card, hub, manifest
from proximo.rendering.video import videos
from proximo.rendering.watching import film
from proximo.serialization import json_object, jsonable
from proximo.storage import checkpoint, run_directory, run_lookup, zoo
from proximo.storage.checkpoint import CONFIG, encode
from proximo.storage.named_folders import seed_run_dirs
from proximo.storage.run_directory import COMMAND, METRICS, SYSTEM
from proximo.storage.system_info import EXACT_VARIABLES
from proximo.tracking.progress import amount
from proximo.tracking.run_trackers import truncate_after

EPISODES = 100
CLIP_STEPS = 1000
"""Maximum number of steps of the clip: half a minute at the usual frame rate."""
OF_THE_MACHINE = ("runs_dir", "name", "track", "devices", "num_workers", "actors")
"""Settings that are not published, and not taken from what others have published."""
PULLED = "pulled.json"
"""The file of a pulled run with its source and the SHA-256 of its ``proximo.json``."""


@dataclasses.dataclass(frozen=True)
class Published:
    """The result of ``push``."""

    place: str
    """What ``proximo pull`` takes to download the policy."""
    evaluation: dict[str, Any] = dataclasses.field(repr=False)
    """What ``evaluation.json`` contains: the results of the greedy and the sampled actions."""
    files: tuple[str, ...]
    """Names of the published files."""
    warnings: tuple[str, ...]
    """Warnings, for example that the environment cannot draw a clip."""
    url: str | None = None
    """The page on the Hub; None for a folder."""


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

    The policy is evaluated on whole episodes, with its most probable and with sampled actions. It replaces an earlier
    publication in the same place.

    Args:
        run: A path, a name or ``last``, optionally with ``@best``, ``@last`` or ``@STEP``.
        to: A folder, or ``hf:OWNER/NAME`` on the Hub.
        episodes: Number of episodes of each evaluation.
        seed: Seed of the environments.
        levels: Levels to evaluate on, such as ``1000:1050``.
        env_settings: Parameters of the environment to change for the evaluation.
        clip: Record an episode, if the environment can be drawn.
        policy_only: Publish the networks and their normalizer, without the rest of the training state. The checkpoint
            is about a third as large; training continues from it with a new optimizer.
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
    (repository, revision), url = hub.parse(str(to)), None
    if revision is not None:
        raise ConfigError(f"{to}: push writes to the main branch: omit @ and the revision.")
    if repository is not None:
        url = hub.begin(repository, private)  # before the evaluation, which takes minutes
    elif private:
        raise ConfigError(f"private = True needs a repository on the Hub, hf:OWNER/NAME: {to} is a folder.")
    else:
        _install([], Path(to))
    # Read now, because a running training may delete the checkpoint during the evaluation.
    saved = checkpoint.load(path / "checkpoints" / str(policy.step))
    state = encode(saved.step, {"learner": {"policy": policy.actor_critic}}, saved.info) if policy_only else saved.files
    with tempfile.TemporaryDirectory(prefix="proximo-") as temporary:
        made = Path(temporary)
        on_progress(f"evaluating {path} at step {policy.step:,} on {amount(episodes, 'episode')}")
        evaluated = evaluate_policy(policy, episodes, seed=seed, levels=levels, env_settings=env_settings)
        summaries = {actions: episodes.summary() for actions, episodes in evaluated.episodes.items()}
        evaluation = jsonable({**evaluated.played, **summaries})
        warnings = [*evaluated.warnings]
        if clip:
            on_progress("recording an episode")
            env, config = evaluation_environment(policy.config, policy.env, None, env_settings, levels)
            try:
                film(dataclasses.replace(policy, env=env, config=config), made / manifest.CLIP, seed, CLIP_STEPS)
            except ProximoError as error:
                warnings.append(f"no clip was recorded: {error}")
        config = shareable(policy.config)
        system = json_object(path / SYSTEM)  # other variables may name folders of this machine
        system["environment"] = {k: v for k, v in system.get("environment", {}).items() if k in EXACT_VARIABLES}
        place = "path/to/this/folder" if repository is None else str(to)
        text = card.render(config, evaluation, place, (made / manifest.CLIP).is_file(), warnings)
        checkpoint.write(made / "checkpoints", policy.step, state)
        manifest.write_json(made / manifest.EVALUATION, evaluation)
        manifest.write_json(made / SYSTEM, system)
        (made / CONFIG).write_text(run_directory.render_config(config), encoding="utf-8")
        (made / manifest.CARD).write_text(text, encoding="utf-8")
        if (path / METRICS).is_file():
            shutil.copyfile(path / METRICS, made / METRICS)
            truncate_after(made / METRICS, policy.step)
        parts = path.resolve().parts[-2 if path.resolve() in seed_run_dirs(path.resolve().parent) else -1 :]
        name = re.sub(r"[^\w.+-]+", "-", "-".join(parts)).lstrip(".-") or "policy"
        names = manifest.write(made, name=name, environment=config.env.id, step=policy.step)
        if repository is None:
            _install([*made.iterdir()], Path(to))
        else:
            on_progress(f"uploading {len(names)} files")
            hub.upload(repository, made, config, evaluation)
    return Published(str(to), evaluation, names, tuple(warnings), url)


def pull(source: str | Path, *, name: str = "", trust_code: bool = False, runs_dir: str = "runs") -> Path:
    """Fetch a published policy as a run.

    Only files that ``proximo.json`` may list are copied, and verified by their SHA-256. None of them is code.

    Args:
        source: A folder, ``hf:OWNER/NAME`` or ``hf:OWNER/NAME@REVISION`` on the Hugging Face Hub, or ``zoo:NAME``.
        name: Name of the run; empty for its name when it was published.
        trust_code: Accept settings that name modules to import: environments, wrappers, networks, losses.
        runs_dir: Folder of all runs.

    Returns:
        The run directory ``runs_dir/<env>/<name>/``. If the same policy was pulled there before, that run.

    Raises:
        CheckpointError: The source is not a published policy, or is damaged.
        ConfigError: The settings name a module to import, and ``trust_code`` is False.
        RunDirectoryError: Another run has that name.
        HubError: The Hub cannot be reached or refuses.
    """
    source, (repository, revision) = str(source), hub.parse(str(source))
    with tempfile.TemporaryDirectory(prefix="proximo-") as temporary:
        folder, made = zoo.find(source) or Path(source), Path(temporary) / "made"
        if repository is not None:
            folder = Path(temporary) / "downloaded"
            hub.download(repository, revision, folder)
        found, files = manifest.read(folder)
        name, env_id = name or found["name"], found["environment"]
        check_name(name)
        for file, data in files.items():
            path = videos(made) / file if file == manifest.CLIP else made / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        try:
            config = run_directory.read_config(made)
            saved = checkpoint.load(made / "checkpoints" / found["step"])
            for part in ("", f"{checkpoint.POLICY}."):
                saved.values(part)
            if config.env.id != env_id:
                raise CheckpointError(f"its settings are for {config.env.id!r}, not for {shown(env_id)}.")
        except CheckpointError as error:  # with the name that the user gave instead of the temporary folder
            raise CheckpointError(f"{source} is damaged: {str(error).replace(f'{made}/', '')}") from error
        if (code := card.code_of(config)) and not trust_code:
            parts = ", ".join(f"the {setting} {value!r}" for setting, value in code.items())
            raise ConfigError(
                f"{source} has {parts}: {'a module' if len(code) == 1 else 'modules'} to import from your Python path. "
                "If you trust that code, pull with --trust-code (trust_code=True)."
            )
        # This machine has its workers, trackers and start time, by which `last` is chosen.
        (made / COMMAND).write_text(shlex.join(sys.argv) + "\n", encoding="utf-8")
        (made / CONFIG).write_text(run_directory.render_config(shareable(config)), encoding="utf-8")
        started = datetime.now(UTC).isoformat(timespec="microseconds")
        manifest.write_json(made / SYSTEM, {**json_object(made / SYSTEM), "started": started})
        sha256 = hashlib.sha256((folder / manifest.MANIFEST).read_bytes()).hexdigest()
        manifest.write_json(made / PULLED, {"source": source, "sha256": sha256})
        there = Path(runs_dir) / run_directory.file_name(env_id) / name
        if json_object(there / PULLED).get("sha256") == sha256:
            return there
        if there.exists():
            raise RunDirectoryError(f"{there} already exists and is another run: choose another --name.")
        return run_directory.create(Path(runs_dir), env_id, name, functools.partial(shutil.copytree, made, dirs_exist_ok=True))


def shareable(config: Config) -> Config:
    """``config`` without what belongs to one machine, and without trackers, which could be code."""
    return override(config, {name: LEAVES[name].default for name in OF_THE_MACHINE})


def _install(files: list[Path], folder: Path) -> None:
    """Copy ``files`` to ``folder``. They replace the earlier publication, and links; other files stay. First check that
    the folder can be written, and contains only a published policy and hidden files, such as ``.git``."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        other = min((path.name for path in folder.iterdir() if not path.name.startswith(".")), default=None)
        if other is not None and not (folder / manifest.MANIFEST).is_file():
            raise ConfigError(f"{folder} contains {other!r} but no {manifest.MANIFEST}: choose an empty folder.")
        for name in (manifest.CLIP, METRICS, *(file.name for file in files)) if files else ():
            if (folder / name).is_dir() and not (folder / name).is_symlink():
                shutil.rmtree(folder / name)
            (folder / name).unlink(missing_ok=True)
        for file in files:
            (shutil.copytree if file.is_dir() else shutil.copyfile)(file, folder / file.name)
    except OSError as error:
        raise RunDirectoryError(f"Cannot write to {folder} ({error.strerror}): choose another folder.") from error
