"""Heads: from features to a distribution over actions, or to a value."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree, Shaped

from proximo.config import LEAVES, NetworkConfig, text_of
from proximo.distributions import Bernoulli, Beta, Categorical, Distribution, Gaussian, ProductCategorical, TanhGaussian
from proximo.distributions.gaussian import LOG_STD_RANGE
from proximo.distributions.state_dependent import StateDependentGaussian
from proximo.errors import EnvError
from proximo.networks.layers import MLP, Linear, one_hot
from proximo.spaces import ActionSpace, Box, Discrete, LeafSpace, MultiBinary, MultiDiscrete, flatdim

MAX_TANH = 0.999
"""``from_space`` maps no action further than this towards the bounds of ``tanh``."""
FORBIDDEN = -1e9
"""Logit of a forbidden choice. It is finite, so that 0 · log p is 0; exp(-1e9) is 0 in every floating-point type."""
Action = Shaped[Array, "..."]
Numbers = Float[Array, "*batch n"]
Mask = Bool[Array, "*batch mask"] | None


class Readout(eqx.Module):
    """Hidden layers (``head_sizes``) and a last linear layer."""

    hidden: MLP
    output: Linear

    @classmethod
    def create(cls, key: Key[Array, ""], in_size: int, out_size: int, gain: float, config: NetworkConfig) -> "Readout":
        """Orthogonal layers; ``gain`` is the last one's."""
        key_hidden, key_output = jax.random.split(key)
        hidden = MLP.create(key_hidden, in_size, config.head_sizes, config.activation, config.layer_norm)
        return cls(hidden, Linear.create(key_output, (in_size, *config.head_sizes)[-1], out_size, gain))

    def __call__(self, features: Numbers) -> Float[Array, "*batch out_size"]:
        return self.output(self.hidden(features))


ReadoutFunction = Callable[[Any], Any]
"""A ``Readout``, or a custom network in its place, which may also give a ``Distribution``."""


class Part(eqx.Module):
    """The readout of a whole actor-critic, whose features are parameters (or a distribution) and a value."""

    index: int = eqx.field(static=True)

    def __call__(self, features: tuple[Any, ...]) -> Any:
        return features[self.index]


class ActorHead(eqx.Module):
    """Makes the action distribution from features, draws its noise, and maps its samples to the space and back."""

    readout: ReadoutFunction
    space: Any = eqx.field(static=True)
    """The action space: ``Discrete``, ``MultiDiscrete``, ``MultiBinary``, ``Box`` or ``Joint``."""

    noise_family: ClassVar[str | None] = None
    """The noise by its name in ``jax.random`` and in ``numpy.random.Generator``; None: the data of random keys, or another kind."""

    def __call__(self, features: Any, mask: Mask) -> Distribution:
        """The distributions for the features. ``mask``: which actions are allowed; None allows all."""
        numbers = self.readout(features)
        return numbers if isinstance(numbers, Distribution) else self.distribution(numbers, mask)

    @abc.abstractmethod
    def distribution(self, numbers: Numbers, mask: Mask) -> Distribution:
        """The distributions with these numbers of the readout."""

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> PyTree[Array]:
        """Draw noise for ``Distribution.sample``, for a batch of ``shape``."""
        if self.noise_family is None:
            return jax.random.bits(key, (*shape, 2), "uint32")
        return getattr(jax.random, self.noise_family)(key, (*shape, flatdim(self.space)))

    def to_space(self, action: Action) -> Action:
        """Map a sampled action to the action that the environment receives."""
        return action.reshape((*action.shape[:-1], *self.space.shape))

    def from_space(self, action: Action) -> Action:
        """The inverse of ``to_space``: the sample for an action of the environment, as in a demonstration."""
        return action.reshape((*action.shape[: action.ndim - len(self.space.shape)], -1))

    def features(self, action: Action) -> Numbers:
        """A sampled action as ``flatdim`` numbers, which the policy may observe at the next step."""
        return action.astype(float)


def allowed(mask: Bool[Array, "*batch n"]) -> Bool[Array, "*batch n"]:
    """The mask; where it allows nothing, everything is allowed. Padding steps have masks of zeros, and still need an action."""
    return mask | ~jnp.any(mask, axis=-1, keepdims=True)


def mask_choices(logits: Numbers, mask: Bool[Array, "*batch n"]) -> Numbers:
    """Logits by which choices where ``mask`` is false have probability 0 and gradient 0.

    Source: Huang & Ontañón 2022, "A closer look at invalid action masking in policy gradient algorithms", arXiv:2006.14171.
    """
    return jnp.where(allowed(mask), logits, FORBIDDEN)


