"""Which checkpoints stay: the newest ones, and the best one, which ``RUN/best`` names.

After each evaluation, ``training.seed_run`` decides which one is the best, marks it and removes
others when it saves, and ``training.resuming`` marks it again after a resume.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from pathlib import Path

from proximo.errors import CheckpointError, shown
from proximo.serialization import json_object
from proximo.storage.atomic_files import remove_folder, write_atomic
from proximo.storage.checkpoint import finish_replacements, steps
from proximo.storage.checkpoint_format import META


def clear_leftovers(folder: Path) -> None:
    """Remove what interrupted saves left in ``folder``. The caller must hold the lock of the run."""
    finish_replacements(folder)
    for leftover in folder.glob(".*"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def prune(folder: Path, keep: int, protect: Collection[int]) -> None:
    """Remove what interrupted saves left, and all checkpoints except the ``keep`` newest ones and the steps in ``protect``. The caller
    must hold the lock of the run."""
    clear_leftovers(folder)
    for step in steps(folder)[:-keep]:
        if step not in protect:
            remove_folder(folder / str(step))


def discard_after(folder: Path, step: int) -> list[int]:
    """Remove the checkpoints after ``step``, for a resume from it, and return their steps. The caller must hold the lock of the run.

    If they stayed, they would count as the newest, and ``prune`` would remove those of the resumed run.
    """
    clear_leftovers(folder)
    later = [found for found in steps(folder) if found > step]
    for found in reversed(later):  # so that a kill in between leaves a prefix of the run
        remove_folder(folder / str(found))
    return later


def mark_best(run_dir: Path, step: int) -> None:
    """Write ``checkpoints/<step>`` into the file ``RUN/best``."""
    write_atomic(run_dir / "best", f"checkpoints/{step}\n")


def unmark_best(run_dir: Path) -> None:
    """Remove ``RUN/best``."""
    (run_dir / "best").unlink(missing_ok=True)


def best_step(run_dir: Path) -> int | None:
    """The step that ``RUN/best`` names; None without it. Raises ``CheckpointError`` if it names something else."""
    best = run_dir / "best"
    if best.is_dir():  # in earlier versions it was a link, which some programs follow when they copy a run
        target = f"checkpoints/{json_object(best / META).get('step')}"
    elif best.is_file():
        target = best.read_text(errors="replace").strip()
    else:
        return None
    if (step := re.fullmatch(r"checkpoints[/\\](\d{1,20})[/\\]?", target)) is None:
        raise CheckpointError(f"{best} is damaged: it names {shown(target)}, expected checkpoints/<step>.")
    return int(step[1])
