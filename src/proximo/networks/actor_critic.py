"""The policy network: everything that is needed to act and to learn."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree, Shaped

from proximo.distributions import Distribution
from proximo.errors import ConfigError
from proximo.networks.custom.networks import CustomModule
from proximo.networks.heads import ActorHead, ReadoutFunction, to_bounds
from proximo.networks.layers import MLP
from proximo.networks.normalizer import normalized
from proximo.networks.recurrent.protocol import MemoryCell
from proximo.spaces import ACTION_MASK, OBSERVATION, PREVIOUS_ACTION, PREVIOUS_REWARD, flatdim
from proximo.types import Memory, Observation, Previous, Value

Flags = Bool[Array, " N"]
Method = Literal["step", "unroll"]


class Evaluated(NamedTuple):
    """What a policy computes for one step (N) or for sequences (T N)."""

    memory: Memory
    distribution: Distribution
    value: Value


class Acted(NamedTuple):
    """What a policy does in one step."""

    memory: Memory
    action: Shaped[Array, "N ..."]
    log_prob: Float[Array, " N"]
    value: Value


class Torso(eqx.Module):
    """What a tower consists of below its heads: encoder → memory (both computed in ``compute_dtype``) →
    shared layers (``shared_sizes``). The shared layers, and a memory with ``full_precision``, are computed in
    the parameters' type, which inputs and outputs have too."""

    encoder: Callable[[Observation], Any]
    cell: MemoryCell
    shared: MLP | None
    compute_dtype: str = eqx.field(static=True)

    def run(self, method: Method, memory: Memory, x: Observation, *flags: Array) -> tuple[Memory, Any]:
        """The memory after ``step`` or ``unroll``, and the features. ``flags``: ``episode_start`` and ``valid``."""
        if self.compute_dtype == "float32":
            memory, features = getattr(self.cell, method)(memory, self.encoder(x), *flags)
        else:
            parameter_dtype = jnp.result_type(float, *filter(eqx.is_inexact_array, jax.tree.leaves(self)))
            encoder, x = _cast((self.encoder, x), self.compute_dtype)
            cell_dtype = parameter_dtype if self.cell.full_precision else self.compute_dtype
            cell, memory, features = _cast((self.cell, memory, encoder(x)), cell_dtype)
            memory, features = _cast(getattr(cell, method)(memory, features, *flags), parameter_dtype)
        return memory, features if self.shared is None else self.shared(features)


def _cast(tree: PyTree, dtype: Any) -> PyTree:
    return jax.tree.map(lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x, tree)


