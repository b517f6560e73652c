"""All settings with their defaults, help texts and ranges: a tree of frozen dataclasses.

The name of a setting (a leaf of the tree) is unique, so that a flag (``--num-envs 16``) or a keyword (``num_envs=16``) needs no group.
YAML files have groups (``env: {num_envs: 16}``).

To add a setting, declare it here and use it. The update reads a setting of ``PPOConfig`` from ``state.hyperparameters`` if it is declared as
``traced`` (then it is a field of ``ppo.Hyperparameters``, too), and from ``state.static.ppo`` otherwise.
With ``zero_is_off`` it is None there if it is off. Terms of the loss get traced settings as ``minibatch.hyperparameters``.
``CONDITIONS`` in ``validation.py`` lists what a setting needs to have an effect; ``GYMNASIUM_ONLY`` and ``RUN_DIRECTORY`` below and
``RESUMABLE`` in ``loading.py`` list settings of a kind. ``docs/settings.md`` and ``typed_settings.py`` are
generated from here, by ``python docs/tables.py`` and ``python tests/config/test_typed_settings.py``.
"""

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from proximo.config.coercion import Leaf, ScheduleText, text_of
from proximo.config.custom import Custom, resolve

Activation = Literal[
    "celu", "elu", "gelu", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "identity", "leaky_relu", "log_sigmoid", "mish", "relu",
    "relu6", "selu", "sigmoid", "silu", "soft_sign", "softplus", "sparse_plus", "sparse_sigmoid", "squareplus", "swish", "tanh",
]  # fmt: skip
"""The functions of ``jax.nn`` that map one number to one number."""
MEMORIES = {"gru": "gru:GRU", "lstm": "lstm:LSTM", "mingru": "mingru:MinGRU", "lru": "lru:LRU", "gtrxl": "gtrxl:GTrXL"}
"""The built-in memories by their word: the module in ``networks.recurrent``, and its class."""
if TYPE_CHECKING:
    Memory = str
else:
    Memory = Literal["none", *MEMORIES]
MAX_SEED = 2**32 - 1  # random keys use 32 bits of a seed: a larger seed would repeat a smaller one


def _setting(default: Any, help: str, low: float | None = None, high: float | None = None, **more: Any) -> Any:
    """A setting with its default, help text and range, ``low <= value <= high``; ``Leaf`` describes the other arguments."""
    initial: Any = {"default_factory": default.copy} if isinstance(default, dict) else {"default": default}
    return field(**initial, metadata={"help": help, "low": low, "high": high, **more})


# A table: with one argument on each line, it would be twice as long.
# fmt: off

@dataclass(frozen=True)
class Entries:
    """The value of a setting with entries, which are declared like settings and named ``SETTING.ENTRY``."""

    def __str__(self) -> str:
        """The entries that differ from their defaults, as a user writes them."""
        return text_of({f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default})

    def plain(self) -> dict[str, Any]:
        """The value for a settings file."""
        return dict(vars(self))


@dataclass(frozen=True)
class WorkerSettings(Entries):
    """Limits of worker processes and Ray actors."""

    step_timeout: float = _setting(60.0,
        "seconds that a step may take before its worker is restarted; ten times as many to make or reset "
        "environments", above=0)
    max_restarts: int = _setting(100,
        "lost workers and actors that are restarted before training stops", low=0, high=10**6)


@dataclass(frozen=True)
class ObjectiveSettings(Entries):
    """Settings of the built-in objectives."""

    dual_clip: float = _setting(0.0,
        "for negative advantages, the loss grows only up to this ratio, above 1; 0: off",
        low=0, traced=True, zero_is_off=True, of=("clip",))
    kl_coef: float = _setting(1.0,
        "initial weight β of the divergence; it is halved or doubled after an update that misses kl_target by "
        "a factor of 1.5", above=0, of=("kl_penalty",))
    kl_target: float = _setting(0.01,
        "divergence per update that β is adapted to; 0: β is constant", low=0, traced=True, of=("kl_penalty",))


