"""A state that is written as a run directory of its own, without a training that writes into it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proximo.config import Config
from proximo.errors import CheckpointError, ConfigError
from proximo.run import checkpoint, directory, retention
from proximo.run.files import write_atomic
from proximo.run.sinks import METRICS
from proximo.run.system import system_info
from proximo.types import TrainState

COMMAND = "# saved from Python\n"


def save_run(
    folder: Path,
    config: Config,
    step: int,
    state: TrainState,
    evaluation: dict[str, Any] | None = None,
    rows: Sequence[dict[str, Any]] = (),
) -> Path:
    """Write ``state`` of ``step`` into ``folder``, as every verb and ``proximo.load`` take it; what was saved there before is replaced.

    ``rows`` are those of ``metrics.jsonl``. Raises ``ConfigError`` for a folder of other things, ``CheckpointError`` where the disk does not
    take it.
    """
    saved_before = (folder / "config.yaml").is_file() and (folder / "command.txt").is_file()
    if saved_before and (folder / "command.txt").read_text(encoding="utf-8") != COMMAND:
        raise ConfigError(f"{folder} is a run of its own, which saving would replace: choose another folder.")
    if folder.exists() and not saved_before and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(f"{folder} holds something else: choose an empty folder, or one that was saved to before.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with directory.RunLock(folder):
            for derived in ("checkpoints", "export", "videos"):  # of what was saved before
                shutil.rmtree(folder / derived, ignore_errors=True)
            for ending in ("html", "png", "csv"):
                (folder / f"report.{ending}").unlink(missing_ok=True)
            retention.unmark_best(folder)
            directory.write_start_files(folder, config, COMMAND, system_info())
            write_atomic(folder / METRICS, "".join(f"{json.dumps(row)}\n" for row in rows))
            info = {"best": None, "evaluation": evaluation, "total_steps": config.ppo.total_steps}
            checkpoint.save(folder / "checkpoints", step, state, info)
    except OSError as error:
        raise CheckpointError(f"Cannot write into {folder} ({error.strerror}): choose another folder.") from error
    return folder
