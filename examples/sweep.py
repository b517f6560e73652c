"""Train with several learning rates and seeds in one compiled program, because a training is a pure function. The cores of a CPU, or the
devices, share the trainings, and a core computes its trainings one after the other.

python examples/sweep.py
"""

import dataclasses
import itertools
import os

import proximo  # before the first JAX computation: it prevents a deadlock on few cores
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec

from proximo.ppo import make_hyperparameters


def main(total_steps: int = 20_000) -> dict[float, float]:
    """Train CartPole with three learning rates and two seeds each.

    Returns:
        For each learning rate, the mean return of the last ten updates.
    """
    config = proximo.make_config("gymnax:CartPole-v1", {"total_steps": total_steps, "num_epochs": 4})
    train = proximo.make_train(config, proximo.make_env(config.env.id))
    hyperparameters = make_hyperparameters(config.ppo)
    rates, seeds = (1e-4, 1e-3, 3e-3), range(2)

    def train_with(rate, key):
        schedule = dataclasses.replace(hyperparameters.learning_rate, initial=rate, final=rate)
        _, metrics = train(key, dataclasses.replace(hyperparameters, learning_rate=schedule))
        return metrics["rollout/return_mean"][-10:].mean()

    def train_several(each_rate, each_key):
        if jax.default_backend() == "cpu":  # one training after the other: a single one keeps a core busy
            return jax.lax.map(lambda training: train_with(*training), (each_rate, each_key))
        return jax.vmap(train_with)(each_rate, each_key)

    trainings = list(itertools.product(rates, seeds))
    num_devices = max(n for n in range(1, jax.device_count() + 1) if len(trainings) % n == 0)  # each trains equally many
    mesh = jax.make_mesh((num_devices,), ("trainings",), axis_types=(AxisType.Auto,), devices=jax.devices()[:num_devices])
    part = PartitionSpec("trainings")
    train_all = jax.shard_map(train_several, mesh=mesh, in_specs=part, out_specs=part, check_vma=False)
    each_rate, each_seed = (jnp.array(values) for values in zip(*trainings, strict=True))
    returns = jax.jit(train_all)(each_rate, jax.vmap(jax.random.key)(each_seed)).reshape(len(rates), len(seeds))
    result = {rate: float(row.mean()) for rate, row in zip(rates, returns, strict=True)}
    for rate, mean in result.items():
        print(f"learning rate {rate:.0e}: return {mean:.0f}")
    return result


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", os.cpu_count())  # each core becomes a device
    main()
