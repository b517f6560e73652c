"""Checks of settings against each other. ``schema`` declares the range of each setting."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from proximo.config import LEAVES, MAX_SEED, Config, custom_settings, override, text_of
from proximo.config.custom import choices, is_name, is_transformation, resolve
from proximo.errors import ConfigError, is_plain, nearest, shown

MAX_NAME_BYTES = 200
TRACKERS = ("csv", "wandb")
BUILT_IN_MEMORIES = tuple(word for word in choices(LEAVES["memory"].type) if word != "none")
ADAM = ("adam", "adamw")
ONLY_WITH = {
    "critic_hidden_sizes": ("towers", ("separate",)),
    "shared_sizes": ("towers", ("shared",)),
    "memory_size": ("memory", BUILT_IN_MEMORIES),
    "memory_layers": ("memory", BUILT_IN_MEMORIES),
    "memory_horizon": ("memory", ("gru", "lstm")),
    "memory_window": ("memory", ("gtrxl",)),
    "memory_heads": ("memory", ("gtrxl",)),
    "memory_gate": ("memory", ("gtrxl",)),
    "cnn_features": ("encoder", ("auto", "nature_cnn", "impala_cnn", "small_cnn")),
    "dual_clip": ("objective", ("clip",)),
    "kl_coef": ("objective", ("kl_penalty",)),
    "kl_target": ("objective", ("kl_penalty",)),
    "weight_decay": ("optimizer", ("adamw",)),
    "adam_b1": ("optimizer", ADAM),
    "adam_b2": ("optimizer", ADAM),
    "adam_eps": ("optimizer", ADAM),
}
"""Settings that have an effect only with some values of another setting."""
NEED_MEMORY = ("burn_in", "refresh_memory", "reset_memory", "diagnose_every")
"""Settings that apply to every memory, including custom ones."""
OF_NETWORKS = {
    "encoder": ("hidden_sizes", "critic_hidden_sizes", "cnn_features"),
    "memory": (),
    "actor": (),
    "critic": ("critic_head_sizes",),
    "actor_critic": (
        "encoder", "hidden_sizes", "critic_hidden_sizes", "cnn_features", "activation", "layer_norm", "towers", "privileged", "memory", "memory_size", "memory_layers", "memory_horizon",
        "memory_window", "memory_heads", "memory_gate", "shared_sizes", "head_sizes", "critic_head_sizes", "actor", "critic", "sde_every",
        "critic_learning_rate", "critic_optimizer", "critic_max_grad_norm",  # which parameters are those of the value function is not known
    ),
    "distribution": ("action_mapping", "state_dependent_std", "log_std_init", "sde_every"),
}  # fmt: skip
"""Settings that have no meaning with a custom network."""


def validate(config: Config) -> Config:
    """Check the settings against each other. Returns ``config`` with ``total_steps`` and ``num_minibatches`` in the place of their
    ``ALTERNATIVES``. Raises ``ConfigError`` if two settings contradict each other."""
    config = _without_alternatives(config)
    values = {name: (leaf.value_in(config), leaf.default) for name, leaf in LEAVES.items()}
    changed = {name: text_of(value) for name, (value, default) in values.items() if value != default}
    _validate_run(config)
    _validate_network(config, changed)
    _validate_conditions(config, changed)
    _validate_memory(config)
    _validate_batch(config)
    _validate_actors(config)
    _validate_objective(config)
    return config


def _without_alternatives(config: Config) -> Config:
    """``config`` with ``total_updates`` and ``minibatch_size`` converted."""
    ppo, size = config.ppo, config.ppo.minibatch_size
    if ppo.total_updates:
        config = override(config, {"total_steps": ppo.total_updates * config.batch_size})
    if size:
        if config.batch_size % size or size % config.sequence_length:
            length = config.sequence_length
            raise ConfigError(
                f"minibatch_size = {size}: expected a divisor of the {config.batch_size} steps of a rollout (num_envs {config.env.num_envs} × "
                f"num_steps {ppo.num_steps}){f' and a multiple of sequence_length = {length}' if length > 1 else ''}."
            )
        config = override(config, {"num_minibatches": config.batch_size // size})
    return config


def _validate_run(config: Config) -> None:
    """Check environment, seeds and name."""
    run = config.run
    tracker_names(run.track)
    for name in ("eval_env", "eval_env_settings", "eval_num_envs") if not run.eval_episodes else ():
        if getattr(run, name) != LEAVES[name].default:
            raise ConfigError(
                f"{name} = {getattr(run, name)!r} needs evaluations, but eval_episodes = 0: set eval_episodes to 1 or more."
            )
    if run.seed + run.seeds - 1 > MAX_SEED:
        raise ConfigError(f"seed = {run.seed} with seeds = {run.seeds}: expected no seed above {MAX_SEED}.")
    if not config.env.id:
        raise ConfigError("No environment given: name one, as in `proximo train CartPole-v1`. `proximo envs` lists them.")
    check_name(run.name)


def check_name(name: str) -> None:
    """Raise ``ConfigError`` if a run cannot have this name."""
    length = len(name.encode(errors="replace"))
    if length > MAX_NAME_BYTES:
        raise ConfigError(
            f"name = {name[:20]!r}… has {length} bytes in UTF-8: expected at most {MAX_NAME_BYTES}, because file systems limit names. Choose a shorter name."
        )
    if not is_plain(name) or any(sep in name for sep in ("/", "\\", "@")) or re.fullmatch(r"\..*|last|seed-\d+", name):
        raise ConfigError(
            f"name = {shown(name)}: expected a plain name: no '/', '\\', '@' or control characters, no '.' at the beginning, and not 'last' or 'seed-1'."
        )


def _validate_batch(config: Config) -> None:
    """Check sizes of a rollout, its sequences and its minibatches."""
    env, ppo = config.env, config.ppo
    shape = f"num_envs {env.num_envs} × num_steps {ppo.num_steps}"
    if config.batch_size >= 2**31:
        raise ConfigError(f"{shape} = {config.batch_size:,} steps: expected fewer than 2³¹.")
    length = config.sequence_length
    if ppo.num_steps % length:
        below = largest_divisor(ppo.num_steps, length)
        raise ConfigError(
            f"sequence_length = {length} does not divide num_steps = {ppo.num_steps}: choose a divisor, such as {below}, or 0 for the whole "
            "rollout."
        )
    count, what = config.batch_size // length, "sequences" if config.network.remembers else "steps"
    if count % ppo.num_minibatches:
        nearest = largest_divisor(count, ppo.num_minibatches)
        raise ConfigError(
            f"num_minibatches = {ppo.num_minibatches} does not divide the {count} {what} of a rollout "
            f"({shape}{f' / sequence_length {length}' if length > 1 else ''}): choose a divisor of {count}, such as {nearest}."
        )
    if ppo.normalize_advantage == "minibatch" and config.batch_size // ppo.num_minibatches < 2:
        raise ConfigError(
            "A minibatch of one step cannot be normalized: set normalize_advantage to batch or none, or use fewer minibatches."
        )
    if ppo.total_steps < config.batch_size:
        raise ConfigError(
            f"total_steps = {ppo.total_steps} is less than one rollout ({shape} = {config.batch_size}): raise total_steps, or "
            "lower num_envs or num_steps."
        )


def largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of ``number`` that is at most ``limit``, which is 1 or more."""
    return next(divisor for divisor in range(min(number, limit), 0, -1) if number % divisor == 0)


