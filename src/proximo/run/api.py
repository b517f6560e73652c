"""Train, resume, evaluate and load, from Python; the command line is a thin layer above this."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from proximo.checks import quick_check
from proximo.config import MAX_SEED, Config, override
from proximo.drivers.learning import fresh_policy
from proximo.envs import HostEnvironment, JaxEnvironment
from proximo.errors import CheckpointError, ConfigError, TrainingError
from proximo.networks import ActorCritic
from proximo.ppo import make_hyperparameters
from proximo.run import checkpoint, directory, retention
from proximo.run.episodes import MOST_EPISODES, Episodes
from proximo.run.evaluation import JUDGEMENT_STREAM, make_evaluator
from proximo.run.facts import describe
from proximo.run.interrupts import Interrupts
from proximo.run.member import FAILURE, Member, Result, locked, opened
from proximo.run.program import HostProgram, Program, make_program
from proximo.run.progress import Reporter
from proximo.run.reuse import environment, reuse, stacks_seeds
from proximo.run.settings import changed_for_resume, make_config
from proximo.run.sinks import truncate_after
from proximo.run.system import system_differences, system_info
from proximo.run.training import Training
from proximo.run.validation import validate
from proximo.runtime import prepare_jax
from proximo.spaces import from_any
from proximo.types import TrainState

PATIENCE_SECONDS = 15.0


def train(env: str = "", *, config: Config | None = None, reporter: Reporter | None = None, **settings: Any) -> list[Result]:
    """Train a policy for ``env`` with its preset and ``settings`` (as ``num_envs=16``), or with a whole ``config``.

    Returns a ``Result`` for each seed. Raises ``ConfigError``, ``EnvError`` or ``RunDirectoryError`` for mistakes, before
    anything is compiled; ``TrainingError`` when training fails by itself.
    """
    if config is None:
        config = make_config(env, settings)
    else:
        if env and env != config.env.id:
            raise ConfigError(f"env = {env!r}, but config is for {config.env.id!r}: give one of them.")
        config = validate(override(config, settings))
    prepare_jax()
    reporter = reporter or Reporter()
    with _patience(reporter, config.env.id):
        made = environment(config)
        # Once for each environment; the entry holds it, so that its id goes to no other.
        _, warnings = reuse(("checked", id(made)), lambda: (made, quick_check(made, config.env.id)))
    for warning in warnings:
        reporter.warned(warning)
    program = make_program(config, made, config.run.seeds > 1 and stacks_seeds(config, made))
    facts = describe(program)  # traces the policy: an unsupported space is noticed before a directory is made
    members = _seed_configs(config)
    places = [f"seed-{m.run.seed}" for m in members] if len(members) > 1 else ["."]

    def fill(folder: Path) -> None:
        for place, member in zip(places, members, strict=True):
            directory.write_start_files(folder / place, member, shlex.join(sys.argv), system_info())

    parent = directory.create(Path(config.run.runs_dir), config.env.id, config.run.name, fill)
    run_dirs = [parent / place for place in places]
    with locked(run_dirs):
        reporter.started(config, run_dirs, facts)
        return _train_groups(program, run_dirs, members, None, reporter, parent)


@contextlib.contextmanager
def _patience(reporter: Reporter, env_id: str):
    """Say so when an environment, which is made and tried in this process first, does not come back."""
    said = f"{env_id} has been made, reset or stepped for {PATIENCE_SECONDS:.0f} s and has not come back yet; Ctrl-C ends it."
    timer = threading.Timer(PATIENCE_SECONDS, lambda: reporter.warned(said))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def resume(run: str | Path, *, runs_dir: str = "runs", reporter: Reporter | None = None, **settings: Any) -> list[Result]:
    """Go on with ``run`` (a path, a name or ``last``; with ``@best`` or ``@STEP`` from there) from its newest valid checkpoint;
    from the beginning, and saying so, where none was saved yet.

    Raises ``CheckpointError`` when none is valid, ``ConfigError`` for settings that a resumed run cannot change.
    """
    reporter = reporter or Reporter()
    prepare_jax()
    path, which = directory.resolve(str(run), Path(runs_dir))
    # Before anything is read: what another process still writes would be another run a moment later.
    with locked(directory.members(path) or [path]):
        return _resume(path, which, settings, reporter)


def _resume(path: Path, which: directory.Which, settings: Mapping[str, Any], reporter: Reporter) -> list[Result]:
    run_dirs = _without_failed(directory.members(path), reporter) or [path]
    saved = [directory.read_config(run_dir) for run_dir in run_dirs]
    configs = [changed_for_resume(config, settings) for config in saved]
    config = configs[0]
    if config.ppo.total_steps != saved[0].ppo.total_steps:
        reporter.warned(
            f"total_steps {saved[0].ppo.total_steps} → {config.ppo.total_steps}: schedules stretch over the new total, "
            "so that this run differs from one that had it from the start."
        )
    for difference in system_differences(run_dirs[0]):
        reporter.warned(difference)
    if len({c.ppo.total_steps for c in configs}) > 1:
        raise ConfigError(f"The seeds of {path} have different total_steps: resume them singly, or give --total-steps for all.")
    env = environment(config)
    stacked = len(run_dirs) > 1 and stacks_seeds(config, env)
    steps = _steps_to_resume(run_dirs, which, stacked, reporter)
    left = [i for i, step in enumerate(steps) if not _is_complete(run_dirs[i], config, step)]
    if not left:
        raise ConfigError(f"{path} is complete at step {min(steps)}: give a larger --total-steps to go on.")
    together = len(directory.members(path)) or len(directory.members(path.parent))
    if stacks_seeds(config, env) and together > len(left):
        reporter.warned(
            f"{together} seeds were trained in one program, now it is {len(left)}: the last bits may differ from the uninterrupted run's."
        )
    program = make_program(config, env, stacked)
    run_dirs, configs, steps = [run_dirs[i] for i in left], [configs[i] for i in left], [steps[i] for i in left]
    reporter.started(config, run_dirs, {**describe(program), "resumed_at": min(steps)})
    return _train_groups(program, run_dirs, configs, steps, reporter, path)


def _without_failed(run_dirs: list[Path], reporter: Reporter) -> list[Path]:
    """Those of a group's seeds that NaN or infinity has not ended: they would end there again."""
    failed = [run_dir for run_dir in run_dirs if (run_dir / FAILURE).exists()]
    if failed:
        names = ", ".join(run_dir.name for run_dir in failed)
        reporter.warned(f"{names} had failed and stays as it is (its {FAILURE} says why).")
    if failed and len(failed) == len(run_dirs):
        raise CheckpointError(f"Every seed of {run_dirs[0].parent} has failed: resume one of them by its own name to try again.")
    return [run_dir for run_dir in run_dirs if run_dir not in failed]