@dataclass(frozen=True)
class OptimizerSettings(Entries):
    """Settings of adam and adamw."""

    b1: float = _setting(0.9, "decay β₁ of the mean of the gradient", low=0, high=0.999999)
    b2: float = _setting(0.999, "decay β₂ of the mean of the squared gradient", low=0, high=0.999999)
    eps: float = _setting(1e-5, "ε that is added to the denominator", above=0)
    amsgrad: bool = _setting(False, "divide by the largest mean of the squared gradient so far, not by the present one")
    weight_decay: float = _setting(0.0,
        "decoupled decay of weight matrices and convolution kernels", low=0, traced=True, of=("adamw",))


@dataclass(frozen=True)
class MemorySettings(Entries):
    """Settings of the built-in memories."""

    layers: int = _setting(1, "number of stacked layers", low=1, high=32)
    horizon: int = _setting(0,
        "time constants of the units before training, drawn from 2 to this many steps (2: biases of 0); 0: 2 "
        "steps (gru) or 4 steps (lstm)", low=0, of=("gru", "lstm"))
    window: int = _setting(32, "number of previous steps that each layer reads", low=1, high=4096, of=("gtrxl",))
    heads: int = _setting(4, "number of attention heads", low=1, high=256, of=("gtrxl",))
    gate: Literal["gru", "identity"] = _setting("gru",
        "how a layer's output is added to its input; gru: by gates that are nearly closed at first; identity: "
        "by addition", of=("gtrxl",))


@dataclass(frozen=True)
class EnvConfig:
    """The environment, and how it is stepped."""

    id: str = _setting("", "environment id, as listed by `proximo envs`")
    num_envs: int = _setting(8, "number of environments stepped together", low=1, high=10**7)
    max_episode_steps: int = _setting(0,
        "truncate episodes after this many steps, in addition to the environment's limit; 0: off",
        low=0, high=2**32 - 2)
    stagger_steps: int = _setting(0,
        "truncate the first episode of each environment after 1 to this many steps, at random, so that "
        "episodes do not end together; first episodes enter no statistics; 0: off", low=0, high=2**31 - 2)
    preprocessing: Literal["none", "atari"] = _setting("none",
        "atari: 84×84 gray images, 4 frames per step with the maximum of the last two, up to 30 no-ops "
        "after a reset; the default of ids such as ALE/Pong-v5, with frame_stack = 4")
    frame_stack: int = _setting(1,
        "number of last observations that are stacked along a new first axis", low=1, high=1000)
    action_repeat: int = _setting(1,
        "steps for which each action is repeated; their rewards are summed", low=1, high=1000)
    levels: str = _setting("",
        "seeds of episodes, such as 0:100 for 0 … 99: each reset gets one of them; empty: any seed")
    wrappers: tuple[str, ...] = _setting((),
        "wrappers, the innermost first: my_package.module:MyWrapper or …:MyWrapper(name=value)")
    drop_observations: tuple[str, ...] = _setting((),
        "entries of Dict and Tuple observations that are left out, such as mission, camera.label or 0")
    life_loss: bool = _setting(False,
        "treat a lost life as a termination when learning; the episode continues")
    randomize: Literal["none"] | Custom = _setting("none",
        "a function, or its name my_package.module:my_function, that draws parameters of the environment at each reset; JAX environments: "
        "(key, params) -> params; Gymnasium environments: (rng) -> dict, the options of reset")
    opponents: Literal["current", "past"] = _setting("current",
        "opponent in two-player games; current: the current policy; past: the current policy or, with probability 1/2 in each rollout, "
        "one of 16 past policies, copies from earlier in the training")
    agent_id: bool = _setting(False,
        "add the entry agent_id, which is one-hot, to the observation of each of several agents")
    num_workers: int = _setting(-1,
        "worker processes that step environments; 0: none, the main process steps them; -1: one for each "
        "core, but not more than environments, and none for Gymnasium's classic control and toy text",
        low=-1, high=1024)
    overlap: bool = _setting(False,
        "divide the environments into two halves: the policy acts for one while the other steps")
    worker_settings: WorkerSettings = _setting(WorkerSettings(), "limits of worker processes and Ray actors")
    actors: int = _setting(0,
        "Ray actors (processes, not the network `actor`) that step the environments, an equal part each, on "
        "the machines of the Ray cluster at RAY_ADDRESS; 0: none", low=0, high=10**5)
    env_settings: dict[str, Any] = _setting({},
        "parameters of the environment itself, as key=value,key=value; they are added to the preset's")


