"""The head for actions of several parts."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from proximo.config import LEAVES, NetworkConfig, text_of
from proximo.distributions import Joint
from proximo.distributions.joint import Sample, join, split_joint
from proximo.errors import EnvError
from proximo.networks.heads import (
    CONTINUOUS_SETTINGS,
    Action,
    ActorHead,
    Mask,
    Numbers,
    Part,
    ReadoutFunction,
    make_actor,
    num_parameters,
    to_bounds,
)
from proximo.spaces import Box, Discrete, LeafSpace, mask_sizes
from proximo.spaces import Joint as JointSpace

Relevance = tuple[tuple[float, ...], ...]


class JointHead(ActorHead):
    """Each part has a head, which gets its numbers of the readout."""

    heads: tuple[ActorHead, ...]
    counts: tuple[int, ...] = eqx.field(static=True)
    """Numbers of the readout for each head."""
    relevance: Relevance | None = eqx.field(static=True)
    choice: int = eqx.field(static=True)
    """As in ``Joint``."""

    def distribution(self, numbers: Numbers, mask: Mask) -> Joint:
        parts = jnp.split(numbers, np.cumsum(self.counts)[:-1], axis=-1)
        sizes = [sum(mask_sizes(head.space)) for head in self.heads]
        masks = [None] * len(sizes) if mask is None else jnp.split(mask, np.cumsum(sizes)[:-1], axis=-1)
        made = tuple(
            head.distribution(x, part if size else None)
            for head, x, part, size in zip(self.heads, parts, masks, sizes, strict=True)
        )
        relevance = None if self.relevance is None else jnp.asarray(self.relevance, numbers.dtype)
        return Joint(made, relevance, self._samples, self.choice)

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> tuple[PyTree[Array], ...]:
        keys = jax.random.split(key, len(self.heads))
        return tuple(head.noise(key, shape) for head, key in zip(self.heads, keys, strict=True))

    def to_space(self, action: Action) -> Action:
        parts = zip(self.heads, split_joint(action, self._samples), strict=True)
        return join([to_bounds(head.space, head.to_space(x)) for head, x in parts], self._in_space)

    def from_space(self, action: Action) -> Action:
        parts = zip(self.heads, split_joint(action, self._in_space), strict=True)
        return join([head.from_space(x) for head, x in parts], self._samples)

    def features(self, action: Action) -> Numbers:
        parts = zip(self.heads, split_joint(action, self._samples), strict=True)
        return jnp.concatenate([head.features(x) for head, x in parts], axis=-1)

    @property
    def _samples(self) -> tuple[Sample, ...]:
        """Shape and type of a sample of each part. A distribution has one axis for all numbers of an array."""
        spaces = (head.space for head in self.heads)
        shapes = (() if isinstance(space, Discrete) else (space.size,) for space in spaces)
        return tuple(like._replace(shape=shape) for like, shape in zip(self._in_space, shapes, strict=True))

    @property
    def _in_space(self) -> tuple[Sample, ...]:
        """The same of each part in its space."""
        return tuple(Sample(head.space.shape, "float32" if isinstance(head.space, Box) else "int32") for head in self.heads)


def num_joint_parameters(space: JointSpace, config: NetworkConfig) -> int:
    """Number of parameters of the distributions of all parts. Raises ``EnvError`` for settings of other spaces."""
    return sum(num_parameters(part, own) for part, own in _parts_of(space, config))


def make_joint_actor(readout: ReadoutFunction, space: JointSpace, config: NetworkConfig) -> JointHead:
    """The head for actions of ``space``. Raises ``EnvError`` if a setting does not fit it."""
    if config.sde_every:
        raise EnvError(f"sde_every = {config.sde_every} is for actions of one part, not for {space}: set it to 0.")
    parts = _parts_of(space, config)
    heads = tuple(make_actor(Part(i), part, own) for i, (part, own) in enumerate(parts))
    counts = tuple(num_parameters(part, own) for part, own in parts)
    return JointHead(readout, space, heads, counts, *_relevance_of(space, [part for part, _ in parts], config))


def _parts_of(space: JointSpace, config: NetworkConfig) -> list[tuple[LeafSpace, NetworkConfig]]:
    """The parts that have distributions of their own, with their settings. With ``action_relevance`` they are the single numbers of
    each ``Box``. Settings of continuous actions are for these, if there are any."""
    spaces = [leaf.space for leaf in space.parts]
    of_all = dataclasses.replace(config, action_relevance=())
    of_others = dataclasses.replace(of_all, **{name: LEAVES[name].default for name in CONTINUOUS_SETTINGS})
    of_others = of_others if any(isinstance(part, Box) for part in spaces) else of_all
    parts: list[tuple[LeafSpace, NetworkConfig]] = []
    for part in spaces:
        if isinstance(part, Box) and config.action_relevance:
            bounds = zip(*(bound.ravel().tolist() for bound in part.bounds()), strict=True)
            parts += [(Box((1,), low, high), of_all) for low, high in bounds]
        else:
            parts.append((part, of_all if isinstance(part, Box) else of_others))
    return parts


def _relevance_of(space: JointSpace, parts: list[LeafSpace], config: NetworkConfig) -> tuple[Relevance | None, int]:
    """The relevance of each of ``parts`` for each choice, and the index of the part that chooses. Raises ``EnvError`` if
    ``action_relevance`` does not fit ``space``."""
    rows = config.action_relevance
    if not rows:
        return None, 0
    wrong = f"action_relevance = {text_of(rows)}: the actions are {space}; "
    choice, first = next(((i, part) for i, part in enumerate(parts) if isinstance(part, Discrete)), (0, None))
    if first is None:
        raise EnvError(f"{wrong}none of their parts is Discrete: leave it out.")
    numbers = sum(isinstance(part, Box) for part in parts)
    if len(rows) != first.n or any(set(row) - {"0", "1"} or len(row) != numbers for row in rows):
        raise EnvError(
            f"{wrong}expected {first.n} rows of {numbers} digits 0 or 1, a row for each choice of the first Discrete part and a digit for "
            f"each number of the Box parts, in the order {', '.join(part.name for part in space.parts)}."
        )
    digits = [iter(row) for row in rows]
    return tuple(tuple(float(next(row)) if isinstance(part, Box) else 1.0 for part in parts) for row in digits), choice
