"""Run directories: creating them, finding the one that a user names, locking them, and their settings."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import filelock

from proximo.config import LEAVES, Config, custom_settings, from_mapping, may_replace, override, to_mapping
from proximo.config.custom import Custom
from proximo.errors import CheckpointError, ConfigError, RunDirectoryError, command, is_plain, nearest, shown
from proximo.serialization import dump_yaml, jsonable, read_json, read_yaml
from proximo.storage.atomic_files import sync_folder, write_atomic

Which = Literal["last", "best"] | int
"""Which checkpoint of a run: the newest, the best, or the one of a step."""

METRICS, HISTOGRAMS = "metrics.jsonl", "histograms.jsonl"
FAILURE = "failure.txt"
"""File with the reason, if NaN or infinity stopped the run."""

PUBLISHED = "proximo.json"
"""File that marks a folder as a published policy. It may be a stranger's, so only `proximo pull` reads it, which checks what it would import."""

_CONFIG_HEADER = (
    "# The resolved settings of this run. The file is a valid --config: proximo train --config config.yaml --name another\n"
)
_CONFIG_HAS_END = "# The last line marks the end of the file.\n"
_CONFIG_END = "# end of config.yaml\n"


def create(runs_dir: Path, env_id: str, name: str, fill: Callable[[Path], None], flag: str = "--runs-dir") -> Path:
    """Create ``runs_dir/<env>/<name>/`` with all its files, or nothing.

    Args:
        runs_dir: folder of all runs.
        env_id: id of the environment; characters that a folder name cannot have are replaced.
        name: name of the run. If it is empty, the run is named by date and time.
        fill: writes the first files into the folder that it is given.
        flag: flag that sets another ``runs_dir``, for messages.

    Returns:
        Path of the new folder.

    Raises:
        RunDirectoryError: a run of that name exists, or the folder cannot be created.
    """
    parent = parent_of(runs_dir, env_id)
    base = name or datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    run_dir, clashes = parent / base, 1
    # Hidden until it is complete: a kill before config.yaml is written would leave a run that no command can use.
    hidden = parent / f".{base}-{secrets.token_hex(4)}"
    try:
        hidden.mkdir(parents=True)
        fill(hidden)
        while not _claim(hidden, run_dir):
            if name:
                raise RunDirectoryError(
                    f"{run_dir} exists already: continue it with `{command('--resume', run_dir)}`, or choose another --name."
                )
            clashes += 1
            run_dir = parent / f"{base}-{clashes}"
        sync_folder(parent)
    except OSError as error:
        raise RunDirectoryError(f"Cannot create {run_dir} ({error.strerror}): choose another {flag}.") from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)  # already renamed if all went well
    return run_dir


def parent_of(runs_dir: Path, env_id: str) -> Path:
    """The folder of all runs of an environment. Characters of its id that a folder name cannot have are replaced."""
    return runs_dir / (re.sub(r"[^\w.+-]+", "-", env_id).lstrip(".") or "env")


def _claim(hidden: Path, run_dir: Path) -> bool:
    """Rename ``hidden`` to ``run_dir``. False if there is already something else than an empty folder."""
    if run_dir.exists() and not (run_dir.is_dir() and not any(run_dir.iterdir())):
        return False
    try:
        os.rename(hidden, run_dir)
    except OSError:
        if not run_dir.exists():
            raise
        return False  # another process was faster
    return True


def place_of(run_dir: Path, folder: os.stat_result) -> Path | None:
    """Current path of the folder of a run that this process has locked.

    Args:
        run_dir: path of the folder when the training started.
        folder: ``stat`` of the folder at that time.

    Returns:
        ``run_dir``, or the new path after a rename (on Linux, from the open lock file). None if the folder was removed or cannot be found.
    """

    def is_it(path: Path) -> bool:
        try:
            return os.path.samestat(path.stat(), folder)
        except OSError:
            return False

    if is_it(run_dir):
        return run_dir
    with contextlib.suppress(OSError):
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                opened = Path(os.readlink(descriptor))
                if opened.name == ".lock" and is_it(opened.parent):
                    return opened.parent
    return None


def seed_run_dirs(path: Path) -> list[Path]:
    """The runs in a group of seeds (``seed-<i>/``), by seed. Empty for an ordinary run."""
    found = [folder for folder in path.glob("seed-*") if re.fullmatch(r"seed-\d+", folder.name) and folder.is_dir()]
    return sorted(found, key=lambda folder: int(folder.name.removeprefix("seed-")))


def _is_run(path: Path) -> bool:
    try:
        return (path / "config.yaml").is_file() or bool(seed_run_dirs(path))
    except OSError:  # a name that is too long
        return False


