"""Several actions at once, of different families."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Shaped

from proximo.distributions.distribution import Distribution, Each, Numbers


class Sample(NamedTuple):
    """Shape and type of a sample of one part."""

    shape: tuple[int, ...]
    dtype: str


class Joint(Distribution):
    """Independent parts: ``p(a) = Π_k p_k(a_k)``. A sample is one vector with the numbers of all parts; integers are exact up to 2²⁴.

    ``relevance`` has a row for each choice of the part ``choice``, a ``Categorical``, with 1 for each part that this choice uses, else
    0; None: every part counts. A part that is not used does not enter the log-probability, and its entropy counts with the
    probability of the choices that use it.

    Source: Fan et al. 2019, arXiv:1903.01344, section 3, have a policy for the choice and one for the numbers; here they are one, and its
    ratio is that of the whole action.
    """

    parts: tuple[Distribution, ...]
    relevance: Float[Array, "choices parts"] | None
    samples: tuple[Sample, ...] = eqx.field(static=True)
    choice: int = eqx.field(static=True)

    def sample(self, noise: tuple[PyTree[Array], ...]) -> Numbers:
        """A sample of each part, from the noise of each."""
        return join([part.sample(x) for part, x in zip(self.parts, noise, strict=True)], self.samples)

    def mode(self) -> Numbers:
        """The mode of each part."""
        return join([part.mode() for part in self.parts], self.samples)

    def log_prob(self, action: Numbers) -> Each:
        """``Σ_k log p_k(a_k)`` over the parts that the choice uses."""
        split = split_joint(action, self.samples)
        logs = jnp.stack([part.log_prob(x) for part, x in zip(self.parts, split, strict=True)], axis=-1)
        return jnp.sum(logs if self.relevance is None else jnp.where(self.relevance[split[self.choice]] > 0, logs, 0.0), axis=-1)

    def entropy(self) -> Each:
        """``Σ_k H_k``, each times the probability that the part is used."""
        chosen: Any = self.parts[self.choice]
        entropies = jnp.stack([part.entropy() for part in self.parts], axis=-1)
        if self.relevance is not None:
            entropies = entropies * (jax.nn.softmax(chosen.logits) @ self.relevance)
        return jnp.sum(entropies, axis=-1)


def split_joint(action: Numbers, samples: tuple[Sample, ...]) -> list[Shaped[Array, "..."]]:
    """The parts of a vector, in the shapes and types of ``samples``."""
    parts, at = [], 0
    for shape, dtype in samples:
        size = math.prod(shape)
        parts.append(action[..., at : at + size].reshape((*action.shape[:-1], *shape)).astype(dtype))
        at += size
    return parts


def join(parts: list[Shaped[Array, "..."]], samples: tuple[Sample, ...]) -> Numbers:
    """The inverse of ``split_joint``."""
    flat = [x.reshape((*x.shape[: x.ndim - len(like.shape)], -1)) for x, like in zip(parts, samples, strict=True)]
    return jnp.concatenate([x.astype(float) for x in flat], axis=-1)