class ActorCritic(eqx.Module):
    """The networks of a policy: observation normalizer → encoder → memory → heads.

    Policy and value function share one torso (encoder and memory), or have one each. The memory is a tuple
    with one state per torso; a feed-forward policy has an empty one. Acting calls ``step``, learning calls
    ``unroll``. Scanning ``step`` over time gives the same numbers as ``unroll``.

    In shapes, ``N`` is the number of environments and ``T`` the number of steps. In each of the methods:

    - ``memory`` is the memory before the (first) step, from ``init_memory`` or an earlier call;
    - ``observation`` is as the environment returns it, extended by ``with_previous_step`` if the policy observes its previous action or reward;
    - ``episode_start`` is true where the memory is reset before the observation is read;
    - ``valid`` is false on padding steps, which leave the memory unchanged.
    """

    normalizer: PyTree
    """Running statistics, a tree like the observation; None if nothing is normalized."""
    torsos: tuple[Torso, ...]
    """One shared torso, or the policy's and the value's."""
    actor: ActorHead
    critic: PyTree[ReadoutFunction]
    """The head of the value, or a dictionary of heads: values then are such dictionaries."""
    clip_observation: float = eqx.field(static=True)
    is_masked: bool = eqx.field(static=True)
    """Whether the entry ``action_mask`` of the observation masks the actions."""
    reset_memory: bool = eqx.field(static=True)
    """Whether memory, previous action and reward are reset at episode starts; else these starts are ignored."""
    observed_previous: tuple[str, ...] = eqx.field(static=True)
    """Which of ``previous_action`` and ``previous_reward`` the policy observes."""
    privileged: tuple[str, ...] = eqx.field(static=True)
    """Entries of the observation that only the value reads."""

    @property
    def is_recurrent(self) -> bool:
        """Whether the policy has a memory."""
        return bool(jax.tree.leaves(jax.eval_shape(lambda: self.init_memory(1))))

    def init_memory(self, batch: int) -> Memory:
        """Return an empty memory: a pytree of arrays ``[batch, ...]`` for ``batch`` environments."""
        return tuple(torso.cell.init(batch) for torso in self.torsos)

    def step(
        self, memory: Memory, observation: Observation, episode_start: Flags, valid: Flags, key: Key[Array, ""] | None
    ) -> Acted:
        """Act for one step. ``key`` is a random key; None takes the most probable action.

        Returns:
            The memory after the step, the action as the distribution sampled it (``to_space`` maps it to the environment's space), its
            log-probability, and the value.
        """
        noise = None if key is None else self.actor.noise(key, episode_start.shape)
        return self.act(memory, observation, episode_start, valid, noise)

    def act(self, memory: Memory, observation: Observation, episode_start: Flags, valid: Flags, noise: PyTree | None) -> Acted:
        """``step`` with noise from ``actor.noise``, which collectors draw for a whole rollout at once; None takes the most probable action."""
        after, distribution, value = self.forward(memory, observation, episode_start, valid)
        action = distribution.mode() if noise is None else distribution.sample(noise)
        return Acted(after, action, distribution.log_prob(action), value)

    def forward(self, memory: Memory, observation: Observation, episode_start: Flags, valid: Flags) -> Evaluated:
        """``step`` without an action: the memory after the step, the action distribution, the value."""
        return self._evaluate("step", memory, observation, episode_start, valid)

    def unroll(
        self, memory: Memory, observation: Observation, episode_start: Bool[Array, "T N"], valid: Bool[Array, "T N"]
    ) -> Evaluated:
        """Evaluate sequences: the memory after the last step, and the distributions and values of all steps."""
        return self._evaluate("unroll", memory, observation, episode_start, valid)

    def _evaluate(
        self, method: Method, memory: Memory, observation: Observation, episode_start: Array, valid: Array
    ) -> Evaluated:
        x, resets, mask = self.normalize(observation), self._resets(episode_start), None
        runs = [torso.run(method, before, x, resets, valid) for torso, before in zip(self.torsos, memory, strict=True)]
        after, features = zip(*runs, strict=True)
        if self.is_masked:  # flattened to one axis after the leading axes
            mask = observation[ACTION_MASK].reshape((*episode_start.shape, -1)) != 0
        value = jax.tree.map(lambda head: head(features[-1])[..., 0], self.critic, is_leaf=callable)
        return Evaluated(after, self.actor(features[0], mask), value)

    def value(self, memory: Memory, observation: Observation, episode_start: Flags) -> Value:
        """Return the value of one observation per environment, in units of the scaled reward."""
        return self.forward(memory, observation, episode_start, jnp.ones_like(episode_start)).value

    def to_space(self, action: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        """Map actions as ``step`` returns them, with any leading axes, to the space."""
        return to_bounds(self.actor.space, self.actor.to_space(action))

    def no_previous_step(self, batch: int) -> Previous | None:
        """Return the previous step before the first one; None if the policy does not observe it."""
        return Previous(jnp.zeros((batch, flatdim(self.actor.space))), jnp.zeros(batch)) if self.observed_previous else None

    def previous_step(self, action: Shaped[Array, "..."], reward: Float[Array, "*batch"]) -> Previous | None:
        """The sampled action and unscaled reward, for the next step; None if the policy observes neither."""
        return Previous(self.actor.features(action), reward.astype(float)) if self.observed_previous else None

    def with_previous_step(
        self, observation: Observation, episode_start: Bool[Array, "*batch"], previous: Previous | None
    ) -> Observation:
        """Add the previous action and reward, which are zeros at episode starts if ``reset_memory``, as
        entries of a Dict observation.

        Args:
            observation: The environment's observation.
            episode_start: Whether an episode starts with the observation.
            previous: The previous step, from ``no_previous_step`` or ``previous_step``; None adds nothing.

        Returns:
            The observation with the added entries.
        """
        if previous is None:
            return observation
        named = observation if isinstance(observation, dict) else {OBSERVATION: observation}
        entries = {PREVIOUS_ACTION: previous.action, PREVIOUS_REWARD: previous.reward[..., None]}
        resets = self._resets(episode_start)[..., None]
        return named | {name: jnp.where(resets, 0.0, entries[name]) for name in self.observed_previous}

    def _resets(self, episode_start: Bool[Array, "*batch"]) -> Bool[Array, "*batch"]:
        return episode_start if self.reset_memory else jnp.zeros_like(episode_start)

    def normalize(self, observation: Observation) -> Observation:
        """The observation as the encoders read it: normalized by the running statistics, and clipped."""
        return normalized(self.normalizer, observation, self.clip_observation)

    def encode(self, observation: Observation) -> Any:
        """Features of the policy's encoder, before the memory, for an observation with any leading axes."""
        return self.torsos[0].encoder(self.normalize(observation))

    def custom_part(self, part: str, tower: int = 0) -> Any:
        """A custom part of the policy, with its current parameters.

        Args:
            part: The setting that names it: ``encoder``, ``memory``, ``actor``, ``critic``, ``actor_critic`` or ``distribution``.
            tower: With separate towers, 0 is the policy's and 1 the value's.

        Returns:
            The user's object.

        Raises:
            ConfigError: The tower has no such custom part.
        """
        parts = (self.torsos[tower : tower + 1], self.actor, self.critic)
        nodes = jax.tree.leaves(parts, is_leaf=lambda x: isinstance(x, CustomModule))
        found = {node.setting: node.module for node in nodes if isinstance(node, CustomModule)}
        if part not in found:
            known = ", ".join(found) or "none"
            raise ConfigError(f"{part!r} is not a custom part of this policy's tower {tower}; its custom parts are: {known}.")
        return found[part]
