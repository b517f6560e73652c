"""A trained policy that acts, and how to load one from a run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.collect.environment import environment
from proximo.collect.learning import policy_shapes
from proximo.config import Config, custom_settings
from proximo.config.custom import is_custom
from proximo.config.loading import with_given
from proximo.distributions import Distribution
from proximo.envs import GymnasiumEnvironment, JaxEnvironment
from proximo.envs.gymnasium.transition_checks import MaskCheck
from proximo.errors import CheckpointError, ConfigError
from proximo.evaluation.observations import convert_observation, count_stacked, flat_masks
from proximo.jax_setup import prepare_jax
from proximo.networks import ActorCritic
from proximo.signatures import is_integer
from proximo.spaces import (
    ACTION_MASK,
    OBSERVATION,
    PREVIOUS_REWARD,
    Box,
    Dict,
    MultiBinary,
    Space,
    from_any,
    mask_sizes,
    without,
    zeros,
)
from proximo.storage import run_directory, run_lookup
from proximo.storage.checkpoint import POLICY
from proximo.storage.checkpoint_format import flatten
from proximo.types import Memory, Observation, Previous


class Carried(NamedTuple):
    """What a policy carries from step to step."""

    memory: Memory
    previous: Previous | None
    """The last action and reward, if the policy observes either of them."""


@dataclasses.dataclass(frozen=True)
class Policy:
    """A trained policy with the spaces and settings of its environment.

    It acts on one environment, or on N environments at once. The memory is an argument and a result of ``predict``::

        policy = proximo.load_policy("last@best")
        observation, _ = env.reset()
        memory, episode_start = policy.init_memory(), True
        while True:
            action, memory = policy.predict(observation, memory, episode_start)
            observation, reward, terminated, truncated, _ = env.step(action)
            episode_start = terminated or truncated
            if episode_start:
                observation, _ = env.reset()

    Use ``actor_critic`` inside a JAX program: ``actor_critic.step`` also returns log-probability and value, and can be scanned.
    """

    actor_critic: ActorCritic
    """The networks: observation normalizer, encoders, memory and heads."""
    env: JaxEnvironment | GymnasiumEnvironment
    """The environment that the policy was trained for."""
    config: Config
    """The settings that the policy was trained with."""
    step: int
    """Environment steps that the policy has learned from."""
    warnings: tuple[str, ...] = ()
    """Warnings about the checkpoint that the policy was loaded from."""

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle has: not the structure of the networks, which JAX cannot copy."""
        return {name: value for name, value in self.__dict__.items() if name != "_parts"}

    def __repr__(self) -> str:
        """One line, without arrays."""
        network = self.config.network
        size = "" if is_custom(network.memory) else f" of {network.memory_size}"
        memory = "" if network.memory == "none" else f", memory {network.memory}{size}"
        return f"Policy({self.config.env.id!r} at step {self.step}{memory})"

    @property
    def has_memory(self) -> bool:
        """Whether the policy is recurrent or observes its previous action or reward. If not, its memory is empty."""
        return self.actor_critic.is_recurrent or bool(self.actor_critic.observed_previous)

    def init_memory(self, num_envs: int = 1) -> Carried:
        """Return the memory before the first step.

        Args:
            num_envs: Number of environments, 1 or more.

        Returns:
            The memory for the first call of ``predict``.

        Raises:
            ConfigError: If ``num_envs`` is not a positive integer.
        """
        if not is_integer(num_envs) or num_envs < 1:
            raise ConfigError(f"num_envs = {num_envs!r}: expected a whole number of environments, 1 or more.")
        return Carried(self.actor_critic.init_memory(num_envs), self.actor_critic.no_previous_step(num_envs))

    def predict(
        self,
        observation: Any,
        memory: Carried | None = None,
        episode_start: Any = None,
        *,
        action_mask: Any = None,
        deterministic: bool = True,
        key: Key[Array, ""] | None = None,
        reward: Any = None,
    ) -> tuple[np.ndarray, Carried]:
        """Choose the action for one observation, or for N stacked observations.

        Args:
            observation: As the environment returns it, before normalization, or N of them stacked along a leading axis (dicts and
                tuples entry by entry). Entries that only the value function reads may be missing.
            memory: What the last call returned, or ``init_memory``. May be None if the policy has no memory, or if an episode begins
                in every environment and the policy resets its memory there.
            episode_start: Whether an episode begins with this observation: one flag, or N of them. The memory is reset there,
                unless the policy was trained with ``reset_memory: false``. Default: no episode begins, if ``memory`` is given.
            action_mask: Which actions are allowed: a number for each choice, other than 0 if it is allowed, or N rows of them. Required if
                the policy was trained with masks, unless the observation has them as its entry ``action_mask``. Give what the environment
                gives: ``info["action_mask"]`` or ``env.action_masks()``.
            deterministic: Whether to choose the most probable action. If false, the action is sampled.
            key: A key such as ``jax.random.key(0)``, required to sample. Use another key for each call.
            reward: The reward of the last action, or N of them. Required from the second step on by policies that observe rewards
                (``observe_reward``), and ignored by others. If the memory is kept across episodes, it is also required at their start.

        Returns:
            The action as the environment takes it (N of them if observations were stacked), and the memory for the next call.

        Raises:
            ConfigError: If an argument is missing, or does not match the policy or the other arguments.
        """
        key = _check_key(key, deterministic)
        (after, action), is_one = self._call(_act, observation, memory, episode_start, action_mask, reward, key)
        space = self.actor_critic.actor.space
        action = np.asarray(action, space.dtype if isinstance(space, Box) else None)
        return (action[0] if is_one else action), after

    def forward(
        self,
        observation: Any,
        memory: Carried | None = None,
        episode_start: Any = None,
        *,
        action_mask: Any = None,
        reward: Any = None,
    ) -> tuple[Distribution, Array]:
        """Compute the distribution of the action and the value for one observation, or for N stacked observations.

        The memory is not advanced: ``predict`` returns that of the next step.

        Args:
            observation: As in ``predict``. Entries that only the value function reads are 0 where they are missing.
            memory: As in ``predict``.
            episode_start: As in ``predict``.
            action_mask: As in ``predict``.
            reward: As in ``predict``.

        Returns:
            The distribution of actions before they are mapped to the action space (``actor_critic.to_space``), and the value, both with
            a leading axis ``N``, which is 1 for a single observation. A standard deviation that does not depend on the observation
            lacks this axis. If rewards are normalized, the value is in units of normalized rewards.

        Raises:
            ConfigError: If an argument is missing, or does not match the policy or the other arguments.
        """
        return self._call(_forward, observation, memory, episode_start, action_mask, reward)[0]

    @functools.cached_property
    def _parts(self) -> tuple[_Structure, tuple[Any, ...]]:
        """The structure of the networks, and their arrays."""
        leaves, treedef = jax.tree.flatten(self.actor_critic)
        others = tuple(jax.Array if isinstance(leaf, jax.Array | np.ndarray) else leaf for leaf in leaves)
        arrays = tuple(leaf for leaf, other in zip(leaves, others, strict=True) if other is jax.Array)
        return _Structure(treedef, others, self.config.run.matmul_precision), arrays

    def _call(
        self,
        function: Callable[..., Any],
        observation: Any,
        memory: Any,
        episode_start: Any,
        action_mask: Any,
        reward: Any,
        *more: Any,
    ) -> tuple[Any, bool]:
        """``function`` of the networks, the memory, N observations, N flags of the start of an episode, and ``more``. Also returns whether a
        single observation was given."""
        observation, space = self._with_action_mask(observation, action_mask)
        observation = convert_observation(observation, space)
        stacked = count_stacked(observation, space)
        count = stacked or 1
        if stacked is None:
            observation = jax.tree.map(lambda x: x[None], observation)
        if self.actor_critic.mask_ndim is not None:
            masks = np.reshape(observation[ACTION_MASK], (count, -1))
            check = MaskCheck(masks.shape[1], mask_sizes(from_any(self.env.action_space, "action")))
            if not check.allows(masks).all():
                raise ConfigError("action_mask allows no action, or none in one component: at least one must be allowed.")
        if episode_start is not None:
            flags = _one_each("episode_start", episode_start, stacked)
            if not ((flags == 0) | (flags == 1)).all():
                raise ConfigError(
                    f"episode_start = {episode_start!r}: expected True where an episode begins, and False elsewhere."
                )
            episode_start = flags.astype(bool)
        memory = self._check_memory(memory, episode_start, count)
        if episode_start is None:
            episode_start = np.zeros(count, bool)
        if PREVIOUS_REWARD in self.actor_critic.observed_previous:
            memory = self._with_reward(memory, episode_start, reward, stacked)
        if self.actor_critic.privileged:
            observation = {**zeros(from_any(self.env.observation_space, "observation"), (count,)), **observation}
        try:
            return function(*self._parts, memory, observation, episode_start, *more), stacked is None
        except (AttributeError, IndexError, TypeError, ValueError):
            given, expected = (jax.tree.map(np.shape, x) for x in (memory, self.init_memory(count)))
            if given == expected:
                raise
            raise ConfigError(
                "memory is that of another policy: expected policy.init_memory(N), or what the last call returned."
            ) from None

    def _with_action_mask(self, observation: Any, action_mask: Any) -> tuple[Any, Space]:
        """The observation with its action mask, and its space. The space lacks the entries that only the value reads and that are missing."""
        space = from_any(self.env.observation_space, "observation")
        if action_mask is not None:
            if self.actor_critic.mask_ndim is None:
                raise ConfigError("action_mask was given, but this policy was trained without action masks: remove it.")
            assert isinstance(space, Dict)  # the mask is one of its entries
            if not isinstance(observation, Mapping):
                parts = [name for name, _ in space.spaces if name not in (ACTION_MASK, *self.actor_critic.privileged)]
                if parts != [OBSERVATION]:
                    raise ConfigError(f"The observation is {type(observation).__name__}: expected a dict of {', '.join(parts)}.")
                observation = {OBSERVATION: observation}
            if ACTION_MASK in observation:
                raise ConfigError("action_mask was given twice, in the observation and as an argument: remove one of them.")
            sizes = mask_sizes(from_any(self.env.action_space, "action"))
            if dict(space.spaces)[ACTION_MASK] == MultiBinary((sum(sizes),)):
                lacking = [name for name in self.actor_critic.privileged if name not in observation]
                others = without(space, (ACTION_MASK, *lacking))
                count = count_stacked(convert_observation(observation, others), others)
                action_mask = flat_masks(action_mask, sizes, count)
            observation = {**observation, ACTION_MASK: action_mask}
        elif (
            self.actor_critic.mask_ndim is not None
            and not isinstance(observation, tuple)
            and not (isinstance(observation, Mapping) and ACTION_MASK in observation)
        ):
            raise ConfigError(
                "action_mask was not given, but this policy was trained with action masks: pass action_mask=…, such as "
                'info["action_mask"] or env.action_masks().'
            )
        missing = [name for name in self.actor_critic.privileged if isinstance(observation, Mapping) and name not in observation]
        return observation, without(space, tuple(missing))

    def _check_memory(self, memory: Any, episode_start: np.ndarray | None, count: int) -> Carried:
        """The memory of ``count`` environments; a new one if none was given and none is needed."""
        if memory is None:
            starts = episode_start is not None and episode_start.all() and self.actor_critic.reset_memory
            if self.has_memory and not starts:
                flags = None if episode_start is None else episode_start.tolist()
                raise ConfigError(
                    f"memory = None with episode_start = {flags}, but this policy has a memory: pass memory=policy.init_memory(N) "
                    "for N environments at the start, and afterwards the memory that the last call returned."
                )
            return self.init_memory(count)
        if not isinstance(memory, Carried):
            raise ConfigError(
                f"memory is {type(memory).__name__}: expected policy.init_memory(N), or what the last call returned."
            )
        sizes = {len(leaf) for leaf in jax.tree.leaves(memory)} - {count}
        if sizes:
            raise ConfigError(
                f"memory is for {sizes.pop()} environments, but the observation is for {count}: pass the same number."
            )
        return memory

    def _with_reward(self, memory: Carried, episode_start: np.ndarray, reward: Any, stacked: int | None) -> Carried:
        """``memory`` with the reward of the last action, which may be missing where it is not read."""
        if reward is None:
            if (self.actor_critic.reset_memory and episode_start.all()) or self._is_initial(memory, len(episode_start)):
                return memory
            raise ConfigError("reward was not given, but this policy observes it (observe_reward): pass the last reward.")
        reward = _one_each("reward", reward, stacked)
        if not np.isfinite(reward).all():
            raise ConfigError(f"reward is {reward}: expected finite numbers. Check the rewards of the environment.")
        assert memory.previous is not None
        return Carried(memory.memory, Previous(memory.previous.action, jnp.asarray(reward)))

    def _is_initial(self, memory: Carried, count: int) -> bool:
        pairs = zip(jax.tree.leaves(memory), jax.tree.leaves(self.init_memory(count)), strict=False)
        return all(np.array_equal(leaf, initial) for leaf, initial in pairs)