def _validate_actors(config: Config) -> None:
    """Check the settings of Ray actors."""
    env = config.env
    if not env.actors:
        return
    if env.num_envs % env.actors:
        below = env.num_envs // env.actors * env.actors
        fitting = largest_divisor(env.num_envs, env.actors)
        raise ConfigError(
            f"num_envs = {env.num_envs} cannot be divided equally among {env.actors} actors: choose num_envs = "
            f"{f'{below} or ' if below else ''}{below + env.actors}, or actors = {fitting}."
        )
    each, needed = env.num_envs // env.actors, max(env.num_workers, 1 + env.overlap)
    if needed > each:
        name = "overlap = true" if env.overlap and env.num_workers < 2 else f"num_workers = {env.num_workers}"
        raise ConfigError(
            f"{name} needs {needed} environments in each actor, but {env.actors} actors of num_envs = {env.num_envs} have {each} each: choose "
            f"num_envs = {needed * env.actors} or more, or fewer actors."
        )


def replaced_by(custom: Collection[str]) -> set[str]:
    """The settings that have no meaning if the settings ``custom`` are custom code."""
    replaced = {name for setting in custom for name in OF_NETWORKS.get(setting, ())}
    return replaced | {"head_sizes"} if {"actor", "critic"} <= set(custom) else replaced


def _validate_network(config: Config, changed: Mapping[str, str]) -> None:
    """Check that no setting is replaced by custom code, and the settings of one family of distributions."""
    network, custom = config.network, custom_settings(config)
    for name in sorted(replaced_by(custom) & changed.keys()):
        both = "actor", "critic"  # only together they replace head_sizes
        by = next(((setting,) for setting in custom if name in replaced_by({setting})), both)
        given = " and ".join(f"{setting} = {custom[setting]}" for setting in by)
        raise ConfigError(f"{name} = {changed[name]} has no effect with {given}: leave one of them out.")
    if network.privileged and network.towers == "shared":
        raise ConfigError("privileged needs towers = separate: a shared tower reads the same observation for policy and value.")
    for name in OF_NETWORKS["distribution"] if network.distribution == "beta" else ():
        if name in changed:
            raise ConfigError(
                f"{name} = {changed[name]} is for Gaussian distributions, but distribution = beta: leave one of them out."
            )
    if network.state_dependent_std and network.sde_every:
        raise ConfigError(
            "With sde_every, the noise already depends on the features: leave out state_dependent_std, or sde_every."
        )