def _is_complete(run_dir: Path, config: Config, step: int) -> bool:
    """Whether nothing is left to do: no update, and not the last evaluation either, which an interruption may have cut short."""
    total = config.total_updates * config.batch_size
    if step > total:
        raise ConfigError(f"{run_dir} stands at step {step} already: total_steps = {total} is less.")
    if step < total:
        return False
    evaluation = checkpoint.verify(run_dir / "checkpoints" / str(step))["info"]["evaluation"]
    return not config.run.eval_episodes or (evaluation is not None and evaluation["step"] == step)


def _seed_configs(config: Config) -> list[Config]:
    """An ordinary run's settings for each seed."""
    seeds = range(config.run.seed, config.run.seed + config.run.seeds)
    return [dataclasses.replace(config, run=dataclasses.replace(config.run, seed=seed, seeds=1)) for seed in seeds]


def _train_groups(
    program: Program | HostProgram,
    run_dirs: list[Path],
    configs: list[Config],
    steps: list[int] | None,
    reporter: Reporter,
    path: Path,
) -> list[Result]:
    """All seeds together where the program is stacked, else one after the other; ``steps`` are those of a resume of ``path``."""
    size = len(run_dirs) if program.stacked else 1
    results: list[Result] = []
    failures: list[TrainingError] = []
    with Interrupts(reporter.stopping) as interrupts, contextlib.closing(program):
        for i in range(0, len(run_dirs), size):
            if interrupts.requested is not None:
                if not any(result.interrupted for result in results):
                    reporter.stopped(f"Stopped before {run_dirs[i].name}. Go on with: proximo train --resume {path}")
                results = [dataclasses.replace(result, interrupted=interrupts.requested) for result in results]
                break
            group, step = slice(i, i + size), None if steps is None else steps[i]
            with opened(run_dirs[group], configs[group], step) as members:
                training = Training(program, members, interrupts, reporter, path)
                results += _train_members(training, step)
                failures += [member.failure for member in members if member.failure is not None]
    if results:
        reporter.finished(results)
    if failures:
        raise TrainingError(" ".join(map(str, failures)))
    return results


