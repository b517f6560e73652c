"""proximo: Proximal Policy Optimization, complete. The public names are in ``__init__.pyi``."""

from proximo.jax_setup import prepare_threads
from proximo.lazy_exports import lazy_exports

__version__ = "0.1.0"

prepare_threads()

__getattr__, __dir__ = lazy_exports(__name__, __file__)
