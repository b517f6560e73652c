"""What a resume does before it trains: choose the checkpoints, restore them, and remove what was written after them.

``api._resume`` calls these functions in order. ``config.loading.changed_for_resume`` checks changed settings,
``storage.checkpoint_format.read`` checks the hashes of files, ``storage.run_directory.check_settings`` that the fixed settings are unchanged, and
``Checkpoint.restore`` the names, shapes and types of arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proximo.backends import Backend
from proximo.collect.devices import from_first
from proximo.config import Config, from_mapping, to_mapping
from proximo.config.loading import RESUMABLE
from proximo.config.schema import WORKER_SETTINGS
from proximo.errors import CheckpointError, ConfigError
from proximo.processes.peers import Peers
from proximo.storage import checkpoint, retention, run_directory, run_lookup
from proximo.storage.checkpoint import Checkpoint
from proximo.storage.named_folders import seed_run_dirs
from proximo.storage.run_directory import FAILURE, HISTOGRAMS, METRICS, STOPPED
from proximo.storage.run_lookup import Which
from proximo.storage.save_run import finish
from proximo.tracking.json_lines import truncate_after
from proximo.tracking.reporter import Reporter
from proximo.training import clips
from proximo.training.callbacks import SeedCallbacks
from proximo.training.stored_seed_run import SeedStart, StoredSeedRun, writable
from proximo.types import TrainState

SEED_SETTINGS = {"seed", "name", "runs_dir", "keep_checkpoints", "tensorboard", "track"}
"""Settings that each seed of a group applies on its own."""
MAY_DIFFER = {*SEED_SETTINGS, *WORKER_SETTINGS, "devices", "updates_per_call"}
"""Settings in which the seeds of a group may differ. The first seed's value of those that only change the speed applies to all."""


def check_shared_settings(path: Path, configs: Sequence[Config]) -> None:
    """Raise ``ConfigError`` if the seeds of the group ``path`` differ in a setting that their common training can have only once."""
    settings = [{name: x for group in to_mapping(config).values() for name, x in group.items()} for config in configs]
    differing = [
        name for name, x in settings[0].items() if name not in MAY_DIFFER and any(repr(s[name]) != repr(x) for s in settings)
    ]
    if differing:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in differing)
        remedy = f", or give {flags} for all" if RESUMABLE.issuperset(differing) else ""
        raise ConfigError(f"The seeds of {path} have different {', '.join(differing)}: resume each seed alone{remedy}.")


def stored_settings(path: Path, reporter: Reporter, peers: Peers) -> list[tuple[Path, Config]]:
    """The run directory and the settings of each seed of the run at ``path`` that has not ended."""

    def read() -> list[Any]:
        run_dirs = not_ended(seed_run_dirs(path), reporter) or [path]
        return [(str(run_dir), to_mapping(run_directory.read_config(run_dir))) for run_dir in run_dirs]

    stored = peers.from_first(read, "the settings of the run")
    return [(Path(run_dir), from_mapping(mapping, Config(), str(path))) for run_dir, mapping in stored]


def not_ended(run_dirs: list[Path], reporter: Reporter) -> list[Path]:
    """The seeds of a group that neither NaN or infinity nor a callback has ended. Failed ones would fail again at the same step."""
    ended: set[Path] = set()
    for marker, how, more in (
        (FAILURE, "had failed", "gives the reason"),
        (STOPPED, "was stopped by a callback", "gives the step"),
    ):
        found = [run_dir for run_dir in run_dirs if (run_dir / marker).exists() and run_dir not in ended]
        ended |= {*found}
        if found:
            reporter.warned(f"{', '.join(run_dir.name for run_dir in found)} {how} and is not resumed (its {marker} {more}).")
    if ended and len(ended) == len(run_dirs):
        raise CheckpointError(
            f"Every seed of {run_dirs[0].parent} has failed or was stopped: resume one of them by its own name."
        )
    return [run_dir for run_dir in run_dirs if run_dir not in ended]


