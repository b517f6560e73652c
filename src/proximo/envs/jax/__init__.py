"""Adapters to libraries of JAX environments, one file each."""

EXTRAS = ("brax", "craftax", "jumanji", "navix", "playground")
"""Those that an extra of proximo's installs: the adapter, the extra and the first word of an id have the same name."""
