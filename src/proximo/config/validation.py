"""Checks of settings against each other. ``schema`` declares the range of each setting."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from proximo.config.coercion import Leaf, coerce, text_of
from proximo.config.custom import is_custom, is_lost, is_name, is_transformation, resolve
from proximo.config.schema import BY_NAME, ENTRIES, LEAVES, MAX_SEED, MEMORIES, Config, PPOConfig
from proximo.errors import ConfigError, is_plain, nearest, shown

MAX_NAME_BYTES = 200
TRACKERS = ("csv", "wandb")


class Condition(NamedTuple):
    """What the settings ``names`` need to have an effect: a property of the settings ``others``."""

    names: tuple[str, ...]
    others: tuple[str, ...]
    is_met: Callable[[Config], bool]
    fix: str = "leave one of them out"


def _values(config: Config, names: tuple[str, ...]) -> list[Any]:
    return [BY_NAME[name].value_in(config) for name in names]


def _one_of(names: tuple[str, ...], others: tuple[str, ...] | str, *accepted: Any) -> Condition:
    """One of the ``others`` has one of these values."""
    others = (others,) if isinstance(others, str) else others
    fix = f"leave it out, or set {others[0]} to {' or '.join(map(text_of, accepted))}"
    return Condition(names, others, lambda config: any(value in accepted for value in _values(config, others)), fix)


def _built_in(names: tuple[str, ...], *others: str) -> Condition:
    """Not all of the ``others`` are custom code, which replaces ``names``."""
    return Condition(names, others, lambda config: not all(map(is_custom, _values(config, others))))


def _takes_rate(optimizer: object) -> bool:
    """Whether ``optimizer`` is not, and does not name, an optax transformation, which has its own learning rate."""
    if is_name(optimizer):
        try:
            return not is_transformation(resolve("optimizer", str(optimizer), ()))
        except ConfigError:  # raised when the training resolves the name
            return True
    return not is_transformation(getattr(optimizer, "value", optimizer))


def _critic_takes_rate(config: Config) -> bool:
    ppo = config.ppo
    return _takes_rate(ppo.optimizer if ppo.critic_optimizer == "same" else ppo.critic_optimizer)


_RATE = "the transformation has its own learning rate; leave one of them out, or give a function of the rate, such as optax.sgd"
_OF_NETWORK = (
    "encoder", "hidden_sizes", "critic_hidden_sizes", "cnn_features", "activation", "layer_norm", "towers", "privileged", "memory",
    "memory_size", "memory_settings", "shared_sizes", "head_sizes", "critic_head_sizes", "actor", "critic", "sde_every",
    "critic_learning_rate", "critic_optimizer", "critic_max_grad_norm",  # which parameters are the value function's is not known
)  # fmt: skip


def _of_entry(entry: Leaf) -> Condition:
    """The setting that chooses, such as ``memory``, has one of the words of the entry."""
    choice = entry.name.partition("_settings.")[0]
    return _one_of((entry.name,), tuple(name for name in (choice, f"critic_{choice}") if name in LEAVES), *entry.of)


CONDITIONS = (
    _built_in(_OF_NETWORK, "actor_critic"),
    _built_in(("hidden_sizes", "critic_hidden_sizes", "cnn_features"), "encoder"),
    _built_in(("critic_head_sizes",), "critic"),
    _built_in(("head_sizes",), "actor", "critic"),
    _one_of(("action_mapping", "state_dependent_std", "log_std_init", "sde_every", "rpo_alpha"), "distribution", "auto"),
    _one_of(("state_dependent_std",), "sde_every", 0),
    _one_of(("sde_every",), "state_dependent_std", False),
    _one_of(("critic_hidden_sizes", "privileged"), "towers", "separate"),
    _one_of(("towers",), "critic_hidden_sizes", "same"),
    _one_of(("towers",), "privileged", ()),
    _one_of(("shared_sizes",), "towers", "shared"),
    _one_of(("cnn_features",), "encoder", "auto", "nature_cnn", "impala_cnn", "small_cnn"),
    Condition(
        ("memory_size", "memory_settings", "burn_in", "refresh_memory", "reset_memory", "diagnose_every"),
        ("memory",),
        lambda config: config.network.remembers,
        "set memory, for example to gru",
    ),
    _one_of(("memory_size", "memory_settings"), "memory", *MEMORIES),
    *(_of_entry(entry) for entry in ENTRIES.values() if entry.of),
    _one_of(("optimizer_settings",), ("optimizer", "critic_optimizer"), "adam", "adamw"),
    Condition(("critic_learning_rate",), ("optimizer", "critic_optimizer"), _critic_takes_rate, _RATE),
    Condition(
        ("learning_rate", "desired_kl"),
        ("optimizer", "critic_optimizer"),
        lambda config: _takes_rate(config.ppo.optimizer) or _critic_takes_rate(config),
        _RATE,
    ),
    Condition(
        ("eval_env", "eval_env_settings", "eval_num_envs"),
        ("eval_episodes",),
        lambda config: config.run.eval_episodes > 0,
        "set eval_episodes to 1 or more",
    ),
    Condition(
        ("refresh_memory",),
        ("sequence_length", "num_steps"),
        lambda config: config.ppo.recompute_advantage or config.sequence_length != config.ppo.num_steps,
        "a sequence that spans the whole rollout always starts from the collected memory; set sequence_length to a divisor of num_steps",
    ),
    Condition(
        ("refresh_memory",),
        ("num_epochs",),
        lambda config: config.ppo.num_epochs > 1 or config.ppo.learner_lag > 0,
        "in the first epoch, the stored memories are up to date; set num_epochs to 2 or more",
    ),
)
"""A higher layer removes what it makes meaningless from lower ones. Both in one layer are an error."""


def without_effect(config: Config) -> dict[str, str]:
    """The settings that differ from their defaults but have no effect, with an error message for each."""
    found: dict[str, str] = {}
    for names, others, is_met, fix in CONDITIONS:
        changed = {name: x for name, x in zip(names, _values(config, names), strict=True) if x != BY_NAME[name].default}
        # An object that only Python can give again may have or lack anything.
        if changed and not any(map(is_lost, values := _values(config, others))) and not is_met(config):
            with_others = " and ".join(f"{x} = {text_of(value)}" for x, value in zip(others, values, strict=True))
            for name, value in changed.items():
                found.setdefault(name, f"{name} = {text_of(value)} has no effect with {with_others}: {fix}.")
    return found


def validate(config: Config, num_agents: int = 1) -> Config:
    """Check the settings against each other. Returns ``config`` with the settings in the place of their
    ``ALTERNATIVES``; ``minibatch_size`` counts the steps of all ``num_agents`` agents of an environment. Raises
    ``ConfigError`` if two settings contradict each other."""
    ppo, size = config.ppo, config.ppo.minibatch_size
    if size % num_agents:
        raise ConfigError(f"minibatch_size = {size} is no multiple of the {num_agents} agents of {config.env.id}: choose one.")
    size //= num_agents
    if ppo.total_updates:
        ppo = replace(ppo, total_steps=coerce(LEAVES["total_steps"], ppo.total_updates * config.batch_size), total_updates=0)
    if size:
        ppo = replace(ppo, num_minibatches=max(1, config.batch_size // size), minibatch_size=0)
    config = replace(config, ppo=ppo)
    tracker_names(config.run.track)
    check_name(config.run.name)
    for sentence in (
        *without_effect(config).values(),
        *_divisors(config, size),
        *_rules(config),
        *_divergence_rules(ppo),
    ):
        raise ConfigError(sentence)
    return config


def _divisors(config: Config, minibatch_size: int) -> Iterator[str]:
    """An error message for each number that does not divide what it must divide."""
    env, ppo, network, length = config.env, config.ppo, config.network, config.sequence_length
    count, shape = config.batch_size // length, f"num_envs {env.num_envs} × num_steps {ppo.num_steps}"
    sequences = f"the {count} sequences of a rollout ({shape} / sequence_length {length})"
    steps = f"the {config.batch_size} steps of a rollout ({shape})"
    heads = network.memory_settings.heads if network.memory == "gtrxl" else 1
    for name, divisor, number, what in (
        ("memory_settings.heads", heads, network.memory_size, f"memory_size = {network.memory_size}"),
        ("sequence_length", length, ppo.num_steps, f"num_steps = {ppo.num_steps}; 0 means the whole rollout"),
        ("minibatch_size", minibatch_size or 1, config.batch_size, steps),
        ("sequence_length", length, minibatch_size, f"minibatch_size = {minibatch_size}"),
        ("num_minibatches", ppo.num_minibatches, count, sequences if length > 1 else steps),
        ("actors", env.actors or 1, env.num_envs, f"num_envs = {env.num_envs}"),
    ):
        if number % divisor:
            yield f"{name} = {divisor} does not divide {what}: choose a divisor, such as {largest_divisor(number, divisor)}."


def _rules(config: Config) -> Iterator[str]:
    """An error message for each other rule that is violated."""
    env, ppo, run, batch, length = config.env, config.ppo, config.run, config.batch_size, config.sequence_length
    if not env.id:
        yield "No environment given: name one, as in `proximo train CartPole-v1`. `proximo envs` lists them."
    if batch >= 2**31:
        yield f"num_envs = {env.num_envs} × num_steps = {ppo.num_steps}: expected fewer than 2³¹ steps in a rollout."
    if run.seed + run.seeds - 1 > MAX_SEED:
        yield f"seed = {run.seed} with seeds = {run.seeds}: expected no seed above {MAX_SEED}."
    if config.network.memory_settings.horizon == 1:
        yield "memory_settings.horizon = 1: expected 2 steps or more, or 0."
    if ppo.burn_in > length:
        yield f"burn_in = {ppo.burn_in}: expected at most the {length} steps of a sequence (sequence_length)."
    if ppo.normalize_advantage == "minibatch" and batch // ppo.num_minibatches < 2:
        yield "A minibatch of one step cannot be normalized: set normalize_advantage to batch or none, or use fewer minibatches."
    if ppo.total_steps < batch:
        less = f"is less than one rollout (num_envs {env.num_envs} × num_steps {ppo.num_steps} = {batch})"
        yield f"total_steps = {ppo.total_steps} {less}: raise total_steps, or lower num_envs or num_steps."
    actors, needed = env.actors or 1, max(env.num_workers, 1 + env.overlap)
    if env.actors > 0 and needed > env.num_envs // actors:
        each = f"Each of {actors} actors steps {env.num_envs // actors} of num_envs = {env.num_envs} environments"
        given = f"num_workers = {env.num_workers} with overlap = {text_of(env.overlap)} needs {needed}"
        yield f"{each}, but {given}: choose num_envs = {needed * actors} or more."
    if 0 < (dual_clip := ppo.objective_settings.dual_clip) <= 1:
        yield f"objective_settings.dual_clip = {dual_clip}: expected a ratio above 1 (the paper has 3), or 0 for off."


def _divergence_rules(ppo: PPOConfig) -> Iterator[str]:
    """An error message for each setting that needs the KL divergence and cannot measure it."""
    kl_target = ppo.objective_settings.kl_target
    targets = {"desired_kl": ppo.desired_kl, "objective_settings.kl_target": kl_target * (ppo.objective == "kl_penalty")}
    for name, target in {"target_kl": ppo.target_kl, **targets}.items():
        if ppo.rpo_alpha > 0 and target > 0:
            yield f"rpo_alpha = {ppo.rpo_alpha} with {name} = {target}: its noise counts as divergence, so set one of them to 0."
    for name, target in targets.items():
        if target > 0 and ppo.num_epochs * ppo.num_minibatches == 1:
            why = "needs two gradient steps in each update, because the first one measures a KL divergence of 0"
            yield f"{name} = {target} {why}: raise num_epochs or num_minibatches above 1, or set {name} to 0."


def largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of ``number`` that is at most ``limit``, which is 1 or more."""
    return next((divisor for divisor in range(min(number, limit), 0, -1) if number % divisor == 0), 1)


def tracker_names(track: str) -> list[str]:
    """The names of trackers in the setting ``track``. Raises ``ConfigError`` for an unknown one."""
    names = list(dict.fromkeys(filter(None, map(str.strip, track.split(",")))))
    if names == ["none"]:
        return []
    for name in names:
        if name not in TRACKERS and ":" not in name:
            raise ConfigError(
                f"track = {track!r}: there is no tracker {name!r}{nearest(name, TRACKERS)}; expected csv, wandb or "
                "my_package.module:MyTracker, several separated by commas, or none."
            )
    return names


def check_name(name: str) -> None:
    """Raise ``ConfigError`` if a run cannot have this name."""
    is_long = len(name.encode(errors="replace")) > MAX_NAME_BYTES
    if is_long or not is_plain(name) or re.search(r"[/\\@]", name) or re.fullmatch(r"\..*|last|seed-\d+", name):
        raise ConfigError(
            f"name = {shown(name)}: expected a plain name of at most {MAX_NAME_BYTES} bytes: no '/', '\\', '@' or control characters, no "
            "'.' at the beginning, and not 'last' or 'seed-1'."
        )
