"""Which checkpoints stay, which one is the best, and which one is meant."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from pathlib import Path

from proximo.errors import CheckpointError, shown
from proximo.run.checkpoint import newest_valid, steps, verify
from proximo.run.directory import Which
from proximo.run.files import sync_folder, write_atomic


def _remove(path: Path) -> None:
    # Under another name first: a crash halfway must not leave what looks like a damaged checkpoint.
    hidden = path.with_name(f".removing-{path.name}")
    os.rename(path, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def _clear_leftovers(folder: Path) -> None:
    for pattern in (".saving-*", ".replaced-*", ".removing-*"):
        for leftover in folder.glob(pattern):
            shutil.rmtree(leftover, ignore_errors=True)


def prune(folder: Path, keep: int, protect: Collection[int]) -> None:
    """Keep the ``keep`` newest checkpoints and the steps in ``protect``; clear what crashed saves left behind.

    The caller holds the run's lock: nobody else is saving.
    """
    found = steps(folder)
    _clear_leftovers(folder)
    for step in found[: max(0, len(found) - keep)]:
        if step not in protect:
            _remove(folder / str(step))


def discard_after(folder: Path, step: int) -> list[int]:
    """Remove the checkpoints beyond ``step``, for a resume from it; returns their steps. The caller holds the run's lock.

    Left there, they would count as the newest, and ``prune`` would drop the resumed run's own.
    """
    later = [found for found in steps(folder) if found > step]
    _clear_leftovers(folder)
    for found in reversed(later):  # killed in between, those that are left are a prefix of the run
        _remove(folder / str(found))
    return later


def mark_best(run_dir: Path, step: int) -> None:
    """Point ``RUN/best`` at ``checkpoints/<step>``: a relative link, or a text file where links are not permitted.

    Raises ``CheckpointError`` when there is no such checkpoint.
    """
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


def best_step(run_dir: Path) -> int | None:
    """The step that ``RUN/best`` points at, or None. Raises ``CheckpointError`` when it points at no checkpoint's name."""
    best = run_dir / "best"
    if not best.is_symlink() and not best.is_file():
        return None
    target = os.readlink(best) if best.is_symlink() else best.read_text(errors="replace").strip()
    if not re.fullmatch(r"checkpoints[/\\]\d{1,20}[/\\]?", target):
        raise CheckpointError(f"{best} is damaged: it points at {shown(target)}, expected checkpoints/<step>.")
    return int(re.findall(r"\d+", target)[0])


def find(run_dir: Path, which: Which) -> tuple[Path, list[str]]:
    """The checkpoint that ``which`` names, verified, and warnings."""
    folder = run_dir / "checkpoints"
    if which == "last":
        return newest_valid(folder)
    step = best_step(run_dir) if which == "best" else which
    if step is None:
        raise CheckpointError(f"{run_dir} has no best checkpoint: it was never evaluated. Use @last.")
    if step not in steps(folder):
        known = ", ".join(map(str, steps(folder))) or "none"
        raise CheckpointError(f"{run_dir} has no checkpoint of step {step}; it has {known}.")
    verify(folder / str(step))
    return folder / str(step), []
