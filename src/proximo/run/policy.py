"""A trained policy, as it is loaded from a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.config import Config, own_code
from proximo.drivers.learning import fresh_policy
from proximo.envs import HostEnvironment, JaxEnvironment
from proximo.errors import CheckpointError, ConfigError
from proximo.networks import ActorCritic
from proximo.own_code import is_own
from proximo.run import checkpoint, directory, retention
from proximo.run.observations import arranged
from proximo.run.reuse import environment
from proximo.runtime import prepare_jax
from proximo.signatures import answered
from proximo.spaces import PREVIOUS_REWARD, Space, from_any, without, zeros
from proximo.types import Memory, Observation, Previous


class Carried(NamedTuple):
    """What a policy carries from row to row."""

    memory: Memory
    previous: Previous | None
    """The last action and reward, where the policy observes them."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """A trained policy and the environment that it was trained for.

    ``memory, action = policy(memory, observation, first)`` acts on N environments, from ``policy.init_memory(N)`` on. ``network`` is
    what is inside, for JAX programs of one's own: ``network.step`` also gives log-probability and value, and can be scanned."""

    network: ActorCritic
    env: JaxEnvironment | HostEnvironment
    config: Config
    step: int
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without the arrays inside."""
        network = self.config.network
        size = "" if is_own(network.memory) else f" of {network.memory_size}"
        memory = "" if network.memory == "none" else f", memory {network.memory}{size}"
        return f"Policy({self.config.env.id!r} at step {self.step}{memory})"

    def init_memory(self, num_envs: int = 1) -> Carried:
        """What is carried before the first row of N environments: nothing was seen, nothing was done. Raises ``ConfigError``
        unless ``num_envs`` is a whole number from 1 on."""
        if isinstance(num_envs, bool) or not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise ConfigError(f"num_envs = {num_envs!r}: expected a whole number of environments, 1 or more.")
        return Carried(self.network.init_memory(num_envs), self.network.nothing_before(num_envs))

    def __call__(
        self, memory: Carried, observation: Any, first: Any, reward: Any = None, key: Key[Array, ""] | None = None
    ) -> tuple[Carried, np.ndarray]:
        """The memory after a row, and N actions as the environments take them.

        ``observation``: N of them, stacked (dicts and tuples part by part). ``first``: N flags, true where an episode begins; the
        memory begins anew there, unless it was trained to be carried over (``reset_memory: false``). ``reward``: N rewards of the last actions,
        needed only by policies with ``observe_reward``; if the memory is kept across episodes, also in the first row of an episode.
        ``key``, as ``jax.random.key(0)``, samples the actions; without, they are the most probable ones. Raises ``ConfigError`` where shapes do not fit.
        """
        key = None if key is None else _held_key(key)
        first = np.asarray(first, bool)
        if first.ndim != 1:
            raise ConfigError(f"first has the shape {first.shape}: expected one flag for each environment, as [True].")
        _hold_memory(memory, len(first))
        blank = zeros(from_any(self.env.observation_space, "observation"), first.shape)
        observation = arranged(observation, self.seen(observation))
        if isinstance(observation, dict):
            observation = {**blank, **observation}
        _hold_rows(observation, blank)
        if PREVIOUS_REWARD in self.network.added and self._needs_reward(memory, first, reward):
            if np.shape(reward) != first.shape:
                given = "was not given" if reward is None else f"has the shape {np.shape(reward)}"
                raise ConfigError(f"reward {given}: this policy observes it (observe_reward); expected one for each environment.")
            if not np.isfinite(np.asarray(reward, float)).all():
                raise ConfigError(f"reward is {reward}: expected finite numbers. Check the rewards of the environment.")
            assert memory.previous is not None
            memory = Carried(memory.memory, Previous(memory.previous.action, jnp.asarray(reward, float)))
        try:
            with jax.default_matmul_precision(self.config.run.matmul_precision):
                memory, action = _act(self.network, memory, observation, first, key)
        except (AttributeError, IndexError, TypeError, ValueError):
            given, expected = (jax.tree.map(np.shape, x) for x in (memory, self.init_memory(len(first))))
            if given == expected:
                raise
            raise ConfigError(
                "memory is that of another policy: expected policy.init_memory(N), or what the last call gave."
            ) from None
        return memory, np.asarray(action)

    def _needs_reward(self, memory: Carried, first: np.ndarray, reward: Any) -> bool:
        """Whether this call needs ``reward``. A policy that keeps its memory across episodes needs none only directly after ``init_memory``."""
        if self.network.reset_memory:
            return not first.all()
        if reward is not None:
            return True
        pairs = zip(jax.tree.leaves(memory), jax.tree.leaves(self.init_memory(len(first))), strict=False)
        return not all(np.array_equal(leaf, start) for leaf, start in pairs)

    def seen(self, observation: Any) -> Space:
        """The space of ``observation``, which may lack the entries that only the value reads."""
        lacking = [name for name in self.network.privileged if isinstance(observation, Mapping) and name not in observation]
        return without(from_any(self.env.observation_space, "observation"), tuple(lacking))


@eqx.filter_jit
def _act(
    network: ActorCritic, carried: Carried, observation: Observation, first: Array, key: Key[Array, ""] | None
) -> tuple[Carried, Array]:
    observation = network.observed(observation, first, carried.previous)
    memory, action, _, value = network.step(carried.memory, observation, first, jnp.ones_like(first), key)
    return Carried(memory, network.previous(action, jnp.zeros_like(value))), network.to_space(action)


def _held_key(key: Any) -> Key[Array, ""]:
    """``key``, if it is a single one: of the new kind, or one of ``jax.random.PRNGKey``."""
    if getattr(key, "dtype", None) == jnp.uint32 and np.shape(key) == jax.random.PRNGKey(0).shape:
        return jax.random.wrap_key_data(jnp.asarray(key))
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0:
        return key
    raise ConfigError(f"key is {key!r}: expected a single key, as jax.random.key(0), or None for the most probable actions.")


def _hold_memory(memory: Any, num_envs: int) -> None:
    """Raise ``ConfigError`` unless ``memory`` is one of ``num_envs`` environments."""
    if not isinstance(memory, Carried):
        raise ConfigError(f"memory is {type(memory).__name__}: expected policy.init_memory(N), or what the last call gave.")
    sizes = {len(leaf) for leaf in jax.tree.leaves(memory)} - {num_envs}
    if sizes:
        raise ConfigError(f"memory is of {sizes.pop()} environments, and first has {num_envs} flags: expected as many.")


def _hold_rows(observation: Observation, expected: Any) -> None:
    """Raise ``ConfigError`` unless every part has its shape, with a row for each environment."""

    def hold(x: np.ndarray, like: np.ndarray) -> None:
        if x.shape != like.shape:
            raise ConfigError(
                f"An observation has the shape {x.shape}: expected {like.shape}, one row for each of {len(like)} flags in first "
                "(observation[None] is the row of a single environment)."
            )

    jax.tree.map(hold, observation, expected)


def check_finite(path: Path, policy: Any, config: Config) -> None:
    """Raise ``CheckpointError`` if the ``policy`` of the checkpoint ``path`` has NaN or infinity in its arrays.

    Infinity is allowed in policies with custom code, which may use it as a mask.
    """
    wrong = np.isnan if own_code(config) else lambda x: ~np.isfinite(x)
    for name, leaf in checkpoint.flatten(policy).items():
        if jnp.issubdtype(leaf.dtype, jnp.inexact) and wrong(np.asarray(leaf)).any():
            raise CheckpointError(
                f"Checkpoint {path} has NaN or infinity in {name}, so its policy cannot act. A training never saves such a checkpoint: "
                "load another one (@STEP), or get a new copy of the run."
            )


@answered
def load_policy(run: str | Path, runs_dir: str = "runs", **own: Any) -> Policy:
    """The policy of ``run`` (a path, a name or ``last``, with ``@best``, ``@last`` or ``@STEP``). ``own``: objects that it was trained with and that have
    no name to be found by, as ``encoder=MyEncoder``. Raises ``CheckpointError``."""
    prepare_jax()  # before JAX starts: later it cannot be told to run small programs in the thread that calls them
    path, which = directory.resolve_one(str(run), Path(runs_dir))
    config = directory.read_config(path, own)
    env = environment(config)
    found, warnings = retention.find(path, which)
    template = jax.eval_shape(lambda key: fresh_policy(key, env, config), jax.random.key(0))
    policy = checkpoint.load(found, template, part="learner.policy")
    check_finite(found, policy, config)
    return Policy(jax.tree.map(jnp.asarray, policy), env, config, int(found.name), tuple(warnings))
