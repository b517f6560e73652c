"""What a person is told of a training before it begins."""

from __future__ import annotations

from typing import Any

import jax

from proximo.config import Config, own_code
from proximo.envs.registry import twin
from proximo.own_code import is_own
from proximo.run.program import HostProgram, Program
from proximo.runtime import cores


def describe(program: Program | HostProgram) -> dict[str, Any]:
    """Facts for the banner: spaces, network, parameters, arithmetic of the batch, device."""
    config, env = program.config, program.env
    policy = jax.eval_shape(program.driver.init_policy, jax.random.key(0))
    normalizer = sum(leaf.size for leaf in jax.tree.leaves(policy.normalizer))
    parameters = sum(leaf.size for leaf in jax.tree.leaves(policy)) - normalizer
    network = config.network
    size = "" if is_own(network.memory) else f" {network.memory_size}×{network.memory_layers}"
    memory = "" if network.memory == "none" else f" → {network.memory}{size}"
    rows = config.batch_size // config.ppo.num_minibatches
    encoder = policy.torsos[0].encoder
    mlp = f"MLP {'-'.join(map(str, network.hidden_sizes))} {network.activation}"
    layers = mlp if hasattr(encoder, "mlp") else _own(config) or type(encoder).__name__
    towers = "one tower for policy and value" if network.towers == "shared" else "a tower each for policy and value"
    device = jax.devices()[0]
    name = device.platform if device.device_kind == device.platform else f"{device.device_kind} ({device.platform})"
    return {
        "observation": str(env.observation_space),
        "action": str(env.action_space),
        "network": f"{layers}{memory}, {towers}",
        "parameters": parameters,
        "batch": f"{config.env.num_envs} environments × {config.ppo.num_steps} steps = {config.batch_size}, "
        f"{config.ppo.num_epochs} epochs × {config.ppo.num_minibatches} minibatches of {rows}"
        + (f", sequences of {config.sequence_length}" if network.remembers else ""),
        "updates": config.total_updates,
        "seeds_mode": "vmap" if program.stacked else "serial",
        "twin": twin(config.env.id),
        "device": f"{name}, {cores()} cores",
    }


def _own(config: Config) -> str:
    """The user's encoder or actor-critic, by its name; empty where there is none."""
    own = own_code(config)
    return str(own.get("actor_critic") or own.get("encoder") or "")
