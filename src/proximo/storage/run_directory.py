"""Run directories: their files, how they are created, locked and saved, and their settings."""

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import filelock

from proximo.config import LEAVES, Config, custom_settings, from_mapping, may_replace, override, to_mapping
from proximo.config.custom import Custom
from proximo.config.loading import RESUMABLE
from proximo.errors import CheckpointError, ConfigError, RunDirectoryError, command, instead_of_os_errors, nearest
from proximo.serialization import JsonObject, dump_json, dump_yaml, json_lines, json_object, read_yaml
from proximo.storage import checkpoint, zoo
from proximo.storage.atomic_files import remove, remove_folder, sync_folder, write_atomic
from proximo.storage.checkpoint import CONFIG, META, ONLY, STATE, Checkpoint, encode, only_checkpoint
from proximo.storage.system_info import system_info
from proximo.types import TrainState

METRICS, HISTOGRAMS, COMMAND, SYSTEM = "metrics.jsonl", "histograms.jsonl", "command.txt", "system.json"
FAILURE = "failure.txt"
"""File with the reason, if NaN or infinity stopped the run."""
STOPPED = "stopped.txt"
"""File that says where a callback has stopped the run."""
FIXED = sorted(LEAVES.keys() - RESUMABLE - {"runs_dir", "name"})
"""The settings that a resume may not change."""
OWNER = ".lock.json"
"""File that names the process with the lock. A killed process leaves it, but not the lock."""
SAVED = "# saved from Python\n"
"""The ``command.txt`` of a saved agent. It is the first file of a save."""
DERIVED = ("export", "videos", "report.html", "report.png", "report.csv")
"""What commands have made from an earlier agent in the same folder."""
PUBLISHED = "proximo.json"
"""File that marks a published policy, maybe of a stranger: `proximo pull` checks what code its settings would import."""
HEADER = "# The resolved settings of this run. The file is a valid --config: proximo train --config config.yaml --name another\n"


def create(runs_dir: Path, env_id: str, name: str, fill: Callable[[Path], object], flag: str = "--runs-dir") -> Path:
    """Create ``runs_dir/<env>/<name>/`` with the files that ``fill`` writes into the folder that it is given, or nothing.
    Without a ``name``, the run is named by date and time. ``flag`` sets another ``runs_dir``, for messages.

    Raises ``RunDirectoryError`` if a run of that name exists, or if the folder cannot be created.
    """
    parent, clashes = runs_dir / file_name(env_id), 1
    base = name or datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    run_dir, hidden = parent / base, parent / f".{base}-{secrets.token_hex(4)}"
    try:
        # Hidden until it is complete: a kill before that would leave a run that no command can use.
        hidden.mkdir(parents=True)
        fill(hidden)
        while hidden.exists():
            try:
                os.rename(hidden, run_dir)  # also over an empty folder
            except OSError:
                if name or not run_dir.exists():
                    raise
                clashes += 1
                run_dir = parent / f"{base}-{clashes}"
        sync_folder(parent)
    except OSError as error:
        if run_dir.exists() and hidden.exists():  # else only its renaming is not on the disk yet
            resume = command("--resume", run_dir)
            raise RunDirectoryError(f"{run_dir} exists already: continue it with `{resume}`, or choose another --name.") from None
        raise RunDirectoryError(f"Cannot create {run_dir} ({error.strerror}): choose another {flag}.") from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)  # already renamed if all went well
    return run_dir


def file_name(env_id: str) -> str:
    """The id of an environment as a name of a file or folder, which cannot have all of its characters."""
    return re.sub(r"[^\w.+-]+", "-", env_id).lstrip(".") or "env"


def render_config(config: Config) -> str:
    """The text of config.yaml."""
    return HEADER + dump_yaml(to_mapping(config))


def write_start_files(run_dir: Path, config: Config, command: str, system: Mapping[str, Any]) -> None:
    """Write config.yaml, command.txt and system.json."""
    run_dir.mkdir(exist_ok=True)
    write_atomic(run_dir / CONFIG, render_config(config))
    write_atomic(run_dir / COMMAND, command.rstrip("\n") + "\n")
    write_atomic(run_dir / SYSTEM, render_system(system))


