"""The parts of a policy as the settings ask for them: proximo's, the user's, or some of each."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from proximo.config import NetworkConfig
from proximo.errors import ConfigError, EnvError, nearest
from proximo.networks.encoders import make_encoder
from proximo.networks.heads import ActorHead, Readout, ToNumbers, make_actor, num_parameters
from proximo.networks.memory import NoMemory, make_memory
from proximo.networks.own import Held, OwnCell, OwnEncoder, OwnReadout, Part, PassOn, described, make, shape_of, vector_of
from proximo.networks.own_head import OwnHead, make_family
from proximo.networks.torso import Torso
from proximo.own_code import is_own
from proximo.spaces import ActionSpace, Dict, Space, without, zeros


def make_parts(
    key: Key[Array, ""], space: Space, action_space: ActionSpace, config: NetworkConfig
) -> tuple[tuple[Torso, ...], ActorHead, ToNumbers]:
    """The torsos of policy and value (one where they share it), the actor and the critic, for observations of ``space`` (without the action
    mask). Raises ``EnvError`` for spaces that they cannot serve, ``ConfigError`` for a network of the user's that does not fit."""
    count, head = _family(action_space, config)
    if config.actor_critic != "none":
        return (_whole(key, space, count, config),), head(Part(0, count)), Part(count, count + 1)
    key_torsos, key_actor, key_critic = jax.random.split(key, 3)
    spaces = (_unprivileged(space, config.privileged), space) if config.towers == "separate" else (space,)
    made = [_torso(k, part, config) for k, part in zip(jax.random.split(key_torsos, len(spaces)), spaces, strict=True)]
    torsos, features = zip(*made, strict=True)
    actor = head(_readout("actor", key_actor, features[0], count, 0.01, config))
    return torsos, actor, _readout("critic", key_critic, features[-1], 1, 1.0, config)


def _family(space: ActionSpace, config: NetworkConfig) -> tuple[int, Callable[[ToNumbers], ActorHead]]:
    """How many numbers the distribution of an action takes, and the head that is made of what gives them."""
    if not is_own(config.distribution):
        return num_parameters(space, config), lambda readout: make_actor(readout, space, config)
    family, count, ndim = make_family(config.distribution, space)
    return count, lambda readout: OwnHead(readout, family, space, ndim)


def _unprivileged(space: Space, names: tuple[str, ...]) -> Space:
    """``space`` without the entries ``names``."""
    if not names:
        return space
    if not isinstance(space, Dict):
        raise EnvError(f"privileged = {','.join(names)} names entries of a Dict observation, and this one is {space}.")
    known = dict(space.spaces)
    for name in names:
        if name not in known:
            raise EnvError(f"privileged names {name!r}, and the observation is {space}{nearest(name, known)}.")
    if len(known) == len(set(names)):
        raise EnvError(f"privileged = {','.join(names)} leaves the policy nothing of {space} to act by.")
    return without(space, names)


def _torso(key: Key[Array, ""], space: Space, config: NetworkConfig) -> tuple[Torso, int]:
    """Encoder and memory for ``space``, and how many features they give."""
    key_encoder, key_memory = jax.random.split(key)
    encoder, features = (_own_encoder if is_own(config.encoder) else make_encoder)(key_encoder, space, config)
    cell, features = (_own_memory if is_own(config.memory) else make_memory)(key_memory, features, config)
    return Torso(encoder, cell, config.compute_dtype), features


def _own_encoder(key: Key[Array, ""], space: Space, config: NetworkConfig) -> tuple[OwnEncoder, int]:
    held = make("encoder", config.encoder, ("__call__",), key, space)
    example = zeros(space, ())
    what = f"encoder(observation of {space})"
    features = vector_of(held, what, shape_of(held, what, lambda encoder, x: encoder(x), example))
    return OwnEncoder(held, _names(space), jax.tree.leaves(example)[0].ndim), features


def _names(space: Space) -> tuple[str, ...] | None:
    return tuple(name for name, _ in space.spaces) if isinstance(space, Dict) else None


