"""A trained policy is judged: whole episodes on seeds or levels that it has not seen."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from proximo.config import MAX_SEED, Config, override
from proximo.envs import HostEnvironment, JaxEnvironment
from proximo.envs.levels import PARTS, LevelRange
from proximo.errors import ConfigError
from proximo.run.episodes import MOST_EPISODES, Episodes
from proximo.run.evaluation import JUDGEMENT_STREAM, make_evaluator
from proximo.run.policy import Policy, load_policy
from proximo.run.reuse import environment
from proximo.runtime import prepare_jax
from proximo.signatures import answered
from proximo.spaces import from_any

How = Literal["greedy", "sampled"]
HOST_TOGETHER, ARRAYS_TOGETHER = 64, 256
"""Environments of the host at a time: a step of the policy for 64 takes little longer than one for 8. More of those that Gymnasium
steps as arrays, as CartPole's: another of them is a few numbers."""
MOST_TOGETHER = 100_000


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What was played, and what came of it: by the most probable actions, by sampled ones, or both on the same seeds."""

    played: dict[str, Any]
    """``env``, ``env_settings`` (those that are not the training's), ``levels`` (None: any), ``seed``, ``step`` of the checkpoint."""
    episodes: dict[How, Episodes]


@answered
def evaluate(
    run: str | Path | Policy,
    episodes: int = 100,
    *,
    stochastic: bool = False,
    seed: int = 0,
    runs_dir: str = "runs",
    levels: str | None = None,
    env_settings: dict[str, Any] | None = None,
    num_envs: int = 0,
) -> Episodes:
    """Play ``episodes`` whole episodes on environment seeds that neither training nor selection has used.

    ``stochastic`` samples actions; else the policy acts by its mode. ``levels``, as ``"1000:1050"``, takes the episodes from
    that range instead of the training's, and ``env_settings`` change parameters of the environment, beside those trained with.
    ``num_envs`` environments play at a time (0: as many as go well). Raises ``ConfigError`` where they change its spaces.
    """
    prepare_jax()
    _hold(episodes, seed, num_envs)
    policy = run if isinstance(run, Policy) else load_policy(run, runs_dir)
    how: How = "sampled" if stochastic else "greedy"
    return judge(policy, episodes, [how], seed=seed, levels=levels, env_settings=env_settings, num_envs=num_envs).episodes[how]


def judge(
    policy: Policy,
    episodes: int = 100,
    hows: Sequence[How] = ("greedy", "sampled"),
    *,
    seed: int = 0,
    levels: str | None = None,
    env_settings: dict[str, Any] | None = None,
    num_envs: int = 0,
) -> Judgement:
    """``evaluate`` for each of ``hows``, on the same environment seeds, with what was played."""
    prepare_jax()
    _hold(episodes, seed, num_envs)
    env, config = judging_environment(policy, levels, env_settings or {})
    played: dict[How, Episodes] = {}
    doubts = _doubts(policy.config, config, levels is not None)
    with contextlib.closing(make_evaluator(env, config, episodes, False, num_envs or _together(env, config))) as evaluator:
        for how in hows:
            result = evaluator(policy.network, seed, JUDGEMENT_STREAM, how == "sampled")
            played[how] = dataclasses.replace(result, warnings=doubts)
    trained, judged = policy.config.env, config.env
    changed = {name: value for name, value in judged.env_settings.items() if trained.env_settings.get(name) != value}
    told = {"env": judged.id, "env_settings": changed, "levels": judged.levels or None, "seed": seed, "step": policy.step}
    return Judgement(told, played)


def told_unfinished(judgement: Judgement) -> list[str]:
    """A sentence for each policy whose episodes did not all end."""
    counts = {how: episodes.unfinished for how, episodes in judgement.episodes.items()}
    return [f"{count} {how} episodes did not end and count as they stood." for how, count in counts.items() if count]


def _hold(episodes: int, seed: int, num_envs: int) -> None:
    for name, value, low, high in (
        ("episodes", episodes, 1, MOST_EPISODES),
        ("seed", seed, 0, MAX_SEED),
        ("num_envs", num_envs, 0, MOST_TOGETHER),
    ):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
            raise ConfigError(f"{name} = {value!r}: expected a whole number of {low} … {high}.")


def _together(env: JaxEnvironment | HostEnvironment, config: Config) -> int:
    """Environments at a time; 0: what ``make_evaluator`` takes."""
    if not isinstance(env, HostEnvironment) or not config.network.reset_memory:
        return 0
    as_arrays = env.make is not None and env.make_vector is not None
    return max(ARRAYS_TOGETHER if as_arrays else HOST_TOGETHER, config.env.num_envs)


def _doubts(trained: Config, judged: Config, levels: bool) -> tuple[str, ...]:
    """Why episodes of ``judged`` may not be on levels that training has not seen, where such were asked for."""
    found = []
    own, part = (config.env.env_settings.get("levels", "all") for config in (trained, judged))
    if own != part and own in PARTS and part in PARTS and "all" in (own, part):
        found.append(f"the policy was trained on levels={own}: those of levels={part} are not all new to it.")
    if levels and own == part and part in PARTS and part != "all":
        other = "held_out" if part == "train" else "train"
        found.append(
            f"all seeds give levels={part}, which the policy was trained on; env_settings levels={other} plays the others."
        )
    if levels and trained.env.levels:
        before, now = (LevelRange.parse(config.env.levels) for config in (trained, judged))
        if seen := now.common(before):
            found.append(f"the policy was trained on {seen:,} of the {now.stop - now.start:,} levels {judged.env.levels}.")
    return tuple(found)


def judging_environment(
    policy: Policy, levels: str | None, env_settings: dict[str, Any]
) -> tuple[JaxEnvironment | HostEnvironment, Config]:
    """The environment to be judged by, and its settings."""
    if levels is None and not env_settings:
        return policy.env, policy.config
    changes = {} if levels is None else {"levels": levels}
    config = override(policy.config, {**changes, "env_settings": env_settings} if env_settings else changes)
    env = environment(config)
    for role, ours, theirs in (
        ("observation", from_any(env.observation_space, "observation"), from_any(policy.env.observation_space, "observation")),
        ("action", from_any(env.action_space, "action"), from_any(policy.env.action_space, "action")),
    ):
        if ours != theirs:
            raise ConfigError(f"env_settings: the {role} space is {ours} with them, where the policy was trained with {theirs}.")
    return env, config
