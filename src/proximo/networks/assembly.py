"""Builds a policy from the settings; each of its parts is built in or custom."""

from functools import partial
from typing import Literal

import jax
from jaxtyping import Array, Key

from proximo import spaces
from proximo.config import LEAVES, NetworkConfig, text_of
from proximo.config.custom import is_custom
from proximo.errors import ConfigError, EnvError, nearest
from proximo.networks.actor_critic import ActorCritic, Torso
from proximo.networks.custom import networks as custom
from proximo.networks.custom.forward import Forward, make_forward_parts
from proximo.networks.encoders import ImageEncoder, make_encoder, previous_entries
from proximo.networks.heads import ActorHead, Part, Readout, ReadoutFunction, make_actor, num_parameters
from proximo.networks.joint_head import make_joint_actor, num_joint_parameters
from proximo.networks.layers import MLP, LayerNorm
from proximo.networks.normalizer import make_statistics
from proximo.networks.recurrent import make_memory
from proximo.spaces import ActionSpace, Box, Dict, Discrete, Joint, Space, Tuple, without

ACTOR_GAIN, CRITIC_GAIN = 0.01, 1.0
"""Gains of the last layers: the first policy is nearly uniform (Andrychowicz et al. 2021, arXiv:2006.05990, 3.2)."""


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
    ``normalize_observation`` and ``clip_observation`` are settings. Raises ``EnvError`` if a space or an action
    mask is not supported, and ``ConfigError`` if a custom network does not fit.
    """
    space, added = observation_space, previous_entries(config)
    if added:  # the space of what ActorCritic.with_previous_step returns
        named = dict(space.spaces) if isinstance(space, Dict) else {spaces.OBSERVATION: space}
        for name in added:
            if name in named:
                setting = f"observe_{name.removeprefix('previous_')}"
                raise EnvError(f"The observation space {space} already has an entry {name!r}: rename it, or turn off {setting}.")
        sizes = {spaces.PREVIOUS_ACTION: spaces.flatdim(action_space), spaces.PREVIOUS_REWARD: 1}
        space = Dict(named | {name: Box((sizes[name],)) for name in added})
    encoded = _without_mask(space, action_space, config)
    return ActorCritic(
        make_statistics(space, normalize_observation, added),
        *_make_parts(key, encoded, action_space, config),
        clip_observation=clip_observation,
        is_masked=encoded is not space,
        reset_memory=config.reset_memory,
        observed_previous=added,
        privileged=config.privileged,
    )


def _without_mask(space: Space, action_space: ActionSpace, config: NetworkConfig) -> Space:
    """The space that the encoders read. Raises ``EnvError`` if the action mask does not fit."""
    mask = dict(space.spaces).get(spaces.ACTION_MASK) if isinstance(space, Dict) else None
    if mask is None:
        return space
    size = 0 if is_custom(config.distribution) or Forward.of(config) else sum(spaces.mask_sizes(action_space))
    if not size:
        raise EnvError(f"Actions of {action_space} cannot be masked: remove {spaces.ACTION_MASK!r} from the observation.")
    if isinstance(mask, Discrete | Dict | Tuple) or mask.size != size:
        raise EnvError(
            f"The action mask is {mask}: for actions of {action_space}, expected one array of {size} numbers, one for each choice of each "
            "component in order, or two for each bit (may be 0, may be 1)."
        )
    return without(space, (spaces.ACTION_MASK,))


def _make_parts(
    key: Key[Array, ""], space: Space, action_space: ActionSpace, config: NetworkConfig
) -> tuple[tuple[Torso, ...], ActorHead, ReadoutFunction]:
    """One torso (shared) or two (the policy's, the value's), the actor head, and the critic."""
    given = Forward.of(config)
    if isinstance(action_space, Joint):
        if given is not None or is_custom(config.distribution):
            raise EnvError(f"A custom distribution is for actions of one part, not for {action_space}: leave it out.")
        count = num_joint_parameters(action_space, config)
        make_head = partial(make_joint_actor, space=action_space, config=config)
    elif given is not None:
        return make_forward_parts(given, space, action_space)
    elif is_custom(config.distribution):
        family, count, ndim = custom.make_family(config.distribution, action_space)
        make_head = partial(custom.CustomHead, space=action_space, family=family, action_ndim=ndim)
    else:
        count, make_head = num_parameters(action_space, config), partial(make_actor, space=action_space, config=config)
    if config.actor_critic != "none":
        encoder, cell, _ = custom.make_parts("actor_critic", key, space, config, count)
        return (Torso(encoder, cell, None, config.compute_dtype),), make_head(Part(0)), Part(1)
    known = dict(space.spaces) if isinstance(space, Dict) else {}
    for name in config.privileged:
        if name not in known:
            raise EnvError(f"privileged: the observation space {space} has no entry {name!r}{nearest(name, known)}.")
    key_torsos, key_actor, key_critic = jax.random.split(key, 3)
    towers = [(without(space, config.privileged), config), (space, config.for_critic)]
    towers = towers if config.towers == "separate" else [(space, config)]
    made = [_torso(key, *tower) for key, tower in zip(jax.random.split(key_torsos, len(towers)), towers, strict=True)]
    torsos, features = zip(*made, strict=True)
    actor = make_head(_readout("actor", key_actor, features[0], count, ACTOR_GAIN, config))
    return torsos, actor, _readout("critic", key_critic, features[-1], 1, CRITIC_GAIN, config.for_critic)


def check_layers(policy: ActorCritic, space: Space, config: NetworkConfig) -> None:
    """Raise ``ConfigError`` for a setting of layers that ``policy`` does not have for this ``space``."""

    def has(parts, kind, is_used=lambda module: True):
        return any(isinstance(x, kind) and is_used(x) for x in jax.tree.leaves(parts, is_leaf=lambda x: isinstance(x, kind)))

    reasons = {}
    encoders = [torso.encoder for torso in policy.torsos]
    if config.critic_hidden_sizes != config.hidden_sizes and not has(encoders, MLP, lambda mlp: mlp.layers):
        reasons["critic_hidden_sizes"] = f"no MLP reads {space}: use critic_head_sizes"
    if not has(policy, LayerNorm):
        reasons["layer_norm"] = "no part has hidden layers: set hidden_sizes or head_sizes"
    if not has(policy, ImageEncoder):
        reasons["cnn_features"] = f"no CNN reads {space}: leave it out"
    for setting, reason in reasons.items():
        if (value := getattr(config, setting)) != LEAVES[setting].default:
            raise ConfigError(f"{setting} = {text_of(value)} has no effect, because {reason}.")


def _torso(key: Key[Array, ""], space: Space, config: NetworkConfig) -> tuple[Torso, int]:
    """An encoder, a memory and shared layers for ``space``, and their number of features."""
    key_encoder, key_memory, key_shared = jax.random.split(key, 3)
    if is_custom(config.encoder):
        encoder, _, features = custom.make_parts("encoder", key_encoder, space, config)
    else:
        encoder, features = make_encoder(key_encoder, space, config)
    if is_custom(config.memory):
        _, cell, features = custom.make_parts("memory", key_memory, features, config)
    else:
        cell, features = make_memory(key_memory, features, config)
    shared, sizes = None, config.shared_sizes
    if sizes:
        shared = MLP.create(key_shared, features, sizes, config.activation, config.layer_norm)
    return Torso(encoder, cell, shared, config.compute_dtype), (features, *sizes)[-1]


def _readout(name: str, key: Key[Array, ""], features: int, count: int, gain: float, config: NetworkConfig) -> ReadoutFunction:
    if is_custom(getattr(config, name)):
        return custom.make_parts(name, key, features, config, count)[0]
    return Readout.create(key, features, count, gain, config)
