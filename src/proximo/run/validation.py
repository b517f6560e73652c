"""Settings held against each other, in worded errors; each one's own range stands in ``proximo.config``."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from proximo.config import LEAVES, MAX_SEED, Config, own_code
from proximo.errors import ConfigError, is_plain, shown
from proximo.run.tracking import names_in

MAX_NAME_BYTES = 200
OUR_MEMORIES = ("gru", "lstm", "mingru", "lru", "gtrxl")
ONLY_WITH = {
    "memory_size": OUR_MEMORIES,
    "memory_layers": OUR_MEMORIES,
    "memory_horizon": ("gru", "lstm"),
    "memory_window": ("gtrxl",),
    "memory_heads": ("gtrxl",),
    "memory_gate": ("gtrxl",),
}
"""Settings that mean something with some memories only."""
NEED_MEMORY = ("burn_in", "refresh_memory", "reset_memory")
"""Settings that mean something with any memory, the user's too."""
OF_NETWORKS = {
    "encoder": ("hidden_sizes",),
    "memory": (),
    "actor": (),
    "critic": (),
    "actor_critic": (
        "encoder", "hidden_sizes", "activation", "towers", "privileged", "memory", "memory_size", "memory_layers", "memory_horizon",
        "memory_window", "memory_heads", "memory_gate", "head_sizes", "actor", "critic", "sde_every",
    ),
    "distribution": ("action_mapping", "state_dependent_std", "log_std_init", "sde_every"),
}  # fmt: skip
"""Settings in whose place a network of the user's stands."""


def validate(config: Config) -> Config:
    """Check the settings against each other; raises ``ConfigError``. Returns ``config``."""
    _validate_run(config)
    _validate_network(config)
    _validate_memory(config)
    _validate_batch(config)
    _validate_objective(config)
    if config.ppo.weight_decay and config.ppo.optimizer == "adam":
        raise ConfigError(f"weight_decay = {config.ppo.weight_decay} needs optimizer = adamw (adam takes none).")
    return config


def _validate_run(config: Config) -> None:
    """Environment, seeds and name."""
    run = config.run
    names_in(run.track)
    if run.seed + run.seeds - 1 > MAX_SEED:
        raise ConfigError(f"seed = {run.seed} with seeds = {run.seeds}: expected no seed beyond {MAX_SEED}.")
    if not config.env.id:
        raise ConfigError("No environment given: name one, as in `proximo train CartPole-v1`; `proximo envs` lists them.")
    hold_name(run.name)


def _lacks_memory(name: str, value: Any) -> ConfigError:
    return ConfigError(f"{name} = {_shown(value)} needs a memory, and memory is none: set memory, as gru.")


