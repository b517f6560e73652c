"""Builds a policy from the settings; each of its parts is built in or custom."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import jax
from jaxtyping import Array, Key, PyTree

from proximo import spaces
from proximo.config import LEAVES, NetworkConfig, text_of
from proximo.config.custom import is_custom
from proximo.errors import ConfigError, EnvError, nearest
from proximo.networks.actor_critic import ActorCritic, Torso
from proximo.networks.custom import networks as custom
from proximo.networks.custom.forward import Forward, ForwardValue, make_forward_parts
from proximo.networks.custom.head import CustomHead, make_family
from proximo.networks.encoders import make_encoder, previous_entries
from proximo.networks.heads import ActorHead, Readout, ReadoutFunction, make_actor, num_parameters
from proximo.networks.image_encoders import ImageEncoder
from proximo.networks.layers import MLP, LayerNorm
from proximo.networks.normalizer import make_statistics
from proximo.networks.recurrent import make_memory
from proximo.spaces import ActionSpace, Box, Dict, Discrete, Space, Tuple, without

ACTOR_GAIN, CRITIC_GAIN = 0.01, 1.0
"""Gains of the last layers. A small one for the actor makes the first policy nearly uniform (Andrychowicz et
al. 2021, arXiv:2006.05990, section 3.2)."""


def make_policy(
    key: Key[Array, ""],
    observation_space: Space,
    action_space: ActionSpace,
    config: NetworkConfig,
    normalize_observation: bool | Literal["auto"],
    clip_observation: float = 0.0,
) -> ActorCritic:
    """Make a policy with fresh parameters.

    A top-level entry ``action_mask`` of a ``Dict`` observation masks the actions, and is not encoded.

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
    space = _extended(observation_space, action_space, added)
    encoded_space, mask_ndim = _without_mask(space, action_space, config)
    torsos, actor, critic = _make_parts(key, encoded_space, action_space, config)
    return ActorCritic(
        normalizer=make_statistics(space, normalize_observation, added),
        torsos=torsos,
        actor=actor,
        critic=critic,
        clip_observation=clip_observation,
        mask_ndim=mask_ndim,
        reset_memory=config.reset_memory,
        observed_previous=added,
        privileged=config.privileged,
    )


def _extended(space: Space, action_space: ActionSpace, added: tuple[str, ...]) -> Space:
    """The space of the observations that ``ActorCritic.with_previous_step`` returns."""
    if not added:
        return space
    named = space.spaces if isinstance(space, Dict) else ((spaces.OBSERVATION, space),)
    for name in set(added) & set(dict(named)):
        setting = f"observe_{name.removeprefix('previous_')}"
        raise EnvError(f"The observation space {space} already has an entry {name!r}: rename it, or turn off {setting}.")
    sizes = {spaces.PREVIOUS_ACTION: spaces.flatdim(action_space), spaces.PREVIOUS_REWARD: 1}
    return Dict((*named, *((name, Box((sizes[name],))) for name in added)))


def _without_mask(space: Space, action_space: ActionSpace, config: NetworkConfig) -> tuple[Space, int | None]:
    """The space that the encoders read, and the number of axes of the action mask (None without a mask)."""
    mask = dict(space.spaces).get(spaces.ACTION_MASK) if isinstance(space, Dict) else None
    if mask is None:
        return space, None
    size = 0 if is_custom(config.distribution) or Forward.of(config) else sum(spaces.mask_sizes(action_space))
    if not size:
        raise EnvError(f"Actions of {action_space} cannot be masked: remove {spaces.ACTION_MASK!r} from the observation.")
    if isinstance(mask, Discrete | Dict | Tuple) or mask.size != size:
        raise EnvError(
            f"The action mask is {mask}: for actions of {action_space}, expected one array of {size} numbers, one for each choice of each "
            "component in order, or two for each bit (may be 0, may be 1)."
        )
    return without(space, (spaces.ACTION_MASK,)), len(mask.shape)