def _started(path: Path) -> str:
    """Start time of a run, or of the newest run of a group, as text that sorts by time."""
    if seed_runs := seed_run_dirs(path):
        return max(map(_started, seed_runs))
    try:
        return str(read_json((path / "system.json").read_bytes())["started"])
    except (OSError, ValueError, KeyError, TypeError):
        newest = path / "config.yaml"
        seconds = (newest if newest.exists() else path).stat().st_mtime
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def _split(text: str) -> tuple[str, Which]:
    """The two parts of ``RUN@WHICH``. Without the second it means the newest checkpoint."""
    base, at, suffix = text.rpartition("@")
    if not at or _is_run(Path(text)):
        return text, "last"
    if suffix == "best" or suffix == "last":
        return base, suffix
    if re.fullmatch(r"[0-9][0-9_]*", suffix):
        return base, int(suffix.replace("_", ""))
    hint = nearest(suffix, ("best", "last"))
    raise CheckpointError(f"{text!r}: expected best, last or a step after @, found {suffix!r}{hint}.")


def resolve(text: str, runs_dir: Path) -> tuple[Path, Which]:
    """Find the run that a user means.

    Args:
        text: a path, a name in ``runs_dir`` (``<name>`` or ``<env>/<name>``), or ``last`` (the run that was started last); optionally
            followed by ``@best``, ``@last`` or ``@STEP``.
        runs_dir: folder of all runs.

    Returns:
        Folder of the run or of a group of seeds, and which checkpoint is meant.

    Raises:
        CheckpointError: no run fits, or several do.
    """
    base, which = _split(text)
    check_plain(text)
    known = sorted(path for path in runs_dir.glob("*/[!.]*") if is_plain(str(path)) and _is_run(path))
    if base == "last":
        if not known:
            raise CheckpointError(f"There is no run in {runs_dir}: start one with `proximo train`, or set --runs-dir.")
        return max(known, key=_started), which
    for path in (Path(base), runs_dir / base):
        if base and _is_run(path):
            return path, which
    known_seeds = [seed_run for path in known for seed_run in seed_run_dirs(path)]
    matches = [path for path in known if path.name == base] or [p for p in known_seeds if f"{p.parent.name}/{p.name}" == base]
    if len(matches) == 1:
        return matches[0], which
    if matches:
        listed = ", ".join(str(path.relative_to(runs_dir)) for path in matches)
        raise CheckpointError(f"The name {base!r} fits {len(matches)} runs: {listed}. Add the environment, as in <env>/{base}.")
    if base and len(base) < 256 and Path(base).is_dir():
        raise CheckpointError(f"{base} is a folder without config.yaml, so it is not a run{nearest(base, map(str, known))}.")
    names = {path.name for path in known} | {str(path.relative_to(runs_dir)) for path in known} | {"last"}
    newest = max(known, key=_started, default=None)
    raise CheckpointError(
        f"No run {base!r}: looked for a folder of that path, and for that name among the {len(known)} runs "
        f"in {runs_dir}{nearest(base, names)}." + (f" The newest (last) is {newest.relative_to(runs_dir)}." if newest else "")
    )


def check_plain(text: str) -> None:
    """Raise ``CheckpointError`` for a path or name with control characters, which a terminal would execute."""
    if not is_plain(text):
        raise CheckpointError(f"{shown(text, max_length=300)} contains control characters: rename the folder.")


def resolve_one(text: str, runs_dir: Path) -> tuple[Path, Which]:
    """Like ``resolve``, for a single run. Also raises ``CheckpointError`` for a group of seeds."""
    path, which = resolve(text, runs_dir)
    if seeds := seed_run_dirs(path):
        names = ", ".join(seed.name for seed in seeds)
        raise CheckpointError(f"{path} contains several seeds ({names}): name one of them, such as {seeds[0]}.")
    return path, which


