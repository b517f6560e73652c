"""The summary of a run that is shown before training: spaces, network, batch, device."""

from __future__ import annotations

from typing import Any

import jax

from proximo.backends import Backend
from proximo.config import custom_settings
from proximo.config.custom import is_custom
from proximo.envs.registry import twin
from proximo.jax_setup import cores


def run_summary(backend: Backend) -> dict[str, Any]:
    """Spaces, network, number of parameters, batch and device, in words. It compiles nothing."""
    config, env = backend.config, backend.env
    policy = backend.template().learner.policy
    normalizer = sum(leaf.size for leaf in jax.tree.leaves(policy.normalizer))
    parameters = sum(leaf.size for leaf in jax.tree.leaves(policy)) - normalizer
    network = config.network
    size = "" if is_custom(network.memory) else f" {network.memory_size}×{network.memory_layers}"
    memory = "" if network.memory == "none" else f" → {network.memory}{size}"
    transitions = config.batch_size // config.ppo.num_minibatches
    encoder = policy.torsos[0].encoder
    mlp = f"MLP {'-'.join(map(str, network.hidden_sizes))} {network.activation}"
    custom = custom_settings(config)
    layers = mlp if hasattr(encoder, "mlp") else custom.get("actor_critic") or custom.get("encoder") or type(encoder).__name__
    towers = "one tower for policy and value" if network.towers == "shared" else "separate towers for policy and value"
    device = jax.devices()[0]
    name = device.platform if device.device_kind == device.platform else f"{device.device_kind} ({device.platform})"
    return {
        "observation": str(env.observation_space),
        "action": str(env.action_space),
        "network": f"{layers}{memory}, {towers}",
        "parameters": parameters,
        "batch": f"{config.env.num_envs} environments × {config.ppo.num_steps} steps = {config.batch_size}, "
        f"{config.ppo.num_epochs} epochs × {config.ppo.num_minibatches} minibatches of {transitions}"
        + (f", sequences of {config.sequence_length}" if network.remembers else ""),
        "updates": config.total_updates,
        "seeds_mode": "vmap" if backend.stacked else "serial",
        "twin": twin(config.env.id),
        "device": f"{name}, {cores()} cores",
    }
