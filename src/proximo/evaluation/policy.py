"""A trained policy that acts, and how to load one from a run."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from proximo.collect.environment import environment
from proximo.collect.learning import policy_shapes
from proximo.config import Config, learner_code
from proximo.config.custom import is_custom
from proximo.config.loading import with_given
from proximo.distributions import Distribution
from proximo.envs import GymnasiumEnvironment, JaxEnvironment
from proximo.envs.libraries import num_agents
from proximo.errors import CheckpointError, ConfigError, shown
from proximo.evaluation.observations import convert_masks, convert_observation, count_stacked, one_each
from proximo.jax_setup import prepare_jax
from proximo.networks import ActorCritic
from proximo.spaces import ACTION_MASK, AGENT_ID, OBSERVATION, PREVIOUS_REWARD, Box, Dict, mask_sizes, nested, without, zeros
from proximo.storage import run_directory, run_lookup
from proximo.storage.checkpoint import POLICY, flatten
from proximo.types import Memory, Observation, Previous


class Carried(NamedTuple):
    """What a policy carries from step to step."""

    memory: Memory
    previous: Previous | None
    """The last action and reward, if the policy observes either of them."""

    @classmethod
    def initial(cls, network: ActorCritic, num_envs: int) -> Self:
        """What is carried to the first step."""
        return cls(network.init_memory(num_envs), network.no_previous_step(num_envs))


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

    Use ``actor_critic`` inside a JAX program: ``actor_critic.step`` also returns log-probability and value,
    and can be scanned.
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
        """What a copy or a pickle has: not the compiled functions."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __repr__(self) -> str:
        """One line, without arrays."""
        network = self.config.network
        size = "" if is_custom(network.memory) else f" of {network.memory_size}"
        memory = "" if network.memory == "none" else f", memory {network.memory}{size}"
        return f"Policy({self.config.env.id!r} at step {self.step}{memory})"

    @property
    def has_memory(self) -> bool:
        """Whether the policy is recurrent or observes its previous action or reward."""
        return bool(jax.tree.leaves(self._memory_shapes))

    def init_memory(self, num_envs: int = 1) -> Carried:
        """Return the memory before the first step.

        Args:
            num_envs: Number of environments, 1 or more.

        Returns:
            The memory for the first call of ``predict``.
        """
        return Carried.initial(self.actor_critic, num_envs)

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
    ) -> tuple[Any, Carried]:
        """Choose the action for one observation, or for N stacked observations.

        Args:
            observation: As the environment returns it, before normalization, or N of them stacked along a
                leading axis (dicts and tuples entry by entry). Entries that only the value function reads may
                be missing, and so may ``agent_id``, if the observations of all agents are stacked in order.
            memory: What the last call returned, or ``init_memory``. May be None if the policy has no memory,
                or if an episode begins in every environment and the policy resets its memory there.
            episode_start: Whether an episode begins with this observation: one flag, or N of them. The memory
                is reset there, unless the policy was trained with ``reset_memory: false``. Default: no
                episode begins, if ``memory`` is given.
            action_mask: Which actions are allowed: a number for each choice, other than 0 if it is allowed,
                or N rows of them. Required if the policy was trained with masks, unless the observation has
                them as its entry ``action_mask``. Give what the environment gives: ``info["action_mask"]`` or
                ``env.action_masks()``.
            deterministic: Whether to choose the most probable action. If false, the action is sampled.
            key: A key such as ``jax.random.key(0)``, required to sample. Use another key for each call.
            reward: The reward of the last action, or N of them. Required from the second step on by policies
                that observe rewards (``observe_reward``), and ignored by others. If the memory is kept across
                episodes, it is also required at their start.

        Returns:
            The action as the environment takes it (N of them for N observations; of several parts, each stacked), and the memory for
            the next call.

        Raises:
            ConfigError: If an argument is missing, or does not match the policy or the other arguments.
        """
        if deterministic != (key is None):
            raise ConfigError(f"key = {shown(key)} with deterministic = {deterministic}: pass a key to sample, and only then.")
        if getattr(key, "dtype", None) == jnp.uint32:  # of jax.random.PRNGKey
            key = jax.random.wrap_key_data(jnp.asarray(key))
        arguments, is_single = self._read(observation, memory, episode_start, action_mask, reward)
        after, action = self._compiled[0](*arguments, key)
        space = self.actor_critic.actor.space
        action = np.asarray(action, space.dtype if isinstance(space, Box) else None)
        return nested(space, action[0] if is_single else action), after

    def forward(
        self,
        observation: Any,
        memory: Carried | None = None,
        episode_start: Any = None,
        *,
        action_mask: Any = None,
        reward: Any = None,
    ) -> tuple[Distribution, Array]:
        """Compute the distribution of the action and the value for one observation, or for N stacked ones.

        The memory is not advanced: ``predict`` returns the memory of the next step.

        Args:
            observation: As in ``predict``. Missing entries that only the value function reads are 0.
            memory: As in ``predict``.
            episode_start: As in ``predict``.
            action_mask: As in ``predict``.
            reward: As in ``predict``.

        Returns:
            The distribution of actions before they are mapped to the action space
            (``actor_critic.to_space``), and the value, both with a leading axis ``N``, which is 1 for a
            single observation. A standard deviation that does not depend on the observation lacks this axis.
            If rewards are normalized, the value is in units of normalized rewards.

        Raises:
            ConfigError: If an argument is missing, or does not match the policy or the other arguments.
        """
        arguments, _ = self._read(observation, memory, episode_start, action_mask, reward)
        return self._compiled[1](*arguments)

    def _read(
        self, observation: Any, memory: Any, episode_start: Any, action_mask: Any, reward: Any
    ) -> tuple[tuple[Carried, Observation, np.ndarray], bool]:
        """The memory, observations and starts of N environments, and whether a single observation was given."""
        observation, stacked = self._read_observation(observation, action_mask)
        n = stacked or 1
        starts = np.zeros(n) if episode_start is None else episode_start
        starts = one_each("episode_start", starts, stacked, "True or False") != 0
        resets = self.actor_critic.reset_memory and starts.all()
        if memory is None and self.has_memory and not resets:
            raise ConfigError(
                "memory was not given, but this policy has a memory: pass memory=policy.init_memory(N) for N environments at the start, "
                "and afterwards the memory that the last call returned."
            )
        memory = self.init_memory(n) if memory is None else memory
        leaves, structure = jax.tree.flatten(memory)
        likes, expected = jax.tree.flatten(self._memory_shapes)
        if structure != expected or any(np.shape(x) != (n, *like.shape[1:]) for x, like in zip(leaves, likes, strict=True)):
            raise ConfigError(
                f"memory is not of this policy for {n} environments: expected policy.init_memory({n}), or what the last call returned."
            )
        if PREVIOUS_REWARD in self.actor_critic.observed_previous:
            if reward is not None:
                reward = one_each("reward", reward, stacked, "a finite number")
                memory = Carried(memory.memory, Previous(memory.previous.action, jnp.asarray(reward, float)))
            elif not resets and not all(map(np.array_equal, leaves, jax.tree.leaves(self.init_memory(n)))):
                raise ConfigError("reward was not given, but this policy observes it (observe_reward): pass the last reward.")
        return (memory, observation, starts), stacked is None

    def _read_observation(self, given: Any, action_mask: Any) -> tuple[Observation, int | None]:
        """N observations with masks and all entries; and N, or None if a single one was given."""
        network, space = self.actor_critic, self.env.observation_space
        is_masked, entries = network.is_masked, dict(space.spaces) if isinstance(space, Dict) else {}
        parts = dict(given) if isinstance(given, Mapping) else {OBSERVATION: given} if OBSERVATION in entries else {}
        if is_masked and action_mask is None:
            action_mask = parts.pop(ACTION_MASK, None)
        elif action_mask is not None and not is_masked:
            raise ConfigError("action_mask was given, but this policy was trained without action masks: remove it.")
        lacking = tuple(name for name in (*network.privileged, AGENT_ID) if name in entries and name not in parts)
        read = without(space, (*lacking, ACTION_MASK) if is_masked else lacking)
        observation = convert_observation(parts or given, read)
        stacked = count_stacked(observation, read)
        if stacked is None:
            observation = jax.tree.map(lambda x: x[None], observation)
        if is_masked or lacking:
            observation = {**zeros(space, (stacked or 1,)), **observation}
        if AGENT_ID in lacking:
            if (stacked or 1) % (count := num_agents(self.env)):
                raise ConfigError(
                    f"The observations of {stacked or 1} agents were given, but this policy observes agent_id: stack those of all {count} "
                    "agents of each environment, or add the entry agent_id."
                )
            observation[AGENT_ID] = np.tile(np.eye(count, dtype=np.float32), ((stacked or 1) // count, 1))
        if is_masked:
            if action_mask is None:
                raise ConfigError(
                    "action_mask was not given, but this policy was trained with action masks: pass action_mask=…, such as "
                    'info["action_mask"] or env.action_masks().'
                )
            masks, like = convert_masks(action_mask, mask_sizes(network.actor.space), stacked), observation[ACTION_MASK]
            observation[ACTION_MASK] = masks.reshape(like.shape).astype(like.dtype)
        return observation, stacked

    @functools.cached_property
    def _memory_shapes(self) -> Carried:
        return jax.eval_shape(lambda: self.init_memory())

    @functools.cached_property
    def _compiled(self) -> list[Callable[..., Any]]:
        """``act`` and ``_forward`` of the networks."""
        leaves, treedef = jax.tree.flatten(self.actor_critic)
        arrays = tuple(leaf for leaf in leaves if isinstance(leaf, jax.Array | np.ndarray))
        others = tuple(jax.Array if isinstance(leaf, jax.Array | np.ndarray) else leaf for leaf in leaves)
        return [functools.partial(program, arrays) for program in _programs(treedef, others, self.config.run.matmul_precision)]


def act(
    network: ActorCritic, carried: Carried, observation: Observation, episode_start: Array, key: Key[Array, ""] | None
) -> tuple[Carried, Array]:
    """One step of ``predict`` and of evaluations. The reward that it carries is 0 until it is known."""
    observation = network.with_previous_step(observation, episode_start, carried.previous)
    acted = network.step(carried.memory, observation, episode_start, jnp.ones_like(episode_start), key)
    previous = network.previous_step(acted.action, jnp.zeros_like(acted.log_prob))
    return Carried(acted.memory, previous), network.to_space(acted.action)


def _forward(
    network: ActorCritic, carried: Carried, observation: Observation, episode_start: Array
) -> tuple[Distribution, Array]:
    observation = network.with_previous_step(observation, episode_start, carried.previous)
    return network.forward(carried.memory, observation, episode_start, jnp.ones_like(episode_start))[1:]


@functools.lru_cache(maxsize=16)
def _programs(treedef: Any, leaves: tuple[Any, ...], matmul_precision: str) -> list[Callable[..., Any]]:
    """``act`` and ``_forward``, compiled for this structure, whose arrays (``jax.Array`` in ``leaves``) are
    the first argument: flattening the networks in every call, as ``equinox.filter_jit`` does, takes several
    times as long as the call."""

    def call(function: Callable[..., Any], arrays: tuple[Any, ...], *arguments: Any) -> Any:
        left = iter(arrays)
        return function(treedef.unflatten([next(left) if leaf is jax.Array else leaf for leaf in leaves]), *arguments)

    with_precision = jax.default_matmul_precision(matmul_precision)
    return [jax.jit(with_precision(functools.partial(call, function))) for function in (act, _forward)]


def check_finite(path: Path, policy: Any, config: Config) -> None:
    """Raise ``CheckpointError`` if ``policy``, of the checkpoint ``path``, contains NaN or infinity."""
    if name := non_finite_leaf(policy, config):
        raise CheckpointError(
            f"Checkpoint {path} has NaN or infinity in {name}, so its policy cannot act. A training never saves such a checkpoint: "
            "load another one (@STEP), or get a new copy of the run."
        )


def non_finite_leaf(policy: Any, config: Config) -> str | None:
    """The first array of ``policy`` with NaN or infinity. Custom code may use infinity as a mask."""
    wrong = np.isnan if learner_code(config) else lambda x: ~np.isfinite(x)
    floats = {name: leaf for name, leaf in flatten(policy).items() if jnp.issubdtype(leaf.dtype, jnp.inexact)}
    return next((name for name, leaf in floats.items() if wrong(np.asarray(leaf)).any()), None)


def load_policy(run: str | Path, runs_dir: str = "runs", *, env: str | None = None, **custom: Any) -> Policy:
    """Load the policy of a run, to act. ``proximo.load`` returns an agent, which can also learn.

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
    actor_critic = saved.restore(policy_shapes(made, config), part=POLICY)
    check_finite(saved.path, actor_critic, config)
    return Policy(jax.tree.map(jnp.asarray, actor_critic), made, config, saved.step, tuple(warnings))
