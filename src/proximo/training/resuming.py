"""What a resume does before it trains: choose the checkpoints, restore them, and remove what was written after them.

``api._resume`` calls these functions in order. ``config.loading.changed_for_resume`` checks changed settings,
``storage.checkpoint.load`` checks the hashes of files, ``storage.run_directory.check_settings`` that the fixed settings are unchanged, and
``Checkpoint.restore`` the names, shapes and types of arrays.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from proximo.collect.devices import from_first
from proximo.config import Config, from_mapping, to_mapping
from proximo.config.loading import RESUMABLE
from proximo.config.schema import WORKER_SETTINGS
from proximo.errors import CheckpointError, ConfigError, RunDirectoryError
from proximo.processes.peers import Peers
from proximo.storage import checkpoint, run_directory, run_lookup
from proximo.storage.checkpoint import Checkpoint
from proximo.storage.named_folders import seed_run_dirs
from proximo.storage.run_directory import FAILURE, HISTOGRAMS, METRICS, STOPPED
from proximo.storage.run_lookup import Which
from proximo.storage.save_run import finish
from proximo.tracking.json_lines import truncate_after
from proximo.tracking.reporter import Reporter
from proximo.training import clips
from proximo.training.backend import Backend
from proximo.training.callbacks import SeedCallbacks
from proximo.training.non_finite import NON_FINITE
from proximo.training.seed_run import SeedRun, SeedStart
from proximo.types import TrainState

MAY_DIFFER = {
    *("seed", "name", "runs_dir", "keep_checkpoints", "tensorboard", "track", "devices", "updates_per_call"),
    *WORKER_SETTINGS,
}
"""Settings in which the seeds of a group may differ. The first seed's value of those that only change the speed applies to all."""


def stored_settings(path: Path, reporter: Reporter, peers: Peers) -> list[tuple[Path, Config]]:
    """The run directory and the settings of each seed of the run at ``path`` that has not ended."""

    def read() -> list[Any]:
        run_dirs = _not_ended(seed_run_dirs(path), reporter) or [path]
        return [(str(run_dir), to_mapping(run_directory.read_config(run_dir))) for run_dir in run_dirs]

    stored = peers.from_first(read, "the settings of the run")
    return [(Path(run_dir), from_mapping(mapping, Config(), str(path))) for run_dir, mapping in stored]


def _not_ended(run_dirs: list[Path], reporter: Reporter) -> list[Path]:
    """The seeds of a group that neither NaN or infinity nor a callback has ended. NaN would come again at the same step; an environment that
    failed may have been mended."""
    left = run_dirs
    for marker, text, how, more in (
        (FAILURE, NON_FINITE, "failed", "the reason"),
        (STOPPED, "", "stopped by a callback", "the step"),
    ):
        if ended := [
            run_dir
            for run_dir in left
            if (run_dir / marker).exists() and (run_dir / marker).read_bytes().startswith(text.encode())
        ]:
            left = [run_dir for run_dir in left if run_dir not in ended]
            names = ", ".join(run_dir.name for run_dir in ended)
            reporter.warned(f"not resumed, because {how}: {names} ({marker} has {more}). A seed is resumed by its own name.")
    if run_dirs and not left:
        raise CheckpointError(
            f"Every seed of {run_dirs[0].parent} has failed or was stopped: resume one of them by its own name."
        )
    return left


def check_shared_settings(path: Path, configs: Sequence[Config]) -> None:
    """Raise ``ConfigError`` if the seeds of the group ``path`` differ in a setting that their common training can have only once."""
    first, *others = [{name: x for group in to_mapping(config).values() for name, x in group.items()} for config in configs]
    differing = [n for n, x in first.items() if n not in MAY_DIFFER and any(repr(other[n]) != repr(x) for other in others)]
    if differing:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in differing)
        remedy = f", or give {flags} for all" if RESUMABLE.issuperset(differing) else ""
        raise ConfigError(f"The seeds of {path} have different {', '.join(differing)}: resume each seed alone{remedy}.")


def starts(
    run_dirs: list[Path], configs: list[Config], which: Which, stacked: bool, reporter: Reporter, peers: Peers
) -> list[SeedStart]:
    """Where each run that is not complete continues: at the checkpoint ``which``, at the newest valid one, or at the beginning if none was
    saved yet. Stacked seeds continue from the same step. Only process 0 has the arrays of the checkpoints.

    Raises:
        ConfigError: all runs are complete.
        CheckpointError: a seed lacks the checkpoint of the step from which another one continues.
    """
    found: list[SeedStart] = []

    def find() -> list[Any]:
        for run_dir, config in zip(run_dirs, configs, strict=True):
            with writable(run_dir):
                finish(run_dir)
            found.append(_start(run_dir, config, which, reporter))
        left = [start for start in found if not _is_complete(start)]
        first = min((start.step for start in left), default=0)
        if stacked and len({start.saved and start.step for start in left}) > 1:
            left = [_earlier(start, first, reporter) for start in left]
        found[:] = left or found
        return [(str(start.run_dir), start.step, start.saved and start.saved.info) for start in found]

    every, by_folder = peers.from_first(find, "the checkpoints"), dict(zip(map(str, run_dirs), configs, strict=True))
    at = found or [
        SeedStart(
            Path(name),
            by_folder[name],
            step,
            info if info is None else Checkpoint(Path(name), step, info, {"leaves": {}}, {}),
        )
        for name, step, info in every
    ]
    if all(map(_is_complete, at)):
        path = run_dirs[0] if len(run_dirs) == 1 else run_dirs[0].parent
        raise ConfigError(f"{path} is complete at step {min(s.step for s in at)}: give a larger --total-steps to continue.")
    return at


