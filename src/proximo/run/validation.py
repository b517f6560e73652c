"""Settings held against each other, in worded errors; each one's own range stands in ``proximo.config``."""

from __future__ import annotations

import re

from proximo.config import LEAVES, MAX_SEED, Config
from proximo.errors import ConfigError
from proximo.run.tracking import names_in

ANY_MEMORY = ("gru", "lstm", "mingru", "lru", "gtrxl")
ONLY_WITH = {
    "memory_size": ANY_MEMORY,
    "memory_layers": ANY_MEMORY,
    "burn_in": ANY_MEMORY,
    "refresh_memory": ANY_MEMORY,
    "reset_memory": ANY_MEMORY,
    "memory_horizon": ("gru", "lstm"),
    "memory_window": ("gtrxl",),
    "memory_heads": ("gtrxl",),
    "memory_gate": ("gtrxl",),
}
"""Settings that mean something with some memories only."""


def validate(config: Config) -> Config:
    """Check the settings against each other; raises ``ConfigError``. Returns ``config``."""
    _validate_run(config)
    _validate_batch(config)
    _validate_memory(config)
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


def hold_name(name: str) -> None:
    """Raise ``ConfigError`` for a name that no run can have."""
    if any(sep in name for sep in ("/", "\\", "@", "\0")) or re.fullmatch(r"\..*|last|seed-\d+", name) or len(name) > 200:
        raise ConfigError(
            f"name = {name!r}: expected a plain name without '/', '\\' or '@' that does not begin with '.', and not 'last' or 'seed-1'."
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
    rows, what = (config.batch_size // length, "sequences" if config.network.memory != "none" else "rows")
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


def _validate_memory(config: Config) -> None:
    """What belongs to a memory, or to one kind of it."""
    network = config.network
    for name, memories in ONLY_WITH.items():
        value = getattr(getattr(config, LEAVES[name].group), name)
        if value != LEAVES[name].default and network.memory not in memories:
            given = f"{name} = {str(value).lower()}"
            if memories is ANY_MEMORY:
                raise ConfigError(f"{given} needs a memory, and memory is none: set memory, as gru.")
            raise ConfigError(f"{given} needs memory = {' or '.join(memories)}, not {network.memory}.")
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
