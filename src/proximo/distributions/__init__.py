"""Action distributions, one file per family."""

from proximo.distributions.bernoulli import Bernoulli
from proximo.distributions.beta import Beta
from proximo.distributions.categorical import Categorical
from proximo.distributions.distribution import Distribution
from proximo.distributions.gaussian import LOG_STD_RANGE, Gaussian
from proximo.distributions.masking import FORBIDDEN, mask_bits, mask_choices
from proximo.distributions.product import ProductCategorical
from proximo.distributions.state_dependent import StateDependentGaussian
from proximo.distributions.tanh_gaussian import TanhGaussian

__all__ = [
    "FORBIDDEN",
    "LOG_STD_RANGE",
    "Bernoulli",
    "Beta",
    "Categorical",
    "Distribution",
    "Gaussian",
    "ProductCategorical",
    "StateDependentGaussian",
    "TanhGaussian",
    "mask_bits",
    "mask_choices",
]
