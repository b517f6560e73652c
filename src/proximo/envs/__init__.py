"""Environments: the protocol, the ids, the adapters and our own tasks. ``__init__.pyi`` has the public names."""

from proximo.lazy_exports import lazy_exports

# A worker process steps environments and must not wait for JAX, so names are imported at their first use.
__getattr__, __dir__ = lazy_exports(__name__, __file__)
