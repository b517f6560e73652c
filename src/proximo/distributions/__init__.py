"""Families of action distributions, one file each."""

from proximo.distributions.categorical import Categorical
from proximo.distributions.distribution import Distribution
from proximo.distributions.gaussian import Gaussian

__all__ = ["Categorical", "Distribution", "Gaussian"]