@dataclass(frozen=True)
class PPOConfig:
    """Proximal Policy Optimization (Schulman et al. 2017, arXiv:1707.06347)."""

    total_steps: int = _setting(1_000_000,
        "environment steps of the whole training", low=1, high=10**15, traced=True)
    total_updates: int = _setting(0,
        "updates of the whole training, instead of total_steps; 0: total_steps", low=0, high=10**12)
    num_steps: int = _setting(128, "steps of each environment in a rollout", low=1, high=10**7)
    num_epochs: int = _setting(4, "passes over each rollout", low=1, high=10**4)
    num_minibatches: int = _setting(4, "minibatches in an epoch", low=1, high=10**7)
    minibatch_size: int = _setting(0,
        "steps of all agents in a minibatch, instead of num_minibatches; 0: num_minibatches", low=0, high=2**31)
    learning_rate: ScheduleText | Custom = _setting(ScheduleText("3e-4"),
        "learning rate: a number, linear(from, to), polynomial(from, to, power), exponential(from, to), or "
        "a function", low=0, traced=True)
    gamma: float = _setting(0.99, "discount factor γ", low=0, high=1, traced=True)
    gae_lambda: float = _setting(0.95, "λ of generalized advantage estimation", low=0, high=1, traced=True)
    clip_eps: ScheduleText | Custom = _setting(ScheduleText("0.2"),
        "clip range ε of the probability ratio; may be a schedule", low=0, traced=True)
    clip_value_eps: ScheduleText | Custom = _setting(ScheduleText("0.0"),
        "clip range of the value loss; may be a schedule; 0: off", low=0, traced=True, zero_is_off=True)
    ent_coef: ScheduleText | Custom = _setting(ScheduleText("0.0"),
        "weight of the entropy bonus; may be a schedule", low=0, traced=True)
    vf_coef: float = _setting(0.5, "weight of the value loss", low=0, traced=True)
    max_grad_norm: float = _setting(0.5,
        "largest global norm of the gradient; larger gradients are scaled down to it", above=0, traced=True)
    target_kl: float = _setting(0.0,
        "discard a gradient step whose approximate KL divergence exceeds this, and skip the later ones of "
        "the update; 0: off", low=0, traced=True, zero_is_off=True)
    normalize_advantage: Literal["none", "batch", "minibatch"] = _setting("minibatch",
        "normalize advantages over the whole rollout (batch) or over each minibatch")
    normalize_observation: bool | Literal["auto"] = _setting("auto",
        "normalize floating-point observations to mean 0 and variance 1, by running statistics inside the "
        "policy; auto: only those with at most two axes, such as vectors and stacked vectors")
    clip_observation: float = _setting(0.0,
        "clip observations to ± this after normalization; 0: ± 10 if normalized, otherwise off", low=0)
    clip_reward: Literal["none", "sign"] = _setting("none",
        "sign: learn from the sign of each reward, -1, 0 or 1; reported returns are not affected")
    reward_scale: float = _setting(1.0,
        "factor of all rewards, applied before clip_reward and normalize_reward; reported returns are not "
        "affected", above=0, high=1e30)
    normalize_reward: bool | Literal["auto"] = _setting("auto",
        "divide rewards by the standard deviation of the discounted return; auto: unless clip_reward is set")
    recompute_advantage: bool = _setting(False,
        "recompute values and advantages before every epoch; clip_value_eps still clips around the "
        "collected values")
    sequence_length: int = _setting(0,
        "steps of backpropagation through time for a memory; 0 or -1: the whole rollout", low=-1)
    burn_in: int = _setting(0,
        "steps before each sequence that only update the memory, without loss or gradient", low=0)
    refresh_memory: bool = _setting(False,
        "recompute the memory before each sequence with the current parameters, before every epoch")
    learner_lag: int = _setting(0,
        "1: collect the next rollout during each update, with the policy from before the update", low=0, high=1)
    objective: Literal["clip", "spo", "kl_penalty"] | Custom = _setting("clip",
        "clip: the clipped surrogate; spo: a quadratic penalty instead of clipping (simple policy optimization); "
        "kl_penalty: the surrogate minus kl_coef times the KL divergence; or a custom function")
    objective_settings: ObjectiveSettings = _setting(ObjectiveSettings(), "settings of the objective")
    extra_loss: Literal["none"] | Custom = _setting("none", "a custom loss that is added to the objective")
    desired_kl: float = _setting(0.0,
        "adapt the learning rate after each update, within 1e-5 … 1e-2, to keep the approximate KL "
        "divergence near this; 0: off", low=0, traced=True, zero_is_off=True)
    rpo_alpha: float = _setting(0.0,
        "continuous actions: while learning, means are moved by uniform noise of up to ± this (robust policy "
        "optimization), for actions scaled to -1 … 1; 0: off", low=0, traced=True, zero_is_off=True)
    critic_learning_rate: ScheduleText | Custom = _setting(ScheduleText("0.0"),
        "learning rate of the parameters that only the value function uses, a number or a schedule; 0: "
        "learning_rate", low=0, traced=True, zero_is_off=True)
    optimizer: Literal["adam", "adamw"] | Custom = _setting("adam",
        "adam; adamw, with decay of the weights; or an optax transformation, or a function that makes one "
        "from the learning rate, such as optax:lion")
    critic_optimizer: Literal["same", "adam", "adamw"] | Custom = _setting("same",
        "optimizer of the parameters that only the value function uses; same: optimizer")
    critic_max_grad_norm: float = _setting(0.0,
        "largest norm of the gradient of the parameters that only the value function uses; 0: max_grad_norm "
        "limits one norm over all", low=0, traced=True, zero_is_off=True)

    optimizer_settings: OptimizerSettings = _setting(OptimizerSettings(), "settings of adam and adamw")

    @property
    def normalizes_reward(self) -> bool:
        """Whether rewards are normalized."""
        return self.clip_reward == "none" if self.normalize_reward == "auto" else self.normalize_reward