def starts(
    run_dirs: list[Path], configs: list[Config], which: Which, stacked: bool, reporter: Reporter, peers: Peers
) -> list[SeedStart]:
    """Where each run continues: at the checkpoint ``which``, at the newest valid one, or at the beginning if none was saved yet. Stacked
    seeds that are not complete continue from the same step. Only process 0 has the arrays of the checkpoints."""
    found: list[SeedStart] = []

    def find() -> list[Any]:
        found[:] = _starts(run_dirs, configs, which, stacked, reporter)
        return [(start.step, start.saved and start.saved.info) for start in found]

    every = peers.from_first(find, "the checkpoints")
    return found or [
        SeedStart(run_dir, config, step, None if info is None else Checkpoint(run_dir, step, info, {}, {}, {}))
        for run_dir, config, (step, info) in zip(run_dirs, configs, every, strict=True)
    ]


def _starts(run_dirs: list[Path], configs: list[Config], which: Which, stacked: bool, reporter: Reporter) -> list[SeedStart]:
    def start(run_dir: Path, config: Config, found: Checkpoint | None) -> SeedStart:
        return SeedStart(run_dir, config, found.step if found else 0, found)

    for run_dir in run_dirs:
        with writable(run_dir):
            finish(run_dir)
    found = [
        start(run_dir, config, _checkpoint_to_resume(run_dir, config, which, reporter))
        for run_dir, config in zip(run_dirs, configs, strict=True)
    ]
    left = [one for one in found if not is_complete(one)]
    if not stacked or len({one.saved and one.step for one in left}) < 2:
        return found
    first = min(one.step for one in left)
    return [start(one.run_dir, one.config, _checkpoint_of_all(one, first, reporter)) if one in left else one for one in found]


def _checkpoint_to_resume(run_dir: Path, config: Config, which: Which, reporter: Reporter) -> Checkpoint | None:
    if which == "last" and not checkpoint.steps(run_dir / "checkpoints"):
        reporter.warned(f"no checkpoint was saved yet in {run_dir}: it starts from the beginning.")
        return None
    saved, warnings = run_lookup.find_checkpoint(run_dir, which, config)
    for warning in warnings:
        reporter.warned(warning)
    return saved


def _checkpoint_of_all(found: SeedStart, step: int, reporter: Reporter) -> Checkpoint | None:
    """The checkpoint of ``step``, the earliest one that a seed continues from."""
    run_dir = found.run_dir
    steps = checkpoint.steps(run_dir / "checkpoints")
    # All seeds start again from step 0 only if their first save was interrupted.
    if step not in steps and (step > 0 or len(steps) > 1):
        raise CheckpointError(
            f"{run_dir} has no checkpoint of step {step}, from which another seed continues: resume each seed alone."
        )
    # An interrupted save leaves seeds one save apart. More is work that the user has not asked to repeat.
    if sum(step < later <= found.step for later in steps) > 1:
        raise CheckpointError(
            f"{run_dir} continues from step {found.step}, and another seed continues from step {step}: resume each seed alone, or all with @{step}."
        )
    return _checkpoint_to_resume(run_dir, found.config, step, reporter) if step else None


def is_complete(start: SeedStart) -> bool:
    """Whether nothing is left to do: neither an update nor the last evaluation, which an interruption may have skipped."""
    config, step = start.config, start.step
    total = config.total_updates * config.batch_size
    if step > total:
        raise ConfigError(f"{start.run_dir} is already at step {step}, but total_steps = {total}: give a larger --total-steps.")
    if start.saved is None or step < total:
        return False
    evaluation = start.saved.evaluation
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


def rewind(seed_run: StoredSeedRun, reporter: Reporter) -> None:
    """Remove what the run has written after the step that it continues from."""
    step = seed_run.start.step
    # Checkpoints first, because a checkpoint must not outlive its rows.
    dropped = retention.discard_after(seed_run.checkpoints, step)
    for name in (METRICS, HISTOGRAMS):
        truncate_after(seed_run.run_dir / name, step)
    for name in (FAILURE, STOPPED):
        (seed_run.run_dir / name).unlink(missing_ok=True)
    clips.discard_after(seed_run.run_dir, step)
    if dropped:
        reporter.warned(
            f"{seed_run.run_dir} continues from step {step}: its later checkpoints ({', '.join(map(str, dropped))}) are removed."
        )
    best = seed_run.best and int(seed_run.best["step"])
    if best in checkpoint.steps(seed_run.checkpoints):
        retention.mark_best(seed_run.run_dir, best)
    else:
        # The checkpoint was just removed, or was pruned after a better one was found. The next evaluation then counts as the best.
        seed_run.best = None
        retention.unmark_best(seed_run.run_dir)
