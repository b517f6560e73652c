"""Train with several learning rates and seeds in one compiled program, because a training is a pure function.

python examples/sweep.py
"""

import dataclasses

import proximo  # before the first JAX computation: it prevents a deadlock on few cores
import jax
import jax.numpy as jnp

from proximo.ppo import make_hyperparameters


def main(total_steps: int = 20_000) -> dict[float, float]:
    """Train CartPole with three learning rates and two seeds each.

    Returns:
        For each learning rate, the mean return of the last ten updates.
    """
    config = proximo.make_config("gymnax:CartPole-v1", {"total_steps": total_steps, "num_epochs": 4})
    train = proximo.make_train(config, proximo.make_env(config.env.id))
    hyperparameters = make_hyperparameters(config.ppo)
    rates = jnp.array([1e-4, 1e-3, 3e-3])

    def train_with(rate, key):
        schedule = dataclasses.replace(hyperparameters.learning_rate, initial=rate, final=rate)
        _, metrics = train(key, dataclasses.replace(hyperparameters, learning_rate=schedule))
        return metrics["rollout/return_mean"][-10:].mean()

    over_seeds = jax.vmap(train_with, in_axes=(None, 0))
    returns = jax.jit(jax.vmap(over_seeds, in_axes=(0, None)))(rates, jax.vmap(jax.random.key)(jnp.arange(2)))
    result = {float(rate): float(row.mean()) for rate, row in zip(rates, returns, strict=True)}
    for rate, mean in result.items():
        print(f"learning rate {rate:.0e}: return {mean:.0f}")
    return result


if __name__ == "__main__":
    main()
