"""What ``RUN@WHICH`` means: the run directory, and the checkpoint in it."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from proximo.config import Config
from proximo.errors import CheckpointError, command, nearest
from proximo.serialization import json_object
from proximo.storage import zoo
from proximo.storage.checkpoint import Checkpoint, UnsupportedVersionError, best_step, load, steps
from proximo.storage.named_folders import FolderKind, find_folder, is_run, seed_run_dirs
from proximo.storage.run_directory import SYSTEM, check_settings

Which = Literal["last", "best"] | int
"""Which checkpoint of a run: the newest, the best, or the one of a step."""


def _split(text: str) -> tuple[str, Which]:
    """Run and checkpoint of ``RUN@WHICH``, or of the folder of a checkpoint. ``RUN`` means ``RUN@last``."""
    path = Path(text)
    if path.parent.name == "checkpoints" and path.name.isdecimal() and is_run(path.parent.parent):
        return str(path.parent.parent), int(path.name)
    base, at, suffix = text.rpartition("@")
    if not at or is_run(path):
        return text, "last"
    if suffix == "best" or suffix == "last":
        return base, suffix
    if re.fullmatch(r"[0-9]+(_[0-9]+)*", suffix):
        return base, int(suffix)
    hint = nearest(suffix, ("best", "last"))
    raise CheckpointError(f"{text!r}: expected best, last or a step after @, found {suffix!r}{hint}.")


def _started(path: Path) -> str:
    """Start time of a run, or of the newest run of a group, as text that sorts by time."""
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="microseconds")
    return max(str(json_object(run / SYSTEM).get("started", changed)) for run in seed_run_dirs(path) or [path])


RUNS = FolderKind("run", "runs", "start one with `proximo train`, or set --runs-dir", is_run, _started)


def find_run(text: str, runs_dir: Path, *, with_zoo: bool = True) -> tuple[Path, Which]:
    """The run or the group of seeds that a user means, and which checkpoint.

    ``text`` is a path, ``<name>`` or ``<env>/<name>`` in ``runs_dir``, ``last``, or ``zoo:NAME``, maybe followed by
    ``@best``, ``@last`` or ``@STEP``. Raises ``CheckpointError`` if no run fits, or if several do. Without
    ``with_zoo``, it also raises for a policy of the zoo, which has no learning curves and a read-only folder.
    """
    base, which = _split(text)
    try:
        path = zoo.find(base) or find_folder(base, runs_dir, RUNS)
    except CheckpointError as error:
        if with_zoo and (name := zoo.PREFIX + base) in zoo.names():
            raise CheckpointError(f"{error} The policy that ships with proximo is {name}.") from None
        raise
    if zoo.contains(path) and not with_zoo:
        pull = command("proximo", "pull", zoo.label(path))
        raise CheckpointError(f"{zoo.label(path)} is a policy that ships with proximo: make a run of it with `{pull}`.")
    return path, which


def find_single_run(text: str, runs_dir: Path) -> tuple[Path, Which]:
    """Like ``find_run``, for a single run. Also raises ``CheckpointError`` for a group of seeds."""
    path, which = find_run(text, runs_dir)
    if seeds := seed_run_dirs(path):
        names = ", ".join(seed.name for seed in seeds)
        raise CheckpointError(f"{path} contains several seeds ({names}): name one of them, such as {seeds[0]}.")
    return path, which


def find_checkpoint(run_dir: Path, which: Which, config: Config) -> tuple[Checkpoint, list[str]]:
    """Load the checkpoint that ``which`` means. Returns it, and a warning for each damaged one that was skipped. Raises
    ``CheckpointError`` if there is none, and ``ConfigError`` if it was trained with other settings than ``config``."""
    folder, step = run_dir / "checkpoints", best_step(run_dir) if which == "best" else which
    if step is None and steps(folder):
        label = zoo.label(run_dir)
        raise CheckpointError(f"{label} has no best checkpoint: it was never evaluated. Use {label}@last.")
    saved, warnings = load_newest(folder) if step in ("last", None) else (load(folder / str(step)), [])
    check_settings(saved, config, run_dir)
    return saved, warnings


def load_newest(folder: Path) -> tuple[Checkpoint, list[str]]:
    """The newest valid checkpoint in ``folder``, and a warning for each newer one that was skipped. Raises
    ``CheckpointError`` if there is none, or if the newest undamaged one is in another version of the format."""
    damages: list[str] = []
    for step in reversed(steps(folder)):
        try:
            return load(folder / str(step)), [f"{damage} It was skipped." for damage in damages]
        except UnsupportedVersionError:
            raise  # it is undamaged: skipping it would lose everything learned since the one before
        except CheckpointError as error:
            damages.append(re.sub("([0-9a-f]{12})[0-9a-f]{52}", r"\1…", str(error)))
    if damages:
        raise CheckpointError(f"There is no valid checkpoint among the {len(damages)} in {folder}. {damages[0]} Start a new run.")
    raise CheckpointError(
        f"There is no checkpoint in {folder}: none was saved yet. Wait, or if no process trains it, go on with: "
        f"{command('proximo', 'train', '--resume', folder.parent)}"
    )