class RunLock:
    """Context manager: only this process writes into ``run_dir``. The operating system holds the lock, so it ends with the process.

    Raises:
        RunDirectoryError: on entry, if another process has the lock, or the folder is missing or cannot be written.
    """

    def __init__(self, run_dir: Path):
        self.run_dir = run_dir
        self._owner = run_dir / ".lock.json"
        self._lock = filelock.FileLock(run_dir / ".lock", timeout=0)

    def __enter__(self) -> RunLock:
        if not self.run_dir.is_dir():  # filelock would create it
            raise RunDirectoryError(f"Cannot lock {self.run_dir}: there is no such run directory.")
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise RunDirectoryError(
                f"{self.run_dir} is in use by {self._describe_owner()}: two trainings cannot write into one run. "
                "Stop that process, or start a new run with another --name."
            ) from None
        except OSError as error:
            raise RunDirectoryError(f"Cannot lock {self.run_dir} ({error.strerror}): check its permissions.") from error
        started = datetime.now().isoformat(sep=" ", timespec="seconds")
        try:
            write_atomic(self._owner, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started": started}))
        except OSError as error:
            self._lock.release()
            raise RunDirectoryError(
                f"Cannot write into {self.run_dir} ({error.strerror}): check its disk and its permissions."
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._owner.unlink(missing_ok=True)
        self._lock.release()

    def _describe_owner(self) -> str:
        try:
            owner = read_json(self._owner.read_bytes())
            return f"process {owner['pid']} on {owner['host']} (since {owner['started']})"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"


def in_use(run_dir: Path) -> bool:
    """Whether a process trains in ``run_dir``. A killed process leaves ``.lock.json``, but not the lock. If the lock cannot be tried (a run of
    another user), that file decides."""
    if not (run_dir / ".lock.json").exists():
        return False
    try:
        with filelock.FileLock(run_dir / ".lock", timeout=0):
            return False
    except (filelock.Timeout, OSError):
        return True


def render_config(config: Config) -> str:
    """The text of config.yaml."""
    return _CONFIG_HEADER + _CONFIG_HAS_END + dump_yaml(to_mapping(config)) + _CONFIG_END


def write_start_files(run_dir: Path, config: Config, command: str, system: Mapping[str, Any]) -> None:
    """Write config.yaml, command.txt and system.json (with the time of the start, by which ``last`` is chosen)."""
    started = datetime.now(UTC).isoformat(timespec="microseconds")
    run_dir.mkdir(exist_ok=True)
    write_atomic(run_dir / "config.yaml", render_config(config))
    write_atomic(run_dir / "command.txt", command.rstrip("\n") + "\n")
    write_atomic(run_dir / "system.json", json.dumps({"started": started, **jsonable(system)}, indent=2) + "\n")


def note_resume(run_dir: Path, config: Config, command: str) -> None:
    """Append ``command`` to command.txt, and make ``config`` the settings of the run."""
    text = render_config(config)
    if (run_dir / "config.yaml").read_text(encoding="utf-8") != text:
        write_atomic(run_dir / "config.yaml", text)
    commands = run_dir / "command.txt"
    earlier = commands.read_text(encoding="utf-8") if commands.exists() else ""
    write_atomic(commands, earlier + command.rstrip("\n") + "\n")


def read_config(run_dir: Path, custom: Mapping[str, Any] | None = None) -> Config:
    """The settings of a run.

    Args:
        run_dir: a run directory.
        custom: custom objects by the name of their setting, which replace those that the run was trained with.

    Raises:
        CheckpointError: ``config.yaml`` is missing or damaged, or has unknown settings.
        ConfigError: the run has no custom object in one of the settings ``custom``.
    """
    return with_custom(_read_config(run_dir), custom or {})


def with_custom(config: Config, custom: Mapping[str, Any]) -> Config:
    """``config`` with the objects ``custom`` in settings that are custom already. Raises ``ConfigError`` for any other setting."""
    trained_with = custom_settings(config)
    for name, value in custom.items():
        if name not in trained_with:
            was = f"{name} is {LEAVES[name].value_in(config)}" if name in LEAVES else f"there is no setting {name!r}"
            raise ConfigError(
                f"{name} = {value!r}: this run has no custom object there, {was}{nearest(name, trained_with)}. Other settings stay as they were."
            )
        if not may_replace(config, name, value):
            raise ConfigError(
                f"{name} = {value if isinstance(value, str) else Custom(value)}: this run was trained with {trained_with[name]} and continues with it: "
                "leave it out."
            )
    return override(config, custom)


def _read_config(run_dir: Path) -> Config:
    path = run_dir / "config.yaml"
    if (run_dir / PUBLISHED).is_file():
        raise CheckpointError(f"{run_dir} is a published policy: make a run of it with `{command('proximo', 'pull', run_dir)}`.")
    try:
        content = path.read_bytes()
        # A truncated file would be read with defaults for the missing settings. Older files and files of users have no end mark.
        if _CONFIG_HAS_END.encode() in content and _CONFIG_END.encode() not in content:
            raise CheckpointError(
                f"{path} is damaged: its end is missing, expected {_CONFIG_END.strip()!r} as its last line. Restore the file from a copy, or add this line if nothing else is missing."
            )
        return from_mapping(read_yaml(content), Config(), str(path))
    except OSError as error:
        raise CheckpointError(f"Cannot read {path} ({error.strerror}): is {run_dir} a run directory?") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged, it is not valid YAML: {error}") from error
    except ConfigError as error:
        raise CheckpointError(f"{error} The file was edited, or written by another version of proximo.") from error
