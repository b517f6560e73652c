"""Saving a training state as a run directory without a training, as ``PPO.save`` does."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proximo.config import Config
from proximo.errors import CheckpointError, ConfigError
from proximo.storage import checkpoint
from proximo.storage.atomic_files import remove_folder, sync_folder, write_atomic
from proximo.storage.checkpoint import CONFIG, CURRENT, META, STATE, current_step, encode
from proximo.storage.run_directory import COMMAND, METRICS, SYSTEM, render_config, render_system
from proximo.storage.run_lock import RunLock
from proximo.storage.system_info import system_info
from proximo.types import TrainState

SAVED = "# saved from Python\n"
"""The ``command.txt`` of a saved agent. It is the first file of a save."""
DERIVED = ("export", "videos", "report.html", "report.png", "report.csv")
"""What commands have made from an earlier agent in the same folder."""


def save_run(
    folder: Path,
    config: Config,
    step: int,
    state: TrainState,
    evaluation: dict[str, Any] | None = None,
    rows: Sequence[dict] = (),
) -> Path:
    """Write a run directory that every command and ``proximo.load`` accept. Replaces what was saved in ``folder``.

    After a crash at any moment, ``folder`` has the earlier agent or the new one. All files of the new one are in its
    checkpoint, which counts as soon as ``checkpoints/current`` names it. ``finish`` then puts them in their places.

    Raises ``ConfigError`` if ``folder`` contains other files, ``RunDirectoryError`` if another process saves into it, and
    ``CheckpointError`` if it cannot be written.
    """
    files = {
        **encode(step, state, {"best": None, "evaluation": evaluation}, render_config(config)),
        METRICS: "".join(f"{json.dumps(row)}\n" for row in rows).encode(),
        SYSTEM: render_system(system_info()).encode(),
    }
    return write_run(folder, step, files)


def write_run(folder: Path, step: int, files: dict[str, bytes]) -> Path:
    """Write the ``files`` of an agent, as ``save_run`` does."""
    checkpoints, command = folder / "checkpoints", folder / COMMAND
    try:
        if command.is_file() and command.read_text(encoding="utf-8") != SAVED:
            raise ConfigError(f"{folder} is the run of a training, which saving would replace: choose another folder.")
        is_ours = command.is_file() or not folder.exists()
        if not (is_ours or (folder.is_dir() and all(path.name.startswith(".") for path in folder.iterdir()))):
            raise ConfigError(f"{folder} contains other files: choose an empty folder, or one that was saved to before.")
        folder.mkdir(parents=True, exist_ok=True)
        with RunLock(folder):
            write_atomic(command, SAVED)
            if saved := checkpoint.steps(checkpoints):
                write_atomic(checkpoints / CURRENT, f"{saved[-1]}\n")
            checkpoint.write(checkpoints, step, files)
            write_atomic(checkpoints / CURRENT, f"{step}\n")
            for path in (folder / name for name in DERIVED):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                path.unlink(missing_ok=True)
            finish(folder)
    except OSError as error:
        raise CheckpointError(f"Cannot write into {folder} ({error.strerror}): choose another folder.") from error
    return folder


def finish(folder: Path) -> None:
    """Finish a save: move the files of the checkpoint that ``checkpoints/current`` names, if any, into ``folder``, and remove
    the other checkpoints. The caller must hold the lock of the run."""
    checkpoints = folder / "checkpoints"
    if (step := current_step(checkpoints)) not in checkpoint.steps(checkpoints):
        (checkpoints / CURRENT).unlink(missing_ok=True)  # it names no checkpoint, as in a copied part
        return
    checkpoint.clear_leftovers(checkpoints)
    for path in checkpoints.glob("[0-9]*"):
        if path.name != str(step):
            remove_folder(path)
    for file in (checkpoints / str(step)).iterdir():
        if file.name == CONFIG:
            write_atomic(folder / CONFIG, file.read_bytes())
        elif file.name not in (STATE, META):
            os.replace(file, folder / file.name)
    sync_folder(folder)
    (checkpoints / CURRENT).unlink()
