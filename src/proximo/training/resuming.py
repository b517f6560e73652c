"""What a resume does before it trains: choose checkpoints, restore them, remove what was written later.

``api.resume`` calls these functions in order. ``config.loading.changed_for_resume`` checks changed settings,
``storage.checkpoint.load`` checks the hashes of files, ``storage.run_directory.check_settings`` that the
fixed settings are unchanged, and ``Checkpoint.restore`` the names, shapes and types of arrays.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proximo.collect.devices import from_first
from proximo.config import LEAVES, Config, text_of
from proximo.config.loading import RESUMABLE
from proximo.config.schema import WORKER_SETTINGS
from proximo.errors import CheckpointError, ConfigError
from proximo.processes.peers import Peers
from proximo.storage import checkpoint, run_directory, run_lookup
from proximo.storage.run_directory import FAILURE, HISTOGRAMS, METRICS, STOPPED, finish, writing
from proximo.tracking.reporter import Reporter
from proximo.tracking.run_trackers import truncate_after
from proximo.training import clips
from proximo.training.backend import Backend
from proximo.training.events import NON_FINITE
from proximo.training.seed_run import SeedRun
from proximo.types import TrainState

MAY_DIFFER = {
    *("seed", "name", "runs_dir", "keep_checkpoints", "tensorboard", "track", "devices", "updates_per_call"),
    *WORKER_SETTINGS,
}
"""Settings in which the seeds of a group may differ. Settings of speed are taken from the first seed."""


def not_ended(run_dirs: list[Path], reporter: Reporter) -> list[Path]:
    """The seeds of a group that neither NaN or infinity nor a callback has ended. NaN would come again at the
    same step; an environment that failed may have been mended."""
    left = []
    for run_dir in run_dirs:
        failure, stopped = run_dir / FAILURE, run_dir / STOPPED
        if failure.exists() and failure.read_text().startswith(NON_FINITE):
            why = f"it failed ({FAILURE} has the reason)"
        elif stopped.exists():
            why = f"a callback has stopped it ({STOPPED} has the step)"
        else:
            left.append(run_dir)
            continue
        reporter.warned(f"{run_dir.name} is not resumed, because {why}. A seed is resumed by its own name.")
    if run_dirs and not left:
        raise CheckpointError(
            f"Every seed of {run_dirs[0].parent} has failed or was stopped: resume one of them by its own name."
        )
    return left


def check_shared_settings(path: Path, configs: Sequence[Config]) -> None:
    """Raise ``ConfigError`` if seeds of a group differ in a setting that their training has only once."""
    shared = [leaf for leaf in LEAVES.values() if leaf.name not in MAY_DIFFER]
    differing = [leaf.name for leaf in shared if len({text_of(leaf.value_in(config)) for config in configs}) > 1]
    if differing:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in differing)
        remedy = f", or give {flags} for all" if RESUMABLE.issuperset(differing) else ""
        raise ConfigError(f"The seeds of {path} have different {', '.join(differing)}: resume each seed alone{remedy}.")


def starts(
    run_dirs: list[Path], configs: list[Config], which: run_lookup.Which, stacked: bool, reporter: Reporter, peers: Peers
) -> list[SeedRun]:
    """The runs that are not complete: each continues at the checkpoint ``which``, at the newest valid one, or at the beginning if none was
    saved yet. Stacked seeds continue from the same step. Only process 0 has the arrays of the checkpoints.

    Raises:
        ConfigError: all runs are complete.
        CheckpointError: a seed lacks the checkpoint of the step from which another one continues.
    """
    found: list[SeedRun] = []

    def find() -> list[Any]:
        for run_dir, config in zip(run_dirs, configs, strict=True):
            with writing(run_dir):
                finish(run_dir)
            found.append(_start(run_dir, config, which, reporter))
        left = [run for run in found if not _is_complete(run)]
        if stacked and len({run.step if run.saved else None for run in left}) > 1:
            first = min(run.step for run in left)
            left = [_earlier(run, first, reporter) for run in left]
        found[:] = left or found
        return [(run_dirs.index(run.folder), run.step, run.info) for run in found]

    every = peers.from_first(find, "the checkpoints")
    runs = [SeedRun(configs[i], run_dirs[i], step, info) for i, step, info in every]
    if all(map(_is_complete, runs)):  # said by all processes
        path = run_dirs[0] if len(run_dirs) == 1 else run_dirs[0].parent
        raise ConfigError(f"{path} is complete at step {min(run.step for run in runs)}: give a larger --total-steps to continue.")
    return found or runs


def _start(run_dir: Path, config: Config, which: run_lookup.Which, reporter: Reporter) -> SeedRun:
    if which == "last" and not checkpoint.steps(run_dir / "checkpoints"):
        reporter.warned(f"no checkpoint was saved yet in {run_dir}: it starts from the beginning.")
        return SeedRun(config, run_dir, 0)
    saved, warnings = run_lookup.find_checkpoint(run_dir, which, config)
    for warning in warnings:
        reporter.warned(warning)
    run = SeedRun(config, run_dir, saved.step, saved.info)
    run.saved = saved
    return run


def _earlier(run: SeedRun, step: int, reporter: Reporter) -> SeedRun:
    """``run`` at an earlier ``step``: an interrupted save can leave the seeds one checkpoint apart."""
    steps = checkpoint.steps(run.folder / "checkpoints")
    if sum(step < later <= run.step for later in steps) > 1 or (step and step not in steps):
        raise CheckpointError(
            f"{run.run_dir} continues from step {run.step}, and another seed continues from step {step}: resume each seed alone"
            f"{f', or all with @{step}' if step in steps else ''}."
        )
    return _start(run.folder, run.config, step, reporter) if step else SeedRun(run.config, run.run_dir, 0)


def _is_complete(run: SeedRun) -> bool:
    """Whether all updates and the last evaluation, which may have been interrupted, are done."""
    total = run.config.total_updates * run.config.batch_size
    if run.step > total:
        raise ConfigError(f"{run.run_dir} is already at step {run.step}, but total_steps = {total}: give a larger --total-steps.")
    if run.info is None or run.step < total:
        return False
    return not run.config.run.eval_episodes or (run.last_evaluation is not None and run.last_evaluation["step"] == run.step)


def restore(backend: Backend, run: SeedRun, reporter: Reporter) -> TrainState:
    """The state of the checkpoint of ``run``, whose callbacks get their saved state."""
    state = from_first(backend.restore(run.saved) if run.saved else None, backend.template)
    if run.saved and run.saved.policy_only:
        reporter.warned(f"{run.saved.path} has only the policy: optimizer, environments and random keys start anew.")
    if warning := run.callbacks.restore((run.info or {}).get("callbacks", [])):
        reporter.warned(f"{run.run_dir}: {warning}")
    return state


def rewind(run: SeedRun, reporter: Reporter) -> None:
    """Note a resume, and remove what the run has written after the step that it continues from."""
    if run.resumed_at is None or not run.writes:
        return
    run_dir, step = run.folder, run.resumed_at
    with writing(run_dir):
        run_directory.note_resume(run_dir, run.config, shlex.join(sys.argv))
        # Checkpoints first, because a checkpoint must not outlive its rows.
        folder = run_dir / "checkpoints"
        dropped = checkpoint.keep(folder, [kept for kept in checkpoint.steps(folder) if kept <= step])
        for name in (METRICS, HISTOGRAMS):
            truncate_after(run_dir / name, step)
        for name in (FAILURE, STOPPED):
            (run_dir / name).unlink(missing_ok=True)
        clips.discard_after(run_dir, step)
        if dropped:
            named = ", ".join(map(str, dropped))
            reporter.warned(f"{run_dir} continues from step {step}: its later checkpoints ({named}) are removed.")
        best = run.best and int(run.best["step"])
        if best not in checkpoint.steps(folder):
            # The best checkpoint was just removed, or was pruned after a better one was found. The next
            # evaluation then counts as the best.
            best = run.best = None
        checkpoint.mark_best(run_dir, best)
