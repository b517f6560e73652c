"""How a rollout is collected, and learned from."""

from proximo.collect.functional import Functions, JaxTrainer, make_functions, make_train
from proximo.collect.gymnasium_collector import GymnasiumCollector
from proximo.collect.jax_collector import JaxCollector

__all__ = ["Functions", "GymnasiumCollector", "JaxCollector", "JaxTrainer", "make_functions", "make_train"]
