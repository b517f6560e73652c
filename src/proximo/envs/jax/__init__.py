"""Adapters to libraries of JAX environments, one file each."""