class _Structure(NamedTuple):
    """Networks without their arrays, and the precision of their products: what a compiled function is compiled for."""

    treedef: Any
    """The tree of the networks, with their static fields."""
    leaves: tuple[Any, ...]
    """The leaves; ``jax.Array`` in place of an array."""
    matmul_precision: str

    def with_arrays(self, arrays: tuple[Any, ...]) -> ActorCritic:
        left = iter(arrays)
        return jax.tree.unflatten(self.treedef, [next(left) if leaf is jax.Array else leaf for leaf in self.leaves])


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, whose first argument is an ``ActorCritic``, compiled with a ``_Structure`` and its arrays instead. To flatten and to hash
    the networks in every call, as ``equinox.filter_jit`` does, takes several times as long as the call."""

    @functools.partial(jax.jit, static_argnums=0)
    def call(structure: _Structure, arrays: tuple[Any, ...], *arguments: Any) -> Any:
        with jax.default_matmul_precision(structure.matmul_precision):
            return function(structure.with_arrays(arrays), *arguments)

    return call


@_compiled
def _act(
    actor_critic: ActorCritic, carried: Carried, observation: Observation, episode_start: Array, key: Key[Array, ""] | None
) -> tuple[Carried, Array]:
    observation = actor_critic.with_previous_step(observation, episode_start, carried.previous)
    memory, action, _, value = actor_critic.step(carried.memory, observation, episode_start, jnp.ones_like(episode_start), key)
    return Carried(memory, actor_critic.previous_step(action, jnp.zeros_like(value))), actor_critic.to_space(action)


@_compiled
def _forward(
    actor_critic: ActorCritic, carried: Carried, observation: Observation, episode_start: Array
) -> tuple[Distribution, Array]:
    observation = actor_critic.with_previous_step(observation, episode_start, carried.previous)
    return actor_critic.forward(carried.memory, observation, episode_start, jnp.ones_like(episode_start))[1:]


def _check_key(key: Any, deterministic: bool) -> Key[Array, ""] | None:
    """``key`` as a typed key if actions are sampled, else None."""
    if deterministic:
        if key is not None:
            raise ConfigError("key was given with deterministic = True, which ignores it: pass deterministic=False to sample.")
        return None
    if getattr(key, "dtype", None) == jnp.uint32 and np.shape(key) == jax.random.PRNGKey(0).shape:
        return jax.random.wrap_key_data(jnp.asarray(key))
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0:
        return key
    raise ConfigError(
        f"key = {key!r} with deterministic = False: expected a single key, such as jax.random.key(0), and a new one for each call."
    )


def _one_each(name: str, given: Any, stacked: int | None) -> np.ndarray:
    """``given`` as an array with one entry per environment."""
    try:
        x = np.asarray(given, float)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} is {given!r}: expected one entry for each environment.") from None
    x = x[None] if stacked is None and x.ndim == 0 else x
    if x.shape != (stacked or 1,):
        expected = "a single one, as the observation is" if stacked is None else f"({stacked},), one for each observation"
        raise ConfigError(f"{name} has the shape {x.shape}: expected {expected}.")
    return x


def check_finite(path: Path, policy: Any, config: Config) -> None:
    """Raise ``CheckpointError`` if ``policy``, of the checkpoint ``path``, contains NaN or infinity."""
    if name := non_finite_leaf(policy, config):
        raise CheckpointError(
            f"Checkpoint {path} has NaN or infinity in {name}, so its policy cannot act. A training never saves such a checkpoint: "
            "load another one (@STEP), or get a new copy of the run."
        )


def non_finite_leaf(policy: Any, config: Config) -> str | None:
    """The name of the first array of ``policy`` with NaN or infinity. Custom code may use infinity as a mask."""
    wrong = np.isnan if custom_settings(config) else lambda x: ~np.isfinite(x)
    floats = {name: leaf for name, leaf in flatten(policy).items() if jnp.issubdtype(leaf.dtype, jnp.inexact)}
    return next((name for name, leaf in floats.items() if wrong(np.asarray(leaf)).any()), None)


def load_policy(run: str | Path, runs_dir: str = "runs", *, env: str | None = None, **custom: Any) -> Policy:
    """Load the policy of a run. It can act, but not learn further; ``proximo.load`` returns an agent that can.

    Args:
        run: A path, a name or ``last``, optionally with ``@best``, ``@last`` or ``@STEP``; or ``zoo:NAME``, a policy that proximo contains.
        runs_dir: The folder of all runs.
        env: The id of the run's environment. Needed only if it is a function of an installed library; any other id is ignored.
        **custom: Objects that the policy was trained with and that cannot be imported by name, for example ``encoder=MyEncoder``.

    Returns:
        The policy.

    Raises:
        CheckpointError: If there is no such run or checkpoint, or if it cannot be read.
        ConfigError: If custom code of the run is not found, or ``custom`` has an object that the policy was not trained with.
        EnvError: If the environment of the run cannot be made.
    """
    prepare_jax()  # before JAX starts: later it cannot be made to run small programs in the thread that calls them
    path, which = run_lookup.find_single_run(str(run), Path(runs_dir))
    config = run_directory.read_config(path, custom)
    if env == config.env.id:
        config = with_given(config, {"id": env})
    made = environment(config)
    saved, warnings = run_lookup.find_checkpoint(path, which, config)
    template = policy_shapes(made, config)
    actor_critic = saved.restore(template, part=POLICY)
    check_finite(saved.path, actor_critic, config)
    return Policy(jax.tree.map(jnp.asarray, actor_critic), made, config, saved.step, tuple(warnings))
