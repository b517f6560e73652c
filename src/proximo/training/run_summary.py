"""The summary of a run that is shown before training: spaces, network, batch, device."""

from __future__ import annotations

from typing import Any

import jax

from proximo.backends import Backend
from proximo.config import Config, custom_settings
from proximo.config.custom import is_custom
from proximo.envs.registry import twin
from proximo.jax_setup import available_devices, cores, has_fast_bfloat16
from proximo.math.running_statistics import RunningStatistics
from proximo.networks import ActorCritic
from proximo.networks.image_encoders import NatureCNN
from proximo.tracking.progress import amount


def run_summary(backend: Backend) -> dict[str, Any]:
    """Spaces, network, number of parameters, batch and device, in words. It compiles nothing."""
    config, env = backend.config, backend.env
    policy = backend.template().learner.policy
    normalizer = sum(leaf.size for leaf in jax.tree.leaves(policy.normalizer))
    parameters = sum(leaf.size for leaf in jax.tree.leaves(policy)) - normalizer
    transitions = config.batch_size // config.ppo.num_minibatches
    return {
        "observation": str(env.observation_space),
        "action": str(env.action_space),
        "network": describe_network(config, policy),
        "parameters": parameters,
        "batch": f"{amount(config.env.num_envs, 'environment')} × {amount(config.ppo.num_steps, 'step')} = {config.batch_size}, "
        f"{amount(config.ppo.num_epochs, 'epoch')} × {amount(config.ppo.num_minibatches, 'minibatch', 'es')} of {transitions}"
        + (f", sequences of {config.sequence_length}" if config.network.remembers else ""),
        "preprocessed": describe_preprocessing(config),
        "normalized": _normalized(policy, config),
        "updates": config.total_updates,
        "seeds": "in one program" if backend.stacked else "one after the other",
        "twin": twin(config.env.id),
        "device": describe_devices(backend.num_devices, backend.peers.count) + _bfloat16_hint(config, policy),
    }


def describe_devices(used: int, processes: int = 1) -> str:
    """The devices that a training uses, and how it could use more, in words."""
    devices = available_devices()
    kind, platform = devices[0].device_kind, devices[0].platform
    name = platform if kind == platform else f"{kind} ({platform})"
    several = f"{used} × " if used > 1 else ""
    more = f" ({used} of {len(devices)} devices; --devices all uses all)" if used < len(devices) else ""
    where = f" in {processes} processes" if processes > 1 else ""
    return f"{several}{name}{where}, {amount(cores(), 'core')}{more}"


def _bfloat16_hint(config: Config, policy: ActorCritic) -> str:
    """How the Nature CNN trains faster on this CPU, in words. Empty for other networks, for which that is not measured."""
    parts = jax.tree.leaves(policy, is_leaf=lambda x: isinstance(x, NatureCNN))
    if (
        config.network.compute_dtype != "float32"
        or not any(isinstance(part, NatureCNN) for part in parts)
        or not has_fast_bfloat16()
    ):
        return ""
    return " (--compute-dtype bfloat16 trains faster here, but less precisely)"


def _normalized(policy: ActorCritic, config: Config) -> str:
    """What is normalized, in words."""
    parts = jax.tree.leaves(policy.normalizer, is_leaf=lambda x: x is None or isinstance(x, RunningStatistics))
    some = "observations" if None not in parts else "floating-point parts of observations"
    observations = [some] if any(part is not None for part in parts) else []
    return " and ".join([*observations, *(["rewards"] if config.ppo.normalizes_reward else [])]) or "nothing"


def describe_preprocessing(config: Config) -> str:
    """How the settings change observations, actions, rewards and ends of episodes before the policy learns from them, in words."""
    env, changes = config.env, [*config.env.wrappers, *(f"without {name}" for name in config.env.drop_observations)]
    if env.preprocessing == "atari":
        changes.append("Atari (each action for 4 frames, gray images of 84 × 84)")
    if env.action_repeat > 1:
        changes.append(f"each action for {env.action_repeat} steps")
    if env.frame_stack > 1:
        changes.append(f"{env.frame_stack} observations stacked")
    if env.max_episode_steps:
        changes.append(f"episodes of at most {env.max_episode_steps:,} steps")
    if env.levels:
        changes.append(f"levels {env.levels}")
    if env.life_loss:
        changes.append("a lost life is a termination")
    if config.ppo.reward_scale != 1:
        changes.append(f"rewards times {config.ppo.reward_scale:g}")
    if config.ppo.clip_reward == "sign":
        changes.append("signs of rewards")
    return ", ".join(changes)


def describe_network(config: Config, policy: ActorCritic) -> str:
    """The layers of the policy from the observation to the heads, as ``MLP 64-64 tanh → gru 128×1, …``."""
    network, custom = config.network, custom_settings(config)
    towers = "one tower for policy and value" if network.towers == "shared" else "separate towers for policy and value"
    if "actor_critic" in custom:
        return f"{custom['actor_critic']}, {towers}"

    def mlp(sizes: tuple[int, ...], what: str = "MLP") -> str:
        return f"{what} {'-'.join(map(str, sizes))} {network.activation}" if sizes else ""

    def of_both(name: str, what: str) -> str:
        """The layers of policy and value, where these differ."""
        sizes, others = getattr(network, name), getattr(network.for_critic, name)
        if sizes == others:
            return mlp(sizes, what)
        return f"{mlp(sizes, what) or f'no {what}'} (value: {'-'.join(map(str, others)) or 'none'})"

    encoder = policy.torsos[0].encoder
    is_mlp = hasattr(encoder, "mlp")
    size = "" if is_custom(network.memory) else f" {network.memory_size}×{network.memory_settings.layers}"
    parts = [
        of_both("hidden_sizes", "MLP") if is_mlp else str(custom.get("encoder") or type(encoder).__name__),
        "" if network.memory == "none" else f"{network.memory}{size}",
        mlp(network.shared_sizes, "shared"),
        of_both("head_sizes", "heads"),
    ]
    return f"{' → '.join(filter(None, parts)) or 'linear'}, {towers}"
