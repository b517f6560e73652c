"""Adapters to libraries of JAX environments, one file each. See ``envs/registry.py`` to add one.

They inherit the types of their methods from ``JaxEnvironment``. These libraries expect random keys as integers
(``jax.random.key_data``), or keep them in their state.
"""
