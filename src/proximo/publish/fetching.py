"""Fetches a published policy as a run in ``runs/``, which every command accepts."""

import hashlib
import shlex
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from proximo.config.validation import check_name
from proximo.errors import CheckpointError, ConfigError, RunDirectoryError, shown
from proximo.publish import hub, manifest
from proximo.publish.card import code_of
from proximo.publish.publishing import shareable
from proximo.rendering.video import videos
from proximo.serialization import json_object
from proximo.storage import checkpoint, run_directory, zoo
from proximo.storage.run_directory import COMMAND, SYSTEM

PULLED = "pulled.json"
"""The file of a pulled run with its source and the SHA-256 of its ``proximo.json``."""


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
        if (code := code_of(config)) and not trust_code:
            parts = ", ".join(f"the {setting} {value!r}" for setting, value in code.items())
            raise ConfigError(
                f"{source} has {parts}: {'a module' if len(code) == 1 else 'modules'} to import from your Python path. "
                "If you trust that code, pull with --trust-code (trust_code=True)."
            )
        # This machine has its workers, trackers and start time, by which `last` is chosen.
        (made / COMMAND).write_text(shlex.join(sys.argv) + "\n", encoding="utf-8")
        (made / checkpoint.CONFIG).write_text(run_directory.render_config(shareable(config)), encoding="utf-8")
        started = datetime.now(UTC).isoformat(timespec="microseconds")
        manifest.write_json(made / SYSTEM, {**json_object(made / SYSTEM), "started": started})
        sha256 = hashlib.sha256((folder / manifest.MANIFEST).read_bytes()).hexdigest()
        manifest.write_json(made / PULLED, {"source": source, "sha256": sha256})
        there = Path(runs_dir) / run_directory.file_name(env_id) / name
        if json_object(there / PULLED).get("sha256") == sha256:
            return there
        if there.exists():
            raise RunDirectoryError(f"{there} already exists and is another run: choose another --name.")
        return run_directory.create(Path(runs_dir), env_id, name, partial(shutil.copytree, made, dirs_exist_ok=True))
