"""What is watched, and how it is recorded: a trained policy, by any name of its run, or a random agent."""

import base64
import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proximo.collect.environment import environment, evaluation_environment
from proximo.collect.self_play import game_against
from proximo.config import MAX_SEED, Config, override
from proximo.envs import Environment
from proximo.envs.libraries import has_opponent
from proximo.envs.registry import check_id
from proximo.errors import CheckpointError, ConfigError, EnvError, command, is_number
from proximo.evaluation.episodes import EVALUATION_STREAM
from proximo.evaluation.evaluate import check_number
from proximo.evaluation.policy import Policy, load_policy
from proximo.jax_setup import prepare_jax
from proximo.rendering import window
from proximo.rendering.play import PlayedStep, fps_of, make_player, play, policy_agent, random_agent
from proximo.rendering.video import Video, videos
from proximo.settings import make_config
from proximo.storage import run_directory, run_lookup, zoo
from proximo.storage.named_folders import seed_run_dirs

MAX_EPISODES = 10_000
MAX_STEPS, LONGEST = 10_000, 10**9
"""Maximum number of steps of an episode: by default five minutes at 30 frames per second."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Episodes to watch: of a policy, or of random actions, in an environment."""

    env: Environment
    config: Config
    policy: Policy | None = None
    """None: random actions."""
    deterministic: bool = True
    """Whether the policy takes the most probable actions."""
    episodes: int = 1
    seed: int = 0
    max_steps: int | None = None
    """Steps after which an episode is cut off; None: ``eval_max_steps`` of the run, or 10,000."""
    fps: float | None = None
    """Frames per second; None: the environment's."""
    run_dir: Path | None = None
    seeds: tuple[str, ...] = ()
    """All seeds of the group that was named; ``run_dir`` is the first."""

    def __post_init__(self) -> None:
        check_number("episodes", self.episodes, 1, MAX_EPISODES)
        check_number("seed", self.seed, 0, MAX_SEED)
        if self.max_steps is not None:
            check_number("max_steps", self.max_steps, 1, LONGEST)
        if self.fps is not None and (not is_number(self.fps) or not 0 < self.fps <= 240):
            raise ConfigError(f"fps = {self.fps!r}: expected a number that is more than 0, and 240 at most.")

    @property
    def acts(self) -> str:
        """``greedy``, ``sampled`` or ``random``."""
        return "random" if self.policy is None else "greedy" if self.deterministic else "sampled"

    @property
    def rate(self) -> float:
        """Frames per second that it is shown with."""
        return self.fps or fps_of(self.env)

    @property
    def path(self) -> Path:
        """Where a video of it is written, without its ending."""
        env_id = run_directory.file_name(self.config.env.id)
        if self.run_dir is None:
            return Path(f"{env_id}-random")
        is_other = self.policy is not None and self.policy.config.env.id != self.config.env.id
        name = f"watch-{'random' if self.policy is None else self.policy.step}"
        return videos(zoo.output_folder(self.run_dir)) / (f"{name}-{env_id}" if is_other else name)

    def __str__(self) -> str:
        where = self.config.env.id if self.run_dir is None else f"{zoo.label(self.run_dir)} on {self.config.env.id}"
        return f"{where}, actions at random" if self.policy is None else f"{where} at step {self.policy.step:,}, {self.acts}"

    def play(self, window: bool = False) -> Iterator[PlayedStep]:
        """Play the first episodes of `proximo eval` with this seed; of sampled actions, only the first one is the same, and vector
        environments may play others. In a game, the policy plays against itself. With ``window``, an environment that has its own window
        shows itself."""
        agent = random_agent(self.env, self.seed) if self.policy is None else policy_agent(self.policy, self.deterministic)
        limit = self.max_steps or self.config.run.eval_max_steps or MAX_STEPS
        env = game_against(self.env, self.policy.actor_critic) if self.policy and has_opponent(self.env) else self.env
        with contextlib.closing(make_player(env, self.config, self.seed, EVALUATION_STREAM, window)) as player:
            yield from play(player, agent, self.episodes, limit)


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
    steps: Iterable[PlayedStep], paths: Sequence[Path], fps: float, threads: int = 0
) -> tuple[list[Video], list[dict[str, Any]]]:
    """Record ``steps`` in each file of ``paths``, which get their names when they are complete. Returns the
    videos, and the outcomes of the episodes."""
    outcomes = []
    with contextlib.ExitStack() as stack:
        # Completed in the order of the paths.
        recorded = [stack.enter_context(Video(path, fps, threads)) for path in reversed(paths)][::-1]
        for step in steps:
            frame = step.draw()
            assert frame is not None
            for video in recorded:
                video.add(frame)
            outcomes += [step.outcome] if step.ended else []
    return recorded, outcomes


