"""One step of a policy as a function from named arrays to named arrays."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from proximo.distributions import Gaussian
from proximo.errors import ConfigError
from proximo.evaluation.policy import Policy
from proximo.networks import ActorCritic
from proximo.networks.custom.networks import CustomDistribution
from proximo.spaces import ACTION_MASK, OBSERVATION, PREVIOUS_ACTION, PREVIOUS_REWARD, Space, flatdim, without, zeros
from proximo.storage.checkpoint import flatten
from proximo.types import Previous

EPISODE_START, REWARD, MEMORY, NOISE, NEXT = "episode_start", "reward", "memory", "noise", ".next"
ACTION, VALUE, LOG_PROB = "action", "value", "log_prob"
Arrays = dict[str, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class PolicyFunction:
    """One step of a policy: a function from arrays by name to arrays by name.

    Inputs are the observation, ``episode_start``, the memory, and where needed the last reward and noise.
    Outputs are the action, value, log-probability, the parameters of the distribution, and the memory of the
    next step.
    """

    policy: Policy
    deterministic: bool = True
    """Whether the action is the most probable one. If not, it is sampled with the input ``noise``."""

    @functools.cached_property
    def actor_critic(self) -> ActorCritic:
        """The networks in float32, even if they were trained in bfloat16, which other runtimes lack."""
        actor_critic = self.policy.actor_critic
        torsos = tuple(dataclasses.replace(torso, compute_dtype="float32") for torso in actor_critic.torsos)
        return eqx.tree_at(lambda n: n.torsos, actor_critic, torsos)

    @functools.cached_property
    def space(self) -> Space:
        """The space of the observations, without entries that only the value reads."""
        return without(self.policy.env.observation_space, self.actor_critic.privileged)

    @functools.cached_property
    def example(self) -> dict[str, Any]:
        """Inputs of one environment before the first step, as a tree. Raises ``ConfigError`` for unknown noise."""
        actor_critic, actor = self.actor_critic, self.actor_critic.actor
        memory = {str(i): state for i, state in enumerate(actor_critic.init_memory(1))}
        inputs = {OBSERVATION: zeros(self.space, (1,)), EPISODE_START: np.zeros(1, bool), MEMORY: memory}
        if PREVIOUS_ACTION in actor_critic.observed_previous:
            memory[PREVIOUS_ACTION] = np.zeros((1, flatdim(actor.space)), np.float32)
        if PREVIOUS_REWARD in actor_critic.observed_previous:
            inputs[REWARD] = np.zeros(1, np.float32)
        if not self.deterministic:
            if actor.noise_family is None:
                raise ConfigError(
                    f"--stochastic: the noise of {type(actor).__name__} is unknown. Export without --stochastic, and sample from the "
                    "parameters of the distribution."
                )
            inputs[NOISE] = actor.noise(jax.random.key(0), (1,))
        return inputs

    def inputs(self, n: int) -> Arrays:
        """The ``example`` by name, of ``n`` environments. The mask's name lacks the prefix of the observation."""
        mask = f"{OBSERVATION}.{ACTION_MASK}"
        return {ACTION_MASK if k == mask else k: np.repeat(np.asarray(x), n, axis=0) for k, x in flatten(self.example).items()}

    @functools.cached_property
    def observation_names(self) -> list[str]:
        """The inputs that are parts of the observation, in the order of the leaves of the space."""
        return [name for name in self.inputs(1) if name.startswith((OBSERVATION, ACTION_MASK))]

    def init_memory(self, n: int) -> Arrays:
        """The inputs that are the memory. An output has the same name with ``.next`` after it."""
        return {name: x for name, x in self.inputs(n).items() if name.startswith(MEMORY)}

    def as_tree(self, arrays: Arrays) -> dict[str, Any]:
        """Inputs by name as a tree like the ``example``."""
        return jax.tree.unflatten(jax.tree.structure(self.example), [arrays[name] for name in self.inputs(1)])

    def __call__(self, actor_critic: ActorCritic, arrays: Arrays) -> Arrays:
        """All outputs. ``actor_critic`` is an argument, so that an export may compute it in another way."""
        inputs = jax.tree.map(jnp.asarray, self.as_tree(arrays))
        observation, episode_start, memory = inputs[OBSERVATION], inputs[EPISODE_START], inputs[MEMORY]
        n = episode_start.shape[0]
        if actor_critic.privileged:
            blank = zeros(self.policy.env.observation_space, ())
            observation = {**jax.tree.map(lambda x: jnp.zeros((n, *x.shape), x.dtype), blank), **observation}
        if actor_critic.observed_previous:
            unread = jnp.zeros(n)
            previous = Previous(memory.get(PREVIOUS_ACTION, unread[:, None]), inputs.get(REWARD, unread))
            observation = actor_critic.with_previous_step(observation, episode_start, previous)
        states = tuple(memory[str(i)] for i in range(len(actor_critic.torsos)))
        after, distribution, value = actor_critic.forward(states, observation, episode_start, jnp.ones_like(episode_start))
        action = distribution.mode() if self.deterministic else distribution.sample(inputs[NOISE])
        # Without the privileged entries of the observation the value would be wrong.
        values = {} if actor_critic.privileged else flatten({VALUE: value})
        outputs = {ACTION: actor_critic.to_space(action), **values, LOG_PROB: distribution.log_prob(action)}
        if isinstance(distribution, Gaussian):
            mean = distribution.mean
            outputs |= {"mean": mean, "log_std": jnp.broadcast_to(distribution.log_std, mean.shape)}
        elif isinstance(distribution, CustomDistribution):
            outputs["parameters"] = distribution.parameters
        else:
            outputs |= flatten(distribution)
        memory = {str(i): state for i, state in enumerate(after)}
        if PREVIOUS_ACTION in inputs[MEMORY]:
            memory[PREVIOUS_ACTION] = actor_critic.actor.features(action)
        return outputs | {name + NEXT: x for name, x in flatten({MEMORY: memory}).items()}
