"""What is to be watched: a trained policy by any of a run's names, or an agent that acts at random."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proximo.config import MAX_SEED, Config, override
from proximo.envs import HostEnvironment, JaxEnvironment
from proximo.errors import CheckpointError, ConfigError, EnvError, command
from proximo.run import directory
from proximo.run.evaluation import JUDGEMENT_STREAM
from proximo.run.frames import videos
from proximo.run.judgement import judging_environment
from proximo.run.playing import Agent, PolicyAgent, Row, episodes_of, random_agent
from proximo.run.policy import Policy, load_policy
from proximo.run.reuse import environment
from proximo.run.settings import make_config
from proximo.run.stage import fps_of
from proximo.run.video import recorder
from proximo.runtime import prepare_jax

MOST_EPISODES = 10_000
MOST_STEPS = 10_000
"""Of an episode, where nothing else is asked for: five minutes at 30 frames per second."""


@dataclass(frozen=True)
class Subject:
    """An agent and the environment that it is watched in."""

    env: JaxEnvironment | HostEnvironment
    config: Config
    agent: Agent
    acts: str
    """``greedy``, ``sampled`` or ``random``."""
    run_dir: Path | None = None
    step: int | None = None
    seeds: tuple[str, ...] = ()
    """Where a group of seeds was named: all of them, ``run_dir`` being the first."""
    warnings: tuple[str, ...] = ()

    @property
    def fps(self) -> float:
        """Frames per second that the environment is shown with."""
        return fps_of(self.env)

    @property
    def path(self) -> Path:
        """Where a video of it is written, without its ending."""
        name = "random" if self.step is None else f"{self.step}"
        if self.run_dir is None:
            return Path(f"{self.config.env.id.replace(':', '-').replace('/', '-')}-random")
        return videos(self.run_dir) / f"watch-{name}"

    def __str__(self) -> str:
        where = self.config.env.id if self.run_dir is None else f"{self.run_dir} on {self.config.env.id}"
        at = "" if self.step is None else f" at step {self.step:,}"
        return f"{where}{at}, actions at random" if self.acts == "random" else f"{where}{at}, {self.acts}"

    def play(self, episodes: int, seed: int, most_steps: int | None = None, window: bool = False) -> Iterator[Row]:
        """Rows of ``episodes`` episodes: the first ones that `proximo eval` judges with this seed. One is cut after ``most_steps`` (None:
        ``eval_max_steps`` of the run, else 10,000)."""
        limit = most_steps or self.config.run.eval_max_steps or MOST_STEPS
        return episodes_of(self.env, self.config, self.agent, episodes, seed, JUDGEMENT_STREAM, limit, window)


def film(policy: Policy, path: Path, seed: int = 0, most_steps: int = MOST_STEPS) -> None:
    """An episode of ``policy``, greedy, as an mp4. Raises ``VideoError`` or ``EnvError`` where it cannot be drawn or written; then there is
    no file."""
    subject = Subject(policy.env, policy.config, PolicyAgent(policy, False), "greedy", step=policy.step)
    file = recorder(path, subject.fps)
    try:
        for row in subject.play(1, seed, most_steps):
            frame = row.draw()
            assert frame is not None
            file.add(frame)
        file.close()
    except BaseException:
        file.drop()
        raise


def hold(episodes: int, seed: int, most_steps: int | None, fps: float | None) -> None:
    """Raise ``ConfigError`` for a number out of range."""
    if not 1 <= episodes <= MOST_EPISODES:
        raise ConfigError(f"episodes = {episodes}: expected 1 … {MOST_EPISODES}.")
    if not 0 <= seed <= MAX_SEED:
        raise ConfigError(f"seed = {seed}: expected 0 … {MAX_SEED}.")
    if most_steps is not None and most_steps < 1:
        raise ConfigError(f"max_steps = {most_steps}: expected 1 or more.")
    if fps is not None and not 0 < fps <= 240:
        raise ConfigError(f"fps = {fps:g}: expected more than 0, and 240 at most.")


def trained(
    run: str, runs_dir: Path, stochastic: bool = False, levels: str | None = None, env_settings: dict[str, Any] | None = None
) -> Subject:
    """The policy of ``run``; of a group of seeds that of the first. Raises ``CheckpointError`` where there is none."""
    prepare_jax()
    try:
        path, which = directory.resolve(run, runs_dir)
    except CheckpointError as error:
        if not _may_be_environment(run) or _environment_or_none(run) is None:
            raise
        raise CheckpointError(
            f"{run} is an environment, and no run of that name is in {runs_dir}: `{command('proximo', 'watch', run, '--agent', 'random')}` shows it untrained, "
            f"`{command('proximo', 'train', run)}` trains a policy for it."
        ) from error
    members = directory.members(path)
    run_dir = members[0] if members else path
    policy = load_policy(f"{run_dir}@{which}", str(runs_dir))
    env, config = judging_environment(policy, levels, env_settings or {})
    acts = "sampled" if stochastic else "greedy"
    return Subject(
        env, config, PolicyAgent(policy, stochastic), acts, run_dir, policy.step, tuple(m.name for m in members), policy.warnings
    )


def untrained(
    name: str, runs_dir: Path, seed: int = 0, levels: str | None = None, env_settings: dict[str, Any] | None = None
) -> Subject:
    """Random actions in the environment of that id, or in that of a run. Raises ``EnvError`` where it is neither."""
    prepare_jax()
    changes = {} if levels is None else {"levels": levels}
    settings = {**changes, "env_settings": env_settings} if env_settings else changes
    try:
        path, _ = directory.resolve(name, runs_dir)
    except CheckpointError as error:
        if not _may_be_environment(name):
            raise
        try:
            config = make_config(name, settings)
            env = environment(config)
        except EnvError as unknown:
            if not str(unknown).startswith("Unknown environment"):
                raise
            raise EnvError(f"{name!r} is neither an environment nor a run in {runs_dir}: {unknown}") from error
        return Subject(env, config, random_agent(env, seed), "random")
    members = directory.members(path)
    run_dir = members[0] if members else path
    config = override(directory.read_config(run_dir), settings)
    env = environment(config)
    return Subject(env, config, random_agent(env, seed), "random", run_dir)


def _may_be_environment(text: str) -> bool:
    """Whether a name that is no run's might be an environment's."""
    return bool(text) and "@" not in text and text != "last" and not Path(text).exists()


def _environment_or_none(env_id: str) -> Any:
    try:
        return environment(make_config(env_id))
    except (EnvError, ConfigError):
        return None
