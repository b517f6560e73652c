"""The policy network: everything that is needed to act and to learn."""

from __future__ import annotations

import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree, Shaped

from proximo.config import NetworkConfig
from proximo.distributions import Distribution
from proximo.errors import ConfigError, EnvError
from proximo.networks.assembly import make_parts
from proximo.networks.custom.module import CustomModule
from proximo.networks.encoders import previous_entries
from proximo.networks.heads import ActorHead, ReadoutFunction
from proximo.networks.normalizer import make_statistics, normalized
from proximo.networks.torso import Method, Torso
from proximo.spaces import (
    ACTION_MASK,
    OBSERVATION,
    PREVIOUS_ACTION,
    PREVIOUS_REWARD,
    ActionSpace,
    Box,
    Dict,
    MultiBinary,
    MultiDiscrete,
    Space,
    flatdim,
)
from proximo.types import Memory, Observation, Previous


class ActorCritic(eqx.Module):
    """The networks of a policy: observation normalizer → encoder → memory → heads.

    Policy and value function share one torso (encoder and memory), or have one each. The memory is a tuple with one state per torso; a
    feed-forward policy has an empty one. Acting calls ``step``, learning calls ``unroll``. Scanning ``step`` over time gives the same numbers as
    ``unroll``.

    In shapes, ``N`` is the number of environments and ``T`` the number of steps. In each of the methods:

    - ``memory`` is the memory before the (first) step, from ``init_memory`` or an earlier call;
    - ``observation`` is as the environment returns it, extended by ``with_previous_step`` if the policy observes its previous action or reward;
    - ``episode_start`` is true where the memory is reset before the observation is read;
    - ``valid`` is false on padding steps, which leave the memory unchanged.
    """

    normalizer: PyTree
    """Running statistics (``networks.normalizer``), a tree like the observation; None if nothing is normalized."""
    torsos: tuple[Torso, ...]
    """One shared torso, or the policy's and the value's."""
    actor: ActorHead
    critic: ReadoutFunction
    clip_observation: float = eqx.field(static=True)
    mask_ndim: int | None = eqx.field(static=True)
    """Number of axes of one action mask, the entry ``action_mask`` of the observation; None without a mask."""
    reset_memory: bool = eqx.field(static=True)
    """Whether memory, previous action and previous reward are reset at episode starts. If not, ``episode_start`` is ignored."""
    observed_previous: tuple[str, ...] = eqx.field(static=True)
    """Which of ``previous_action`` and ``previous_reward`` the policy observes."""
    privileged: tuple[str, ...] = eqx.field(static=True)
    """Entries of the observation that only the value reads."""

    def init_memory(self, batch: int) -> Memory:
        """Return an empty memory.

        Args:
            batch: Number of environments.

        Returns:
            A pytree of arrays of shape ``[batch, ...]``.
        """
        return tuple(torso.cell.init(batch) for torso in self.torsos)

    def step(
        self,
        memory: Memory,
        observation: Observation,
        episode_start: Bool[Array, " N"],
        valid: Bool[Array, " N"],
        key: Key[Array, ""] | None,
    ) -> tuple[Memory, Shaped[Array, "N ..."], Float[Array, " N"], Float[Array, " N"]]:
        """Act for one step.

        Args:
            memory: The memory before the step.
            observation: Observations with a leading axis ``N``.
            episode_start: Whether an episode starts with the observation.
            valid: False on padding steps.
            key: Random key; None takes the most probable action.

        Returns:
            The memory after the step, the action as the distribution sampled it (``to_space`` maps it to the environment's space), its
            log-probability, and the value.
        """
        noise = None if key is None else self.actor.noise(key, episode_start.shape)
        return self.act(memory, observation, episode_start, valid, noise)

    def act(
        self,
        memory: Memory,
        observation: Observation,
        episode_start: Bool[Array, " N"],
        valid: Bool[Array, " N"],
        noise: PyTree | None,
    ) -> tuple[Memory, Shaped[Array, "N ..."], Float[Array, " N"], Float[Array, " N"]]:
        """``step`` with noise from ``actor.noise``, which collectors draw for a whole rollout at once.

        Without noise it takes the most probable action.
        """
        memory, distribution, value = self.forward(memory, observation, episode_start, valid)
        action = distribution.mode() if noise is None else distribution.sample(noise)
        return memory, action, distribution.log_prob(action), value

    def forward(
        self, memory: Memory, observation: Observation, episode_start: Bool[Array, " N"], valid: Bool[Array, " N"]
    ) -> tuple[Memory, Distribution, Float[Array, " N"]]:
        """``step`` without choosing an action: the memory after the step, the action distribution, the value."""
        return self._apply("step", memory, observation, episode_start, valid)

    def unroll(
        self, memory: Memory, observation: Observation, episode_start: Bool[Array, "T N"], valid: Bool[Array, "T N"]
    ) -> tuple[Memory, Distribution, Float[Array, "T N"]]:
        """Evaluate whole sequences, as the loss does.

        Args:
            memory: The memory before the first step.
            observation: Observations with leading axes ``T N``.
            episode_start: Whether an episode starts with each observation.
            valid: False on padding steps.

        Returns:
            The memory after the last step, the action distributions of all steps, and their values.
        """
        return self._apply("unroll", memory, observation, episode_start, valid)

    def _apply(
        self, method: Method, memory: Memory, observation: Observation, episode_start: Array, valid: Array
    ) -> tuple[Memory, Distribution, Array]:
        x, episode_start = self.normalize(observation), self._resets(episode_start)
        after, features = zip(
            *(torso.run(method, m, x, episode_start, valid) for torso, m in zip(self.torsos, memory, strict=True)), strict=True
        )
        return after, self.actor(features[0], self._mask(observation)), self.critic(features[-1])[..., 0]

    def value(self, memory: Memory, observation: Observation, episode_start: Bool[Array, " N"]) -> Float[Array, " N"]:
        """Estimate the value of one observation per environment, without a step of the memory.

        Args:
            memory: The memory before the observation.
            observation: Observations with a leading axis ``N``.
            episode_start: Whether an episode starts with the observation.

        Returns:
            The values, in units of the scaled reward.
        """
        x = self.normalize(observation)
        _, features = self.torsos[-1].run("step", memory[-1], x, self._resets(episode_start), jnp.ones_like(episode_start))
        return self.critic(features)[..., 0]

    def to_space(self, action: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        """Map a sampled action to the action that the environment receives.

        Args:
            action: Actions as ``step`` returns them, with any leading axes.

        Returns:
            Actions of the space: clipped or squashed, and scaled.
        """
        taken, space = self.actor.to_space(action), self.actor.space
        if not isinstance(space, Box) or not jnp.issubdtype(taken.dtype, jnp.floating):
            return taken
        return jnp.clip(taken, *space.bounds_inside(taken.dtype))  # rounding may have passed the bounds

    def no_previous_step(self, batch: int) -> Previous | None:
        """Return the previous step of environments that have not acted yet.

        Args:
            batch: Number of environments.

        Returns:
            Zeros; None if the policy does not observe its previous step.
        """
        if not self.observed_previous:
            return None
        return Previous(jnp.zeros((batch, flatdim(self.actor.space))), jnp.zeros(batch))

    def previous_step(self, action: Shaped[Array, "..."], reward: Float[Array, "*batch"]) -> Previous | None:
        """Return what the policy observes of a step when it takes the next one.

        Args:
            action: The sampled action of the step.
            reward: Its unscaled reward.

        Returns:
            The argument ``previous`` of ``with_previous_step``; None if the policy does not observe its previous step.
        """
        return Previous(self.actor.features(action), reward.astype(float)) if self.observed_previous else None

    def with_previous_step(
        self, observation: Observation, episode_start: Bool[Array, "*batch"], previous: Previous | None
    ) -> Observation:
        """Add the previous action and reward to an observation.

        At episode starts they are zeros. With ``reset_memory: false``, they are those of the previous episode's last step.

        Args:
            observation: The environment's observation.
            episode_start: Whether an episode starts with the observation.
            previous: The previous step, from ``no_previous_step`` or ``previous_step``.

        Returns:
            A Dict observation with the added entries; ``observation`` itself if ``previous`` is None.
        """
        if previous is None:
            return observation
        entries = {PREVIOUS_ACTION: previous.action, PREVIOUS_REWARD: previous.reward[..., None]}
        named = observation if isinstance(observation, dict) else {OBSERVATION: observation}
        return named | {
            name: jnp.where(self._resets(episode_start)[..., None], 0.0, entries[name]) for name in self.observed_previous
        }

    def _resets(self, episode_start: Bool[Array, "*batch"]) -> Bool[Array, "*batch"]:
        return episode_start if self.reset_memory else jnp.zeros_like(episode_start)

    def normalize(self, observation: Observation) -> Observation:
        """The observation as the encoders read it: normalized by the running statistics, if any, and clipped."""
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
            ConfigError: The part is built in, or the policy has no such tower.
        """
        if not 0 <= tower < len(self.torsos):
            towers = "one tower, 0" if len(self.torsos) == 1 else "two towers, 0 and 1"
            raise ConfigError(f"tower = {tower}, but this policy has {towers}.")
        nodes = jax.tree.leaves((self.torsos[tower], self.actor, self.critic), is_leaf=lambda x: isinstance(x, CustomModule))
        found = {node.setting: node for node in nodes if isinstance(node, CustomModule)}
        if part not in found:
            raise ConfigError(
                f"{part!r} is not a custom part of this policy; its custom parts are: {', '.join(found) or 'none'}."
            )
        return found[part].module

    def _mask(self, observation: Observation) -> Bool[Array, "..."] | None:
        """The action mask of ``observation``, flattened to one axis after the leading axes."""
        if self.mask_ndim is None:
            return None
        mask = observation[ACTION_MASK]
        return mask.reshape((*mask.shape[: mask.ndim - self.mask_ndim], -1)) != 0

    @property
    def is_recurrent(self) -> bool:
        """Whether the policy has a memory."""
        return bool(jax.tree.leaves(jax.eval_shape(lambda: self.init_memory(1))))


def make_policy(
    key: Key[Array, ""],
    observation_space: Space,
    action_space: ActionSpace,
    config: NetworkConfig,
    normalize_observation: bool | Literal["auto"],
    clip_observation: float = 0.0,
) -> ActorCritic:
    """Make a policy with fresh parameters.

    A top-level entry ``action_mask`` of a ``Dict`` observation masks the actions; the encoders do not read it.

    Args:
        key: Random key of the parameters.
        observation_space: Space of the environment's observations.
        action_space: Space of the actions.
        config: Network settings.
        normalize_observation: Whether to normalize floating-point observations by running statistics; ``"auto"`` normalizes those of at most two axes.
        clip_observation: Clip observations to ± this number; 0 clips to ± 10 where they are normalized, and not at all elsewhere.

    Raises:
        EnvError: A space or an action mask is not supported.
        ConfigError: A custom network does not fit.
    """
    added = previous_entries(config)
    observation_space = _extended(observation_space, action_space, added)
    encoded_space, mask_shape = _split_mask(observation_space)
    torsos, actor, critic = make_parts(key, encoded_space, action_space, config)
    if mask_shape is not None:
        _check_mask(mask_shape, actor)
    return ActorCritic(
        normalizer=make_statistics(observation_space, normalize_observation, added),
        torsos=torsos,
        actor=actor,
        critic=critic,
        clip_observation=clip_observation,
        mask_ndim=None if mask_shape is None else len(mask_shape),
        reset_memory=config.reset_memory,
        observed_previous=added,
        privileged=config.privileged,
    )


def _extended(space: Space, action_space: ActionSpace, added: tuple[str, ...]) -> Space:
    """The space of the observations that ``ActorCritic.with_previous_step`` returns."""
    if not added:
        return space
    named = space.spaces if isinstance(space, Dict) else ((OBSERVATION, space),)
    for name in added:
        if name in dict(named):
            raise EnvError(
                f"The observation space {space} already has an entry {name!r}: rename it, or turn off observe_{name.removeprefix('previous_')}."
            )
    sizes = {PREVIOUS_ACTION: flatdim(action_space), PREVIOUS_REWARD: 1}
    return Dict((*named, *((name, Box((sizes[name],))) for name in added)))


def _split_mask(space: Space) -> tuple[Space, tuple[int, ...] | None]:
    """The space that the encoders read, and the shape of the action mask (None without a mask)."""
    if not isinstance(space, Dict) or ACTION_MASK not in dict(space.spaces):
        return space, None
    mask = dict(space.spaces)[ACTION_MASK]
    if not isinstance(mask, Box | MultiBinary | MultiDiscrete):
        raise EnvError(f"The entry {ACTION_MASK!r} of the observation is {mask}: expected one array, as MultiBinary or Box.")
    rest = tuple((name, part) for name, part in space.spaces if name != ACTION_MASK)
    if not rest:
        raise EnvError(f"The observation space {space} has no entry besides the mask: add an entry that the policy can read.")
    return Dict(rest), mask.shape


def _check_mask(shape: tuple[int, ...], actor: ActorHead) -> None:
    """Raise ``EnvError`` unless a mask of ``shape`` fits the actions."""
    if not actor.mask_size:
        raise EnvError(f"Actions of {actor.space} cannot be masked: remove {ACTION_MASK!r} from the observation.")
    if math.prod(shape) != actor.mask_size:
        raise EnvError(
            f"The action mask has {math.prod(shape)} entries, where actions of {actor.space} take {actor.mask_size}: one for each choice of each "
            "component in order, or two for each bit (may be 0, may be 1)."
        )
