"""Custom losses: another objective (SPO), and an extra loss that reconstructs the observation; both are compared with PPO.

python examples/custom_losses.py
"""

from __future__ import annotations

from typing import Any

import equinox as eqx

import proximo  # before the first JAX computation: it prevents a deadlock on few cores
import jax
import jax.numpy as jnp

from proximo import ActorCritic, Minibatch
from proximo.types import Metrics


def spo(policy: ActorCritic, minibatch: Minibatch) -> tuple[jax.Array, Metrics]:
    """Simple Policy Optimization (Xie et al. 2024, arXiv:2401.16025)."""
    ratio, advantage, eps = minibatch.ratio, minibatch.advantage, minibatch.clip_eps
    penalty = jnp.abs(advantage) / (2 * eps) * (ratio - 1) ** 2
    return minibatch.mean(penalty - ratio * advantage), {"penalty": minibatch.mean(penalty)}


class Encoder(eqx.Module):
    """Two layers of 64 units, and a linear decoder to the observation."""

    read: eqx.nn.MLP
    decode: eqx.nn.Linear

    def __init__(self, key: jax.Array, space: Any):
        keys = jax.random.split(key)
        self.read = eqx.nn.MLP(space.size, 64, 64, 1, activation=jnp.tanh, final_activation=jnp.tanh, key=keys[0])
        self.decode = eqx.nn.Linear(64, space.size, key=keys[1])

    def __call__(self, observation: jax.Array) -> jax.Array:
        """Compute the features."""
        return self.read(observation)


def reconstruction(policy: ActorCritic, minibatch: Minibatch) -> tuple[jax.Array, Metrics]:
    """Compute half of the mean squared error of the reconstructed observation."""
    decode = policy.custom_part("encoder").decode
    decoded = jax.vmap(jax.vmap(decode))(policy.encode(minibatch.observation))
    error = minibatch.mean(jnp.mean((decoded - policy.normalize(minibatch.observation)) ** 2, axis=-1))
    return 0.5 * error, {"reconstruction": error}


def main(steps: int = 50_000, env: str = "gymnax:CartPole-v1") -> dict[str, float]:
    """Train all three variants, and return the mean return of each."""
    kinds: dict[str, dict[str, Any]] = {
        "PPO": {},
        "SPO": {"objective": spo},
        "PPO with reconstruction": {"encoder": Encoder, "extra_loss": reconstruction},
    }
    returns: dict[str, float] = {}
    for kind, settings in kinds.items():
        agent = proximo.PPO(env, **settings).learn(steps)
        returns[kind] = agent.evaluate(50).summary()["return_mean"]
        losses = {name: round(x, 4) for name, x in agent.history[-2].items() if name in ("train/penalty", "train/reconstruction")}
        print(f"{kind}: return {returns[kind]:.0f}", *losses.items())
    return returns


if __name__ == "__main__":
    main()
