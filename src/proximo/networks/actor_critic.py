"""The policy, with all that it needs to act."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree, Shaped

from proximo.config import NetworkConfig
from proximo.distributions import Distribution
from proximo.errors import ConfigError, EnvError
from proximo.networks.assembly import make_parts
from proximo.networks.heads import ActorHead, ToNumbers, action_features
from proximo.networks.normalizer import make_statistics, normalized
from proximo.networks.own import OwnCell, OwnEncoder, OwnReadout
from proximo.networks.own_head import OwnHead
from proximo.networks.torso import Torso
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
)
from proximo.types import Memory, Observation, Previous


class ActorCritic(eqx.Module):
    """Normaliser → encoder → memory → heads. With one torso policy and value share it; with two each has its own.

    The memory is a tuple with a state for each torso. Laws: ``scan(step) == unroll``; the model is a pytree; whatever is
    needed to act travels with it.
    """

    normalizer: PyTree
    """The statistics of ``networks.normalizer``, a tree like the observation; None where nothing is normalised."""
    torsos: tuple[Torso, ...]
    actor: ActorHead
    critic: ToNumbers
    clip_observation: float = eqx.field(static=True)
    mask_ndim: int | None = eqx.field(static=True)
    """Axes of the action mask, the entry ``action_mask`` of the observation; None where there is no mask."""
    reset_memory: bool = eqx.field(static=True)
    """Whether an episode starts with an empty memory, and with zeros as previous action and reward. If not, ``first`` is ignored."""
    added: tuple[str, ...] = eqx.field(static=True)
    """Which of ``previous_action`` and ``previous_reward`` the policy observes."""
    action_features: int = eqx.field(static=True)
    privileged: tuple[str, ...] = eqx.field(static=True)
    """Entries of the observation that only the value reads."""

    def init_memory(self, batch: int) -> Memory:
        """The empty memory of ``batch`` environments."""
        return tuple(torso.cell.init(batch) for torso in self.torsos)

    def step(
        self,
        memory: Memory,
        observation: Observation,
        first: Bool[Array, " N"],
        valid: Bool[Array, " N"],
        key: Key[Array, ""] | None,
    ) -> tuple[Memory, Shaped[Array, "N ..."], Float[Array, " N"], Float[Array, " N"]]:
        """Act: the memory after the row, the action as sampled (the mode when ``key`` is None), its log-probability, the
        value. ``to_space`` turns the action into what the environment takes."""
        noise = None if key is None else self.actor.noise(key, first.shape)
        return self.act(memory, observation, first, valid, noise)

    def act(
        self, memory: Memory, observation: Observation, first: Bool[Array, " N"], valid: Bool[Array, " N"], noise: PyTree | None
    ) -> tuple[Memory, Shaped[Array, "N ..."], Float[Array, " N"], Float[Array, " N"]]:
        """``step`` with the noise drawn beforehand (``actor.noise``), as drivers do for a whole rollout."""
        after, distribution, value = self.forward(memory, observation, first, valid)
        action = distribution.mode() if noise is None else distribution.sample(noise)
        return after, action, distribution.log_prob(action), value

    def forward(
        self, memory: Memory, observation: Observation, first: Bool[Array, " N"], valid: Bool[Array, " N"]
    ) -> tuple[Memory, Distribution, Float[Array, " N"]]:
        """What ``act`` acts by: the memory after the row, the distribution of the action, the value."""
        x, first = self.normalized(observation), self._resets(first)
        after, features = zip(*(t.step(m, x, first, valid) for t, m in zip(self.torsos, memory, strict=True)), strict=True)
        return after, self.actor(features[0], self._mask(observation)), self.critic(features[-1])[..., 0]

    def value(self, memory: Memory, observation: Observation, first: Bool[Array, " N"]) -> Float[Array, " N"]:
        """The value alone, the memory left as it is."""
        x = self.normalized(observation)
        _, features = self.torsos[-1].step(memory[-1], x, self._resets(first), jnp.ones_like(first))
        return self.critic(features)[..., 0]

    def unroll(
        self, memory: Memory, observation: Observation, first: Bool[Array, "T N"], valid: Bool[Array, "T N"]
    ) -> tuple[Memory, Distribution, Float[Array, "T N"]]:
        """Learn: the memory after the last row, and distributions and values of all rows, from the memory before the first."""
        x, first = self.normalized(observation), self._resets(first)
        after, features = zip(*(t.unroll(m, x, first, valid) for t, m in zip(self.torsos, memory, strict=True)), strict=True)
        return after, self.actor(features[0], self._mask(observation)), self.critic(features[-1])[..., 0]

    def to_space(self, action: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        """What the environment receives for a sampled action."""
        return self.actor.to_space(action)

    def nothing_before(self, batch: int) -> Previous | None:
        """What is observed of the time before the first row; None where the policy observes nothing of it."""
        if not self.added:
            return None
        return Previous(jnp.zeros((batch, self.action_features)), jnp.zeros(batch))

    def previous(self, action: Shaped[Array, "..."], reward: Float[Array, "*rows"]) -> Previous | None:
        """What is observed in the row after one with the sampled ``action`` and ``reward``."""
        return Previous(self.actor.features(action), reward.astype(float)) if self.added else None

    def observed(self, observation: Observation, first: Bool[Array, "*rows"], previous: Previous | None) -> Observation:
        """``observation`` with the previous action and reward, if the policy observes them.

        They are zeros at the start of an episode, unless the memory is kept across episodes: such a policy would otherwise never
        see the last reward of an episode.
        """
        if previous is None:
            return observation
        entries = {PREVIOUS_ACTION: previous.action, PREVIOUS_REWARD: previous.reward[..., None]}
        own = observation if isinstance(observation, dict) else {OBSERVATION: observation}
        return own | {name: jnp.where(self._resets(first)[..., None], 0.0, entries[name]) for name in self.added}

    def _resets(self, first: Bool[Array, "*rows"]) -> Bool[Array, "*rows"]:
        return first if self.reset_memory else jnp.zeros_like(first)

    def normalized(self, observation: Observation) -> Observation:
        """The observation as the encoders read it: by the running statistics where the policy has any, and clipped."""
        return normalized(self.normalizer, observation, self.clip_observation)

    def encoded(self, observation: Observation) -> Any:
        """What the encoder gives for ``observation`` (with any leading axes): features, before the memory; with two towers the policy's."""
        return self.torsos[0].encoder(self.normalized(observation))

    def own(self, part: str, tower: int = 0) -> Any:
        """The user's object that stands in the place of a part: ``encoder``, ``memory``, ``actor``, ``critic``, ``actor_critic`` or ``distribution``, by
        the name of its setting, with the parameters that the policy has now. With two towers ``tower`` 0 is the policy's, 1 the value's. Raises
        ``ConfigError`` where the part is proximo's own."""
        torso = self.torsos[tower]
        places = (torso.encoder, torso.cell, getattr(self.actor, "readout", None), self.critic)
        held = [place.held for place in places if isinstance(place, OwnEncoder | OwnCell | OwnReadout)]
        held += [self.actor.family] if isinstance(self.actor, OwnHead) else []
        found = {one.setting: one for one in held}
        if part not in found:
            raise ConfigError(f"{part!r} is proximo's own in this policy; the user's are: {', '.join(found) or 'none'}.")
        return found[part].module

    def _mask(self, observation: Observation) -> Bool[Array, "..."] | None:
        """The action mask in ``observation``, flattened behind the leading axes."""
        if self.mask_ndim is None:
            return None
        mask = observation[ACTION_MASK]
        return mask.reshape((*mask.shape[: mask.ndim - self.mask_ndim], -1)) != 0

    @property
    def is_recurrent(self) -> bool:
        """Whether there is anything to remember."""
        return bool(jax.tree.leaves(jax.eval_shape(lambda: self.init_memory(1))))


