"""What a resume does before it trains: choose the checkpoints, restore them, and remove what was written after them."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp

from proximo.backends import Backend, with_total_steps
from proximo.config import Config
from proximo.errors import CheckpointError, ConfigError
from proximo.storage import checkpoint, retention, run_directory
from proximo.storage.checkpoint import Checkpoint
from proximo.storage.run_directory import FAILURE, HISTOGRAMS, METRICS
from proximo.tracking.reporter import Reporter
from proximo.tracking.sinks import truncate_after
from proximo.training import clips
from proximo.training.stored_seed_run import StoredSeedRun
from proximo.types import TrainState


def without_failed(run_dirs: list[Path], reporter: Reporter) -> list[Path]:
    """The seeds of a group that NaN or infinity has not ended. The others would end there again."""
    failed = [run_dir for run_dir in run_dirs if (run_dir / FAILURE).exists()]
    if failed:
        names = ", ".join(run_dir.name for run_dir in failed)
        reporter.warned(f"{names} had failed and is not resumed (its {FAILURE} gives the reason).")
    if failed and len(failed) == len(run_dirs):
        raise CheckpointError(f"Every seed of {run_dirs[0].parent} has failed: resume one of them by its own name to try again.")
    return [run_dir for run_dir in run_dirs if run_dir not in failed]


def step_of(saved: Checkpoint | None) -> int:
    """The step from which a run continues; 0 if no checkpoint was saved yet."""
    return saved.step if saved else 0


def checkpoints_to_resume(
    run_dirs: list[Path], which: run_directory.Which, stacked: bool, reporter: Reporter
) -> list[Checkpoint | None]:
    """The checkpoint from which each run continues: ``which``, or the newest valid one, or None if none was saved yet. Stacked seeds
    continue from the same step."""
    saved = [_checkpoint_to_resume(run_dir, which, reporter) for run_dir in run_dirs]
    common = min(map(step_of, saved))
    if not stacked or common == max(map(step_of, saved)):
        return saved
    for i, run_dir in enumerate(run_dirs):
        steps = checkpoint.steps(run_dir / "checkpoints")
        # They begin again only if the very first save was cut short.
        if common not in steps and (common > 0 or len(steps) > 1):
            raise CheckpointError(
                f"{run_dir} has no checkpoint of step {common}, from which another seed continues: resume each seed alone."
            )
        if step_of(saved[i]) != common:
            saved[i] = checkpoint.load(run_dir / "checkpoints" / str(common)) if common else None
    return saved


def _checkpoint_to_resume(run_dir: Path, which: run_directory.Which, reporter: Reporter) -> Checkpoint | None:
    if which == "last" and not checkpoint.steps(run_dir / "checkpoints"):
        reporter.warned(f"no checkpoint was saved yet in {run_dir}: it starts from the beginning.")
        return None
    saved, warnings = retention.find(run_dir, which)
    for warning in warnings:
        reporter.warned(warning)
    return saved


def is_complete(run_dir: Path, config: Config, saved: Checkpoint | None) -> bool:
    """Whether nothing is left to do: neither an update nor the last evaluation, which an interruption may have skipped."""
    total, step = config.total_updates * config.batch_size, step_of(saved)
    if step > total:
        raise ConfigError(f"{run_dir} is already at step {step}, but total_steps = {total}: give a larger --total-steps.")
    if saved is None or step < total:
        return False
    evaluation = saved.evaluation
    return not config.run.eval_episodes or (evaluation is not None and evaluation["step"] == step)


def restore(backend: Backend, seed_run: StoredSeedRun, saved: Checkpoint, reporter: Reporter) -> TrainState:
    """The state of a checkpoint. Its evaluations and the state of its callbacks go to ``seed_run``."""
    state = saved.restore(backend.template())
    seed_run.best, seed_run.last_evaluation = saved.best, saved.evaluation
    if warning := seed_run.listeners.restore(saved.info.get("callbacks", [])):
        reporter.warned(f"{seed_run.run_dir}: {warning}")
    return with_total_steps(jax.tree.map(jnp.asarray, state), seed_run.config)


def rewind(seed_run: StoredSeedRun, step: int, reporter: Reporter) -> None:
    """Remove what the run has written after ``step``."""
    # Checkpoints first, because a checkpoint must not outlive its rows.
    dropped = retention.discard_after(seed_run.checkpoints, step)
    for name in (METRICS, HISTOGRAMS):
        truncate_after(seed_run.run_dir / name, step)
    clips.discard_after(seed_run.run_dir, step)
    if dropped:
        reporter.warned(
            f"{seed_run.run_dir} continues from step {step}: its later checkpoints ({', '.join(map(str, dropped))}) are removed."
        )
    best = seed_run.best and int(seed_run.best["step"])
    if best in checkpoint.steps(seed_run.checkpoints):
        retention.mark_best(seed_run.run_dir, best)
    else:
        # The best checkpoint was removed just now, or pruned after a better one: the next evaluation is the best again.
        seed_run.best = None
        retention.unmark_best(seed_run.run_dir)