def mask_bits(logits: Numbers, mask: Bool[Array, "*batch n 2"]) -> Numbers:
    """Logits by which forbidden values of bits have probability 0. ``mask``: whether each bit may be 0, and whether it may be 1."""
    may = allowed(mask)
    return jnp.where(may[..., 0], jnp.where(may[..., 1], logits, FORBIDDEN), -FORBIDDEN)


def not_forbidden(logits: Numbers) -> Numbers:
    """At least ``FORBIDDEN / 2``: a custom network may return -∞, and a masked choice is less probable."""
    return jnp.maximum(logits, FORBIDDEN / 2)


class CategoricalHead(ActorHead):
    """For Discrete actions. The mask has an entry for each choice."""

    noise_family = "gumbel"

    def distribution(self, numbers: Numbers, mask: Mask) -> Categorical:
        logits = not_forbidden(numbers)
        return Categorical(logits if mask is None else mask_choices(logits, mask))

    def to_space(self, action: Action) -> Action:
        return action + self.space.start

    def from_space(self, action: Action) -> Action:
        return action - self.space.start

    def features(self, action: Action) -> Numbers:
        return jax.nn.one_hot(action, self.space.n)


class ProductHead(ActorHead):
    """For MultiDiscrete actions. Logits and mask entries are ordered component by component."""

    noise_family = "gumbel"

    def distribution(self, numbers: Numbers, mask: Mask) -> ProductCategorical:
        logits = self._components(not_forbidden(numbers), FORBIDDEN)
        return ProductCategorical(logits if mask is None else mask_choices(logits, self._components(mask, False)))

    def _components(self, x: Shaped[Array, "*batch total"], padding: bool | float) -> Shaped[Array, "*batch components n"]:
        """A row for each component, padded to the same length."""
        nvec, batch = self.space.nvec, [(0, 0)] * (x.ndim - 1)
        pieces = jnp.split(x, np.cumsum(nvec)[:-1], axis=-1)
        return jnp.stack([jnp.pad(p, [*batch, (0, max(nvec) - p.shape[-1])], constant_values=padding) for p in pieces], axis=-2)

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*batch components n"]:
        return jax.random.gumbel(key, (*shape, self.space.size, max(self.space.nvec)))

    def to_space(self, action: Action) -> Action:
        return super().to_space(action + np.array(self.space.start, np.int32))

    def from_space(self, action: Action) -> Action:
        return super().from_space(action) - np.array(self.space.start, np.int32)

    def features(self, action: Action) -> Numbers:
        return one_hot(action, self.space.nvec, (0,) * self.space.size).astype(float)


class BernoulliHead(ActorHead):
    """For MultiBinary actions. The mask has two entries for each bit: whether it may be 0, and 1."""

    noise_family = "logistic"

    def distribution(self, numbers: Numbers, mask: Mask) -> Bernoulli:
        logits = jnp.minimum(not_forbidden(numbers), -FORBIDDEN / 2)
        return Bernoulli(logits if mask is None else mask_bits(logits, mask.reshape((*logits.shape, 2))))


