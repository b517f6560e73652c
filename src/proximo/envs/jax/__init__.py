"""Adapters to libraries of JAX environments, one file each. See ``envs/registry.py`` to add one."""

EXTRAS = ("brax", "craftax", "jumanji", "navix", "playground")
"""Libraries that an optional extra installs. The extra, the adapter module and the prefix of an id have the same name."""