def make_policy(
    key: Key[Array, ""],
    observation_space: Space,
    action_space: ActionSpace,
    config: NetworkConfig,
    normalize_observation: bool,
    clip_observation: float = 0.0,
) -> ActorCritic:
    """A fresh policy. Raises ``EnvError`` when an observation or an action mask is not supported.

    A top-level entry ``action_mask`` of a ``Dict`` masks the actions and is no part of what the encoders read. With
    ``clip_observation`` 0 observations are clipped to ± 10 where they are normalised, else not.
    """
    added = tuple(
        name for name, asked in ((PREVIOUS_ACTION, config.observe_action), (PREVIOUS_REWARD, config.observe_reward)) if asked
    )
    observation_space = _extended(observation_space, action_space, added)
    seen, mask_shape = _split_mask(observation_space)
    torsos, actor, critic = make_parts(key, seen, action_space, config)
    if mask_shape is not None:
        _check_mask(mask_shape, actor, action_space)
    return ActorCritic(
        normalizer=make_statistics(observation_space) if normalize_observation else None,
        torsos=torsos,
        actor=actor,
        critic=critic,
        clip_observation=clip_observation,
        mask_ndim=None if mask_shape is None else len(mask_shape),
        reset_memory=config.reset_memory,
        added=added,
        action_features=action_features(action_space),
        privileged=config.privileged,
    )


def _extended(space: Space, action_space: ActionSpace, added: tuple[str, ...]) -> Space:
    """The space of what ``ActorCritic.observed`` gives."""
    if not added:
        return space
    own = space.spaces if isinstance(space, Dict) else ((OBSERVATION, space),)
    for name in added:
        if name in dict(own):
            raise EnvError(f"The observation space {space} has an entry {name!r} of its own: rename it, or do not ask for ours.")
    sizes = {PREVIOUS_ACTION: action_features(action_space), PREVIOUS_REWARD: 1}
    return Dict((*own, *((name, Box((sizes[name],))) for name in added)))


def _split_mask(space: Space) -> tuple[Space, tuple[int, ...] | None]:
    """What the encoders read, and the shape of the action mask (None where there is none)."""
    if not isinstance(space, Dict) or ACTION_MASK not in dict(space.spaces):
        return space, None
    mask = dict(space.spaces)[ACTION_MASK]
    if not isinstance(mask, Box | MultiBinary | MultiDiscrete):
        raise EnvError(f"The entry {ACTION_MASK!r} of the observation is {mask}: expected one array, as MultiBinary or Box.")
    rest = tuple((name, part) for name, part in space.spaces if name != ACTION_MASK)
    if not rest:
        raise EnvError(f"The observation space {space} has nothing but the mask: add an entry that the policy can read.")
    return Dict(rest), mask.shape


def _check_mask(shape: tuple[int, ...], actor: ActorHead, space: ActionSpace) -> None:
    """Raise ``EnvError`` unless a mask of ``shape`` fits the actions."""
    if not actor.mask_size:
        raise EnvError(f"Actions of {space} cannot be masked: remove {ACTION_MASK!r} from the observation.")
    if math.prod(shape) != actor.mask_size:
        raise EnvError(
            f"The action mask has {math.prod(shape)} entries, where actions of {space} take {actor.mask_size}: one for each "
            "choice, component after component; for each bit two, whether it may be 0 and may be 1."
        )