def _validate_objective(config: Config) -> None:
    """Check the settings of one objective, of the learning rates and of the optimizer."""
    ppo = config.ppo
    if 0 < ppo.dual_clip <= 1:
        raise ConfigError(f"dual_clip = {ppo.dual_clip}: expected a ratio above 1 (the paper has 3), or 0 for off.")
    adapting = "desired_kl" if ppo.desired_kl else "kl_target" if ppo.objective == "kl_penalty" and ppo.kl_target else ""
    if adapting and ppo.num_epochs * ppo.num_minibatches == 1:
        raise ConfigError(
            f"{adapting} = {getattr(ppo, adapting)} needs two gradient steps in each update, because the first one measures a KL "
            f"divergence of 0: raise num_epochs or num_minibatches above 1, or set {adapting} to 0."
        )
    for name in sorted(replaced_by_optimizers(ppo.optimizer, ppo.critic_optimizer)):
        if getattr(ppo, name) != LEAVES[name].default:
            raise ConfigError(
                f"{name} = {text_of(getattr(ppo, name))} has no effect, because the optax transformation that is the optimizer has its own "
                "learning rate: leave one of them out, or give a function of the learning rate, such as optax.sgd."
            )


def replaced_by_optimizers(optimizer: object, critic_optimizer: object) -> set[str]:
    """The settings that have no effect with these optimizers, because an optax transformation has its own learning rate."""
    critic = optimizer if critic_optimizer == "same" else critic_optimizer
    own, own_critic = map(_has_own_rate, (optimizer, critic))
    return ({"critic_learning_rate"} if own_critic else set()) | (
        {"learning_rate", "desired_kl"} if own and own_critic else set()
    )


def _has_own_rate(optimizer: object) -> bool:
    """Whether the value of ``optimizer`` is or names an optax transformation."""
    if is_name(optimizer):
        try:
            return is_transformation(resolve("optimizer", str(optimizer), ()))
        except ConfigError:  # raised when the training resolves the name
            return False
    return is_transformation(getattr(optimizer, "value", optimizer))


def is_met(condition: tuple[str, tuple[str, ...]], value: object, critic_optimizer: object) -> bool:
    """Whether a ``condition`` of ``ONLY_WITH`` is met if its setting is ``value``. One on ``optimizer`` may be met by the critic's."""
    other, values = condition
    return value in values or (other == "optimizer" and critic_optimizer in values)


def _validate_conditions(config: Config, changed: Mapping[str, str]) -> None:
    """Check that every changed setting has an effect with the others."""
    for name, value in changed.items():
        if name not in ONLY_WITH and (name not in NEED_MEMORY or config.network.remembers):
            continue
        other, values = ONLY_WITH.get(name, ("memory", BUILT_IN_MEMORIES))
        current = LEAVES[other].value_in(config)
        if is_met((other, values), current, config.ppo.critic_optimizer):
            continue
        if values is BUILT_IN_MEMORIES and current == "none":
            raise ConfigError(f"{name} = {value} needs a memory, but memory = none: set memory, for example to gru.")
        raise ConfigError(f"{name} = {value} needs {other} = {' or '.join(values)}, not {current}.")


def _validate_memory(config: Config) -> None:
    """Check the settings of a memory."""
    ppo, network = config.ppo, config.network
    if network.memory_horizon == 1:
        raise ConfigError("memory_horizon = 1: expected 2 steps or more, or 0.")
    if network.memory == "gtrxl" and network.memory_size % network.memory_heads:
        raise ConfigError(
            f"memory_heads = {network.memory_heads} does not divide memory_size = {network.memory_size}: choose a divisor."
        )
    if ppo.refresh_memory and not ppo.recompute_advantage and config.sequence_length == ppo.num_steps:
        raise ConfigError(
            f"refresh_memory has no effect if a sequence is the whole rollout of {ppo.num_steps} steps, because the memory before the first "
            "sequence never changes: set sequence_length."
        )
    if ppo.refresh_memory and ppo.num_epochs == 1 and not ppo.learner_lag:
        raise ConfigError(
            "refresh_memory has no effect with num_epochs = 1, because the memories of a rollout are already those of the policy that learns "
            "from it: raise num_epochs."
        )
    if ppo.burn_in > config.sequence_length:
        raise ConfigError(
            f"burn_in = {ppo.burn_in} is longer than the sequences of {config.sequence_length} steps: expected at most "
            "sequence_length (0: the whole rollout)."
        )


def tracker_names(track: str) -> list[str]:
    """The names of trackers in the setting ``track``. Raises ``ConfigError`` for an unknown or repeated one."""
    names = [name.strip() for name in track.split(",") if name.strip()]
    if names in ([], ["none"]):
        return []
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"track = {track!r} names {name} {names.count(name)} times: name it once.")
        if name not in TRACKERS and ":" not in name:
            raise ConfigError(
                f"track = {track!r}: there is no tracker {name!r}{nearest(name, TRACKERS)}; expected csv, wandb or my_package.module:MyTracker, "
                "several separated by commas, or none."
            )
    return names