def render_system(system: Mapping[str, Any]) -> str:
    """The text of system.json, with the time of the start, by which ``last`` is chosen."""
    started = system.get("started") or datetime.now(UTC).isoformat(timespec="microseconds")
    return dump_json({**system, "started": started})


def note_resume(run_dir: Path, config: Config, command: str) -> None:
    """Append ``command`` to command.txt, and make ``config`` the settings of the run."""
    write_atomic(run_dir / CONFIG, render_config(config))
    earlier = (run_dir / COMMAND).read_text(encoding="utf-8") if (run_dir / COMMAND).exists() else ""
    write_atomic(run_dir / COMMAND, earlier + command.rstrip("\n") + "\n")


def read_config(run_dir: Path, custom: Mapping[str, Any] | None = None) -> Config:
    """The settings of a run. The objects ``custom``, by the name of their setting, replace the training's.

    Raises ``CheckpointError`` if ``config.yaml`` is missing or damaged, and ``ConfigError`` if ``custom`` does not fit.
    """
    if (run_dir / PUBLISHED).is_file() and not zoo.contains(run_dir):
        raise CheckpointError(f"{run_dir} is a published policy: make a run of it with `{command('proximo', 'pull', run_dir)}`.")
    copy = (only_checkpoint(run_dir / "checkpoints") or run_dir) / CONFIG  # during a save, config.yaml may be of another agent
    config = _read_file(copy if copy.is_file() else run_dir / CONFIG)
    trained_with = custom_settings(config)
    for name, value in (custom or {}).items():
        if name not in trained_with:
            was = f"{name} is {LEAVES[name].value_in(config)}" if name in LEAVES else f"there is no setting {name!r}"
            hint = nearest(name, trained_with)
            raise ConfigError(f"{name} = {value!r}: this run has no custom object there, {was}{hint}. Its other settings stay.")
        if not may_replace(config, name, value):
            given = value if isinstance(value, str) else Custom(value)
            raise ConfigError(
                f"{name} = {given}: this run was trained with {trained_with[name]} and continues with it: leave it out."
            )
    return override(config, custom or {})


def check_settings(saved: Checkpoint, config: Config, run_dir: Path) -> None:
    """Raise ``ConfigError`` if the user has changed a setting of ``run_dir`` that the checkpoint was trained with. A published
    policy has no copy of its settings: its files are verified when it is pulled."""
    file, copy = run_dir / CONFIG, saved.path / CONFIG
    if not copy.is_file() or (file.is_file() and file.read_bytes() == copy.read_bytes()):
        return
    trained = _read_file(copy)
    for name in FIXED:
        before, now = LEAVES[name].value_in(trained), LEAVES[name].value_in(config)
        if before != now and not (name in custom_settings(trained) and may_replace(trained, name, now)):
            raise ConfigError(
                f"{name} = {now} in {file}, but its checkpoint was trained with {before}: restore the value, or start a new run with "
                f"--config {file} and another --name."
            )


def _read_file(path: Path) -> Config:
    try:
        with instead_of_os_errors(CheckpointError, f"Cannot read {path}", f"is {path.parent} a run directory?"):
            content = path.read_bytes()
        return from_mapping(read_yaml(content), Config(), str(path))
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged, it is not valid YAML: {error}") from error
    except ConfigError as error:
        raise CheckpointError(f"{error} The file was edited, or written by another version of proximo.") from error


@contextlib.contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """In this context, only this process writes into ``run_dir``. The operating system ends the lock with the process.

    Raises ``RunDirectoryError`` if another process has the lock, or if the folder cannot be written.
    """
    if not run_dir.is_dir():  # filelock would create it
        raise RunDirectoryError(f"Cannot lock {run_dir}: there is no such run directory.")
    started = datetime.now().isoformat(sep=" ", timespec="seconds")
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "started": started}
    lock = filelock.FileLock(run_dir / ".lock", timeout=0)
    with writing(run_dir):
        try:
            lock.acquire()
        except filelock.Timeout:
            owner = {**dict.fromkeys(owner, "?"), **json_object(run_dir / OWNER)}
            raise RunDirectoryError(
                f"{run_dir} is in use by process {owner['pid']} on {owner['host']} (since {owner['started']}): two processes cannot write "
                "into one run. Stop that process, or start a new run with another --name (an agent: save it into another folder)."
            ) from None
    try:
        with writing(run_dir):
            write_atomic(run_dir / OWNER, json.dumps(owner))
        yield
    finally:
        with contextlib.suppress(OSError):
            (run_dir / OWNER).unlink()
        lock.release()