ALTERNATIVES = {"total_updates": "total_steps", "minibatch_size": "num_minibatches"}
"""Settings that are another way to give one. ``validate`` replaces them, so saved settings do not have them."""


@dataclass(frozen=True)
class NetworkConfig:
    """The policy: encoder, memory and heads."""

    encoder: Literal["auto", "mlp", "nature_cnn", "impala_cnn", "small_cnn"] | Custom = _setting("auto",
        "auto: nature_cnn for uint8 images, small_cnn for those below 36×36 with three axes, mlp for other "
        "observations; or a custom encoder")
    hidden_sizes: tuple[int, ...] = _setting((64, 64),
        "sizes of the layers of the MLP encoder, such as 64,64; none: vectors go to the memory, or to the "
        "heads, as they are", low=1, high=65_536)
    critic_hidden_sizes: tuple[int, ...] | Literal["same"] = _setting("same",
        "hidden_sizes of the value function, with separate towers; same: hidden_sizes", low=1, high=65_536)
    cnn_features: int = _setting(-1,
        "units of the dense layer after the convolutions; 0: no such layer; -1: as in the paper, 512 "
        "(nature_cnn), 256 (impala_cnn), 128 (small_cnn)", low=-1, high=65_536)
    activation: Activation = _setting("tanh",
        "activation function after each layer of an MLP, from jax.nn; CNNs have ReLU")
    layer_norm: bool = _setting(False,
        "normalize the output of each hidden dense layer before its activation, but not convolutions")
    towers: Literal["separate", "shared"] = _setting("separate",
        "separate: policy and value function have an encoder and a memory each; shared: they share one of each")
    privileged: tuple[str, ...] = _setting((),
        "entries of a Dict observation that only the value function reads, such as state,goal")
    memory: Memory | Custom = _setting("none",
        "memory of the policy; or a custom cell")
    memory_size: int = _setting(128, "units of the memory", low=1, high=65_536)
    memory_settings: MemorySettings = _setting(MemorySettings(), "settings of a built-in memory")
    reset_memory: bool = _setting(True,
        "start every episode with an empty memory; false: carry the memory over to the next episode")
    observe_action: bool = _setting(False, "the policy also observes its previous action")
    observe_reward: bool = _setting(False, "the policy also observes the previous reward")
    shared_sizes: tuple[int, ...] = _setting((),
        "sizes of the hidden layers that policy and value share after the memory; needs towers = shared", low=1, high=65_536)
    head_sizes: tuple[int, ...] = _setting((),
        "sizes of the hidden layers of each head, after the memory", low=1, high=65_536)
    critic_head_sizes: tuple[int, ...] | Literal["same"] = _setting("same",
        "head_sizes of the value function; same: head_sizes", low=1, high=65_536)
    actor: Literal["auto"] | Custom = _setting("auto",
        "head from features to the parameters of the distribution: auto, or a custom network")
    critic: Literal["auto"] | Custom = _setting("auto",
        "head from features to the value: auto, or a custom network")
    actor_critic: Literal["none"] | Custom = _setting("none",
        "a custom network that replaces encoder, memory, actor and critic")
    distribution: Literal["auto", "beta"] | Custom = _setting("auto",
        "distribution of actions; auto: Gaussian, categorical or Bernoulli, by the action space; beta: for "
        "bounded Box actions; or a custom one")
    action_mapping: Literal["clip", "tanh"] = _setting("clip",
        "how a Gaussian sample is mapped to a bounded action space: clipped, or squashed by tanh")
    state_dependent_std: bool = _setting(False,
        "the standard deviation of the Gaussian depends on the observation")
    log_std_init: float = _setting(0.0,
        "logarithm of the initial standard deviation of the Gaussian, for actions scaled to -1 … 1",
        low=-20, high=2)
    action_relevance: tuple[str, ...] = _setting((),
        "for actions of several parts: a row of digits for each choice of the first Discrete part, with 1 for each number of the Box "
        "parts that this choice uses, such as 10,01,00; empty: every choice uses all")
    sde_every: int = _setting(0,
        "continuous actions: exploration noise is a function of the features (gSDE), sampled again after "
        "this many steps of a rollout; 0: off", low=0, high=10**6)
    compute_dtype: Literal["float32", "bfloat16"] = _setting("float32",
        "number format in encoders and memories; bfloat16 trains images faster on some CPUs, less precisely")

    @property
    def for_critic(self) -> Self:
        """These settings with the sizes of the value function's layers in place of the policy's."""
        sizes = {"hidden_sizes": self.critic_hidden_sizes, "head_sizes": self.critic_head_sizes}
        return replace(self, **{name: value for name, value in sizes.items() if value != "same"})

    @property
    def remembers(self) -> bool:
        """Whether there is a memory. Raises ``ConfigError`` if a custom network is not found."""
        if self.actor_critic != "none":
            return hasattr(resolve("actor_critic", self.actor_critic, ()), "step")
        return self.memory != "none"


