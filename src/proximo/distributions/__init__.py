"""Families of action distributions, one file each."""

from proximo.distributions.bernoulli import Bernoulli
from proximo.distributions.categorical import Categorical
from proximo.distributions.distribution import Distribution
from proximo.distributions.gaussian import Gaussian
from proximo.distributions.masking import FORBIDDEN, mask_bits, mask_choices
from proximo.distributions.product import ProductCategorical
from proximo.distributions.state_dependent import StateDependentGaussian

__all__ = [
    "FORBIDDEN",
    "Bernoulli",
    "Categorical",
    "Distribution",
    "Gaussian",
    "ProductCategorical",
    "StateDependentGaussian",
    "mask_bits",
    "mask_choices",
]
