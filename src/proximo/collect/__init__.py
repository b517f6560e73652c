"""How a rollout is collected, and learned from."""

from proximo.collect.gymnasium_collector import GymnasiumCollector
from proximo.collect.jax_collector import Functions, JaxCollector, JaxTrainer, make_functions, make_train

__all__ = ["Functions", "GymnasiumCollector", "JaxCollector", "JaxTrainer", "make_functions", "make_train"]