def _own_memory(key: Key[Array, ""], features: int, config: NetworkConfig) -> tuple[OwnCell, int]:
    held = make("memory", config.memory, ("init", "step"), key, features)
    out = _stepped(held, jnp.zeros(features), 1)
    return OwnCell(held), vector_of(held, "what step(state, x) gives beside the state", out[0])


def _stepped(held: Held, x: PyTree, outputs: int) -> tuple[PyTree, ...]:
    """Shapes of what ``step(init(), x)`` gives beside the state. Raises ``ConfigError`` where the state changes its shape."""
    state = shape_of(held, "init()", lambda memory: memory.init())
    stepped = shape_of(held, "step(state, x)", lambda memory, s, x: memory.step(s, x), state, x)
    if not isinstance(stepped, tuple) or len(stepped) != 1 + outputs:
        expected = "(state, features)" if outputs == 1 else "(state, parameters, value)"
        raise ConfigError(f"{held.setting}: step(state, x) gives {described(stepped)}, expected {expected}.")
    if any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in jax.tree.leaves(state)):
        raise ConfigError(
            f"{held.setting}: init() gives the state {described(state)}: keep complex numbers as two of real numbers."
        )
    if jax.tree.structure(state) != jax.tree.structure(stepped[0]) or described(state) != described(stepped[0]):
        raise ConfigError(
            f"{held.setting}: init() gives the state {described(state)}, and step {described(stepped[0])}: expected the same parts, shapes "
            "and types."
        )
    return stepped[1:]


def _whole(key: Key[Array, ""], space: Space, count: int, config: NetworkConfig) -> Torso:
    """A whole actor-critic of the user's, whose features are the parameters of the distribution and the value."""
    methods = ("init", "step") if config.remembers else ()
    held, example = make("actor_critic", config.actor_critic, methods, key, space, count), zeros(space, ())
    if not config.remembers and hasattr(held.module, "step"):
        raise ConfigError(
            "actor_critic: what the function makes has a memory, which has to be known before: give its class, or the object itself."
        )
    if config.remembers:
        encoder, cell = PassOn(_names(space)), OwnCell(held)
        out = _stepped(held, example, 2)
    else:
        if not callable(held.module):
            raise ConfigError(f"actor_critic = {config.actor_critic} gave {type(held.module).__name__}, which lacks __call__.")
        encoder, cell = OwnEncoder(held, _names(space), jax.tree.leaves(example)[0].ndim), NoMemory()
        out = shape_of(held, f"actor_critic(observation of {space})", lambda network, x: network(x), example)
        if not isinstance(out, tuple) or len(out) != 2:
            raise ConfigError(f"actor_critic: it gives {described(out)}, expected two arrays (parameters, value).")
    vector_of(held, "its first output, the parameters of the distribution,", out[0], count)
    _hold_value(held, "its second output, the value,", out[1])
    return Torso(encoder, cell, config.compute_dtype)


def _hold_value(held: Held, what: str, shape: PyTree) -> None:
    """Raise ``ConfigError`` unless ``shape`` is that of one number, with an axis or without."""
    if isinstance(shape, jax.ShapeDtypeStruct) and shape.shape == ():
        shape = jax.ShapeDtypeStruct((1,), shape.dtype)
    vector_of(held, what, shape, 1)


def _readout(name: str, key: Key[Array, ""], features: int, count: int, gain: float, config: NetworkConfig) -> ToNumbers:
    """The actor or the critic."""
    if not is_own(getattr(config, name)):
        return Readout.create(key, features, count, gain, config)
    held = make(name, getattr(config, name), ("__call__",), key, features, *([count] if name == "actor" else []))
    what = f"{name}({features} features)"
    shape = shape_of(held, what, lambda readout, x: readout(x), jnp.zeros(features))
    if name == "actor":
        vector_of(held, what, shape, count)
    else:
        _hold_value(held, what, shape)
    return OwnReadout(held)
