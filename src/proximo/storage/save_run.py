"""Saving a training state as a run directory without a training, as ``PPO.save`` does."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from proximo.config import Config
from proximo.errors import CheckpointError, ConfigError
from proximo.storage import checkpoint, retention, run_directory
from proximo.storage.atomic_files import replace_folder, sync_folder, write_atomic
from proximo.storage.run_directory import METRICS
from proximo.storage.run_lock import RunLock
from proximo.storage.system_info import system_info
from proximo.types import TrainState

COMMAND = "# saved from Python\n"
WORKPLACE = ".saving"
UNFINISHED = (".lock", ".lock.json", WORKPLACE)
"""What a save that failed may leave in an empty folder."""


def save_run(
    folder: Path,
    config: Config,
    step: int,
    state: TrainState,
    evaluation: dict[str, Any] | None = None,
    rows: Sequence[dict[str, Any]] = (),
) -> Path:
    """Write a run directory that every command and ``proximo.load`` accept. Replaces what was saved in ``folder`` before.

    ``evaluation`` is the summary of the last evaluation, ``rows`` are those of ``metrics.jsonl``. Raises ``ConfigError`` if ``folder``
    contains other files, and ``CheckpointError`` if it cannot be written.
    """
    try:
        saved_before = (folder / "config.yaml").is_file() and (folder / "command.txt").is_file()
        if saved_before and (folder / "command.txt").read_text(encoding="utf-8") != COMMAND:
            raise ConfigError(f"{folder} is the run of a training, which saving would replace: choose another folder.")
        if folder.exists() and not saved_before and not (folder.is_dir() and {p.name for p in folder.iterdir()} <= {*UNFINISHED}):
            raise ConfigError(f"{folder} contains other files: choose an empty folder, or one that was saved to before.")
        folder.mkdir(parents=True, exist_ok=True)
        with RunLock(folder), _workplace(folder) as made:
            # All is written before anything is removed: if the disk is full, the earlier save stays.
            run_directory.write_start_files(made, config, COMMAND, system_info())
            write_atomic(made / METRICS, "".join(f"{json.dumps(row)}\n" for row in rows))
            info = {"best": None, "evaluation": evaluation, "total_steps": config.ppo.total_steps}
            checkpoint.save(made / "checkpoints", step, state, info)
            for derived in ("export", "videos"):  # derived from what was saved before
                shutil.rmtree(folder / derived, ignore_errors=True)
            for ending in ("html", "png", "csv"):
                (folder / f"report.{ending}").unlink(missing_ok=True)
            retention.unmark_best(folder)
            for file in made.glob("*.*"):
                os.replace(file, folder / file.name)
            replace_folder(made / "checkpoints", folder / "checkpoints")
            sync_folder(folder)
    except OSError as error:
        raise CheckpointError(f"Cannot write into {folder} ({error.strerror}): choose another folder.") from error
    return folder


@contextlib.contextmanager
def _workplace(folder: Path) -> Iterator[Path]:
    """An empty folder inside of ``folder``, on the same disk, which is removed at the end."""
    made = folder / WORKPLACE
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
