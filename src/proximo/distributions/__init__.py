"""Action distributions, one file per family."""

from proximo.distributions.bernoulli import Bernoulli as Bernoulli
from proximo.distributions.beta import Beta as Beta
from proximo.distributions.categorical import Categorical as Categorical
from proximo.distributions.categorical import ProductCategorical as ProductCategorical
from proximo.distributions.distribution import Distribution as Distribution
from proximo.distributions.gaussian import Gaussian as Gaussian
from proximo.distributions.joint import Joint as Joint
from proximo.distributions.state_dependent import StateDependentGaussian as StateDependentGaussian
from proximo.distributions.tanh_gaussian import TanhGaussian as TanhGaussian
