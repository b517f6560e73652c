"""What is watched, and how it is recorded: a trained policy, by any name of its run, or a random agent."""

import base64
import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proximo.collect.environment import environment, evaluation_environment
from proximo.config import MAX_SEED, Config, override
from proximo.envs import Environment
from proximo.envs.registry import check_id
from proximo.errors import CheckpointError, ConfigError, EnvError, command, is_number
from proximo.evaluation.episodes import EVALUATION_STREAM
from proximo.evaluation.evaluate import check_number
from proximo.evaluation.policy import Policy, load_policy
from proximo.jax_setup import prepare_jax
from proximo.rendering.play import Agent, PlayedStep, fps_of, play, policy_agent, random_agent
from proximo.rendering.players import make_player
from proximo.rendering.video import recording, videos
from proximo.settings import make_config
from proximo.storage import run_directory, run_lookup, zoo
from proximo.storage.named_folders import seed_run_dirs

MAX_EPISODES = 10_000
MAX_STEPS, LONGEST = 10_000, 10**9
"""Maximum number of steps of an episode: by default five minutes at 30 frames per second."""


@dataclass(frozen=True)
class Subject:
    """An agent and the environment that it is watched in."""

    env: Environment
    config: Config
    agent: Agent
    acts: str
    """``greedy``, ``sampled`` or ``random``."""
    run_dir: Path | None = None
    step: int | None = None
    seeds: tuple[str, ...] = ()
    """All seeds of the group that was named; ``run_dir`` is the first."""
    other: str | None = None
    """The id of the environment if it is not that of the training."""
    warnings: tuple[str, ...] = ()

    @property
    def fps(self) -> float:
        """Frames per second that the environment is shown with."""
        return fps_of(self.env)

    @property
    def path(self) -> Path:
        """Where a video of it is written, without its ending."""
        if self.run_dir is None:
            return Path(f"{run_directory.file_name(self.config.env.id)}-random")
        where = "" if self.other is None else f"-{run_directory.file_name(self.other)}"
        return videos(zoo.output_folder(self.run_dir)) / f"watch-{'random' if self.step is None else self.step}{where}"

    def __str__(self) -> str:
        where = self.config.env.id if self.run_dir is None else f"{zoo.label(self.run_dir)} on {self.config.env.id}"
        at = "" if self.step is None else f" at step {self.step:,}"
        return f"{where}{at}, {'actions at random' if self.acts == 'random' else self.acts}"

    def play(self, episodes: int, seed: int, max_steps: int | None = None, window: bool = False) -> Iterator[PlayedStep]:
        """Play the first episodes of `proximo eval` with this seed; of sampled actions, only the first one is the same, and vector
        environments may play others. An episode is cut off after ``max_steps`` (None: ``eval_max_steps`` of the run, or 10,000). With
        ``window``, an environment that has its own window shows itself."""
        limit = max_steps or self.config.run.eval_max_steps or MAX_STEPS
        with contextlib.closing(make_player(self.env, self.config, seed, EVALUATION_STREAM, window)) as player:
            yield from play(player, self.agent, episodes, limit)


@dataclass(frozen=True)
class Clip:
    """A video of some episodes. A notebook displays it; ``save`` writes it to a file."""

    video: bytes = field(repr=False)
    """The content of an MP4 file (H.264)."""
    episodes: list[dict[str, Any]]
    """``{return, length, success, ended}`` of each episode. ``success`` is None if the environment does not report it, and ``ended`` is
    ``terminated``, ``truncated`` or ``cut``."""
    frames: int
    fps: float
    """Frames per second."""

    def save(self, path: str | Path) -> Path:
        """Write the video.

        Args:
            path: the file, which ends in ``.mp4``. Its folder is created.

        Returns:
            The path.

        Raises:
            ConfigError: ``path`` does not end in ``.mp4``.
            OSError: the file cannot be written.
        """
        path = Path(path)
        if path.suffix.lower() != ".mp4":
            raise ConfigError(f"{path}: expected a name that ends in .mp4. agent.watch(path) also writes a .gif.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.video)
        return path

    def __repr__(self) -> str:
        returns = ", ".join(f"{episode['return']:.4g}" for episode in self.episodes)
        return f"Clip(returns [{returns}], {self.frames} frames, {self.fps:g} per second)"

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.video).decode()
        return f'<video controls autoplay loop muted style="max-width: 100%" src="data:video/mp4;base64,{data}"></video>'


