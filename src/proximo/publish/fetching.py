"""Fetches a published policy as a run in ``runs/``, which every command accepts."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proximo.config import Config
from proximo.config.validation import MAX_NAME_BYTES, check_name
from proximo.errors import CheckpointError, ConfigError, RunDirectoryError, shown
from proximo.publish import hub, manifest
from proximo.publish.card import code_of
from proximo.publish.publishing import shareable
from proximo.rendering.video import videos
from proximo.serialization import json_object
from proximo.storage import checkpoint, run_directory, zoo
from proximo.storage.atomic_files import write_synced

PULLED = "pulled.json"
"""The file of a pulled run with its source and the SHA-256 of its ``proximo.json``."""


def pull(source: str | Path, *, name: str = "", trust_code: bool = False, runs_dir: str = "runs") -> Path:
    """Fetch a published policy as a run.

    Every file is checked against its SHA-256. Only files that ``proximo.json`` may list are copied, and none of them is code.

    Args:
        source: A folder, ``hf:OWNER/NAME`` on the Hugging Face Hub, optionally followed by ``@REVISION``, or ``zoo:NAME``.
        name: Name of the run; empty for its name when it was published.
        trust_code: Accept settings that name modules to import: an environment, a wrapper, a network or a loss.
        runs_dir: Folder of all runs.

    Returns:
        The run directory ``runs_dir/<env>/<name>/``. If the same policy was pulled there before, that run.

    Raises:
        CheckpointError: The source is not a published policy, or is damaged.
        ConfigError: The settings name a module to import, and ``trust_code`` is False.
        RunDirectoryError: Another run has that name.
        HubError: The Hub cannot be reached or refuses.
    """
    repository = hub.parse(str(source))
    if repository is None:
        return _pull(zoo.find(str(source)) or Path(source), str(source), name, trust_code, Path(runs_dir))
    with tempfile.TemporaryDirectory(prefix="proximo-") as folder:
        hub.download(repository, Path(folder))
        return _pull(Path(folder), str(source), name, trust_code, Path(runs_dir))


def _pull(folder: Path, source: str, name: str, trust_code: bool, runs_dir: Path) -> Path:
    if not source or not os.path.isdir(folder):  # Path.is_dir raises OSError for a name that is too long
        raise CheckpointError(f"The folder {source!r} does not exist: expected a published policy, or hf:OWNER/NAME on the Hub.")
    found, files = manifest.contents(folder)
    name, env_id = name or found["name"], found["environment"]
    check_name(name)
    if len(env_id.encode(errors="replace")) > MAX_NAME_BYTES:
        raise CheckpointError(f"{source} is for the environment {shown(env_id)}: expected at most {MAX_NAME_BYTES} bytes.")
    origin = {"source": source, "sha256": hashlib.sha256((folder / manifest.MANIFEST).read_bytes()).hexdigest()}

    def fill(run_dir: Path) -> None:
        for file, data in files.items():
            path = videos(run_dir) / file if file == manifest.CLIP else run_dir / file
            path.parent.mkdir(parents=True, exist_ok=True)
            write_synced(path, data)
        try:
            config = run_directory.read_config(run_dir)
            if config.env.id != env_id:
                raise CheckpointError(f"{manifest.CONFIG} is for {config.env.id!r}, not for {env_id!r}.")
            if (code := code_of(config)) and not trust_code:
                raise _untrusted(source, code)
            saved = checkpoint.load(run_dir / "checkpoints" / str(found["step"]))
            saved.check_readable()
            run_directory.check_settings(saved, config, run_dir)
        except CheckpointError as error:  # with the name that the user gave instead of the temporary folder
            raise CheckpointError(f"{source} is damaged: {str(error).replace(f'{run_dir}/', '')}") from error
        _adapt_to_machine(run_dir, config, origin)

    try:
        return run_directory.create(runs_dir, env_id, name, fill)
    except RunDirectoryError as error:
        there = run_directory.parent_of(runs_dir, env_id) / name
        if json_object(there / PULLED).get("sha256") == origin["sha256"]:
            return there
        if there.exists():
            raise RunDirectoryError(f"{there} already exists and is another run: choose another --name.") from error
        raise
    finally:
        with contextlib.suppress(OSError):  # removes the folder only if it is empty
            run_directory.parent_of(runs_dir, env_id).rmdir()


def _untrusted(source: str, named: Mapping[str, Any]) -> ConfigError:
    """The error for modules that the user has not trusted."""
    parts = [f"the {setting} {str(value)!r}" for setting, value in named.items()]
    return ConfigError(
        f"{source} has {', '.join(parts)}: {'a module' if len(parts) == 1 else 'modules'} to import from your Python path. If you "
        "trust that code, pull with --trust-code (trust_code=True)."
    )


def _adapt_to_machine(run_dir: Path, config: Config, origin: Mapping[str, Any]) -> None:
    """Rewrite settings, command and start time for this machine, and record the origin."""
    write_synced(run_dir / manifest.CONFIG, run_directory.render_config(shareable(config)).encode())
    write_synced(run_dir / "command.txt", (shlex.join(sys.argv) + "\n").encode())
    # The start time of the publisher must not affect which run is `last` here.
    system = {**json_object(run_dir / manifest.SYSTEM), "started": datetime.now(UTC).isoformat(timespec="microseconds")}
    write_synced(run_dir / manifest.SYSTEM, (json.dumps(system, indent=2) + "\n").encode())
    write_synced(run_dir / PULLED, (json.dumps(origin, indent=1) + "\n").encode())
