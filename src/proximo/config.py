"""Every setting, each with its range: one tree of frozen dataclasses, by name and as a mapping.

A leaf's name is unique in the whole tree, so that a flag (``--num-envs 16``) or a keyword (``num_envs=16``) needs no
group; YAML files hold the groups (``env: {num_envs: 16}``). Layers: default < preset < file < flag.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from proximo import foreign_names
from proximo.coercion import Leaf, coerce
from proximo.errors import ConfigError, nearest, shown
from proximo.own_code import NAMED, Own, is_lost, is_own, resolve, takes_own
from proximo.schedule_text import ScheduleText

MAX_SEED = 2**32 - 1  # keys are made of 32 bits: seeds beyond would be those from 0 again


def _setting(default: Any, help: str, low: float | None = None, high: float | None = None, above: float | None = None) -> Any:
    """A leaf with its help text and its range: ``low <= value <= high``, ``value > above``."""
    metadata = {"help": help, "low": low, "high": high, "above": above}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class EnvConfig:
    """Which environment, and how many of it."""

    id: str = _setting("", "environment id, as listed by `proximo envs`")
    num_envs: int = _setting(8, "environments stepped together", low=1, high=10**7)
    max_episode_steps: int = _setting(
        0, "truncate episodes after so many steps, beside the environment's own limit; 0: off", low=0, high=2**32 - 2
    )
    stagger_steps: int = _setting(
        0,
        "start out of phase: truncate every environment's first episode after a random 1 … stagger_steps steps; 0: off",
        low=0,
        high=2**31 - 2,
    )
    preprocessing: Literal["none", "atari"] = _setting(
        "none", "atari: 84×84 gray, 4 frames a step with the maximum of the last two, up to 30 no-ops"
    )
    frame_stack: int = _setting(1, "last observations that are stacked along a new first axis", low=1, high=1000)
    action_repeat: int = _setting(1, "steps that each action is repeated for; rewards are added up", low=1, high=1000)
    levels: str = _setting("", "every episode begins with a seed of this range, as 0:99; empty: with any")
    life_loss: bool = _setting(False, "a lost life is a termination to the learner; the episode goes on")
    num_workers: int = _setting(
        -1, "processes that step environments; 0: this one; -1: by a short measurement at the start", low=-1, high=1024
    )
    overlap: bool = _setting(False, "environments in two halves: the policy acts for one while the other steps")
    step_timeout: float = _setting(60.0, "seconds that a worker's step may take before it is started anew", above=0)
    reset_timeout: float = _setting(
        600.0, "seconds that a worker may take to make or reset its environments before it is restarted", above=0
    )
    max_restarts: int = _setting(100, "lost workers that are started anew before training stops", low=0, high=10**6)
    env_settings: dict[str, Any] = _setting(
        {}, "parameters of the environment itself, as key=value,key=value; those of the preset stay beside them"
    )


@dataclass(frozen=True)
class PPOConfig:
    """Proximal Policy Optimization (Schulman et al. 2017, arXiv:1707.06347)."""

    total_steps: int = _setting(1_000_000, "environment steps of the whole training", low=1, high=10**15)
    num_steps: int = _setting(128, "steps of each environment in a rollout", low=1, high=10**7)
    num_epochs: int = _setting(4, "passes over each rollout", low=1, high=10**4)
    num_minibatches: int = _setting(4, "minibatches in an epoch", low=1, high=10**7)
    learning_rate: ScheduleText = _setting(
        ScheduleText("3e-4"), "a number, linear(from, to), polynomial(from, to, power) or exponential(from, to)", low=0
    )
    gamma: float = _setting(0.99, "discount γ", low=0, high=1)
    gae_lambda: float = _setting(0.95, "λ of generalised advantage estimation", low=0, high=1)
    clip_eps: ScheduleText = _setting(ScheduleText("0.2"), "clip range ε of the probability ratio; may be a schedule", low=0)
    clip_value_eps: float = _setting(0.0, "clip range of the value loss; 0: off", low=0)
    ent_coef: ScheduleText = _setting(ScheduleText("0.0"), "weight of the entropy bonus; may be a schedule", low=0)
    vf_coef: float = _setting(0.5, "weight of the value loss", low=0)
    max_grad_norm: float = _setting(0.5, "global norm that gradients are clipped to", above=0)
    target_kl: float = _setting(0.0, "skip the remaining minibatches of an update once approximate KL exceeds it; 0: off", low=0)
    normalize_advantage: Literal["none", "batch", "minibatch"] = _setting("minibatch", "over what advantages are normalised")
    normalize_observation: bool = _setting(
        False, "observations to mean 0 and variance 1 by running statistics, inside the policy (floating-point ones only)"
    )
    clip_observation: float = _setting(
        0.0, "observations clipped to ± this, behind the normaliser; 0: ± 10 with normalize_observation, else off", low=0
    )
    clip_reward: Literal["none", "sign"] = _setting(
        "none", "sign: the learner sees each reward as -1, 0 or 1; returns stay those of the environment"
    )
    normalize_reward: bool = _setting(False, "rewards divided by the standard deviation of the discounted return")
    recompute_advantage: bool = _setting(
        False, "recompute values and advantages before every epoch; the value clip stays around the old values"
    )
    sequence_length: int = _setting(0, "steps of backpropagation through the memory; 0: the whole rollout", low=0)
    burn_in: int = _setting(
        0, "steps before each sequence that only bring the memory up to date, without loss and gradient", low=0
    )
    refresh_memory: bool = _setting(False, "recompute the memory before each sequence by the current parameters, every epoch")
    learner_lag: int = _setting(
        0, "1: rollouts are collected while the update before is still being learned, by the policy before it", low=0, high=1
    )
    objective: Literal["clip", "kl_penalty"] | Own = _setting(
        "clip", "clip: the clipped surrogate; kl_penalty: the ratio, less kl_coef times the KL divergence; or one of your own"
    )
    dual_clip: float = _setting(
        0.0, "clip: where an advantage is negative, the loss grows no further than at this ratio, above 1; 0: off", low=0
    )
    kl_coef: float = _setting(
        1.0, "kl_penalty: weight β of the divergence; halved or doubled behind an update that misses kl_target by half", above=0
    )
    kl_target: float = _setting(0.01, "kl_penalty: divergence of an update that kl_coef is adapted to; 0: kl_coef stays", low=0)
    extra_loss: Literal["none"] | Own = _setting("none", "a loss of your own that is added to the objective")
    desired_kl: float = _setting(
        0.0,
        "the learning rate is adapted behind each update, within 1e-5 … 1e-2, so that approximate KL stays near this; 0: off",
        low=0,
    )
    critic_learning_rate: ScheduleText = _setting(
        ScheduleText("0.0"), "learning rate of what only the value uses, a number or a schedule; 0: learning_rate", low=0
    )
    optimizer: Literal["adam", "adamw"] = _setting("adam", "adam, or adamw with weight_decay")
    weight_decay: float = _setting(0.0, "decoupled decay of weight matrices and convolution kernels, for adamw", low=0)


@dataclass(frozen=True)
class NetworkConfig:
    """Encoder → memory → heads."""

    encoder: Literal["auto", "mlp", "nature_cnn"] | Own = _setting(
        "auto", "auto: nature_cnn for images, mlp for the rest; or one of your own"
    )
    hidden_sizes: tuple[int, ...] = _setting((64, 64), "layers of the MLP encoder, as 64,64", low=1, high=65_536)
    activation: Literal["tanh", "relu"] = _setting("tanh", "between layers")
    towers: Literal["separate", "shared"] = _setting(
        "separate", "one encoder and memory each for policy and value, or one for both"
    )
    privileged: tuple[str, ...] = _setting(
        (), "entries of a Dict observation that only the value reads, as state,goal: a policy that was trained acts without them"
    )
    memory: Literal["none", "gru", "lstm", "mingru", "lru", "gtrxl"] | Own = _setting(
        "none", "what the policy remembers with; or one of your own"
    )
    memory_size: int = _setting(128, "units of the memory", low=1, high=65_536)
    memory_layers: int = _setting(1, "memories stacked upon each other", low=1, high=32)
    memory_horizon: int = _setting(
        0, "gru and lstm: the states of fresh units last for 2 to so many rows, 3 or more; 0: for 2 or 4 rows", low=0
    )
    memory_window: int = _setting(32, "gtrxl: rows before this one that each layer reads", low=1, high=4096)
    memory_heads: int = _setting(4, "gtrxl: heads of its attention", low=1, high=256)
    memory_gate: Literal["gru", "identity"] = _setting("gru", "gtrxl: how a layer's result enters the stream")
    reset_memory: bool = _setting(True, "every episode begins with an empty memory; false: memory is carried over")
    observe_action: bool = _setting(False, "the policy reads its previous action, beside the observation")
    observe_reward: bool = _setting(False, "the policy reads the previous reward, beside the observation")
    head_sizes: tuple[int, ...] = _setting((), "hidden layers of each head, behind the memory", low=1, high=65_536)
    actor: Literal["auto"] | Own = _setting(
        "auto", "from features to the parameters of the distribution; auto, or one of your own"
    )
    critic: Literal["auto"] | Own = _setting("auto", "from features to the value; auto, or one of your own")
    actor_critic: Literal["none"] | Own = _setting(
        "none", "a network of your own in place of encoder, memory, actor and critic together"
    )
    distribution: Literal["auto", "beta"] | Own = _setting(
        "auto", "of actions; auto: Gaussian, categorical or Bernoulli, as the space asks; beta: on bounded intervals; or your own"
    )
    action_mapping: Literal["clip", "tanh"] = _setting(
        "clip", "how a Gaussian sample reaches a bounded space: clipped or squashed"
    )
    state_dependent_std: bool = _setting(False, "the Gaussian's standard deviation is a function of the observation too")
    log_std_init: float = _setting(
        0.0, "logarithm of the Gaussian's initial standard deviation (of the range -1 … 1)", low=-20, high=2
    )
    sde_every: int = _setting(
        0, "continuous actions: noise as a function of the features, drawn anew after so many steps; 0: off", low=0, high=10**6
    )
    compute_dtype: Literal["float32", "bfloat16"] = _setting("float32", "type that encoders and memories compute in")

    @property
    def remembers(self) -> bool:
        """Whether there is a memory. Raises ``ConfigError`` where that depends on a network of the user's that is not found."""
        if self.actor_critic != "none":
            return hasattr(resolve("actor_critic", self.actor_critic, ()), "step")
        return self.memory != "none"


