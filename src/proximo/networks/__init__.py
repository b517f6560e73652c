"""Encoders, memories, heads, and the policy made of them."""

from proximo.networks.actor_critic import ActorCritic as ActorCritic
from proximo.networks.assembly import make_policy as make_policy
