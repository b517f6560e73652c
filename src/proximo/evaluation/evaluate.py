"""Evaluates a trained policy: whole episodes on seeds or levels that it has not seen."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from proximo.collect.environment import check_same_spaces, evaluation_environment
from proximo.collect.self_play import game_against
from proximo.config import MAX_SEED, Config
from proximo.envs.level_seeds import PARTS, LevelRange
from proximo.envs.libraries import has_opponent
from proximo.errors import ConfigError, EnvError, is_integer, shown
from proximo.evaluation.episodes import EVALUATION_STREAM, MAX_EPISODES, Episodes
from proximo.evaluation.evaluators import make_evaluator
from proximo.evaluation.policy import Policy, load_policy
from proximo.jax_setup import prepare_jax

Mode = Literal["greedy", "sampled"]
"""By the most probable actions, or by sampled ones."""
MAX_NUM_ENVS = 100_000


@dataclasses.dataclass(frozen=True)
class EvaluationResult:
    """The episodes of one policy, in one or both modes on the same environment seeds."""

    played: dict[str, Any]
    """``env``, ``env_settings`` (those that differ from the training), ``levels`` (None: any), ``against`` in games, ``seed``,
    ``step`` of the checkpoint."""
    episodes: dict[Mode, Episodes]
    """``greedy`` and ``sampled``, or one of them."""

    def __repr__(self) -> str:
        found = ", ".join(f"{mode}: {episodes!r}" for mode, episodes in self.episodes.items())
        return f"EvaluationResult({self.played['env']!r} at step {self.played['step']}, {found})"

    @property
    def warnings(self) -> list[str]:
        """Warnings about the checkpoint and about all episodes."""
        return list(dict.fromkeys(warning for episodes in self.episodes.values() for warning in episodes.warnings))


def evaluate(
    run: str | Path | Policy | Any,
    episodes: int = 100,
    *,
    deterministic: bool = True,
    seed: int = 0,
    runs_dir: str = "runs",
    levels: str | None = None,
    env_settings: dict[str, Any] | None = None,
    num_envs: int = 0,
    env: Any = None,
    against: Any = None,
) -> Episodes:
    """Play whole episodes on environment seeds that no training and no selection of checkpoints has used.

        episodes = proximo.evaluate("last@best", 100)
        print(episodes.summary()["return_mean"])

    Args:
        run: an agent, a policy, or a run: a path, a name or ``last``, optionally with ``@best``, ``@last`` or
            ``@STEP``; or ``zoo:NAME``.
        episodes: number of episodes, 1 or more.
        deterministic: whether to take the most probable action; otherwise actions are sampled.
        seed: seed of the episodes, 0 or more.
        runs_dir: folder of the runs that are found by name.
        levels: range of level seeds to play, for example ``"1000:1050"``; None: the training's.
        env_settings: parameters of the environment that differ from the training's.
        num_envs: environments that are played at the same time; 0: chosen automatically.
        env: another environment with the same spaces, an id or an object as ``PPO`` takes it; None: the training's.
            If both ids name the same library, as in ``minigrid:…``, ``env_settings`` are added to the
            training's.
        against: the opponent in a two-player game: ``"random"`` (the default), or an agent, a policy or a run of the
            same game, whose moves are sampled.

    Returns:
        The episodes. ``.summary()`` returns their mean return and other statistics.

    Raises:
        ConfigError: a number is out of range, or the spaces of the environment are not those of the policy.
        CheckpointError: there is no such run, or it has no valid checkpoint.
        EnvError, TrainingError: the environment is unknown, cannot be made, or fails during an episode.
    """
    mode: Mode = "greedy" if deterministic else "sampled"
    options: dict[str, Any] = {"levels": levels, "env_settings": env_settings, "num_envs": num_envs, "env": env}
    options["against"] = against
    return evaluate_policy(run, episodes, [mode], seed=seed, runs_dir=runs_dir, **options).episodes[mode]


def evaluate_policy(
    policy: str | Path | Policy | Any,
    episodes: int = 100,
    modes: Sequence[Mode] = ("greedy", "sampled"),
    *,
    seed: int = 0,
    runs_dir: str = "runs",
    levels: str | None = None,
    env_settings: dict[str, Any] | None = None,
    num_envs: int = 0,
    env: Any = None,
    against: Any = None,
) -> EvaluationResult:
    """Play episodes with the most probable and with sampled actions, on the same seeds, as ``proximo eval``.

        result = proximo.evaluate_policy("last@best", 100)
        print(result.episodes["greedy"], result.episodes["sampled"])

    Args:
        policy: as ``run`` in ``evaluate``.
        episodes: number of episodes of each mode, 1 or more.
        modes: ``greedy``, ``sampled``, or both.
        seed: as in ``evaluate``.
        runs_dir: as in ``evaluate``.
        levels: as in ``evaluate``.
        env_settings: as in ``evaluate``.
        num_envs: as in ``evaluate``.
        env: as in ``evaluate``.
        against: as in ``evaluate``.

    Returns:
        The episodes by mode, and what was played.

    Raises:
        ConfigError: a number or a mode is unknown or out of range, or the spaces of the environment are not those of the policy.
        CheckpointError: there is no such run, or it has no valid checkpoint.
        EnvError, TrainingError: the environment is unknown, cannot be made, or fails during an episode.
    """
    prepare_jax()
    check_numbers(episodes, seed, num_envs)
    if not modes or not isinstance(modes, list | tuple) or any(mode not in ("greedy", "sampled") for mode in modes):
        raise ConfigError(f"modes = {modes!r}: expected a list of 'greedy', 'sampled' or both.")
    policy = _policy_of(policy, runs_dir, env)
    made, config = evaluation_environment(policy.config, policy.env, env, env_settings, levels)
    opponent = ""
    if has_opponent(made):
        made, opponent = _with_opponent(made, config.env.id, against, runs_dir)
    elif against is not None:
        raise ConfigError(f"against = {shown(against)}: {config.env.id} is no two-player game, such as pgx:connect_four.")
    warnings, played = [*policy.warnings, *_level_warnings(policy.config, config, levels is not None)], dict[Mode, Episodes]()
    with contextlib.closing(make_evaluator(made, config, episodes, num_envs)) as evaluator:
        for mode in modes:
            result = evaluator(policy.actor_critic, seed, EVALUATION_STREAM, deterministic=mode == "greedy")
            found = _episode_warnings(result, config.env.id, mode, episodes)
            played[mode] = dataclasses.replace(result, warnings=(*warnings, *found), is_game=bool(opponent))
    trained = policy.config.env.env_settings
    changed = {name: value for name, value in config.env.env_settings.items() if trained.get(name) != value}
    where = {"env": config.env.id, "env_settings": changed, "levels": config.env.levels or None}
    where |= {"against": opponent} if opponent else {}
    return EvaluationResult({**where, "seed": seed, "step": policy.step}, played)


def _policy_of(policy: Any, runs_dir: str, env: Any = None, or_word: str = "") -> Policy:
    """The policy of an agent or a run, or ``policy`` itself. Raises ``ConfigError`` for other objects."""
    if isinstance(policy, str | Path):
        return load_policy(policy, runs_dir, env=env)
    policy = policy if isinstance(policy, Policy) else getattr(policy, "policy", policy)
    if not isinstance(policy, Policy):
        raise ConfigError(
            f"{type(policy).__name__} is no policy: expected {or_word}an agent, a policy, or a run, such as 'last@best'."
        )
    return policy


def _with_opponent(env: Any, env_id: str, against: Any, runs_dir: str) -> tuple[Any, str]:
    """The game ``env`` against an opponent, and what this is called. Raises ``ConfigError`` if it plays another game."""
    if against is None or against == "random":
        return env, "random"
    other = _policy_of(against, runs_dir, or_word="'random', ")
    if other.config.env.id != env_id:
        raise ConfigError(f"against = {shown(against)} plays {other.config.env.id}: expected a policy for {env_id}.")
    check_same_spaces(env, other.env, f"the game that {shown(against)} plays")
    return game_against(env, other.actor_critic), f"{against} at step {other.step:,}" if isinstance(against, str | Path) else str(
        other
    )


def _episode_warnings(episodes: Episodes, env_id: str, mode: Mode, count: int) -> Iterator[str]:
    """Warnings of episodes that did not end. Raises ``EnvError`` if the return of an episode is NaN or infinite."""
    wrong = np.flatnonzero(~np.isfinite(episodes.episode_return))
    if len(wrong):
        row = episodes.rows()[wrong[0]]
        first = ", ".join(f"{name} {row[name]}" for name in ("index", "env_seed", "level") if row[name] is not None)
        raise EnvError(
            f"{len(wrong)} of {len(episodes.length)} episodes of {env_id} have no finite return, first {first}: an observation or a reward "
            "is NaN or infinite. Check the code of the environment."
        )
    if episodes.unfinished:
        yield f"{episodes.unfinished} {mode} episodes did not end: their returns so far are counted."
    if missing := count - len(episodes.of_environments):
        why = "an environment whose episode does not end plays no other one. Set max_episode_steps."
        yield f"{missing} of {count} {mode} episodes were not played: {why}"


def check_numbers(episodes: Any, seed: Any, num_envs: Any = 0) -> None:
    """Raise ``ConfigError`` for numbers that no evaluation can have."""
    check_number("episodes", episodes, 1, MAX_EPISODES)
    check_number("seed", seed, 0, MAX_SEED)
    check_number("num_envs", num_envs, 0, MAX_NUM_ENVS)


def check_number(name: str, value: Any, low: int, high: int) -> None:
    """Raise ``ConfigError`` unless ``value`` is an integer of ``low`` … ``high``."""
    if not is_integer(value) or not low <= value <= high:
        raise ConfigError(f"{name} = {value!r}: expected a whole number of {low} … {high}.")


def _level_warnings(trained: Config, evaluated: Config, levels: bool) -> Iterator[str]:
    """Warnings that the requested ``levels`` may overlap the training's."""
    if trained.env.id != evaluated.env.id:
        return
    before, part = (config.env.env_settings.get("levels", "all") for config in (trained, evaluated))
    shared = levels and part != "all" if before == part else "all" in (before, part)
    if shared and before in PARTS and part in PARTS:
        yield f"the policy was trained on levels={before}: not all levels of levels={part} are new to it."
    if levels and trained.env.levels:
        past, now = (LevelRange.parse(config.env.levels) for config in (trained, evaluated))
        if seen := now.common(past):
            yield f"the policy was trained on {seen:,} of the {now.stop - now.start:,} levels {evaluated.env.levels}."