class GaussianHead(ActorHead):
    """For Box actions: the readout gives the means, and may give as many numbers that are added to
    ``log_std``.

    Where the space is bounded on both sides, ``to_space`` maps a sample to -1 … 1 (by ``mapping``) and scales
    it to the bounds. The rollout stores the sample: for tanh the Jacobian cancels in the ratio of
    probabilities.
    """

    log_std: Float[Array, "... n"]
    mapping: str = eqx.field(static=True)

    noise_family = "normal"

    def distribution(self, numbers: Numbers, mask: None) -> Gaussian:
        """The distribution of the samples, or with ``mapping = "tanh"`` of the squashed samples."""
        mean, log_std = numbers, self.log_std
        if mean.shape[-1] > self.space.size:
            mean, added = jnp.split(mean, 2, axis=-1)
            log_std = jnp.clip(log_std + added, *LOG_STD_RANGE)
        if self.mapping == "clip":
            return Gaussian(mean, log_std)
        return TanhGaussian(mean, log_std, tuple(self.space.is_bounded().reshape(-1).tolist()))

    def to_space(self, action: Action) -> Action:
        action = super().to_space(action)
        (low, high), (middle, half_range) = self.space.bounds(), self._scale()
        unit = jnp.tanh(action) if self.mapping == "tanh" else jnp.clip(action, -1.0, 1.0)
        scaled = middle + half_range * unit
        return jnp.where(self.space.is_bounded(), scaled, jnp.clip(action, low.astype(np.float32), high.astype(np.float32)))

    def from_space(self, action: Action) -> Numbers:
        """With ``tanh``, the sample of an action at a bound would be infinite: it is limited to ± arctanh(MAX_TANH)."""
        middle, half_range = self._scale()
        unit = (action - middle) / np.where(half_range > 0, half_range, 1.0)  # both bounds may be the same
        if self.mapping == "tanh":
            unit = jnp.arctanh(jnp.clip(unit, -MAX_TANH, MAX_TANH))
        return super().from_space(jnp.where(self.space.is_bounded(), unit, action))

    def _scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Middle and half of the range of each component with two bounds; 0 and 1 for the others."""
        (low, high), bounded = self.space.bounds(), self.space.is_bounded()
        least = np.where(bounded, low, -1.0)
        half_range = (np.where(bounded, high, 1.0) - least) / 2
        return np.asarray(least + half_range, np.float32), np.asarray(half_range, np.float32)


class BetaHead(ActorHead):
    """Beta distributions on 0 … 1 for a bounded Box. Both shapes are ``1 + softplus(·)``: one peak."""

    def distribution(self, numbers: Numbers, mask: None) -> Beta:
        return Beta(*jnp.split(1.0 + jax.nn.softplus(numbers), 2, axis=-1))

    def to_space(self, action: Action) -> Action:
        low, high = (bound.astype(np.float32) for bound in self.space.bounds())
        return jnp.asarray(low) + (high - low) * super().to_space(action)

    def from_space(self, action: Action) -> Numbers:
        low, high = (bound.astype(np.float32) for bound in self.space.bounds())
        return super().from_space((action - low) / np.where(high > low, high - low, 1.0))  # both bounds may be the same

    def features(self, action: Action) -> Numbers:
        return 2.0 * action - 1.0


class StateDependentHead(GaussianHead):
    """Generalized state-dependent exploration (gSDE): noise is a function of the features, drawn every
    ``every`` steps. ``log_std`` has a row for each feature. No gradient of the noise flows into the features.
    With ``mapping = "tanh"``, the entropy is computed from the samples before tanh."""

    readout: Readout
    every: int = eqx.field(static=True)

    def __call__(self, features: Numbers, mask: None) -> StateDependentGaussian:
        hidden = self.readout.hidden(features)
        # Divided by √features: where the features are ±1, the standard deviation is that of ``log_std_init``.
        scaled = jax.lax.stop_gradient(hidden) * hidden.shape[-1] ** -0.5
        return StateDependentGaussian.of(self.readout.output(hidden), scaled, self.log_std)

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*batch features n"]:
        return StateDependentGaussian.matrices(key, shape, self.every, *self.log_std.shape)


def to_bounds(space: ActionSpace, action: Action) -> Action:
    """``action``, whose numbers may have passed the bounds of a ``Box`` by rounding, within these bounds."""
    if not isinstance(space, Box) or not jnp.issubdtype(action.dtype, jnp.floating):
        return action
    return jnp.clip(action, *space.bounds_inside(action.dtype))


CONTINUOUS_SETTINGS = ("sde_every", "state_dependent_std", "distribution", "action_mapping", "log_std_init")
"""Settings that only Box actions use."""
HEADS = {Discrete: CategoricalHead, MultiDiscrete: ProductHead, MultiBinary: BernoulliHead}


def num_parameters(space: LeafSpace, config: NetworkConfig) -> int:
    """Number of parameters of an action's distribution. Raises ``EnvError`` for settings of other spaces."""
    for name in () if isinstance(space, Box) else CONTINUOUS_SETTINGS:
        value, off = getattr(config, name), LEAVES[name].default
        if value != off:
            raise EnvError(f"{name} = {text_of(value)} is for continuous actions (Box), not {space}: set it to {text_of(off)}.")
    return flatdim(space) * (2 if config.state_dependent_std or config.distribution == "beta" else 1)


def make_actor(readout: ReadoutFunction, space: LeafSpace, config: NetworkConfig) -> ActorHead:
    """The head for actions of ``space``. Raises ``EnvError`` if a setting does not fit it or the readout."""
    if config.action_relevance:
        raise EnvError(
            f"action_relevance = {text_of(config.action_relevance)} is for actions of several parts, not {space}: leave it out."
        )
    if not isinstance(space, Box):
        return HEADS[type(space)](readout, space)
    if config.distribution == "beta":
        if not space.is_bounded().all():
            raise EnvError(f"distribution = beta needs bounds on both sides of every component, not {space}: use a Gaussian.")
        return BetaHead(readout, space)
    log_std = jnp.full(space.size, config.log_std_init)
    if not config.sde_every:
        return GaussianHead(readout, space, log_std, config.action_mapping)
    if not isinstance(readout, Readout):
        raise EnvError(f"sde_every = {config.sde_every} reads the features of the built-in actor, not of a custom one.")
    log_std = jnp.tile(log_std, (readout.output.weight.shape[0], 1))
    return StateDependentHead(readout, space, log_std, config.action_mapping, config.sde_every)
