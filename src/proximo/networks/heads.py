"""Heads: from features to a distribution over actions, or to a value. Each kind of action space has its own."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, Shaped, UInt32

from proximo.config import LEAVES, NetworkConfig, text_of
from proximo.distributions import Bernoulli, Beta, Categorical, Distribution, Gaussian, ProductCategorical, TanhGaussian
from proximo.distributions.gaussian import LOG_STD_RANGE
from proximo.distributions.masking import FORBIDDEN, mask_bits, mask_choices
from proximo.distributions.state_dependent import StateDependentGaussian
from proximo.errors import EnvError
from proximo.networks.layers import MLP, Linear
from proximo.spaces import ActionSpace, Box, Discrete, MultiBinary, MultiDiscrete, flatdim

MAX_TANH = 0.999
"""``from_space`` maps no action further than this towards the bounds of ``tanh``."""
Action = Shaped[Array, "..."]
Features = Float[Array, "*batch features"]
Mask = Bool[Array, "*batch mask"] | None


class Readout(eqx.Module):
    """Hidden layers (``head_sizes``) and a last linear layer."""

    hidden: MLP
    output: Linear

    @classmethod
    def create(cls, key: Key[Array, ""], in_size: int, out_size: int, gain: float, config: NetworkConfig) -> Readout:
        """Orthogonal layers; ``gain`` is the last one's."""
        key_hidden, key_output = jax.random.split(key)
        hidden = MLP.create(key_hidden, in_size, config.head_sizes, config.activation, config.layer_norm)
        return cls(hidden, Linear.create(key_output, (in_size, *config.head_sizes)[-1], out_size, gain))

    def __call__(self, features: Features) -> Float[Array, "*batch out_size"]:
        return self.output(self.hidden(features))


ReadoutFunction = Callable[[Features], Float[Array, "*batch out_size"]]
"""A ``Readout``, or a custom network in its place."""
S = TypeVar("S", bound=ActionSpace)


class ActorHead(eqx.Module, Generic[S]):
    """Makes the action distribution from features, draws its noise, and maps its samples to the action space
    and back."""

    readout: ReadoutFunction
    space: S = eqx.field(static=True)

    @abc.abstractmethod
    def __call__(self, features: Features, mask: Mask) -> Distribution:
        """The distributions for the torso's features. ``mask``: which actions are allowed; None allows
        all."""

    @abc.abstractmethod
    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> PyTree[Array]:
        """Draw noise for ``Distribution.sample``, for a batch of ``shape``."""

    def to_space(self, action: Action) -> Action:
        """Map a sampled action to the action that the environment receives."""
        return action.reshape((*action.shape[:-1], *self.space.shape))

    def from_space(self, action: Action) -> Action:
        """The inverse of ``to_space``: the sample for an action of the environment, for example one of a demonstration."""
        return action.reshape((*action.shape[: action.ndim - len(self.space.shape)], -1))

    def features(self, action: Action) -> Float[Array, "*batch n"]:
        """A sampled action as ``spaces.flatdim`` numbers, with choices one-hot: the policy may observe it at the next step."""
        return action.astype(float)