@dataclass(frozen=True)
class RunConfig:
    """The run directory, and everything besides learning: seeds, evaluation, checkpoints, tracking."""

    seed: int = _setting(0,
        "random seed of the run; with seeds=K, the first of K consecutive seeds", low=0, high=MAX_SEED)
    seeds: int = _setting(1, "number of independent seeds to train", low=1, high=1000)
    seeds_mode: Literal["auto", "vmap", "serial"] = _setting("auto",
        "vmap: train all seeds in one compiled program; serial: one after the other; auto: vmap for JAX "
        "environments")
    devices: int | Literal["all"] = _setting(1,
        "devices that share the training: their number, or all; each has an equal part of the environments "
        "and of every minibatch, so that the learning problem stays the same", low=1, high=10**5)
    runs_dir: str = _setting("runs", "folder of all runs")
    name: str = _setting("", "name of the run; empty: date and time")
    updates_per_call: int = _setting(0,
        "maximum number of updates in one compiled call, and in one row of metrics; 0: 64 in a call, and a "
        "hundredth of the run, at most 64, in a row", low=0, high=10**5)
    eval_every: int = _setting(0,
        "environment steps between evaluations; 0: a tenth of the run. On Gymnasium environments, 0 also "
        "limits the evaluations before the end to a tenth of the steps: they play fewer episodes, or are "
        "left out", low=0)
    eval_episodes: int = _setting(32,
        "episodes in each evaluation, see eval_every; 0: no evaluation, not even at the end",
        low=0, high=10**6)
    eval_env: str = _setting("",
        "environment of the evaluations, with the same spaces; empty: the training's environment")
    eval_env_settings: dict[str, Any] = _setting({},
        "parameters of the evaluations' environment, as key=value,key=value, added to env_settings")
    eval_num_envs: int = _setting(0,
        "environments that play an evaluation together; 0: num_envs on Gymnasium, up to 512 on JAX",
        low=0, high=10**5)
    eval_max_steps: int = _setting(0,
        "steps after which an evaluation episode is stopped, with the return so far; 0: 100,000",
        low=0, high=10**8)
    diagnose_every: int = _setting(0,
        "updates between measurements of memory/staleness and memory/use; 0: at most fifty measurements in "
        "the run; -1: off", low=-1)
    checkpoint_every: int = _setting(0,
        "environment steps between checkpoints; 0: a checkpoint with every evaluation", low=0)
    keep_checkpoints: int = _setting(3,
        "number of newest checkpoints to keep, in addition to the best; at least 2", low=2)
    tensorboard: bool = _setting(True, "write TensorBoard events")
    track: str = _setting("none",
        "trackers besides TensorBoard: csv, wandb, my_package.module:MyTracker; separated by commas")
    histograms: bool = _setting(False,
        "record histograms of returns, advantages, ratios, actions, observations, and returns and lengths "
        "of episodes, at most fifty times in the run")
    video_every: int = _setting(0,
        "environment steps between videos of a greedy episode (videos/, TensorBoard); 0: no videos", low=0)
    matmul_precision: Literal["default", "high", "highest"] = _setting("default",
        "precision of matrix products")