def in_use(run_dir: Path) -> bool:
    """Whether a process trains in ``run_dir``. True also if the lock belongs to another user."""
    if not (run_dir / OWNER).exists():
        return False
    try:
        with filelock.FileLock(run_dir / ".lock", timeout=0):
            return False
    except (filelock.Timeout, OSError):
        return True


def writing(run_dir: Path, kind: type[Exception] = RunDirectoryError) -> contextlib.AbstractContextManager[None]:
    """In this context, an ``OSError`` becomes an error of this ``kind`` that names ``run_dir``."""
    return instead_of_os_errors(kind, f"Cannot write into {run_dir}", "check its disk and its permissions.")


def save_run(
    folder: Path,
    config: Config,
    step: int,
    state: TrainState,
    evaluation: JsonObject | None = None,
    rows: Sequence[dict] = (),
) -> Path:
    """Write a run directory that every command and ``proximo.load`` accept. Replaces what was saved in ``folder``.

    After a crash at any moment, ``folder`` has the earlier agent or the new one. All files of the new one are in its
    checkpoint, ``checkpoints/<step>.only``. ``finish`` then puts them in their places.

    Raises ``ConfigError`` if ``folder`` contains other files, ``RunDirectoryError`` if another process saves into it, and
    ``CheckpointError`` if it cannot be written.
    """
    files = {
        **encode(step, state, {"best": None, "evaluation": evaluation}, render_config(config)),
        METRICS: json_lines(rows),
        SYSTEM: render_system(system_info()).encode(),
    }
    return write_run(folder, step, files)


def write_run(folder: Path, step: int, files: dict[str, bytes]) -> Path:
    """Write the ``files`` of an agent, as ``save_run`` does."""
    command = folder / COMMAND
    with instead_of_os_errors(CheckpointError, f"Cannot write into {folder}", "choose another folder."):
        if command.is_file() and command.read_text(encoding="utf-8") != SAVED:
            raise ConfigError(f"{folder} is the run of a training, which saving would replace: choose another folder.")
        check_replaceable(folder, COMMAND)
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            write_atomic(command, SAVED)
            finish(folder)
            checkpoint.write(folder / "checkpoints", step, files, ONLY)
            for name in DERIVED:
                remove(folder / name)
            finish(folder)
    return folder


def check_replaceable(folder: Path, marker: str) -> None:
    """Raise ``ConfigError`` if ``folder`` contains files that are not hidden, but not the file ``marker`` of what would be replaced."""
    other = min((path.name for path in folder.glob("[!.]*")), default=None)
    if other is not None and not (folder / marker).is_file():
        raise ConfigError(
            f"{folder} contains {other!r} but no {marker}: choose an empty folder, or one that was written to before."
        )


def finish(folder: Path) -> None:
    """Finish a save of an agent, if one was begun: move the files of its checkpoint into ``folder``, and remove the other
    checkpoints. The caller must hold the lock of the run."""
    checkpoints = folder / "checkpoints"
    if (only := only_checkpoint(checkpoints)) is None:
        return
    checkpoint.keep(checkpoints, checkpoint.steps(checkpoints))
    for path in checkpoints.glob("[0-9]*"):
        if path != only:
            remove_folder(path)
    for file in only.iterdir():
        if file.name == CONFIG:
            write_atomic(folder / CONFIG, file.read_bytes())
        elif file.name not in (STATE, META):
            os.replace(file, folder / file.name)
    sync_folder(folder)
    os.rename(only, only.with_suffix(""))
