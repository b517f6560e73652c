"""What is shown before a training: its environment, settings, network, batch and device, in words."""

from collections.abc import Mapping
from typing import Any

import jax

from proximo.config import Config, custom_settings, text_of
from proximo.config.custom import is_custom
from proximo.envs.libraries import num_agents
from proximo.envs.registry import twin
from proximo.jax_setup import available_devices, cores
from proximo.math.running_statistics import RunningStatistics
from proximo.networks import ActorCritic
from proximo.tracking.progress import amount
from proximo.training.backend import Backend

SHOWN_ELSEWHERE = {"id", "seed", "seeds", "name", "runs_dir"}


def run_summary(backend: Backend, resumed_at: int | None = None) -> dict[str, str]:
    """What is trained, and on what, in words by the names of the rows; empty where there is nothing to say.
    It compiles nothing."""
    config, env, policy = backend.config, backend.env, backend.template.learner.policy
    all_sizes, of_normalizer = (sum(leaf.size for leaf in jax.tree.leaves(tree)) for tree in (policy, policy.normalizer))
    ppo, run, batch = config.ppo, config.run, config.batch_size
    sequences = f", sequences of {config.sequence_length}" if config.network.remembers else ""
    total = config.total_updates * batch
    rounded = f" (of {ppo.total_steps:,} requested: only whole updates)" if ppo.total_steps != total else ""
    order = "in one program" if backend.stacked else "one after the other"
    seeds = f"seed {run.seed}" if run.seeds == 1 else f"{run.seeds} seeds ({order})"
    resumed = "" if resumed_at is None else f", resumed at step {resumed_at:,}"
    parts = jax.tree.leaves(policy.normalizer, is_leaf=lambda x: x is None or isinstance(x, RunningStatistics))
    some = "observations" if None not in parts else "floating-point parts of observations"
    normalized = [some] if any(part is not None for part in parts) else []
    normalized += ["rewards"] if ppo.normalizes_reward else []
    jax_twin, agents = twin(config.env.id), num_agents(env)
    of_agents = f" × {agents} agents" if agents > 1 else ""
    return {
        "environment": f"{config.env.id}: {env.observation_space} → {env.action_space}",
        "based on": config.started_from,
        "given": describe_settings(config.given),
        "network": f"{describe_network(config, policy)}: {all_sizes - of_normalizer:,} parameters",
        "batch": f"{amount(config.env.num_envs, 'environment')}{of_agents} × {amount(ppo.num_steps, 'step')} = {batch * agents}, "
        f"{amount(ppo.num_epochs, 'epoch')} × {amount(ppo.num_minibatches, 'minibatch', 'es')} of "
        f"{batch * agents // ppo.num_minibatches}{sequences}",
        "training": f"{total:,} steps{rounded} in {amount(config.total_updates, 'update')}, {seeds}{resumed}",
        "settings": f"learning rate {ppo.learning_rate}, γ {ppo.gamma:g}, λ {ppo.gae_lambda:g}, clip {ppo.clip_eps}, "
        f"entropy {ppo.ent_coef}",
        "preprocessed": describe_preprocessing(config),
        "normalized": " and ".join(normalized) or "nothing",
        "device": describe_devices(backend.num_devices, backend.peers.count),
        "in JAX": f"{jax_twin} is the same task, stepped on the device" if jax_twin else "",
    }


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Settings and their values, without those that other rows show."""

    def word(value: Any) -> str:
        is_code = not isinstance(value, str | int | float | tuple | list | dict)
        return getattr(value, "__qualname__", type(value).__name__) if is_code else text_of(value) or "none"

    return ", ".join(f"{name} {word(value)}" for name, value in settings.items() if name not in SHOWN_ELSEWHERE)


def describe_devices(used: int, processes: int = 1) -> str:
    """The devices that a training uses, and how it could use more, in words."""
    devices = available_devices()
    kind, platform = devices[0].device_kind, devices[0].platform
    name = platform if kind == platform else f"{kind} ({platform})"
    several = f"{used} × " if used > 1 else ""
    more = f" ({used} of {len(devices)} devices; --devices all uses all)" if used < len(devices) else ""
    where = f" in {processes} processes" if processes > 1 else ""
    return f"{several}{name}{where}, {amount(cores(), 'core')}{more}"


def describe_preprocessing(config: Config) -> str:
    """How the settings change observations, actions, rewards and ends of episodes, in words."""
    env, ppo = config.env, config.ppo
    changes = {
        "Atari (each action for 4 frames, gray images of 84 × 84)": env.preprocessing == "atari",
        f"each action for {env.action_repeat} steps": env.action_repeat > 1,
        f"{env.frame_stack} observations stacked": env.frame_stack > 1,
        f"episodes of at most {env.max_episode_steps:,} steps": env.max_episode_steps,
        f"levels {env.levels}": env.levels,
        f"randomized by {env.randomize}": env.randomize != "none",
        "a lost life is a termination": env.life_loss,
        f"rewards times {ppo.reward_scale:g}": ppo.reward_scale != 1,
        "signs of rewards": ppo.clip_reward == "sign",
    }
    without = [f"without {name}" for name in env.drop_observations]
    return ", ".join([*env.wrappers, *without, *(words for words, applies in changes.items() if applies)])


def describe_network(config: Config, policy: ActorCritic) -> str:
    """The layers of the policy from the observation to the heads, as ``MLP 64-64 tanh → gru 128×1, …``."""
    network, custom = config.network, custom_settings(config)
    towers = "one tower for policy and value" if network.towers == "shared" else "separate towers for policy and value"
    if "actor_critic" in custom:
        return f"{custom['actor_critic']}, {towers}"

    def mlp(name: str, what: str) -> str:
        sizes, others = getattr(network, name), getattr(network.for_critic, name)
        layers = f"{what} {'-'.join(map(str, sizes))} {network.activation}" if sizes else ""
        return layers if sizes == others else f"{layers or f'no {what}'} (value: {'-'.join(map(str, others)) or 'none'})"

    encoder = policy.torsos[0].encoder
    size = "" if is_custom(network.memory) else f" {network.memory_size}×{network.memory_settings.layers}"
    parts = [
        mlp("hidden_sizes", "MLP") if hasattr(encoder, "mlp") else str(custom.get("encoder") or type(encoder).__name__),
        "" if network.memory == "none" else f"{network.memory}{size}",
        mlp("shared_sizes", "shared"),
        mlp("head_sizes", "heads"),
    ]
    return f"{' → '.join(filter(None, parts)) or 'linear'}, {towers}"