def _start(run_dir: Path, config: Config, which: Which, reporter: Reporter) -> SeedStart:
    if which == "last" and not checkpoint.steps(run_dir / "checkpoints"):
        reporter.warned(f"no checkpoint was saved yet in {run_dir}: it starts from the beginning.")
        return SeedStart(run_dir, config, 0)
    saved, warnings = run_lookup.find_checkpoint(run_dir, which, config)
    for warning in warnings:
        reporter.warned(warning)
    return SeedStart(run_dir, config, saved.step, saved)


def _earlier(start: SeedStart, step: int, reporter: Reporter) -> SeedStart:
    """A seed that continues from ``step``, as another one does: an interrupted save leaves seeds one save apart."""
    steps = checkpoint.steps(start.run_dir / "checkpoints")
    if sum(step < later <= start.step for later in steps) > 1 or (step and step not in steps):
        raise CheckpointError(
            f"{start.run_dir} continues from step {start.step}, and another seed continues from step {step}: resume each seed alone"
            f"{f', or all with @{step}' if step in steps else ''}."
        )
    return _start(start.run_dir, start.config, step, reporter) if step else SeedStart(start.run_dir, start.config, 0)


def _is_complete(start: SeedStart) -> bool:
    """Whether nothing is left to do: neither an update nor the last evaluation, which an interruption may have skipped."""
    config, step = start.config, start.step
    total = config.total_updates * config.batch_size
    if step > total:
        raise ConfigError(f"{start.run_dir} is already at step {step}, but total_steps = {total}: give a larger --total-steps.")
    if start.saved is None or step < total:
        return False
    evaluation = start.saved.info.get("evaluation")
    return not config.run.eval_episodes or (evaluation is not None and evaluation["step"] == step)


def restore(backend: Backend, start: SeedStart, callbacks: SeedCallbacks, reporter: Reporter) -> TrainState:
    """The state of the checkpoint of ``start``. ``callbacks`` get their saved state."""
    assert start.saved is not None
    state = from_first(backend.restore(start.saved) if backend.peers.is_first else None, backend.template())
    if start.saved.policy_only:
        reporter.warned(f"{start.saved.path} has only the policy: optimizer, environments and random keys start anew.")
    if warning := callbacks.restore(start.saved.info.get("callbacks", [])):
        reporter.warned(f"{start.run_dir}: {warning}")
    return state


def rewind(seed_run: SeedRun, reporter: Reporter) -> None:
    """Note the resume, and remove what the run has written after the step that it continues from. Nothing for a new run."""
    start = seed_run.start
    if start is None or start.resumed_at is None:
        return
    run_dir, step = start.run_dir, start.resumed_at
    with writable(run_dir):
        run_directory.note_resume(run_dir, start.config, shlex.join(sys.argv))
        # Checkpoints first, because a checkpoint must not outlive its rows.
        dropped = checkpoint.discard_after(run_dir / "checkpoints", step)
        for name in (METRICS, HISTOGRAMS):
            truncate_after(run_dir / name, step)
        for name in (FAILURE, STOPPED):
            (run_dir / name).unlink(missing_ok=True)
        clips.discard_after(run_dir, step)
        if dropped:
            reporter.warned(
                f"{run_dir} continues from step {step}: its later checkpoints ({', '.join(map(str, dropped))}) are removed."
            )
        best = seed_run.best and int(seed_run.best["step"])
        if best in checkpoint.steps(run_dir / "checkpoints"):
            checkpoint.mark_best(run_dir, best)
        else:
            # The checkpoint was just removed, or was pruned after a better one was found. The next evaluation then counts as the best.
            seed_run.best = None
            checkpoint.mark_best(run_dir, None)


@contextlib.contextmanager
def writable(run_dir: Path) -> Iterator[None]:
    """Context manager: an ``OSError`` becomes a ``RunDirectoryError`` that names ``run_dir``."""
    try:
        yield
    except OSError as error:
        raise RunDirectoryError(
            f"Cannot write into {run_dir} ({error.strerror}), so the training has not started: check its disk and its permissions."
        ) from error