def _make_parts(
    key: Key[Array, ""], space: Space, action_space: ActionSpace, config: NetworkConfig
) -> tuple[tuple[Torso, ...], ActorHead, ReadoutFunction]:
    """One torso (shared) or two (the policy's, the value's), the actor head, and the critic."""
    if (given := Forward.of(config)) is not None:
        torso, head = make_forward_parts(given, space, action_space)
        return (torso,), head, ForwardValue()
    if is_custom(config.distribution):
        family, count, ndim = make_family(config.distribution, action_space)
        make_head = partial(CustomHead, space=action_space, family=family, action_ndim=ndim)
    else:
        count, make_head = num_parameters(action_space, config), partial(make_actor, space=action_space, config=config)
    if config.actor_critic != "none":
        encoder, cell = custom.make_actor_critic(key, space, count, config)
        torso = Torso(encoder, cell, MLP((), (), "identity"), config.compute_dtype)
        return (torso,), make_head(custom.Slice(0, count)), custom.Slice(count, count + 1)
    key_torsos, key_actor, key_critic = jax.random.split(key, 3)
    towers = [(_unprivileged(space, config.privileged), config), (space, config.for_critic)]
    towers = towers if config.towers == "separate" else [(space, config)]
    made = [_torso(key, *tower) for key, tower in zip(jax.random.split(key_torsos, len(towers)), towers, strict=True)]
    torsos, features = zip(*made, strict=True)
    actor = make_head(_readout("actor", key_actor, features[0], count, ACTOR_GAIN, config))
    return torsos, actor, _readout("critic", key_critic, features[-1], 1, CRITIC_GAIN, config.for_critic)


def check_layers(policy: ActorCritic, space: Space, config: NetworkConfig) -> None:
    """Raise ``ConfigError`` for a setting of layers that ``policy`` does not have, because of its ``space`` of observations."""
    mlps = _modules([torso.encoder for torso in policy.torsos], MLP)
    if config.critic_hidden_sizes not in ("same", config.hidden_sizes) and not any(mlp.layers for mlp in mlps):
        setting, reason = "critic_hidden_sizes", f"no MLP reads {space}: use critic_head_sizes"
    elif config.layer_norm and not _modules(policy, LayerNorm):
        setting, reason = "layer_norm", "no part has hidden layers: set hidden_sizes or head_sizes"
    elif config.cnn_features != LEAVES["cnn_features"].default and not _modules(policy, ImageEncoder):
        setting, reason = "cnn_features", f"no CNN reads {space}: leave it out"
    else:
        return
    raise ConfigError(f"{setting} = {text_of(getattr(config, setting))} has no effect, because {reason}.")


def _modules(parts: PyTree, kind: type[Any]) -> list[Any]:
    """All modules of ``kind`` in ``parts``."""
    return [leaf for leaf in jax.tree.leaves(parts, is_leaf=lambda x: isinstance(x, kind)) if isinstance(leaf, kind)]


def _unprivileged(space: Space, names: tuple[str, ...]) -> Space:
    """``space`` without the privileged entries ``names``."""
    known = dict(space.spaces) if isinstance(space, Dict) else {}
    for name in names:
        if name not in known:
            raise EnvError(f"privileged: the observation space {space} has no entry {name!r}{nearest(name, known)}.")
    return without(space, names)


def _torso(key: Key[Array, ""], space: Space, config: NetworkConfig) -> tuple[Torso, int]:
    """An encoder, a memory and shared layers for ``space``, and their number of features."""
    key_encoder, key_memory, key_shared = jax.random.split(key, 3)
    if is_custom(config.encoder):
        encoder, features = custom.make_network("encoder", key_encoder, space, config)
    else:
        encoder, features = make_encoder(key_encoder, space, config)
    cell, features = (custom.make_memory if is_custom(config.memory) else make_memory)(key_memory, features, config)
    shared = MLP.create(key_shared, features, config.shared_sizes, config.activation, config.layer_norm)
    return Torso(encoder, cell, shared, config.compute_dtype), (features, *config.shared_sizes)[-1]


def _readout(name: str, key: Key[Array, ""], features: int, count: int, gain: float, config: NetworkConfig) -> ReadoutFunction:
    if is_custom(getattr(config, name)):
        return custom.make_network(name, key, features, config, count)[0]
    return Readout.create(key, features, count, gain, config)
