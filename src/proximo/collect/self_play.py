"""Self-play: the opponents of games, which are the learning policy or copies of it from earlier in the training."""

import copy
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from proximo.networks import ActorCritic

NUM_PAST = 16
"""Number of past policies."""
REPLACEMENT_PROBABILITY = 1 / 16
"""That a rollout replaces a past policy by the current one. Each is kept for 256 rollouts on average."""


class PolicyPlayer(eqx.Module):
    """A policy as the opponent in a game, whose moves are sampled."""

    policy: ActorCritic

    def init_memory(self) -> PyTree:
        return self.policy.init_memory(1), self.policy.no_previous_step(1)

    def move(self, memory: PyTree, observation: PyTree, key: Key[Array, ""]) -> tuple[PyTree, Array]:
        before, previous = memory
        within = jnp.zeros(1, bool)
        seen = self.policy.with_previous_step(jax.tree.map(lambda x: x[None], observation), within, previous)
        acted = self.policy.step(before, seen, within, ~within, key)
        memory = acted.memory, self.policy.previous_step(acted.action, jnp.zeros(1))
        return memory, self.policy.to_space(acted.action)[0]


def game_against(env: Any, policy: ActorCritic) -> Any:
    """A game like ``env`` in which ``policy`` is the opponent."""
    game = copy.copy(env)
    game.default_params = PolicyPlayer(policy)
    return game


def past_policies(policy: ActorCritic, opponents: str) -> PyTree:
    """Return the first past policies, which are part of the training state: copies of ``policy`` for ``opponents`` = ``past``, else
    ``()``."""
    return jax.tree.map(lambda x: jnp.repeat(x[None], NUM_PAST, axis=0), policy) if opponents == "past" else ()


def opponent(policy: ActorCritic, past: PyTree, key: Key[Array, ""]) -> tuple[PolicyPlayer, PyTree]:
    """Return the opponent of one rollout, which is one of the ``past`` policies with probability ½ and otherwise the current policy, and
    the past policies after this rollout."""
    if not jax.tree.leaves(past):
        return PolicyPlayer(policy), past
    key_replace, key_slot, key_past, key_copy = jax.random.split(key, 4)
    slot = jax.random.randint(key_slot, (), 0, NUM_PAST)
    replaced = (jnp.arange(NUM_PAST) == slot) & jax.random.bernoulli(key_replace, REPLACEMENT_PROBABILITY)

    def kept(x: Array, now: Array) -> Array:
        return jnp.where(replaced.reshape((-1, *[1] * now.ndim)), now, x)

    past = jax.tree.map(kept, past, policy)
    is_past, index = jax.random.bernoulli(key_past), jax.random.randint(key_copy, (), 0, NUM_PAST)
    return PolicyPlayer(jax.tree.map(lambda x, now: jnp.where(is_past, x[index], now), past, policy)), past
