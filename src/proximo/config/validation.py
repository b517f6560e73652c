"""Checks of settings against each other. ``schema`` declares the range of each setting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from proximo.config.custom import choices, is_custom, is_lost, is_name, is_transformation, resolve
from proximo.config.mapping import ENTRIES, LEAVES, override, text_of
from proximo.config.schema import MAX_SEED, Config
from proximo.errors import ConfigError, is_plain, nearest, shown

MAX_NAME_BYTES = 200
TRACKERS = ("csv", "wandb")
BUILT_IN_MEMORIES = tuple(word for word in choices(LEAVES["memory"].type) if word != "none")


class Condition(NamedTuple):
    """What the settings ``names`` need to have an effect."""

    names: tuple[str, ...]
    others: tuple[str, ...]
    """The settings that it depends on."""
    is_met: Callable[[Config], bool]
    fix: str = "leave one of them out"


def _one_of(names: tuple[str, ...], others: tuple[str, ...] | str, *values: Any) -> Condition:
    """One of the ``others`` has one of these ``values``."""
    others = (others,) if isinstance(others, str) else others
    fix = f"leave it out, or set {others[0]} to {' or '.join(map(text_of, values))}"
    return Condition(names, others, lambda config: any(LEAVES[other].value_in(config) in values for other in others), fix)


def _built_in(names: tuple[str, ...], *others: str) -> Condition:
    """Not all of the ``others`` are custom code, which replaces ``names``."""
    return Condition(names, others, lambda config: not all(is_custom(LEAVES[other].value_in(config)) for other in others))


def _has_own_rate(optimizer: object) -> bool:
    """Whether the value of ``optimizer`` is or names an optax transformation."""
    if is_name(optimizer):
        try:
            return is_transformation(resolve("optimizer", str(optimizer), ()))
        except ConfigError:  # raised when the training resolves the name
            return False
    return is_transformation(getattr(optimizer, "value", optimizer))


def _critic_takes_rate(config: Config) -> bool:
    ppo = config.ppo
    return not _has_own_rate(ppo.optimizer if ppo.critic_optimizer == "same" else ppo.critic_optimizer)


_RATE = "the transformation has its own learning rate; leave one of them out, or give a function of the rate, such as optax.sgd"
_OF_NETWORK = (
    "encoder", "hidden_sizes", "critic_hidden_sizes", "cnn_features", "activation", "layer_norm", "towers", "privileged", "memory",
    "memory_size", "memory_settings", "shared_sizes", "head_sizes", "critic_head_sizes", "actor", "critic", "sde_every",
    "critic_learning_rate", "critic_optimizer", "critic_max_grad_norm",  # which parameters are the value function's is not known
)  # fmt: skip
_OF_MEMORY = ("memory_size", "memory_settings", "burn_in", "refresh_memory", "reset_memory", "diagnose_every")
CONDITIONS = (
    _built_in(_OF_NETWORK, "actor_critic"),
    _built_in(("hidden_sizes", "critic_hidden_sizes", "cnn_features"), "encoder"),
    _built_in(("critic_head_sizes",), "critic"),
    _built_in(("head_sizes",), "actor", "critic"),
    _one_of(("action_mapping", "state_dependent_std", "log_std_init", "sde_every"), "distribution", "auto"),
    _one_of(("state_dependent_std",), "sde_every", 0),
    _one_of(("sde_every",), "state_dependent_std", False),
    _one_of(("critic_hidden_sizes", "privileged"), "towers", "separate"),
    _one_of(("towers",), "critic_hidden_sizes", "same"),
    _one_of(("towers",), "privileged", ()),
    _one_of(("shared_sizes",), "towers", "shared"),
    _one_of(("cnn_features",), "encoder", "auto", "nature_cnn", "impala_cnn", "small_cnn"),
    Condition(_OF_MEMORY, ("memory",), lambda config: config.network.remembers, "set memory, for example to gru"),
    _one_of(("memory_size", "memory_settings"), "memory", *BUILT_IN_MEMORIES),
    _one_of(("memory_settings.horizon",), "memory", "gru", "lstm"),
    _one_of(("memory_settings.window", "memory_settings.heads", "memory_settings.gate"), "memory", "gtrxl"),
    _one_of(("objective_settings.dual_clip",), "objective", "clip"),
    _one_of(("objective_settings.kl_coef", "objective_settings.kl_target"), "objective", "kl_penalty"),
    _one_of(("optimizer_settings.weight_decay",), ("optimizer", "critic_optimizer"), "adamw"),
    _one_of(("optimizer_settings",), ("optimizer", "critic_optimizer"), "adam", "adamw"),
    Condition(("critic_learning_rate",), ("optimizer", "critic_optimizer"), _critic_takes_rate, _RATE),
    Condition(
        ("learning_rate", "desired_kl"),
        ("optimizer", "critic_optimizer"),
        lambda config: not _has_own_rate(config.ppo.optimizer) or _critic_takes_rate(config),
        _RATE,
    ),
    Condition(
        ("eval_env", "eval_env_settings", "eval_num_envs"),
        ("eval_episodes",),
        lambda config: config.run.eval_episodes > 0,
        "set eval_episodes to 1 or more",
    ),
)
"""A higher layer removes what it makes meaningless from lower ones. Both in one layer are an error."""


def without_effect(config: Config) -> dict[str, str]:
    """The settings that differ from their defaults and have no effect with the others. The values are sentences for the user."""
    leaves = LEAVES | ENTRIES
    values = {name: leaf.value_in(config) for name, leaf in leaves.items()}
    found: dict[str, str] = {}
    for names, others, is_met, fix in CONDITIONS:
        changed = [name for name in names if values[name] != leaves[name].default]
        # An object that only Python can give again may have or lack anything.
        if changed and not any(is_lost(values[other]) for other in others) and not is_met(config):
            with_others = " and ".join(f"{other} = {text_of(values[other])}" for other in others)
            for name in changed:
                found.setdefault(name, f"{name} = {text_of(values[name])} has no effect with {with_others}: {fix}.")
    return found


def validate(config: Config) -> Config:
    """Check the settings against each other.

    Returns:
        ``config`` with ``total_steps`` and ``num_minibatches`` in the place of their ``ALTERNATIVES``.

    Raises:
        ConfigError: two settings contradict each other.
    """
    ppo, batch = config.ppo, config.batch_size
    if ppo.total_updates:
        config = override(config, {"total_steps": ppo.total_updates * batch})
    if size := ppo.minibatch_size:
        length = config.sequence_length
        if batch % size or size % length:
            multiple = f" and a multiple of sequence_length = {length}" if length > 1 else ""
            raise ConfigError(
                f"minibatch_size = {size}: expected a divisor of the {batch} steps of a rollout (num_envs {config.env.num_envs} × "
                f"num_steps {ppo.num_steps}){multiple}."
            )
        config = override(config, {"num_minibatches": batch // size})
    tracker_names(config.run.track)
    check_name(config.run.name)
    for mistakes in (
        _of_run,
        lambda config: iter(without_effect(config).values()),
        _of_memory,
        _of_batch,
        _of_actors,
        _of_objective,
    ):
        for sentence in mistakes(config):
            raise ConfigError(sentence)
    return config


def _of_run(config: Config) -> Iterator[str]:
    seed, seeds = config.run.seed, config.run.seeds
    if not config.env.id:
        yield "No environment given: name one, as in `proximo train CartPole-v1`. `proximo envs` lists them."
    if seed + seeds - 1 > MAX_SEED:
        yield f"seed = {seed} with seeds = {seeds}: expected no seed above {MAX_SEED}."


def _of_memory(config: Config) -> Iterator[str]:
    ppo, network, length = config.ppo, config.network, config.sequence_length
    heads, size = network.memory_settings.heads, network.memory_size
    if network.memory_settings.horizon == 1:
        yield "memory_settings.horizon = 1: expected 2 steps or more, or 0."
    if network.memory == "gtrxl" and size % heads:
        yield f"memory_settings.heads = {heads} does not divide memory_size = {size}: choose a divisor."
    if ppo.refresh_memory and not ppo.recompute_advantage and length == ppo.num_steps:
        yield (
            f"refresh_memory has no effect if a sequence is the whole rollout of {ppo.num_steps} steps, because the memory before the "
            "first sequence never changes: set sequence_length."
        )
    if ppo.refresh_memory and ppo.num_epochs == 1 and not ppo.learner_lag:
        yield (
            "refresh_memory has no effect with num_epochs = 1, because the memories of a rollout are already those of the policy that "
            "learns from it: raise num_epochs."
        )
    if ppo.burn_in > length:
        yield (
            f"burn_in = {ppo.burn_in} is longer than the sequences of {length} steps: expected at most sequence_length (0: the whole "
            "rollout)."
        )


def _of_batch(config: Config) -> Iterator[str]:
    ppo, length, batch = config.ppo, config.sequence_length, config.batch_size
    shape = f"num_envs {config.env.num_envs} × num_steps {ppo.num_steps}"
    if batch >= 2**31:
        yield f"{shape} = {batch:,} steps: expected fewer than 2³¹."
    if ppo.num_steps % length:
        yield (
            f"sequence_length = {length} does not divide num_steps = {ppo.num_steps}: choose a divisor, such as "
            f"{largest_divisor(ppo.num_steps, length)}, or 0 for the whole rollout."
        )
    count, what = batch // length, "sequences" if config.network.remembers else "steps"
    if count % ppo.num_minibatches:
        parts = f"{shape}{f' / sequence_length {length}' if length > 1 else ''}"
        yield (
            f"num_minibatches = {ppo.num_minibatches} does not divide the {count} {what} of a rollout ({parts}): choose a divisor of "
            f"{count}, such as {largest_divisor(count, ppo.num_minibatches)}."
        )
    if ppo.normalize_advantage == "minibatch" and batch // ppo.num_minibatches < 2:
        yield "A minibatch of one step cannot be normalized: set normalize_advantage to batch or none, or use fewer minibatches."
    if ppo.total_steps < batch:
        yield (
            f"total_steps = {ppo.total_steps} is less than one rollout ({shape} = {batch}): raise total_steps, or lower num_envs or "
            "num_steps."
        )


def _of_actors(config: Config) -> Iterator[str]:
    env, count = config.env, config.env.actors
    if count and env.num_envs % count:
        below = env.num_envs // count * count
        yield (
            f"num_envs = {env.num_envs} cannot be divided equally among {count} actors: choose num_envs = "
            f"{f'{below} or ' if below else ''}{below + count}, or actors = {largest_divisor(env.num_envs, count)}."
        )
    needed = max(env.num_workers, 1 + env.overlap)
    if count and needed > (each := env.num_envs // count):
        name = "overlap = true" if env.overlap and env.num_workers < 2 else f"num_workers = {env.num_workers}"
        yield (
            f"{name} needs {needed} environments in each actor, but {count} actors of num_envs = {env.num_envs} have {each} each: choose "
            f"num_envs = {needed * count} or more, or fewer actors."
        )


def _of_objective(config: Config) -> Iterator[str]:
    ppo, settings = config.ppo, config.ppo.objective_settings
    if 0 < settings.dual_clip <= 1:
        yield f"objective_settings.dual_clip = {settings.dual_clip}: expected a ratio above 1 (the paper has 3), or 0 for off."
    kl_target = settings.kl_target if ppo.objective == "kl_penalty" else 0
    for name, target in (("desired_kl", ppo.desired_kl), ("objective_settings.kl_target", kl_target)):
        if target and ppo.num_epochs * ppo.num_minibatches == 1:
            yield (
                f"{name} = {target} needs two gradient steps in each update, because the first one measures a KL divergence of 0: raise "
                f"num_epochs or num_minibatches above 1, or set {name} to 0."
            )


def largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of ``number`` that is at most ``limit``, which is 1 or more."""
    return next(divisor for divisor in range(min(number, limit), 0, -1) if number % divisor == 0)


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
                f"track = {track!r}: there is no tracker {name!r}{nearest(name, TRACKERS)}; expected csv, wandb or "
                "my_package.module:MyTracker, several separated by commas, or none."
            )
    return names


def check_name(name: str) -> None:
    """Raise ``ConfigError`` if a run cannot have this name."""
    length = len(name.encode(errors="replace"))
    if length > MAX_NAME_BYTES:
        raise ConfigError(f"name = {name[:20]!r}… has {length} bytes in UTF-8: expected at most {MAX_NAME_BYTES}.")
    if not is_plain(name) or re.search(r"[/\\@]", name) or re.fullmatch(r"\..*|last|seed-\d+", name):
        raise ConfigError(
            f"name = {shown(name)}: expected a plain name: no '/', '\\', '@' or control characters, no '.' at the beginning, and not "
            "'last' or 'seed-1'."
        )
