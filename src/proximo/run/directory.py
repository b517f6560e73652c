"""The run directory: made, found again by what a user types, locked, described."""

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

from proximo.config import LEAVES, Config, from_mapping, may_replace, override, own_code, to_mapping
from proximo.errors import CheckpointError, ConfigError, RunDirectoryError, command, is_plain, nearest, shown
from proximo.own_code import Own
from proximo.run.files import plain, sync_folder, write_atomic
from proximo.serialization import dump_yaml, read_json, read_yaml

Which = Literal["last", "best"] | int
"""Which checkpoint of a run: the newest, the best, or the one of a step."""

FAILURE = "failure.txt"
"""Where NaN or infinity has ended a run: why."""

PUBLISHED = "proximo.json"
"""What makes a folder a published policy: it may be a stranger's, and only `proximo pull` looks at what it asks for."""

_CONFIG_HEADER = (
    "# The resolved settings of this run. The file is a valid --config: proximo train --config config.yaml --name another\n"
)
_CONFIG_HAS_END = "# The last line marks the end of the file.\n"
_CONFIG_END = "# end of config.yaml\n"


def create(runs_dir: Path, env_id: str, name: str, fill: Callable[[Path], None], flag: str = "--runs-dir") -> Path:
    """Make ``runs_dir/<env>/<name>/`` with the files that ``fill(folder)`` writes, all of it or nothing.

    An empty ``name`` becomes date and time; ``env_id`` is made fit for a folder's name. Raises ``RunDirectoryError`` when a
    run of that name exists, or the folder cannot be made; ``flag`` is the one that names another ``runs_dir``.
    """
    parent = parent_of(runs_dir, env_id)
    base = name or datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    run_dir, clashes = parent / base, 1
    # Hidden until it is whole: a kill between its making and its config.yaml would leave a name that nothing can use.
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
        raise RunDirectoryError(f"Cannot make {run_dir} ({error.strerror}): choose another {flag}.") from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)  # gone already where all went well
    return run_dir


def parent_of(runs_dir: Path, env_id: str) -> Path:
    """Where the runs of an environment lie; its id is made fit for a folder's name."""
    return runs_dir / (re.sub(r"[^\w.+-]+", "-", env_id).lstrip(".") or "env")


def _claim(hidden: Path, run_dir: Path) -> bool:
    """Give ``hidden`` the name ``run_dir``; False where that is taken (by anything but an empty folder)."""
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


def members(path: Path) -> list[Path]:
    """The runs of a group (``seed-<i>/``), by seed; empty for an ordinary run."""
    found = [folder for folder in path.glob("seed-*") if re.fullmatch(r"seed-\d+", folder.name) and folder.is_dir()]
    return sorted(found, key=lambda folder: int(folder.name.removeprefix("seed-")))


def is_group(path: Path) -> bool:
    """Whether ``path`` holds the runs of several seeds."""
    return bool(members(path))


def _is_run(path: Path) -> bool:
    try:
        return (path / "config.yaml").is_file() or is_group(path)
    except OSError:  # a name that is too long
        return False


def _started(path: Path) -> str:
    """When a run or the last run of a group was started, as text that sorts by time."""
    if is_group(path):
        return max(_started(member) for member in members(path))
    try:
        return str(read_json((path / "system.json").read_bytes())["started"])
    except (OSError, ValueError, KeyError, TypeError):
        newest = path / "config.yaml"
        seconds = (newest if newest.exists() else path).stat().st_mtime
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def _split(text: str) -> tuple[str, Which]:
    """``RUN@WHICH`` in its two parts; without the second it is the newest checkpoint that is meant."""
    base, at, suffix = text.rpartition("@")
    if not at or _is_run(Path(text)):
        return text, "last"
    if suffix == "best" or suffix == "last":
        return base, suffix
    if re.fullmatch(r"[0-9][0-9_]*", suffix):
        return base, int(suffix.replace("_", ""))
    hint = nearest(suffix, ("best", "last"))
    raise CheckpointError(f"{text!r}: behind @ expected best, last or a step, found {suffix!r}{hint}.")


