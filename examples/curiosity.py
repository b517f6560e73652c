"""Add curiosity to a training loop: Random Network Distillation (Burda et al. 2018, arXiv:1810.12894).

A predictor learns the output of a random network. Its error is large for new observations, and is added to the reward. On
MountainCar, the reward is -1 at each step until the car reaches the flag. Random actions do not reach it.

python examples/curiosity.py
"""

import proximo  # before the first JAX computation: it prevents a deadlock on few cores
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from proximo.math.running_statistics import RunningStatistics
from proximo.networks.layers import MLP

OPTIMIZER = optax.adam(1e-3)
SETTINGS = {
    "num_envs": 16,
    "num_steps": 128,
    "learning_rate": 1e-3,
    "gamma": 0.99,
    "normalize_observation": True,
    "normalize_reward": False,
    "num_epochs": 4,
}


class Curiosity(NamedTuple):
    """State of the curiosity: both networks, the optimizer and the statistics of the errors."""

    target: MLP
    predictor: MLP
    optimizer: optax.OptState
    errors: RunningStatistics


def start(key, size: int) -> Curiosity:
    """Make two random networks. The target network is never trained."""
    target, predictor = (MLP.create(k, size, (64, 64), "tanh") for k in jax.random.split(key))
    return Curiosity(target, predictor, OPTIMIZER.init(predictor), RunningStatistics.of_shape(()))


def prediction_error(predictor: MLP, target: MLP, x: jax.Array) -> jax.Array:
    """Return the mean squared error of the predictor for each observation."""
    return jnp.mean(jnp.square(predictor(x) - jax.lax.stop_gradient(target(x))), axis=-1)


def explore(curiosity: Curiosity, policy, rollout) -> tuple[Curiosity, jax.Array]:
    """Train the predictor on a rollout.

    Returns:
        The new state, and the intrinsic reward of each step: the error for the next observation, in standard deviations.
    """
    reached = jnp.concatenate([rollout.observation[1:], rollout.last_observation[None]])
    x = policy.normalize(reached)
    target, predictor, optimizer, errors = curiosity
    error = prediction_error(predictor, target, x)
    errors = errors.merged(error, rollout.valid)
    for _ in range(4):
        gradient = jax.grad(lambda p: jnp.mean(prediction_error(p, target, x)))(predictor)
        updates, optimizer = OPTIMIZER.update(gradient, optimizer)
        predictor = optax.apply_updates(predictor, updates)
    return Curiosity(target, predictor, optimizer, errors), error / jnp.sqrt(errors.variance + 1e-8)


def main(total_steps: int = 200_000, seeds: int = 3) -> dict[float, jax.Array]:
    """Train with and without curiosity.

    Returns:
        For each weight of the curiosity, the mean return of each seed in the last tenth of the training, without intrinsic rewards.
    """
    config = proximo.make_config("gymnax:MountainCar-v0", {**SETTINGS, "total_steps": total_steps}, preset=False)
    init, collect, update = proximo.make_functions(config, proximo.make_env(config.env.id))

    def train(key, weight):
        def step(carry, _):
            state, curiosity = carry
            state, rollout, episodes = collect(state)
            curiosity, intrinsic = explore(curiosity, state.learner.policy, rollout)
            state, _ = update(state, dataclasses.replace(rollout, reward=rollout.reward + weight * intrinsic))
            return (state, curiosity), (episodes["rollout/return_mean"], episodes["rollout/episodes"])

        key_curiosity, key_state = jax.random.split(key)
        return jax.lax.scan(step, (init(key_state), start(key_curiosity, 2)), length=config.total_updates)[1]

    keys, weights = jax.vmap(jax.random.key)(jnp.arange(seeds)), jnp.array([0.0, 1.0])
    returns, episodes = jax.jit(jax.vmap(jax.vmap(train, (0, None)), (None, 0)))(keys, weights)
    last = -max(1, config.total_updates // 10)
    means = (returns * episodes)[..., last:].sum(-1) / episodes[..., last:].sum(-1)
    result = {float(weight): row for weight, row in zip(weights, means, strict=True)}
    for weight, row in result.items():
        print(f"curiosity {weight:.0f}: returns {', '.join(f'{mean:.0f}' for mean in row)}")
    return result


if __name__ == "__main__":
    main()
