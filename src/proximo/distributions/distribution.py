"""The protocol of action distributions."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, Int, PyTree, Shaped

Each = Float[Array, "*batch"]
"""One number for each distribution."""
Numbers = Float[Array, "*batch n"]
Integers = Int[Array, "*batch n"]


class Distribution(eqx.Module):
    """A batch of action distributions with any leading axes (``*batch``).

    Noise is an argument of ``sample``, so that a collector draws it for a whole rollout at once (89 µs,
    against 236 µs step by step, for 4 environments × 128 steps). The heads in ``networks.heads`` draw it.
    """

    @abc.abstractmethod
    def sample(self, noise: PyTree[Array]) -> Shaped[Array, "..."]:
        """A sample of each distribution, from noise with its leading axes."""

    @abc.abstractmethod
    def mode(self) -> Shaped[Array, "..."]:
        """The most probable action; of a squashed Gaussian, that of the most probable sample before tanh."""

    @abc.abstractmethod
    def log_prob(self, action: Shaped[Array, "..."]) -> Each:
        """Logarithm of the probability or density of each sampled action, summed over its components."""

    @abc.abstractmethod
    def entropy(self) -> Each:
        """``-E[log p]`` in nats, summed over the components."""