@dataclass(frozen=True)
class RunConfig:
    """Where a run is kept, and what is done beside learning."""

    seed: int = _setting(0, "seed of everything; seeds=K trains seed … seed + K - 1", low=0, high=MAX_SEED)
    seeds: int = _setting(1, "independent seeds to train", low=1, high=1000)
    seeds_mode: Literal["auto", "vmap", "serial"] = _setting(
        "auto", "all seeds in one compiled program (auto: where the environment is in JAX), or one after the other"
    )
    runs_dir: str = _setting("runs", "folder of all runs")
    name: str = _setting("", "name of the run; empty: date and time")
    updates_per_call: int = _setting(
        0, "most updates in one compiled call; 0: a hundredth of the run, at most 64", low=0, high=10**5
    )
    eval_every: int = _setting(0, "steps between evaluations; 0: a tenth of the run", low=0)
    eval_episodes: int = _setting(32, "episodes of each evaluation; 0: no evaluation, not at the end either", low=0, high=10**6)
    eval_max_steps: int = _setting(
        0, "steps after which an episode of an evaluation is cut and counts as it stands; 0: 100,000", low=0, high=10**8
    )
    diagnose_every: int = _setting(
        0,
        "updates between looks at whether the memory is up to date and used; 0: at most fifty times in the run, -1: off",
        low=-1,
    )
    checkpoint_every: int = _setting(0, "steps between checkpoints; 0: with every evaluation", low=0)
    keep_checkpoints: int = _setting(3, "newest checkpoints kept, beside the best; at least 2", low=2)
    tensorboard: bool = _setting(True, "write TensorBoard events")
    track: str = _setting("none", "trackers beside TensorBoard: csv, wandb, my_package.module:MySink, several by commas")
    histograms: bool = _setting(
        False, "histograms of returns, advantages, ratios, actions and observations, at most fifty times in the run"
    )
    video_every: int = _setting(0, "steps between clips of a greedy episode, in videos/ and TensorBoard; 0: none", low=0)
    matmul_precision: Literal["default", "high", "highest"] = _setting("default", "of matrix products")


