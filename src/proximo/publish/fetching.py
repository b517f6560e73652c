"""From a published folder to a run in ``runs/``, which every verb takes."""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from pathlib import Path

from proximo.errors import CheckpointError, ConfigError
from proximo.publish import hub, manifest
from proximo.publish.publishing import shareable
from proximo.run import checkpoint, directory
from proximo.run.files import write_synced
from proximo.run.frames import videos


def pull(source: str | Path, *, name: str = "", runs_dir: str = "runs") -> Path:
    """Fetch a published policy: ``source`` is a folder, or ``hf:OWNER/NAME`` (with ``@REVISION`` behind it) on the Hugging Face Hub.

    Every file is checked against its SHA-256, and only files that ``proximo.json`` may name are taken; no code comes with them. Returns the run
    directory ``runs_dir/<env>/<name>/`` (``name`` empty: the one that it was published with). Raises ``CheckpointError`` for what is no
    published policy or damaged, ``RunDirectoryError`` where there is a run of that name, ``hub.HubError`` where the Hub refuses.
    """
    repository = hub.parse(str(source))
    if repository is None:
        return _pull(Path(source), str(source), name, Path(runs_dir))
    with tempfile.TemporaryDirectory(prefix="proximo-") as folder:
        hub.download(repository, Path(folder))
        return _pull(Path(folder), str(source), name, Path(runs_dir))


def _pull(folder: Path, source: str, name: str, runs_dir: Path) -> Path:
    if not folder.is_dir():
        raise CheckpointError(f"There is no folder {folder}: expected a published policy, or hf:OWNER/NAME on the Hub.")
    found, files = manifest.contents(folder)
    name = name or found["name"]
    if not re.fullmatch(r"[\w+-][\w.+-]*", name):
        raise ConfigError(f"name = {name!r}: expected letters, digits, and . _ + - between them; choose another with --name.")

    def fill(run_dir: Path) -> None:
        for file, data in files.items():
            path = videos(run_dir) / file if file == manifest.CLIP else run_dir / file
            path.parent.mkdir(parents=True, exist_ok=True)
            write_synced(path, data)
        config = directory.read_config(run_dir)
        if config.env.id != found["environment"]:
            raise CheckpointError(
                f"{source} is damaged: {manifest.CONFIG} is for {config.env.id!r}, not for {found['environment']!r}."
            )
        config = shareable(config)
        write_synced(run_dir / manifest.CONFIG, directory.render_config(config).encode())
        write_synced(run_dir / "command.txt", (shlex.join(sys.argv) + "\n").encode())
        checkpoint.verify(run_dir / "checkpoints" / str(found["step"]))

    return directory.create(runs_dir, found["environment"], name, fill)
