"""The run directory: made, found again by what a user types, locked, described."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
import re
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import filelock
import yaml

from proximo.config import Config, from_mapping, to_mapping
from proximo.errors import CheckpointError, ConfigError, RunDirectoryError, nearest

Which = Literal["last", "best"] | int
"""Which checkpoint of a run: the newest, the best, or the one of a step."""

_PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "gymnax")
_THREAD_VARIABLES = ("XLA_FLAGS", "NPROC", "OMP_NUM_THREADS")
# These change what is computed; the others (caches, logging) are recorded and not compared.
_EXACT_VARIABLES = ("XLA_FLAGS", "NPROC", "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_DEFAULT_PRNG_IMPL")
_CONFIG_HEADER = "# The resolved settings of this run. The file is a valid --config: proximo train --config config.yaml\n"


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` (a file created, a rename) survive a loss of power."""
    if os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and wait until the disk has it."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write ``path`` so that a crash leaves either its old content or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    write_synced(temporary, data.encode() if isinstance(data, str) else data)
    os.replace(temporary, path)
    sync_folder(path.parent)


def plain(value: Any) -> Any:
    """``value`` as strict JSON can hold it: arrays and array scalars as lists and numbers, NaN and infinity as None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def create(runs_dir: Path, env_id: str, name: str) -> Path:
    """Make ``runs_dir/<env>/<name>/``. An empty ``name`` becomes date and time; ``env_id`` is made fit for a folder's name.

    Raises ``RunDirectoryError`` when a run of that name exists, or the folder cannot be made.
    """
    parent = runs_dir / re.sub(r"[^\w.+-]+", "-", env_id).lstrip(".")
    base = name or datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    run_dir, clashes = parent / base, 1
    while True:
        try:
            run_dir.mkdir(parents=True)
            return run_dir
        except FileExistsError:
            if name:
                raise RunDirectoryError(
                    f"{run_dir} exists already: continue it with `--resume {run_dir}`, or choose another --name."
                ) from None
            clashes += 1
            run_dir = parent / f"{base}-{clashes}"
        except OSError as error:
            raise RunDirectoryError(f"Cannot make {run_dir} ({error.strerror}): choose another --runs-dir.") from error


def members(path: Path) -> list[Path]:
    """The runs of a group (``seed-<i>/``), by seed; empty for an ordinary run."""
    found = [folder for folder in path.glob("seed-*") if re.fullmatch(r"seed-\d+", folder.name) and folder.is_dir()]
    return sorted(found, key=lambda folder: int(folder.name.removeprefix("seed-")))


def is_group(path: Path) -> bool:
    """Whether ``path`` holds the runs of several seeds."""
    return bool(members(path))


def _is_run(path: Path) -> bool:
    return (path / "config.yaml").is_file() or is_group(path)


def _started(path: Path) -> str:
    """When a run or the last run of a group was started, as text that sorts by time."""
    if is_group(path):
        return max(_started(member) for member in members(path))
    try:
        return str(json.loads((path / "system.json").read_bytes())["started"])
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
    known = sorted(path for path in runs_dir.glob("*/*") if _is_run(path))
    if base == "last":
        if not known:
            raise CheckpointError(f"There is no run in {runs_dir}: start one with `proximo train`, or set --runs-dir.")
        return max(known, key=_started), which
    for path in (Path(base), runs_dir / base):
        if base and _is_run(path):
            return path, which
    matches = [path for path in known if path.name == base]
    if len(matches) == 1:
        return matches[0], which
    if matches:
        listed = ", ".join(str(path.relative_to(runs_dir)) for path in matches)
        raise CheckpointError(f"The name {base!r} fits {len(matches)} runs: {listed}. Give the environment too.")
    if base and Path(base).is_dir():
        raise CheckpointError(f"{base} is a folder without config.yaml, so it is no run{nearest(base, map(str, known))}.")
    names = {path.name for path in known} | {str(path.relative_to(runs_dir)) for path in known} | {"last"}
    raise CheckpointError(
        f"No run {base!r}: looked for a folder of that path, and for that name among the {len(known)} runs "
        f"in {runs_dir}{nearest(base, names)}."
    )


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
        write_atomic(self._owner, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started": started}))
        return self

    def __exit__(self, *_: object) -> None:
        self._owner.unlink(missing_ok=True)
        self._lock.release()

    def _describe_owner(self) -> str:
        try:
            owner = json.loads(self._owner.read_bytes())
            return f"process {owner['pid']} on {owner['host']} (since {owner['started']})"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"


def _render_config(config: Config) -> str:
    return _CONFIG_HEADER + yaml.safe_dump(to_mapping(config), sort_keys=False, allow_unicode=True)


def write_start_files(run_dir: Path, config: Config, command: str, system: Mapping[str, Any]) -> None:
    """Write config.yaml, command.txt and system.json (with the time of the start, which ``last`` goes by)."""
    started = datetime.now(UTC).isoformat(timespec="microseconds")
    write_atomic(run_dir / "config.yaml", _render_config(config))
    write_atomic(run_dir / "command.txt", command.rstrip("\n") + "\n")
    write_atomic(run_dir / "system.json", json.dumps({"started": started, **plain(system)}, indent=2) + "\n")


def note_resume(run_dir: Path, config: Config, command: str) -> None:
    """Add ``command`` to command.txt, and make ``config`` the settings that a later resume goes on with."""
    text = _render_config(config)
    if (run_dir / "config.yaml").read_text(encoding="utf-8") != text:
        write_atomic(run_dir / "config.yaml", text)
    commands = run_dir / "command.txt"
    before = commands.read_text(encoding="utf-8") if commands.exists() else ""
    write_atomic(commands, before + command.rstrip("\n") + "\n")


def read_config(run_dir: Path) -> Config:
    """The settings of a run. Raises ``CheckpointError`` when config.yaml is missing, damaged, or of other settings."""
    path = run_dir / "config.yaml"
    try:
        return from_mapping(yaml.safe_load(path.read_bytes()), Config(), str(path))
    except OSError as error:
        raise CheckpointError(f"Cannot read {path} ({error.strerror}): is {run_dir} a run directory?") from error
    except yaml.YAMLError as error:
        raise CheckpointError(f"{path} is damaged, it is not valid YAML: {' '.join(str(error).split())}") from error
    except ConfigError as error:
        raise CheckpointError(f"{error} The file was edited, or written by another version of proximo.") from error


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    """The model of the CPU: the compiler chooses instructions by it, and with them the bits."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def system_info() -> dict[str, Any]:
    """What this run computes on, as JSON: Python, platform, CPUs, thread variables, versions, devices."""
    import jax  # only here: the rest of this file finds runs, and needs no JAX

    devices, cpu_count = jax.devices(), os.cpu_count()
    variables = {name: text for name, text in sorted(os.environ.items()) if name in _THREAD_VARIABLES or name.startswith("JAX_")}
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cpu_count": cpu_count,
        "cpu_affinity": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cpu_count,
        "environment": variables,
        "versions": {package: _version(package) for package in _PACKAGES},
        "device_kind": devices[0].device_kind,
        "device_count": len(devices),
    }


def _exactness(system: Mapping[str, Any]) -> dict[str, Any]:
    """The part of ``system_info`` that a run's bits depend on, under the names that a sentence uses."""
    names = {
        "processor": "the processor", "cpu_count": "the number of CPUs", "cpu_affinity": "the number of CPUs that may be used",
        "device_kind": "the device", "device_count": "the number of devices",
    }  # fmt: skip
    variables = {name: system["environment"].get(name, "not set") for name in _EXACT_VARIABLES}
    versions = {package: system["versions"].get(package, "not recorded") for package in _PACKAGES}
    return {sentence: system.get(key, "not recorded") for key, sentence in names.items()} | variables | versions


def system_differences(run_dir: Path) -> list[str]:
    """A sentence for each recorded fact that differs now and makes a resumed run leave the uninterrupted one's bits."""
    try:
        recorded = _exactness(json.loads((run_dir / "system.json").read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return [f"{run_dir / 'system.json'} is missing or damaged: whether this machine equals the one before is unknown."]
    present = _exactness(system_info())
    return [
        f"{name} was {recorded[name]} and is {present[name]} now: the resumed run may differ in its last bits."
        for name in present
        if recorded[name] != present[name]
    ]