def make_clip(subject: Subject) -> Clip:
    """Record ``subject`` in memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        _, outcomes = record(subject.play(), [path], subject.rate)
        return Clip(path.read_bytes(), outcomes, sum(outcome["length"] + 1 for outcome in outcomes), subject.rate)


def film(policy: Policy, path: Path, seed: int = 0, max_steps: int = MAX_STEPS) -> None:
    """Record an episode of ``policy``, with the most probable actions."""
    subject = acting(policy, seed=seed, max_steps=max_steps)
    record(subject.play(), [path], subject.rate)


def show(subject: Subject, play: Callable[[bool], Iterator[PlayedStep]] | None = None) -> None:
    """Show ``subject`` until the user closes the window. ``play(window)`` plays it, by default ``subject.play``.
    Without ``fps``, an environment that can shows itself: ``window`` is true then."""
    play = play or subject.play
    if subject.fps is None and "human" in getattr(subject.env, "render_modes", ()):
        for _ in play(True):
            if window.was_closed():  # Gymnasium's environments ignore that the user closes their window
                break
        return
    with contextlib.closing(window.Window(subject.rate)) as shown:
        for step in play(False):
            frame = step.draw()
            assert frame is not None
            title = f"{subject.config.env.id} · episode {step.episode + 1} · step {step.step} · return {step.episode_return:.2f}"
            shown.show(frame, title)
            if shown.closed:
                break


def acting(policy: Policy, **shown: Any) -> Subject:
    """A policy in its environment. ``shown`` are other fields of the subject."""
    return Subject(env=policy.env, config=policy.config, policy=policy, **shown)


def find(
    name: str, runs_dir: Path, levels: str | None, env_settings: dict[str, Any], other: str | None, at_random: bool, **shown: Any
) -> Subject:
    """The policy of the run ``name`` (of the first seed of a group), in the environment ``other``, if given; if
    ``at_random``, random actions in the environment of the run, or in the environment with the id ``name``."""
    prepare_jax()
    try:
        path, which = run_lookup.find_run(name, runs_dir)
    except CheckpointError as no_run:
        if not name or "@" in name or name == "last" or name.startswith(zoo.PREFIX) or Path(name).exists():
            raise  # only a run can have this name
        try:
            check_id(name)
        except (EnvError, ConfigError) as unknown:
            if at_random:
                raise EnvError(f"{name!r} is neither an environment nor a run in {runs_dir}: {unknown}") from no_run
            raise no_run from None
        if not at_random:
            raise CheckpointError(
                f"{name} is an environment, and no run of that name is in {runs_dir}: "
                f"`{command('proximo', 'watch', name, '--agent', 'random')}` shows it untrained, "
                f"`{command('proximo', 'train', name)}` trains a policy for it."
            ) from no_run
        run_dir = config = None
    else:
        seed_runs = seed_run_dirs(path)
        run_dir = (seed_runs or [path])[0]
        if not at_random:
            policy = load_policy(f"{run_dir}@{which}", str(runs_dir), env=other)
            env, config = evaluation_environment(policy.config, policy.env, other, env_settings, levels)
            seeds = tuple(seed_run.name for seed_run in seed_runs)
            return Subject(env=env, config=config, policy=policy, run_dir=run_dir, seeds=seeds, **shown)
        config = run_directory.read_config(run_dir)
    settings: dict[str, Any] = ({} if levels is None else {"levels": levels}) | (
        {"env_settings": env_settings} if env_settings else {}
    )
    config = make_config(name, settings) if config is None else override(config, settings)
    return Subject(env=environment(config), config=config, run_dir=run_dir, **shown)
