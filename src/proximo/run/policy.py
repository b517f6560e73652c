"""A trained policy: load it, and have it judged."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from proximo.config import MAX_SEED, Config, override
from proximo.drivers.learning import fresh_policy
from proximo.envs import HostEnvironment, JaxEnvironment
from proximo.errors import CheckpointError, ConfigError
from proximo.networks import ActorCritic
from proximo.run import checkpoint, directory, retention
from proximo.run.episodes import MOST_EPISODES, Episodes
from proximo.run.evaluation import JUDGEMENT_STREAM, make_evaluator
from proximo.run.reuse import environment
from proximo.runtime import prepare_jax
from proximo.spaces import from_any


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
    found, warnings = retention.find(path, which)
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