def resolve(text: str, runs_dir: Path) -> tuple[Path, Which]:
    """The run or group that ``text`` means, and which checkpoint of it.

    ``text`` is a path, a name in ``runs_dir`` (``<name>`` or ``<env>/<name>``) or ``last`` (the most recently started
    run), with ``@best``, ``@last`` or ``@STEP`` behind it. Raises ``CheckpointError`` when nothing or too much fits.
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
    known_seeds = [member for path in known for member in members(path)]
    matches = [path for path in known if path.name == base] or [p for p in known_seeds if f"{p.parent.name}/{p.name}" == base]
    if len(matches) == 1:
        return matches[0], which
    if matches:
        listed = ", ".join(str(path.relative_to(runs_dir)) for path in matches)
        raise CheckpointError(f"The name {base!r} fits {len(matches)} runs: {listed}. Give the environment too.")
    if base and len(base) < 256 and Path(base).is_dir():
        raise CheckpointError(f"{base} is a folder without config.yaml, so it is no run{nearest(base, map(str, known))}.")
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
    """``resolve`` where a single run is meant. Raises ``CheckpointError`` for a group too."""
    path, which = resolve(text, runs_dir)
    if seeds := members(path):
        names = ", ".join(seed.name for seed in seeds)
        raise CheckpointError(f"{path} holds several seeds ({names}): name one of them, as {seeds[0]}.")
    return path, which


class RunLock:
    """Context manager: this process alone writes into ``run_dir``. The lock is the system's, so it ends with its process.

    Raises ``RunDirectoryError`` on entry when another process has it, or the folder is missing or cannot be written to.
    """

    def __init__(self, run_dir: Path):
        self.run_dir = run_dir
        self._owner = run_dir / ".lock.json"
        self._lock = filelock.FileLock(run_dir / ".lock", timeout=0)

    def __enter__(self) -> RunLock:
        if not self.run_dir.is_dir():  # filelock would make it
            raise RunDirectoryError(f"Cannot lock {self.run_dir}: there is no such run directory.")
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise RunDirectoryError(
                f"{self.run_dir} is in use by {self._describe_owner()}: two trainings cannot write into one run. "
                "Stop that process, or start a new run with another --name."
            ) from None
        except OSError as error:
            raise RunDirectoryError(f"Cannot lock {self.run_dir} ({error.strerror}): is it yours to write to?") from error
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
    """Whether a process trains in ``run_dir``. One that was killed has left its ``.lock.json`` there, but not the lock; where the lock
    cannot be tried (another user's run), that file is believed."""
    if not (run_dir / ".lock.json").exists():
        return False
    lock = filelock.FileLock(run_dir / ".lock", timeout=0)
    try:
        lock.acquire()
    except (filelock.Timeout, OSError):
        return True
    lock.release()
    return False


def render_config(config: Config) -> str:
    """The text of config.yaml."""
    return _CONFIG_HEADER + _CONFIG_HAS_END + dump_yaml(to_mapping(config)) + _CONFIG_END


def write_start_files(run_dir: Path, config: Config, command: str, system: Mapping[str, Any]) -> None:
    """Write config.yaml, command.txt and system.json (with the time of the start, which ``last`` goes by)."""
    started = datetime.now(UTC).isoformat(timespec="microseconds")
    run_dir.mkdir(exist_ok=True)
    write_atomic(run_dir / "config.yaml", render_config(config))
    write_atomic(run_dir / "command.txt", command.rstrip("\n") + "\n")
    write_atomic(run_dir / "system.json", json.dumps({"started": started, **plain(system)}, indent=2) + "\n")


def note_resume(run_dir: Path, config: Config, command: str) -> None:
    """Add ``command`` to command.txt, and make ``config`` the settings that a later resume goes on with."""
    text = render_config(config)
    if (run_dir / "config.yaml").read_text(encoding="utf-8") != text:
        write_atomic(run_dir / "config.yaml", text)
    commands = run_dir / "command.txt"
    before = commands.read_text(encoding="utf-8") if commands.exists() else ""
    write_atomic(commands, before + command.rstrip("\n") + "\n")


def read_config(run_dir: Path, own: Mapping[str, Any] | None = None) -> Config:
    """The settings of a run, with the objects of ``own`` in the place of those that it was trained with. Raises ``CheckpointError`` when
    config.yaml is missing, damaged, or of other settings; ``ConfigError`` for objects that have no place there."""
    return with_own(_read_config(run_dir), own or {})


def with_own(config: Config, own: Mapping[str, Any]) -> Config:
    """``config`` with objects of the user's for settings that are such in it already. Raises ``ConfigError`` for any other."""
    for name, value in own.items():
        if name in own_code(config) and not may_replace(config, name, value):
            raise ConfigError(
                f"{name} = {Own(value) if not isinstance(value, str) else value}: this run was trained with {own_code(config)[name]}, and goes on with that: "
                "leave it out."
            )
        if name not in own_code(config):
            was = (
                f"{name} is {getattr(getattr(config, LEAVES[name].group), name)}"
                if name in LEAVES
                else f"there is no setting {name!r}"
            )
            raise ConfigError(
                f"{name} = {own[name]!r}: this run has no object there, {was}{nearest(name, own_code(config))}; settings stay as they were."
            )
    return override(config, own)


def _read_config(run_dir: Path) -> Config:
    path = run_dir / "config.yaml"
    if (run_dir / PUBLISHED).is_file():
        raise CheckpointError(f"{run_dir} is a published policy: `{command('proximo', 'pull', run_dir)}` makes a run of it.")
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
