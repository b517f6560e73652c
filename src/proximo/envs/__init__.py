"""Environments: the protocol, the ids, the adapters, our own tasks."""

from proximo.envs.protocol import JaxEnvironment
from proximo.envs.registry import listing, make_env

__all__ = ["JaxEnvironment", "listing", "make_env"]