def record(
    subject: Subject, path: Path, episodes: int, seed: int, max_steps: int | None = None, fps: float | None = None
) -> tuple[int, list[dict[str, Any]]]:
    """Record the episodes that ``subject.play`` plays. Returns the number of frames, and the outcome of each episode."""
    frames, played = 0, []
    with recording(path, fps or subject.fps) as video:
        for step in subject.play(episodes, seed, max_steps):
            frame = step.draw()
            assert frame is not None
            video.add(frame)
            frames += 1
            played += [step.outcome] if step.ended else []
    return frames, played


def make_clip(subject: Subject, episodes: int, seed: int, max_steps: int | None, fps: float | None) -> Clip:
    """Like ``record``, in memory. The arguments are those of ``PPO.render``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        frames, played = record(subject, path, episodes, seed, max_steps, fps)
        return Clip(path.read_bytes(), played, frames, fps or subject.fps)


def film(policy: Policy, path: Path, seed: int = 0, max_steps: int = MAX_STEPS) -> None:
    """Record an episode of ``policy``, with the most probable actions."""
    record(acting(policy), path, 1, seed, max_steps)


def acting(policy: Policy, deterministic: bool = True, **where: Any) -> Subject:
    """A policy in its environment. ``where`` has other fields of the subject, which come from its run."""
    acts = "greedy" if deterministic else "sampled"
    given = {"env": policy.env, "config": policy.config, "step": policy.step, **where}
    return Subject(agent=policy_agent(policy, deterministic), acts=acts, **given)


def check(episodes: int, seed: int, max_steps: int | None, fps: float | None) -> None:
    """Raise ``ConfigError`` for a number out of range."""
    check_number("episodes", episodes, 1, MAX_EPISODES)
    check_number("seed", seed, 0, MAX_SEED)
    if max_steps is not None:
        check_number("max_steps", max_steps, 1, LONGEST)
    if fps is not None and (not is_number(fps) or not 0 < fps <= 240):
        raise ConfigError(f"fps = {fps!r}: expected a number that is more than 0, and 240 at most.")


def trained(run: str, runs_dir: Path, deterministic: bool, levels: str | None, env_settings: Any, other: str | None) -> Subject:
    """The policy of ``run``; of a group of seeds, the policy of the first. It plays in the environment ``other``, if given."""
    prepare_jax()
    try:
        run_dir, which, seeds = _find_run(run, runs_dir)
    except CheckpointError as error:
        with contextlib.suppress(EnvError, ConfigError):
            _check_environment(run, error)
            raise CheckpointError(
                f"{run} is an environment, and no run of that name is in {runs_dir}: "
                f"`{command('proximo', 'watch', run, '--agent', 'random')}` shows it untrained, "
                f"`{command('proximo', 'train', run)}` trains a policy for it."
            ) from error
        raise
    policy = load_policy(f"{run_dir}@{which}", str(runs_dir), env=other)
    env, config = evaluation_environment(policy.config, policy.env, other, env_settings, levels)
    other = config.env.id if config.env.id != policy.config.env.id else None
    found = {"run_dir": run_dir, "seeds": seeds, "other": other, "warnings": policy.warnings}
    return acting(policy, deterministic, env=env, config=config, **found)


def untrained(name: str, runs_dir: Path, seed: int, levels: str | None, env_settings: dict[str, Any] | None) -> Subject:
    """Random actions in the environment of a run, or in the environment with this id."""
    prepare_jax()
    given = {"levels": levels, "env_settings": env_settings or None}
    settings = {name: value for name, value in given.items() if value is not None}
    try:
        run_dir, _, _ = _find_run(name, runs_dir)
    except CheckpointError as error:
        try:
            _check_environment(name, error)
        except EnvError as unknown:
            raise EnvError(f"{name!r} is neither an environment nor a run in {runs_dir}: {unknown}") from error
        run_dir, config = None, make_config(name, settings)
    else:
        config = override(run_directory.read_config(run_dir), settings)
    env = environment(config)
    return Subject(env, config, random_agent(env, seed), "random", run_dir)


def _find_run(text: str, runs_dir: Path) -> tuple[Path, run_lookup.Which, tuple[str, ...]]:
    """The run that is meant, which of its checkpoints, and the seeds of a group, whose first run it is."""
    path, which = run_lookup.find_run(text, runs_dir)
    seed_runs = seed_run_dirs(path)
    return (seed_runs[0] if seed_runs else path), which, tuple(seed_run.name for seed_run in seed_runs)


def _check_environment(text: str, no_run: CheckpointError) -> None:
    """Raise ``no_run`` if ``text`` can only name a run, and ``EnvError`` if no environment has this id."""
    if not text or "@" in text or text == "last" or text.startswith(zoo.PREFIX) or Path(text).exists():
        raise no_run
    check_id(text)
