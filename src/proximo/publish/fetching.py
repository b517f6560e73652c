"""From a published folder to a run in ``runs/``, which every verb takes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proximo.config import Config, own_code
from proximo.envs.registry import names_code
from proximo.errors import CheckpointError, ConfigError, RunDirectoryError
from proximo.publish import hub, manifest
from proximo.publish.publishing import shareable
from proximo.run import checkpoint, directory
from proximo.run.files import write_synced
from proximo.run.frames import videos
from proximo.run.validation import hold_name
from proximo.serialization import read_json

PULLED = "pulled.json"
"""In a run that was pulled: where from, and the SHA-256 of its ``proximo.json``."""


def pull(source: str | Path, *, name: str = "", trust_code: bool = False, runs_dir: str = "runs") -> Path:
    """Fetch a published policy: ``source`` is a folder, or ``hf:OWNER/NAME`` (with ``@REVISION`` behind it) on the Hugging Face Hub.

    Every file is checked against its SHA-256, and only files that ``proximo.json`` may name are taken; no code comes with them. Where the settings
    name a module to import, for the environment or a network, that is refused unless ``trust_code``. Returns the run directory
    ``runs_dir/<env>/<name>/`` (``name`` empty: the one that it was published with); where the same was pulled there before, that one. Raises
    ``CheckpointError`` for what is no published policy or damaged, ``RunDirectoryError`` where there is another run of that name,
    ``hub.HubError`` where the Hub refuses.
    """
    repository = hub.parse(str(source))
    if repository is None:
        return _pull(Path(source), str(source), name, trust_code, Path(runs_dir))
    with tempfile.TemporaryDirectory(prefix="proximo-") as folder:
        hub.download(repository, Path(folder))
        return _pull(Path(folder), str(source), name, trust_code, Path(runs_dir))


def _pull(folder: Path, source: str, name: str, trust_code: bool, runs_dir: Path) -> Path:
    if not source or not folder.is_dir():
        raise CheckpointError(f"There is no folder {source!r}: expected a published policy, or hf:OWNER/NAME on the Hub.")
    found, files = manifest.contents(folder)
    name, env_id = name or found["name"], found["environment"]
    hold_name(name)
    if names_code(env_id) and not trust_code:
        raise _untrusted(source, {"environment": env_id})
    origin = {"source": source, "sha256": hashlib.sha256((folder / manifest.MANIFEST).read_bytes()).hexdigest()}

    def fill(run_dir: Path) -> None:
        for file, data in files.items():
            path = videos(run_dir) / file if file == manifest.CLIP else run_dir / file
            path.parent.mkdir(parents=True, exist_ok=True)
            write_synced(path, data)
        try:
            config = directory.read_config(run_dir)
            if config.env.id != env_id:
                raise CheckpointError(f"{manifest.CONFIG} is for {config.env.id!r}, not for {env_id!r}.")
            if own_code(config) and not trust_code:
                raise _untrusted(source, own_code(config))
            checkpoint.verify(run_dir / "checkpoints" / str(found["step"]))
        except CheckpointError as error:  # by the name that the user gave, not of a folder that goes away
            raise CheckpointError(f"{source} is damaged: {str(error).replace(f'{run_dir}/', '')}") from error
        _localise(run_dir, config, origin)

    try:
        return directory.create(runs_dir, env_id, name, fill)
    except RunDirectoryError as error:
        there = directory.parent_of(runs_dir, env_id) / name
        if _origin(there).get("sha256") == origin["sha256"]:
            return there
        if there.exists():
            raise RunDirectoryError(f"{there} exists already and is another run: choose another --name.") from error
        raise
    finally:
        with contextlib.suppress(OSError):  # a folder where nothing came of it; any other is not empty
            directory.parent_of(runs_dir, env_id).rmdir()


def _untrusted(source: str, named: Mapping[str, Any]) -> ConfigError:
    """The error for modules that were not agreed to."""
    parts = [f"the {setting} {str(value)!r}" for setting, value in named.items()]
    return ConfigError(
        f"{source} asks for {', '.join(parts)}: {'a module' if len(parts) == 1 else 'modules'} that would be imported from your Python path. Where "
        "you know it, pull with --trust-code (trust_code=True)."
    )


def _localise(run_dir: Path, config: Config, origin: Mapping[str, Any]) -> None:
    """Settings, start and origin as this machine has them."""
    write_synced(run_dir / manifest.CONFIG, directory.render_config(shareable(config)).encode())
    write_synced(run_dir / "command.txt", (shlex.join(sys.argv) + "\n").encode())
    try:
        system = read_json((run_dir / manifest.SYSTEM).read_bytes())
    except ValueError:
        system = {}
    # `last` is the run that came last, whatever the publisher's clock said.
    started = datetime.now(UTC).isoformat(timespec="microseconds")
    system = {**(system if isinstance(system, dict) else {}), "started": started}
    write_synced(run_dir / manifest.SYSTEM, (json.dumps(system, indent=2) + "\n").encode())
    write_synced(run_dir / PULLED, (json.dumps(origin, indent=1) + "\n").encode())


def _origin(run_dir: Path) -> dict[str, Any]:
    try:
        content = read_json((run_dir / PULLED).read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
