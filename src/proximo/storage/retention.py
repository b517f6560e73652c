"""Which checkpoints stay: the newest ones, and the best one, to which ``RUN/best`` points.

After each evaluation, ``training.periodic_evaluation`` decides which one is the best. ``training.stored_seed_run`` marks it and removes
others when it saves, and ``training.resuming`` marks it again after a resume.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from proximo.errors import CheckpointError, shown
from proximo.serialization import json_object
from proximo.storage.atomic_files import replace_folder, sync_folder, write_atomic
from proximo.storage.checkpoint import load, steps
from proximo.storage.checkpoint_format import META


def _remove(path: Path) -> None:
    # Renamed first, so that a crash in between does not leave what looks like a damaged checkpoint.
    hidden = path.with_name(f".removing-{path.name}")
    os.rename(path, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def _clear_leftovers(folder: Path) -> None:
    for pattern in (".saving-*", ".replaced-*", ".removing-*"):
        for leftover in folder.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)


def prune(folder: Path, keep: int, protect: Collection[int]) -> None:
    """Remove what interrupted saves left, and all checkpoints except the ``keep`` newest ones and the steps in ``protect``. The caller
    must hold the lock of the run."""
    found = steps(folder)
    _clear_leftovers(folder)
    for step in found[: max(0, len(found) - keep)]:
        if step not in protect:
            _remove(folder / str(step))


def discard_after(folder: Path, step: int) -> list[int]:
    """Remove the checkpoints after ``step``, for a resume from it, and return their steps. The caller must hold the lock of the run.

    If they stayed, they would count as the newest, and ``prune`` would remove the checkpoints of the resumed run.
    """
    later = [found for found in steps(folder) if found > step]
    _clear_leftovers(folder)
    for found in reversed(later):  # so that a kill in between leaves a prefix of the run
        _remove(folder / str(found))
    return later


def mark_best(run_dir: Path, step: int) -> None:
    """Point ``RUN/best`` at ``checkpoints/<step>``: by a relative link, or by a text file where links are not permitted. Raises
    ``CheckpointError`` if there is no such checkpoint."""
    target = f"checkpoints/{step}"
    if not (run_dir / target).is_dir():
        raise CheckpointError(f"Cannot mark step {step} as best: there is no checkpoint {run_dir / target}.")
    temporary = run_dir / f".best-{os.getpid()}"
    temporary.unlink(missing_ok=True)
    try:
        os.symlink(target, temporary, target_is_directory=True)
    except OSError:
        write_atomic(run_dir / "best", target + "\n")
        return
    os.replace(temporary, run_dir / "best")
    sync_folder(run_dir)


def unmark_best(run_dir: Path) -> None:
    """Remove ``RUN/best``."""
    (run_dir / "best").unlink(missing_ok=True)


def _is_copied(best: Path) -> bool:
    """Whether ``RUN/best`` is a folder instead of a link, because the run was copied by a program that follows links."""
    return best.is_dir() and not best.is_symlink()


def restore_link(run_dir: Path) -> None:
    """Make ``RUN/best`` a link again if the run was copied by a program that follows links. The caller must hold the lock of the run.

    Raises ``CheckpointError`` if ``RUN/best`` is a folder without a checkpoint.
    """
    best = run_dir / "best"
    step = best_step(run_dir) if _is_copied(best) else None
    if step is None:
        return
    _clear_leftovers(run_dir)
    checkpoint = run_dir / "checkpoints" / str(step)
    try:
        load(checkpoint)
    except CheckpointError:  # missing or damaged, so the folder may be the only copy
        checkpoint.parent.mkdir(exist_ok=True)
        replace_folder(best, checkpoint)
    else:
        _remove(best)
    mark_best(run_dir, step)


def best_step(run_dir: Path) -> int | None:
    """The step that ``RUN/best`` points at, or None if there is no such file. Raises ``CheckpointError`` if it points elsewhere."""
    best = run_dir / "best"
    if _is_copied(best):
        step = json_object(best / META).get("step")
        if type(step) is not int or step < 0:
            raise CheckpointError(
                f"{best} is a folder without a checkpoint, expected a link to checkpoints/<step>: rename or remove it."
            )
        return step
    if not best.is_symlink() and not best.is_file():
        return None
    target = os.readlink(best) if best.is_symlink() else best.read_text(errors="replace").strip()
    if not re.fullmatch(r"checkpoints[/\\]\d{1,20}[/\\]?", target):
        raise CheckpointError(f"{best} is damaged: it points at {shown(target)}, expected checkpoints/<step>.")
    return int(re.findall(r"\d+", target)[0])
