"""Publishes the policy of a run, and fetches a published one as a run, which every command accepts."""

import dataclasses
import functools
import hashlib
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proximo.collect.environment import evaluation_environment
from proximo.config import LEAVES, Config, override
from proximo.config.validation import check_name
from proximo.errors import CheckpointError, ConfigError, ProximoError, RunDirectoryError, instead_of_os_errors, shown
from proximo.evaluation.evaluate import check_numbers, evaluate_policy
from proximo.evaluation.policy import load_policy
from proximo.publish import card, hub, manifest
from proximo.publish.manifest import CARD, CLIP, EVALUATION, MANIFEST
from proximo.rendering.video import videos
from proximo.rendering.watching import film
from proximo.serialization import dump_json, json_lines, json_object, jsonable
from proximo.storage import checkpoint, run_directory, run_lookup, zoo
from proximo.storage.atomic_files import remove
from proximo.storage.checkpoint import CONFIG, encode
from proximo.storage.named_folders import names_of
from proximo.storage.run_directory import COMMAND, METRICS, SYSTEM
from proximo.storage.system_info import EXACT_VARIABLES
from proximo.tracking.progress import amount
from proximo.tracking.run_trackers import read_rows

__all__ = ["Published", "pull", "push"]

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
        _install({}, Path(to))
    # Read now, because a running training may delete the checkpoint during the evaluation.
    saved = checkpoint.load(path / "checkpoints" / str(policy.step))
    state = encode(saved.step, {"learner": {"policy": policy.actor_critic}}, saved.info) if policy_only else saved.files
    files = {f"checkpoints/{saved.step}/{name}": data for name, data in state.items()}
    on_progress(f"evaluating {path} at step {policy.step:,} on {amount(episodes, 'episode')}")
    evaluated = evaluate_policy(policy, episodes, seed=seed, levels=levels, env_settings=env_settings)
    summaries = {actions: episodes.summary() for actions, episodes in evaluated.episodes.items()}
    evaluation = jsonable({**evaluated.played, **summaries})
    warnings = [*evaluated.warnings]
    config = shareable(policy.config)
    with tempfile.TemporaryDirectory(prefix="proximo-") as temporary:
        if clip:
            on_progress("recording an episode")
            env, changed = evaluation_environment(policy.config, policy.env, None, env_settings, levels)
            filmed = Path(temporary) / CLIP
            try:
                film(dataclasses.replace(policy, env=env, config=changed), filmed, seed, CLIP_STEPS)
                files[CLIP] = filmed.read_bytes()
            except ProximoError as error:
                warnings.append(f"no clip was recorded: {error}")
        system = json_object(path / SYSTEM)  # other variables may name folders of this machine
        system["environment"] = {k: v for k, v in system.get("environment", {}).items() if k in EXACT_VARIABLES}
        if rows := [row for row in read_rows(path / METRICS) if row["step"] <= policy.step]:
            files[METRICS] = json_lines(rows)
        place = "path/to/this/folder" if repository is None else str(to)
        files |= {
            EVALUATION: dump_json(evaluation).encode(),
            SYSTEM: dump_json(system).encode(),
            CONFIG: run_directory.render_config(config).encode(),
            CARD: card.render(config, evaluation, place, CLIP in files, warnings).encode(),
        }
        name = re.sub(r"[^\w.+-]+", "-", "-".join(names_of(path))).lstrip(".-") or "policy"
        files[MANIFEST] = manifest.listing(files, name=name, environment=config.env.id, step=policy.step)
        if repository is None:
            _install(files, Path(to))
        else:
            on_progress(f"uploading {len(files)} files")
            _write(files, made := Path(temporary) / "made")
            hub.upload(repository, made, config, evaluation)
    return Published(str(to), evaluation, tuple(sorted(files)), tuple(warnings), url)


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
        if clip := files.pop(CLIP, None):
            files[(videos(Path()) / CLIP).as_posix()] = clip
        _write(files, made)
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
        sha256 = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
        # This machine has its workers, trackers and start time, by which `last` is chosen.
        written = {
            COMMAND: shlex.join(sys.argv) + "\n",
            CONFIG: run_directory.render_config(shareable(config)),
            SYSTEM: run_directory.render_system({**json_object(made / SYSTEM), "started": None}),
            PULLED: dump_json({"source": source, "sha256": sha256}),
        }
        _write({name: text.encode() for name, text in written.items()}, made)
        there = Path(runs_dir) / run_directory.file_name(env_id) / name
        if json_object(there / PULLED).get("sha256") == sha256:
            return there
        if there.exists():
            raise RunDirectoryError(f"{there} already exists and is another run: choose another --name.")
        return run_directory.create(Path(runs_dir), env_id, name, functools.partial(shutil.copytree, made, dirs_exist_ok=True))


def shareable(config: Config) -> Config:
    """``config`` without what belongs to one machine, and without trackers, which could be code."""
    return override(config, {name: LEAVES[name].default for name in OF_THE_MACHINE})


def _install(files: Mapping[str, bytes], folder: Path) -> None:
    """Write ``files`` to ``folder``. They replace the earlier publication, and links; other files stay. First check that
    the folder can be written, and contains only a published policy and hidden files, such as ``.git``."""
    with instead_of_os_errors(RunDirectoryError, f"Cannot write to {folder}", "choose another folder."):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        run_directory.check_replaceable(folder, MANIFEST)
        for name in {CLIP, METRICS, *(name.partition("/")[0] for name in files)} if files else ():
            remove(folder / name)
        _write(files, folder)


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