# fmt: on
GIVEN = "given"
"""The origin of settings that the user gave by name: as flags, or in Python."""
OF_PRESET = "the preset of {}"
"""The origin of settings from the preset of an environment."""


@dataclass(frozen=True)
class Config:
    """The resolved settings of a run. As a mapping they are a valid ``--config`` file."""

    env: EnvConfig = field(default_factory=EnvConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    run: RunConfig = field(default_factory=RunConfig)
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The origin of each setting that a layer has. It is not saved."""
    given: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The settings that the user gave by name, as they were given. It is not saved."""

    @property
    def started_from(self) -> str:
        """What the settings are based on, such as ``the preset of CartPole-v1, then my.yaml``. It may be empty."""
        return ", then ".join(origin for origin in dict.fromkeys(self.origins.values()) if origin != GIVEN)

    @property
    def batch_size(self) -> int:
        """Environment steps of one update."""
        return self.env.num_envs * self.ppo.num_steps

    @property
    def total_updates(self) -> int:
        """Updates of the whole training: as many as fit into ``total_steps``, and at least one."""
        return max(1, self.ppo.total_steps // self.batch_size)

    @property
    def sequence_length(self) -> int:
        """Steps of each training sequence; 1 without a memory, whatever the setting."""
        if not self.network.remembers:
            return 1
        return self.ppo.sequence_length if self.ppo.sequence_length > 0 else self.ppo.num_steps

    @property
    def diagnose_every(self) -> int:
        """Updates between two diagnoses of the memory; 0: never."""
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
    def shares_program(self) -> bool:
        """Whether several seeds of a JAX environment train in one program on one device."""
        return self.run.seeds > 1 and self.run.seeds_mode != "serial" and self.run.devices == 1

    @property
    def updates_per_call(self) -> int:
        """Maximum number of updates in one compiled call."""
        return self.run.updates_per_call or MAX_UPDATES

    @property
    def updates_per_row(self) -> int:
        """Maximum number of updates in one row of metrics."""
        return self.run.updates_per_call or max(1, min(MAX_UPDATES, self.total_updates // 100))


MAX_UPDATES = 64
"""The default of ``updates_per_call``. More updates in a call save nothing."""
GROUPS: dict[str, Any] = {name: cls for name, cls in typing.get_type_hints(Config).items() if is_dataclass(cls)}


def _leaves(group: str, cls: type, prefix: str = "") -> Iterator[Leaf]:
    types, defaults = typing.get_type_hints(cls), cls()
    for f in fields(cls):
        default, options = getattr(defaults, f.name), dict(f.metadata)
        if options.get("of"):
            options["help"] = f"{' and '.join(options['of'])}: {options['help']}"
        if isinstance(default, Entries):
            options["entries"] = entries = tuple(_leaves(group, types[f.name], f"{f.name}."))
            options["help"] += f": {', '.join(entry.entry for entry in entries)}"
        yield Leaf(group, prefix + f.name, types[f.name], default, **options)


LEAVES: dict[str, Leaf] = {leaf.name: leaf for group, cls in GROUPS.items() for leaf in _leaves(group, cls)}
"""All settings by name, in the order of the tree."""
ENTRIES: dict[str, Leaf] = {entry.name: entry for leaf in LEAVES.values() for entry in leaf.entries}
"""All entries of settings by name, such as ``memory_settings.window``."""
BY_NAME = LEAVES | ENTRIES
WORKER_SETTINGS = ("num_workers", "worker_settings", "actors")
"""Settings of worker processes and Ray actors: how fast training is, and not what it learns."""
_PREFIXES = {"worker_settings": "", "objective_settings": "", "optimizer_settings": "adam_", "memory_settings": "memory_"}
RENAMED = {_PREFIXES[entry.name.partition(".")[0]] + entry.entry: name for name, entry in ENTRIES.items()}
RENAMED["weight_decay"] = "optimizer_settings.weight_decay"
"""Names of earlier versions, which files may still have, with the present ones. Elsewhere, they raise an error
that gives the present one."""
REMOVED = {"ray": "auto", "actor_cpus": 0.0, "reset_timeout": 600.0}
"""Settings of earlier versions that files may still have, with the value that is now the only behavior."""
GYMNASIUM_ONLY = (
    "preprocessing", "frame_stack", "action_repeat", "wrappers", "drop_observations", "life_loss", *WORKER_SETTINGS, "overlap", "learner_lag",
)  # fmt: skip
"""Settings that have no effect on JAX environments."""
RUN_DIRECTORY = (
    "seeds", "seeds_mode", "runs_dir", "name", "checkpoint_every", "keep_checkpoints", "tensorboard", "track", "histograms", "video_every",
)  # fmt: skip
"""Settings of run directories, which an agent does not have."""
