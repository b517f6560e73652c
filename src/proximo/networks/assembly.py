"""Builds the parts of an ``ActorCritic`` from the settings; each part is built in or custom."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
from jaxtyping import Array, Key, PyTree

from proximo.config import LEAVES, NetworkConfig, text_of
from proximo.config.custom import is_custom
from proximo.errors import ConfigError, EnvError, nearest
from proximo.networks.custom import networks as custom
from proximo.networks.custom.forward import Forward, ForwardValue, make_forward_parts
from proximo.networks.custom.head import CustomHead, make_family
from proximo.networks.encoders import make_encoder
from proximo.networks.heads import ActorHead, Readout, ReadoutFunction, make_actor, num_parameters
from proximo.networks.image_encoders import ImageEncoder
from proximo.networks.layers import MLP, LayerNorm
from proximo.networks.recurrent import make_memory
from proximo.networks.torso import Torso
from proximo.spaces import ActionSpace, Dict, Space, without

Kind = TypeVar("Kind")
ACTOR_GAIN, CRITIC_GAIN = 0.01, 1.0
"""Gains of the last layers. A small one for the actor makes the first policy nearly uniform (Andrychowicz et al. 2021, arXiv:2006.05990,
section 3.2)."""


def make_parts(
    key: Key[Array, ""], space: Space, action_space: ActionSpace, config: NetworkConfig
) -> tuple[tuple[Torso, ...], ActorHead, ReadoutFunction]:
    """The torsos, the actor and the critic for observations of ``space`` (without the action mask).

    Returns:
        One torso (shared) or two (the policy's, the value's), the actor head, and the critic.

    Raises:
        EnvError: A space is not supported with these settings.
        ConfigError: A custom network does not fit.
    """
    if (given := Forward.of(config)) is not None:
        torso, head = make_forward_parts(given, space, action_space)
        return (torso,), head, ForwardValue()
    count, make_head = _family(action_space, config)
    if config.actor_critic != "none":
        encoder, cell = custom.make_actor_critic(key, space, count, config)
        torso = Torso(encoder, cell, MLP.empty(), config.compute_dtype)
        return (torso,), make_head(custom.Slice(0, count)), custom.Slice(count, count + 1)
    key_torsos, key_actor, key_critic = jax.random.split(key, 3)
    spaces = (_unprivileged(space, config.privileged), space) if config.towers == "separate" else (space,)
    configs = (config, config.for_critic)[: len(spaces)]
    made = [_torso(*each) for each in zip(jax.random.split(key_torsos, len(spaces)), spaces, configs, strict=True)]
    torsos, features = zip(*made, strict=True)
    actor = make_head(_readout("actor", key_actor, features[0], count, ACTOR_GAIN, config))
    parts = torsos, actor, _readout("critic", key_critic, features[-1], 1, CRITIC_GAIN, config.for_critic)
    if config.layer_norm and not _modules(parts, LayerNorm):
        raise ConfigError("layer_norm = true has no effect, because no part has hidden layers: set hidden_sizes or head_sizes.")
    if config.cnn_features != LEAVES["cnn_features"].default and not _modules(parts, ImageEncoder):
        raise ConfigError(f"cnn_features = {config.cnn_features} has no effect, because no CNN reads {space}: leave it out.")
    return parts


def check_sizes(torsos: tuple[Torso, ...], space: Space, config: NetworkConfig) -> None:
    """Raise ``ConfigError`` if ``critic_hidden_sizes`` differs from ``hidden_sizes``, but no MLP reads the observation."""
    sizes = config.critic_hidden_sizes
    if sizes not in ("same", config.hidden_sizes) and not any(mlp.layers for mlp in _modules([t.encoder for t in torsos], MLP)):
        raise ConfigError(
            f"critic_hidden_sizes = {text_of(sizes) or 'none'} has no effect, because no MLP reads {space}: use critic_head_sizes."
        )


def _modules(parts: PyTree, kind: type[Kind]) -> list[Kind]:
    """All modules of ``kind`` in ``parts``."""
    return [leaf for leaf in jax.tree.leaves(parts, is_leaf=lambda x: isinstance(x, kind)) if isinstance(leaf, kind)]


def _family(space: ActionSpace, config: NetworkConfig) -> tuple[int, Callable[[ReadoutFunction], ActorHead]]:
    """The number of parameters of an action's distribution, and a function that makes the head from a readout."""
    if not is_custom(config.distribution):
        return num_parameters(space, config), lambda readout: make_actor(readout, space, config)
    family, count, ndim = make_family(config.distribution, space)
    return count, lambda readout: CustomHead(readout, space, family, ndim)


def _unprivileged(space: Space, names: tuple[str, ...]) -> Space:
    """``space`` without the privileged entries ``names``."""
    if not names:
        return space
    given = ",".join(names)
    if not isinstance(space, Dict):
        raise EnvError(f"privileged = {given}: expected entries of a Dict observation, but the observation space is {space}.")
    known = dict(space.spaces)
    for name in names:
        if name not in known:
            raise EnvError(f"privileged: the observation space {space} has no entry {name!r}{nearest(name, known)}.")
    if len(known) == len(set(names)):
        raise EnvError(f"privileged = {given} has every entry of {space}: leave at least one entry for the policy.")
    return without(space, names)


def _torso(key: Key[Array, ""], space: Space, config: NetworkConfig) -> tuple[Torso, int]:
    """An encoder and a memory for ``space``, and their number of features."""
    keys = jax.random.split(key, 3 if config.shared_sizes else 2)
    key_encoder, key_memory = keys[:2]
    encoder, features = (custom.make_encoder if is_custom(config.encoder) else make_encoder)(key_encoder, space, config)
    cell, features = (custom.make_memory if is_custom(config.memory) else make_memory)(key_memory, features, config)
    if not config.shared_sizes:
        return Torso(encoder, cell, MLP.empty(), config.compute_dtype), features
    shared = MLP.create(keys[2], features, config.shared_sizes, config.activation, config.layer_norm)
    return Torso(encoder, cell, shared, config.compute_dtype), config.shared_sizes[-1]


def _readout(name: str, key: Key[Array, ""], features: int, count: int, gain: float, config: NetworkConfig) -> ReadoutFunction:
    if is_custom(getattr(config, name)):
        return custom.make_readout(name, key, features, count, config)
    return Readout.create(key, features, count, gain, config)