def _train_members(training: Training, step: int | None) -> list[Result]:
    """From the first state; or from ``step`` of a run that is resumed (0: nothing was saved yet)."""
    program, members = training.program, training.members
    if step is not None:
        for member in members:
            directory.note_resume(member.run_dir, member.config, shlex.join(sys.argv))
            _rewind(member, step, training.reporter)
    if step:
        return training.run(lambda: program.stack([_restore(program, member, step) for member in members]), step)
    return training.run(lambda: program.start([member.config.run.seed for member in members]), 0)


def _restore(program: Program | HostProgram, member: Member, step: int) -> TrainState:
    state = checkpoint.load(member.checkpoints / str(step), program.template())
    state = jax.tree.map(jnp.asarray, state)
    total = make_hyperparameters(member.config.ppo).total_steps
    hyperparameters = dataclasses.replace(state.learner.hyperparameters, total_steps=total)
    return dataclasses.replace(state, learner=dataclasses.replace(state.learner, hyperparameters=hyperparameters))


def _rewind(member: Member, step: int, reporter: Reporter) -> None:
    """Forget what the run wrote beyond ``step``, and remember its best evaluation until then."""
    if step:
        info = checkpoint.verify(member.checkpoints / str(step))["info"]
        member.best, member.last_evaluation = info["best"], info["evaluation"]
    # Rows last: those of a checkpoint that is still there must not be missing.
    dropped = retention.discard_after(member.checkpoints, step)
    truncate_after(member.run_dir / "metrics.jsonl", step)
    if dropped:
        reporter.warned(
            f"{member.run_dir} goes on from step {step}: its later checkpoints ({', '.join(map(str, dropped))}) are dropped."
        )
    best = member.best and int(member.best["step"])
    if best in checkpoint.steps(member.checkpoints):
        retention.mark_best(member.run_dir, best)
    else:
        # It was discarded just now, or pruned when a better one came: what comes next is the best again.
        member.best = None
        retention.unmark_best(member.run_dir)


def _steps_to_resume(run_dirs: list[Path], which: directory.Which, together: bool, reporter: Reporter) -> list[int]:
    """The step that each run goes on from: ``which``, or the newest valid one, or 0 where none was saved yet. One for all
    where they train ``together``."""
    steps = [_step_to_resume(run_dir, which, reporter) for run_dir in run_dirs]
    if not together or len(set(steps)) == 1:
        return steps
    common = min(steps)
    for run_dir in run_dirs:
        saved = checkpoint.steps(run_dir / "checkpoints")
        # All of them begin again where the very first save was cut short, and only there.
        if common not in saved and (common > 0 or len(saved) > 1):
            raise CheckpointError(
                f"{run_dir} has no checkpoint of step {common}, which another seed stands at: resume the seeds singly."
            )
    return [common] * len(run_dirs)


def _step_to_resume(run_dir: Path, which: directory.Which, reporter: Reporter) -> int:
    if which == "last" and not checkpoint.steps(run_dir / "checkpoints"):
        reporter.warned(f"no checkpoint was saved yet in {run_dir}: it starts from the beginning.")
        return 0
    path, warnings = _find(run_dir, which)
    for warning in warnings:
        reporter.warned(warning)
    return int(path.name)


