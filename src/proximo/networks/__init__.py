"""Encoders, memories, heads, and the policy made of them."""

from proximo.networks.actor_critic import ActorCritic, make_policy

__all__ = ["ActorCritic", "make_policy"]