def not_forbidden(logits: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """``logits`` of at least ``FORBIDDEN / 2``: a custom network may return -∞, and a masked choice is less probable."""
    return jnp.maximum(logits, FORBIDDEN / 2)


def one_hot(x: Int[Array, "*batch components"], nvec: tuple[int, ...]) -> Float[Array, "*batch total"]:
    """The one-hot vectors of all components, one after the other. Component ``i`` lies in ``0 … nvec_i - 1``."""
    return jnp.concatenate([jax.nn.one_hot(x[..., i], n) for i, n in enumerate(nvec)], axis=-1)


class CategoricalHead(ActorHead[Discrete]):
    """For Discrete actions. The mask has an entry for each choice."""

    def __call__(self, features: Features, mask: Mask) -> Categorical:
        logits = not_forbidden(self.readout(features))
        return Categorical(logits if mask is None else mask_choices(logits, mask))

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*batch n"]:
        return jax.random.gumbel(key, (*shape, self.space.n))

    def to_space(self, action: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        return action + self.space.start

    def from_space(self, action: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        return action - self.space.start

    def features(self, action: Int[Array, "*batch"]) -> Float[Array, "*batch n"]:
        return jax.nn.one_hot(action, self.space.n)


class ProductHead(ActorHead[MultiDiscrete]):
    """For MultiDiscrete actions. Logits and mask entries are ordered component by component."""

    def __call__(self, features: Features, mask: Mask) -> ProductCategorical:
        logits = self._components(not_forbidden(self.readout(features)), FORBIDDEN)
        return ProductCategorical(logits if mask is None else mask_choices(logits, self._components(mask, False)))

    def _components(self, x: Shaped[Array, "*batch total"], padding: bool | float) -> Shaped[Array, "*batch components n"]:
        """A row for each component, padded to the same length."""
        nvec, batch = self.space.nvec, [(0, 0)] * (x.ndim - 1)
        pieces = jnp.split(x, np.cumsum(nvec)[:-1], axis=-1)
        return jnp.stack([jnp.pad(p, [*batch, (0, max(nvec) - p.shape[-1])], constant_values=padding) for p in pieces], axis=-2)

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*batch components n"]:
        return jax.random.gumbel(key, (*shape, self.space.size, max(self.space.nvec)))

    def to_space(self, action: Int[Array, "*batch components"]) -> Int[Array, "..."]:
        return super().to_space(action + np.array(self.space.start, np.int32))

    def from_space(self, action: Int[Array, "..."]) -> Int[Array, "*batch components"]:
        return super().from_space(action) - np.array(self.space.start, np.int32)

    def features(self, action: Int[Array, "*batch components"]) -> Float[Array, "*batch total"]:
        return one_hot(action, self.space.nvec)


class BernoulliHead(ActorHead[MultiBinary]):
    """For MultiBinary actions. The mask has two entries for each bit: whether it may be 0, whether it may be 1."""

    def __call__(self, features: Features, mask: Mask) -> Bernoulli:
        logits = jnp.minimum(not_forbidden(self.readout(features)), -FORBIDDEN / 2)
        return Bernoulli(logits if mask is None else mask_bits(logits, mask.reshape((*logits.shape, 2))))

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*batch n"]:
        return jax.random.logistic(key, (*shape, self.space.size))


class GaussianHead(ActorHead[Box]):
    """For Box actions: the readout gives the means; the standard deviations are the same for all
    observations.

    Where the space is bounded on both sides, ``to_space`` maps a sample to -1 … 1 (by ``mapping``) and scales
    it to the bounds. The rollout stores the sample itself: for tanh the Jacobian cancels in the ratio of
    probabilities.
    """

    log_std: Float[Array, "... n"]
    mapping: str = eqx.field(static=True)

    def __call__(self, features: Features, mask: None) -> Gaussian:
        return self.distribution(self.readout(features), self.log_std)

    def distribution(self, mean: Float[Array, "*batch n"], log_std: Float[Array, "..."]) -> Gaussian:
        """The distribution of the samples, or with ``mapping = "tanh"`` of the squashed samples."""
        if self.mapping == "clip":
            return Gaussian(mean, log_std)
        return TanhGaussian(mean, log_std, tuple(self.space.is_bounded().reshape(-1).tolist()))

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*batch n"]:
        return jax.random.normal(key, (*shape, self.space.size))

    def to_space(self, action: Float[Array, "*batch n"]) -> Float[Array, "..."]:
        action = super().to_space(action)
        (low, high), (middle, half_range) = self.space.bounds(), self._scale()
        unit = jnp.tanh(action) if self.mapping == "tanh" else jnp.clip(action, -1.0, 1.0)
        scaled = middle + half_range * unit
        return jnp.where(self.space.is_bounded(), scaled, jnp.clip(action, low.astype(np.float32), high.astype(np.float32)))

    def from_space(self, action: Float[Array, "..."]) -> Float[Array, "*batch n"]:
        """The sample of an action at a bound of ``tanh`` would be infinite: it is that of an action close to the bound."""
        middle, half_range = self._scale()
        unit = (action - middle) / np.where(half_range > 0, half_range, 1.0)  # both bounds may be the same
        if self.mapping == "tanh":
            unit = jnp.arctanh(jnp.clip(unit, -MAX_TANH, MAX_TANH))
        return super().from_space(jnp.where(self.space.is_bounded(), unit, action))

    def _scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Middle and half of the range of each component that is bounded on both sides; 0 and 1 for the others."""
        (low, high), bounded = self.space.bounds(), self.space.is_bounded()
        least = np.where(bounded, low, -1.0)
        half_range = (np.where(bounded, high, 1.0) - least) / 2
        return (least + half_range).astype(np.float32), half_range.astype(np.float32)


class VaryingHead(GaussianHead):
    """A Gaussian whose readout also gives numbers that are added to ``log_std``, and so depend on the observation."""

    def __call__(self, features: Features, mask: None) -> Gaussian:
        mean, added = jnp.split(self.readout(features), 2, axis=-1)
        return self.distribution(mean, jnp.clip(self.log_std + added, *LOG_STD_RANGE))


class BetaHead(ActorHead[Box]):
    """A Beta distribution on 0 … 1 for each component of a bounded Box. Both shapes are ``1 + softplus(·)``: one peak."""

    def __call__(self, features: Features, mask: None) -> Beta:
        return Beta(*jnp.split(1.0 + jax.nn.softplus(self.readout(features)), 2, axis=-1))

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> UInt32[Array, "*batch 2"]:
        return jax.random.bits(key, (*shape, 2), "uint32")

    def to_space(self, action: Float[Array, "*batch n"]) -> Float[Array, "..."]:
        low, high = self._bounds()
        return jnp.asarray(low) + (high - low) * super().to_space(action)

    def from_space(self, action: Float[Array, "..."]) -> Float[Array, "*batch n"]:
        low, high = self._bounds()
        return super().from_space((action - low) / np.where(high > low, high - low, 1.0))  # both bounds may be the same

    def _bounds(self) -> list[np.ndarray]:
        return [bound.astype(np.float32) for bound in self.space.bounds()]

    def features(self, action: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        return 2.0 * action - 1.0


class StateDependentHead(GaussianHead):
    """Generalized state-dependent exploration (gSDE): noise is a function of the features, drawn every
    ``every`` steps of a rollout.

    ``log_std`` has a row for each feature. No gradient of the noise flows into the features. With ``mapping =
    "tanh"``, the entropy is computed from the samples before tanh.
    """

    readout: Readout
    every: int = eqx.field(static=True)

    def __call__(self, features: Features, mask: None) -> StateDependentGaussian:
        hidden = self.readout.hidden(features)
        # Divided by √features: where the features are ±1, the standard deviation is that of ``log_std_init``.
        scaled = jax.lax.stop_gradient(hidden) * hidden.shape[-1] ** -0.5
        return StateDependentGaussian.of(self.readout.output(hidden), scaled, self.log_std)

    def noise(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*batch features n"]:
        return StateDependentGaussian.matrices(key, shape, self.every, *self.log_std.shape)


CONTINUOUS_SETTINGS = ("sde_every", "state_dependent_std", "distribution", "action_mapping", "log_std_init")
"""Settings that only Box actions use."""
HEADS = {Discrete: CategoricalHead, MultiDiscrete: ProductHead, MultiBinary: BernoulliHead}


def num_parameters(space: ActionSpace, config: NetworkConfig) -> int:
    """Number of parameters of one action's distribution, which ``make_actor`` reads. Raises ``EnvError`` for
    settings of other spaces."""
    for name in () if isinstance(space, Box) else CONTINUOUS_SETTINGS:
        value, off = getattr(config, name), LEAVES[name].default
        if value != off:
            raise EnvError(f"{name} = {text_of(value)} is for continuous actions (Box), not {space}: set it to {text_of(off)}.")
    return flatdim(space) * (2 if config.state_dependent_std or config.distribution == "beta" else 1)


def make_actor(readout: ReadoutFunction, space: ActionSpace, config: NetworkConfig) -> ActorHead:
    """The head for actions of ``space``. Raises ``EnvError`` if ``distribution`` or ``sde_every`` does not
    fit the space or the readout."""
    if not isinstance(space, Box):
        return HEADS[type(space)](readout, space)
    if config.distribution == "beta":
        if not space.is_bounded().all():
            raise EnvError(f"distribution = beta needs bounds on both sides of every component, not {space}: use a Gaussian.")
        return BetaHead(readout, space)
    log_std = jnp.full(space.size, config.log_std_init)
    if not config.sde_every:
        head = VaryingHead if config.state_dependent_std else GaussianHead
        return head(readout, space, log_std, config.action_mapping)
    if not isinstance(readout, Readout):
        raise EnvError(f"sde_every = {config.sde_every} reads the features of the built-in actor, not of a custom one.")
    log_std = jnp.tile(log_std, (readout.output.weight.shape[0], 1))
    return StateDependentHead(readout, space, log_std, config.action_mapping, config.sde_every)