def _find(run_dir: Path, which: directory.Which) -> tuple[Path, list[str]]:
    """The checkpoint that ``which`` names, verified, and warnings."""
    folder = run_dir / "checkpoints"
    if which == "last":
        return checkpoint.newest_valid(folder)
    step = retention.best_step(run_dir) if which == "best" else which
    if step is None:
        raise CheckpointError(f"{run_dir} has no best checkpoint: it was never evaluated. Use @last.")
    if step not in checkpoint.steps(folder):
        known = ", ".join(map(str, checkpoint.steps(folder))) or "none"
        raise CheckpointError(f"{run_dir} has no checkpoint of step {step}; it has {known}.")
    checkpoint.verify(folder / str(step))
    return folder / str(step), []


@dataclasses.dataclass(frozen=True)
class Policy:
    """A trained policy and the environment that it was trained for.

    ``network.init_memory(N)`` is the empty memory of N environments, ``network.step(memory, observation[N], first[N],
    valid[N], key) -> (memory, action, log_prob, value)`` acts (by the mode with ``key=None``; under ``equinox.filter_jit``), and
    ``network.to_space(action)`` is what the environment takes."""

    network: ActorCritic
    env: JaxEnvironment | HostEnvironment
    config: Config
    step: int
    warnings: tuple[str, ...] = ()


def load_policy(run: str | Path, runs_dir: str = "runs") -> Policy:
    """The policy of ``run`` (a path, a name or ``last``, with ``@best``, ``@last`` or ``@STEP``). Raises ``CheckpointError``."""
    path, which = directory.resolve(str(run), Path(runs_dir))
    if directory.is_group(path):
        names = ", ".join(p.name for p in directory.members(path))
        raise CheckpointError(
            f"{path} holds several seeds ({names}): name one of them, as {path / directory.members(path)[0].name}."
        )
    config = directory.read_config(path)
    env = environment(config)
    found, warnings = _find(path, which)
    template = jax.eval_shape(lambda key: fresh_policy(key, env, config), jax.random.key(0))
    policy = checkpoint.load(found, template, part="learner.policy")
    return Policy(jax.tree.map(jnp.asarray, policy), env, config, int(found.name), tuple(warnings))


def evaluate(
    run: str | Path | Policy,
    episodes: int = 100,
    *,
    stochastic: bool = False,
    seed: int = 0,
    runs_dir: str = "runs",
    levels: str | None = None,
    env_settings: dict[str, Any] | None = None,
) -> Episodes:
    """Play ``episodes`` whole episodes on environment seeds that neither training nor selection has used.

    ``stochastic`` samples actions; else the policy acts by its mode. ``levels``, as ``"1000:1050"``, takes the episodes from
    that range instead of the training's, and ``env_settings`` change parameters of the environment, beside those trained with.
    Raises ``ConfigError`` where they change its spaces.
    """
    prepare_jax()
    if not 1 <= episodes <= MOST_EPISODES:
        raise ConfigError(f"episodes = {episodes}: expected 1 … {MOST_EPISODES}.")
    if not 0 <= seed <= MAX_SEED:
        raise ConfigError(f"seed = {seed}: expected 0 … {MAX_SEED}.")
    policy = run if isinstance(run, Policy) else load_policy(run, runs_dir)
    env, config = _judging(policy, levels, env_settings or {})
    with contextlib.closing(make_evaluator(env, config, episodes, stochastic)) as evaluator:
        return evaluator(policy.network, seed, JUDGEMENT_STREAM)


def _judging(policy: Policy, levels: str | None, env_settings: dict[str, Any]) -> tuple[JaxEnvironment | HostEnvironment, Config]:
    """The environment to be judged by, and its settings."""
    if levels is None and not env_settings:
        return policy.env, policy.config
    trained = policy.config.env
    changes = {"levels": trained.levels if levels is None else levels, "env_settings": {**trained.env_settings, **env_settings}}
    config = override(policy.config, changes)
    env = environment(config)
    for role, ours, theirs in (
        ("observation", from_any(env.observation_space, "observation"), from_any(policy.env.observation_space, "observation")),
        ("action", from_any(env.action_space, "action"), from_any(policy.env.action_space, "action")),
    ):
        if ours != theirs:
            raise ConfigError(f"env_settings: the {role} space is {ours} with them, where the policy was trained with {theirs}.")
    return env, config