def hold_name(name: str) -> None:
    """Raise ``ConfigError`` for a name that no run can have."""
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
    """A rollout, its sequences and its minibatches."""
    env, ppo = config.env, config.ppo
    shape = f"num_envs {env.num_envs} × num_steps {ppo.num_steps}"
    if config.batch_size >= 2**31:
        raise ConfigError(f"{shape} = {config.batch_size:,} rows: expected fewer than 2³¹.")
    length = config.sequence_length
    if ppo.num_steps % length:
        below = next(divisor for divisor in range(min(length, ppo.num_steps), 0, -1) if ppo.num_steps % divisor == 0)
        raise ConfigError(
            f"sequence_length = {length} does not divide num_steps = {ppo.num_steps}: choose a divisor, as {below}, or 0 for the whole "
            "rollout."
        )
    rows, what = (config.batch_size // length, "sequences" if config.network.remembers else "rows")
    if rows % ppo.num_minibatches:
        raise ConfigError(
            f"num_minibatches = {ppo.num_minibatches} does not divide the {rows} {what} of a rollout "
            f"({shape}{f' / sequence_length {length}' if length > 1 else ''}): choose a divisor of {rows}."
        )
    if ppo.normalize_advantage == "minibatch" and config.batch_size // ppo.num_minibatches < 2:
        raise ConfigError(
            "A minibatch of one row cannot be normalised: set normalize_advantage to batch or none, or use fewer minibatches."
        )
    if ppo.total_steps < config.batch_size:
        raise ConfigError(
            f"total_steps = {ppo.total_steps} is less than one rollout ({shape} = {config.batch_size}): raise total_steps, or "
            "lower num_envs or num_steps."
        )


def replaced_by(own: Collection[str]) -> set[str]:
    """The settings that mean nothing where those of ``own`` are code of the user's."""
    replaced = {name for setting in own for name in OF_NETWORKS.get(setting, ())}
    return replaced | {"head_sizes"} if {"actor", "critic"} <= set(own) else replaced


def _given(config: Config, name: str) -> Any:
    """The value of a setting that is not its default, else None."""
    value = getattr(getattr(config, LEAVES[name].group), name)
    return None if value == LEAVES[name].default else value


def _validate_network(config: Config) -> None:
    """What stands in the place of something else, and what goes with one family of distributions only."""
    network, own = config.network, own_code(config)
    for name in sorted(replaced_by(own)):
        if _given(config, name) is not None:
            by = next(setting for setting in own if name in replaced_by({setting}) or name == "head_sizes")
            raise ConfigError(
                f"{name} = {_shown(_given(config, name))} means nothing beside {by} = {own[by]}: leave one of them out."
            )
    if network.privileged and network.towers == "shared":
        raise ConfigError("privileged needs towers = separate: one tower for policy and value reads the same for both.")
    gaussian = ("action_mapping", "state_dependent_std", "log_std_init", "sde_every")
    for name in gaussian if network.distribution == "beta" else ():
        if _given(config, name) is not None:
            raise ConfigError(
                f"{name} = {_shown(_given(config, name))} is for Gaussians, and distribution is beta: leave one of them out."
            )
    if network.state_dependent_std and network.sde_every:
        raise ConfigError(
            "sde_every makes the noise a function of the features itself: leave out state_dependent_std, or sde_every."
        )


def _validate_objective(config: Config) -> None:
    """What goes with one objective only."""
    ppo = config.ppo
    for name, objective in (("dual_clip", "clip"), ("kl_coef", "kl_penalty"), ("kl_target", "kl_penalty")):
        if ppo.objective != objective and _given(config, name) is not None:
            raise ConfigError(f"{name} = {_given(config, name)} needs objective = {objective}, not {ppo.objective}.")
    if 0 < ppo.dual_clip <= 1:
        raise ConfigError(f"dual_clip = {ppo.dual_clip}: expected a ratio above 1 (the paper has 3), or 0 for off.")
    adapting = "desired_kl" if ppo.desired_kl else "kl_target" if ppo.objective == "kl_penalty" and ppo.kl_target else ""
    if adapting and ppo.num_epochs * ppo.num_minibatches == 1:
        raise ConfigError(
            f"{adapting} = {getattr(ppo, adapting)} follows the divergence that the gradient steps of an update find, and the first of them "
            f"finds none: raise num_epochs or num_minibatches above 1, or set {adapting} to 0."
        )
    if config.network.actor_critic != "none" and _given(config, "critic_learning_rate") is not None:
        raise ConfigError(
            "critic_learning_rate is for what only the value uses, and in an actor_critic of your own nothing is known to."
        )


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _validate_memory(config: Config) -> None:
    """What belongs to a memory, or to one kind of it."""
    network = config.network
    for name in NEED_MEMORY:
        if _given(config, name) is not None and not network.remembers:
            raise _lacks_memory(name, _given(config, name))
    for name, memories in ONLY_WITH.items():
        value = _given(config, name)
        if value is not None and network.memory not in memories:
            if network.memory == "none" and memories is OUR_MEMORIES:
                raise _lacks_memory(name, value)
            raise ConfigError(f"{name} = {_shown(value)} needs memory = {' or '.join(memories)}, not {network.memory}.")
    if 0 < network.memory_horizon < 3:
        raise ConfigError(f"memory_horizon = {network.memory_horizon}: expected 3 rows or more, or 0.")
    if network.memory == "gtrxl" and network.memory_size % network.memory_heads:
        raise ConfigError(
            f"memory_heads = {network.memory_heads} does not divide memory_size = {network.memory_size}: choose a divisor."
        )
    if config.ppo.refresh_memory and not config.ppo.recompute_advantage and config.sequence_length == config.ppo.num_steps:
        raise ConfigError(
            f"refresh_memory has nothing to refresh where a sequence is the whole rollout of {config.ppo.num_steps} steps: the memory "
            "before the first sequence stays as it is. Set sequence_length."
        )
    if config.ppo.refresh_memory and config.ppo.num_epochs == 1 and not config.ppo.learner_lag:
        raise ConfigError(
            "refresh_memory has nothing to refresh with num_epochs = 1: the memories of a rollout are those of the policy that begins to "
            "learn from it. Raise num_epochs."
        )
    if config.ppo.burn_in > config.sequence_length:
        raise ConfigError(
            f"burn_in = {config.ppo.burn_in} is longer than the sequences of {config.sequence_length} steps: expected at most "
            "sequence_length (0: the whole rollout)."
        )