@dataclass(frozen=True)
class Config:
    """The resolved settings of a run; as a mapping they are a valid ``--config`` file."""

    env: EnvConfig = field(default_factory=EnvConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    run: RunConfig = field(default_factory=RunConfig)

    @property
    def batch_size(self) -> int:
        """Environment steps of one update."""
        return self.env.num_envs * self.ppo.num_steps

    @property
    def total_updates(self) -> int:
        """Updates of the whole training: at least one, and no more steps than ``total_steps`` otherwise."""
        return max(1, self.ppo.total_steps // self.batch_size)

    @property
    def sequence_length(self) -> int:
        """Steps that are learned from as one: with the empty memory 1, whatever the setting."""
        if not self.network.remembers:
            return 1
        return self.ppo.sequence_length or self.ppo.num_steps

    @property
    def diagnose_every(self) -> int:
        """Updates between two looks at the memory; 0: never."""
        if self.run.diagnose_every < 0 or not self.network.remembers:
            return 0
        return self.run.diagnose_every or -(-self.total_updates // 50)

    @property
    def histograms_every(self) -> int:
        """Updates between two histograms; 0: never."""
        return -(-self.total_updates // 50) if self.run.histograms else 0

    @property
    def eval_updates(self) -> int:
        """Updates between two evaluations."""
        every = self.run.eval_every
        return max(1, round(every / self.batch_size) if every else -(-self.total_updates // 10))

    @property
    def updates_per_call(self) -> int:
        """Most updates in one compiled call."""
        return self.run.updates_per_call or max(1, min(64, self.total_updates // 100))


HOST_ONLY = (
    "preprocessing", "frame_stack", "action_repeat", "life_loss", "num_workers", "overlap", "step_timeout", "reset_timeout", "max_restarts",
    "learner_lag",
)  # fmt: skip
"""Settings that an environment in JAX leaves nothing to do for."""

GROUPS: dict[str, type] = {"env": EnvConfig, "ppo": PPOConfig, "network": NetworkConfig, "run": RunConfig}


def leaves() -> Iterator[Leaf]:
    """All settings in the order of the tree."""
    for group, cls in GROUPS.items():
        hints = typing.get_type_hints(cls)
        for f in dataclasses.fields(cls):
            default = f.default if f.default is not dataclasses.MISSING else f.default_factory()  # type: ignore[misc]
            yield Leaf(group, f.name, hints[f.name], default, **f.metadata)


LEAVES: dict[str, Leaf] = {leaf.name: leaf for leaf in leaves()}


def own_code(config: Config) -> dict[str, str | Own]:
    """The settings of ``config`` that are code of the user's, or name it."""
    values = {leaf.name: getattr(getattr(config, leaf.group), leaf.name) for leaf in LEAVES.values() if takes_own(leaf.type)}
    return {name: value for name, value in values.items() if is_own(value)}


def may_replace(config: Config, name: str, value: Any) -> bool:
    """Whether ``value`` may stand for the code of the user's that ``config`` has for ``name``: what has the same name; where that was lost, any
    code."""
    was, now = str(own_code(config)[name]), value if isinstance(value, str | Own) else Own(value)
    return str(now) == was or (is_lost(was) and is_own(now))


def unknown(name: str, where: str = "") -> ConfigError:
    """The error for a name that no setting has, with the nearest one or the name that we use for it."""
    name = shown(name, "text")
    plain = name.replace("-", "_")
    if plain in ("id", "env", "env_id", "environment"):
        return ConfigError(
            f"Unknown setting {name!r}{where}: the environment stands without a flag, as in `proximo train CartPole-v1`; "
            "in a file it is `env: {id: ...}`."
        )
    if answer := foreign_names.answer(plain):
        return ConfigError(f"Unknown setting {name!r}{where}: {answer}")
    return ConfigError(f"Unknown setting {name!r}{where}{nearest(plain, LEAVES)}.")


def override(config: Config, settings: Mapping[str, Any], join: bool = True) -> Config:
    """``config`` with the named leaves replaced; raises ``ConfigError`` for an unknown name or a wrong value.

    With ``join`` entries of a mapping (``env_settings``) stand beside those that are there, so that a preset's stay; an empty one
    takes all away.
    """
    changes: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    for name, value in settings.items():
        if name not in LEAVES:
            raise unknown(name)
        leaf, value = LEAVES[name], coerce(LEAVES[name], value)
        if join and isinstance(value, dict) and value:
            value = {**getattr(getattr(config, leaf.group), name), **value}
        changes[leaf.group][name] = value
    return Config(**{group: dataclasses.replace(getattr(config, group), **changes[group]) for group in GROUPS})


def from_mapping(mapping: Any, base: Config, source: str) -> Config:
    """``base`` overridden by a tree ``{group: {name: value}}``; ``source`` names the file in errors. A mapping of settings is
    taken whole, so that the saved settings of a run are that run's again."""
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{source}: expected groups of settings ({', '.join(GROUPS)}), found {type(mapping).__name__}.")
    settings: dict[str, Any] = {}
    for group, content in mapping.items():
        if group not in GROUPS:
            if group in LEAVES:
                raise ConfigError(f"{source}: {group} stands at the top level; it belongs under `{LEAVES[group].group}:`.")
            raise ConfigError(
                f"{source}: unknown group {shown(group)}{nearest(str(group)[:80], GROUPS)}; the groups are {', '.join(GROUPS)}."
            )
        if not isinstance(content, Mapping):
            raise ConfigError(f"{source}: under {group!r} expected settings as name: value, found {shown(content)}.")
        for name, value in content.items():
            if name not in LEAVES or LEAVES[name].group != group:
                raise unknown(str(name), f" under {group!r} in {source}")
            if takes_own(LEAVES[name].type) and not isinstance(value, str):  # a date of YAML's, as, is no code
                raise ConfigError(f"{source}: {name} = {shown(value)}: expected a word, or a name as {NAMED}.")
            settings[name] = value
    try:
        return override(base, settings, join=False)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def to_mapping(config: Config) -> dict[str, dict[str, Any]]:
    """The tree as plain numbers, text and lists: YAML and JSON can hold it, ``from_mapping`` reads it."""

    def plain(value: Any) -> Any:
        if isinstance(value, ScheduleText):
            return value.plain()
        if isinstance(value, Own):
            return str(value)
        return list(value) if isinstance(value, tuple) else value

    return {
        group: {f.name: plain(getattr(getattr(config, group), f.name)) for f in dataclasses.fields(cls)}
        for group, cls in GROUPS.items()
    }
