"""The settings as keyword arguments, for editors and type checkers.

The file is generated from ``schema.py``: ``python tests/config/test_typed_settings.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict


class AgentSettings(TypedDict, total=False):
    """Settings of an agent: all but those of run directories."""

    num_envs: int
    """number of environments stepped together."""
    max_episode_steps: int
    """truncate episodes after this many steps, in addition to the environment's limit; 0: off."""
    stagger_steps: int
    """truncate the first episode of each environment after 1 to this many steps, at random, so that episodes do not end together; first episodes enter no statistics; 0: off."""
    preprocessing: Literal["none", "atari"]
    """atari: 84×84 gray images, 4 frames per step with the maximum of the last two, up to 30 no-ops after a reset; the default of ids such as ALE/Pong-v5, with frame_stack = 4."""
    frame_stack: int
    """number of last observations that are stacked along a new first axis."""
    action_repeat: int
    """steps for which each action is repeated; their rewards are summed."""
    levels: str
    """range of seeds for episodes, such as 0:100 for 0 … 99: each episode is reset with one of them; empty: any seed."""
    wrappers: Sequence[str]
    """wrappers, the innermost first: my_package.module:MyWrapper or my_package.module:MyWrapper(name=value, name=value)."""
    drop_observations: Sequence[str]
    """entries of Dict and Tuple observations that are left out, such as mission, camera.label or 0."""
    life_loss: bool
    """treat a lost life as a termination when learning; the episode continues."""
    num_workers: int
    """worker processes that step environments; 0: none, the main process steps them; -1: one for each core, but not more than environments, and none for Gymnasium's classic control and toy text."""
    overlap: bool
    """divide the environments into two halves: the policy acts for one while the other steps."""
    step_timeout: float
    """seconds that a step may take before its worker is restarted; ten times as many to make or reset environments."""
    max_restarts: int
    """lost workers and Ray actors that are restarted before training stops."""
    actors: int
    """Ray actors (processes, not the network `actor`) that step the environments, an equal part each, on the machines of the Ray cluster at RAY_ADDRESS; 0: none."""
    env_settings: Mapping[str, Any] | str
    """parameters of the environment itself, as key=value,key=value; they are added to those of the preset."""
    total_steps: int
    """environment steps of the whole training."""
    total_updates: int
    """updates of the whole training, instead of total_steps; 0: total_steps."""
    num_steps: int
    """steps of each environment in a rollout."""
    num_epochs: int
    """passes over each rollout."""
    num_minibatches: int
    """minibatches in an epoch."""
    minibatch_size: int
    """environment steps in a minibatch, instead of num_minibatches; 0: num_minibatches."""
    learning_rate: float | str | Callable[[Any], Any]
    """learning rate: a number, linear(from, to), polynomial(from, to, power), exponential(from, to), or a function."""
    gamma: float
    """discount factor γ."""
    gae_lambda: float
    """λ of generalized advantage estimation."""
    clip_eps: float | str | Callable[[Any], Any]
    """clip range ε of the probability ratio; may be a schedule."""
    clip_value_eps: float | str | Callable[[Any], Any]
    """clip range of the value loss; may be a schedule; 0: off."""
    ent_coef: float | str | Callable[[Any], Any]
    """weight of the entropy bonus; may be a schedule."""
    vf_coef: float
    """weight of the value loss."""
    max_grad_norm: float
    """largest global norm of the gradient; larger gradients are scaled down to it."""
    target_kl: float
    """discard a gradient step whose approximate KL divergence exceeds this, and skip the later ones of the update; 0: off."""
    normalize_advantage: Literal["none", "batch", "minibatch"]
    """normalize advantages over the whole rollout (batch) or over each minibatch."""
    normalize_observation: bool | Literal["auto"]
    """normalize floating-point observations to mean 0 and variance 1, by running statistics inside the policy; auto: those of at most two axes, such as vectors and stacked vectors."""
    clip_observation: float
    """clip observations to ± this after normalization; 0: ± 10 where they are normalized, otherwise off."""
    clip_reward: Literal["none", "sign"]
    """sign: learn from the sign of each reward, -1, 0 or 1; reported returns are not affected."""
    reward_scale: float
    """factor of all rewards, applied before clip_reward and normalize_reward; reported returns are not affected."""
    normalize_reward: bool | Literal["auto"]
    """divide rewards by the standard deviation of the discounted return; auto: unless clip_reward is set."""
    recompute_advantage: bool
    """recompute values and advantages before every epoch; clip_value_eps still clips around the collected values."""
    sequence_length: int
    """steps of backpropagation through time for a memory; 0 or -1: the whole rollout."""
    burn_in: int
    """steps before each sequence that only update the memory, without loss or gradient."""
    refresh_memory: bool
    """recompute the memory before each sequence with the current parameters, before every epoch."""
    learner_lag: int
    """1: collect the next rollout during each update, with the policy from before the update."""
    objective: Literal["clip", "kl_penalty"] | object
    """clip: the clipped surrogate; kl_penalty: the surrogate minus kl_coef times the KL divergence; or a custom function."""
    dual_clip: float
    """clip: for negative advantages, the loss grows only up to this ratio, above 1; 0: off."""
    kl_coef: float
    """kl_penalty: initial weight β of the divergence; it is halved or doubled after an update that misses kl_target by a factor of 1.5."""
    kl_target: float
    """kl_penalty: divergence per update that kl_coef is adapted to; 0: kl_coef is constant."""
    extra_loss: Literal["none"] | object
    """a custom loss that is added to the objective."""
    desired_kl: float
    """adapt the learning rate after each update, within 1e-5 … 1e-2, to keep the approximate KL divergence near this; 0: off."""
    critic_learning_rate: float | str | Callable[[Any], Any]
    """learning rate of the parameters that only the value function uses, a number or a schedule; 0: learning_rate."""
    optimizer: Literal["adam", "adamw"] | object
    """adam; adamw, with weight_decay; or an optax transformation, or a function that makes one from the learning rate, such as optax:lion."""
    critic_optimizer: Literal["same", "adam", "adamw"] | object
    """optimizer of the parameters that only the value function uses; same: optimizer."""
    critic_max_grad_norm: float
    """largest norm of the gradient of the parameters that only the value function uses; 0: max_grad_norm limits one norm over all."""
    adam_b1: float
    """adam and adamw: decay β₁ of the mean of the gradient."""
    adam_b2: float
    """adam and adamw: decay β₂ of the mean of the squared gradient."""
    adam_eps: float
    """adam and adamw: ε that is added to the denominator."""
    weight_decay: float
    """adamw: decoupled decay of weight matrices and convolution kernels."""
    encoder: Literal["auto", "mlp", "nature_cnn", "impala_cnn", "small_cnn"] | object
    """auto: nature_cnn for uint8 images, small_cnn for those below 36×36 with three axes, mlp for other observations; or a custom encoder."""
    hidden_sizes: int | Sequence[int] | str
    """sizes of the layers of the MLP encoder, such as 64,64; none: vectors go to the memory, or to the heads, as they are."""
    critic_hidden_sizes: int | Sequence[int] | str
    """hidden_sizes of the value function's tower, with separate towers; same: hidden_sizes."""
    cnn_features: int
    """units of the dense layer after the convolutions; 0: no such layer; -1: as in the paper, 512 (nature_cnn), 256 (impala_cnn), 128 (small_cnn)."""
    activation: Literal[
        "celu",
        "elu",
        "gelu",
        "hard_sigmoid",
        "hard_silu",
        "hard_swish",
        "hard_tanh",
        "identity",
        "leaky_relu",
        "log_sigmoid",
        "mish",
        "relu",
        "relu6",
        "selu",
        "sigmoid",
        "silu",
        "soft_sign",
        "softplus",
        "sparse_plus",
        "sparse_sigmoid",
        "squareplus",
        "swish",
        "tanh",
    ]
    """activation function after each layer of an MLP, from jax.nn; CNNs have ReLU."""
    layer_norm: bool
    """normalize the output of each hidden dense layer before its activation; convolutions are not normalized."""
    towers: Literal["separate", "shared"]
    """separate: one encoder and memory for the policy and one for the value function; shared: one for both."""
    privileged: Sequence[str]
    """entries of a Dict observation that only the value function reads, such as state,goal; the policy acts without them."""
    memory: Literal["none", "gru", "lstm", "mingru", "lru", "gtrxl"] | object
    """memory of the policy; or a custom cell."""
    memory_size: int
    """units of the memory."""
    memory_layers: int
    """number of stacked memory layers."""
    memory_horizon: int
    """gru and lstm: time constants of the units before training, drawn from 2 to this many steps (2: biases of 0); 0: 2 steps (gru) or 4 steps (lstm)."""
    memory_window: int
    """gtrxl: number of previous steps that each layer reads."""
    memory_heads: int
    """gtrxl: number of attention heads."""
    memory_gate: Literal["gru", "identity"]
    """gtrxl: how a layer's output is added to its input; gru: by gates that are nearly closed at first; identity: by addition."""
    reset_memory: bool
    """start every episode with an empty memory; false: carry the memory over to the next episode."""
    observe_action: bool
    """the policy also observes its previous action."""
    observe_reward: bool
    """the policy also observes the previous reward."""
    shared_sizes: int | Sequence[int] | str
    """sizes of hidden layers after the memory that policy and value share, with shared towers."""
    head_sizes: int | Sequence[int] | str
    """sizes of the hidden layers of each head, after the memory."""
    critic_head_sizes: int | Sequence[int] | str
    """head_sizes of the value function; same: head_sizes."""
    actor: Literal["auto"] | object
    """head from features to the parameters of the distribution: auto, or a custom network."""
    critic: Literal["auto"] | object
    """head from features to the value: auto, or a custom network."""
    actor_critic: Literal["none"] | object
    """a custom network that replaces encoder, memory, actor and critic."""
    distribution: Literal["auto", "beta"] | object
    """distribution of actions; auto: Gaussian, categorical or Bernoulli, by the action space; beta: for bounded Box actions; or a custom one."""
    action_mapping: Literal["clip", "tanh"]
    """how a Gaussian sample is mapped to a bounded action space: clipped, or squashed by tanh."""
    state_dependent_std: bool
    """the standard deviation of the Gaussian depends on the observation."""
    log_std_init: float
    """logarithm of the initial standard deviation of the Gaussian, for actions scaled to -1 … 1."""
    sde_every: int
    """continuous actions: exploration noise is a function of the features (gSDE), sampled again after this many steps of a rollout; 0: off."""
    compute_dtype: Literal["float32", "bfloat16"]
    """number format of the computations in encoders and memories; bfloat16 trains images faster on some CPUs, less precisely."""
    seed: int
    """random seed of the run; with seeds=K, the first of K consecutive seeds."""
    devices: int | Literal["all"]
    """devices that share the training: their number, or all; each has an equal part of the environments and of every minibatch, so that the learning problem stays the same."""
    updates_per_call: int
    """maximum number of updates in one compiled call, and in one row of metrics; 0: 64 in a call, and a hundredth of the run, at most 64, in a row."""
    eval_every: int
    """environment steps between evaluations; 0: a tenth of the run. On Gymnasium environments, 0 also limits the evaluations before the end to a tenth of the steps: they play fewer episodes, or are left out."""
    eval_episodes: int
    """episodes in each evaluation, see eval_every; 0: no evaluation, not even at the end."""
    eval_env_settings: Mapping[str, Any] | str
    """parameters of the environment of the evaluations, as key=value,key=value; they are added to those of env_settings."""
    eval_num_envs: int
    """environments that play an evaluation together; 0: num_envs on Gymnasium, up to 512 on JAX."""
    eval_max_steps: int
    """steps after which an evaluation episode is stopped, with the return so far; 0: 100,000."""
    diagnose_every: int
    """updates between measurements of memory/staleness and memory/use; 0: at most fifty measurements in the run; -1: off."""
    matmul_precision: Literal["default", "high", "highest"]
    """precision of matrix products."""


class Settings(AgentSettings, total=False):
    """Settings of a training."""

    seeds: int
    """number of independent seeds to train."""
    seeds_mode: Literal["auto", "vmap", "serial"]
    """vmap: train all seeds in one compiled program; serial: one after the other; auto: vmap for JAX environments."""
    runs_dir: str
    """folder of all runs."""
    name: str
    """name of the run; empty: date and time."""
    checkpoint_every: int
    """environment steps between checkpoints; 0: a checkpoint with every evaluation."""
    keep_checkpoints: int
    """number of newest checkpoints to keep, in addition to the best; at least 2."""
    tensorboard: bool
    """write TensorBoard events."""
    track: str
    """trackers in addition to TensorBoard: csv, wandb, my_package.module:MyTracker; separate several by commas."""
    histograms: bool
    """record histograms of returns, advantages, ratios, actions, observations, and returns and lengths of episodes, at most fifty times in the run."""
    video_every: int
    """environment steps between videos of a greedy episode, in videos/ and TensorBoard; 0: no videos."""
    eval_env: str
    """environment of the evaluations, with the same spaces; empty: that of the training."""


class ResumeSettings(TypedDict, total=False):
    """Settings that a resumed run may change, and custom code, which may be passed again."""

    num_workers: int
    """worker processes that step environments; 0: none, the main process steps them; -1: one for each core, but not more than environments, and none for Gymnasium's classic control and toy text."""
    step_timeout: float
    """seconds that a step may take before its worker is restarted; ten times as many to make or reset environments."""
    max_restarts: int
    """lost workers and Ray actors that are restarted before training stops."""
    actors: int
    """Ray actors (processes, not the network `actor`) that step the environments, an equal part each, on the machines of the Ray cluster at RAY_ADDRESS; 0: none."""
    total_steps: int
    """environment steps of the whole training."""
    total_updates: int
    """updates of the whole training, instead of total_steps; 0: total_steps."""
    learning_rate: object
    """learning rate: a number, linear(from, to), polynomial(from, to, power), exponential(from, to), or a function."""
    clip_eps: object
    """clip range ε of the probability ratio; may be a schedule."""
    clip_value_eps: object
    """clip range of the value loss; may be a schedule; 0: off."""
    ent_coef: object
    """weight of the entropy bonus; may be a schedule."""
    objective: object
    """clip: the clipped surrogate; kl_penalty: the surrogate minus kl_coef times the KL divergence; or a custom function."""
    extra_loss: object
    """a custom loss that is added to the objective."""
    critic_learning_rate: object
    """learning rate of the parameters that only the value function uses, a number or a schedule; 0: learning_rate."""
    optimizer: object
    """adam; adamw, with weight_decay; or an optax transformation, or a function that makes one from the learning rate, such as optax:lion."""
    critic_optimizer: object
    """optimizer of the parameters that only the value function uses; same: optimizer."""
    encoder: object
    """auto: nature_cnn for uint8 images, small_cnn for those below 36×36 with three axes, mlp for other observations; or a custom encoder."""
    memory: object
    """memory of the policy; or a custom cell."""
    actor: object
    """head from features to the parameters of the distribution: auto, or a custom network."""
    critic: object
    """head from features to the value: auto, or a custom network."""
    actor_critic: object
    """a custom network that replaces encoder, memory, actor and critic."""
    distribution: object
    """distribution of actions; auto: Gaussian, categorical or Bernoulli, by the action space; beta: for bounded Box actions; or a custom one."""
    devices: int | Literal["all"]
    """devices that share the training: their number, or all; each has an equal part of the environments and of every minibatch, so that the learning problem stays the same."""
    updates_per_call: int
    """maximum number of updates in one compiled call, and in one row of metrics; 0: 64 in a call, and a hundredth of the run, at most 64, in a row."""
    eval_every: int
    """environment steps between evaluations; 0: a tenth of the run. On Gymnasium environments, 0 also limits the evaluations before the end to a tenth of the steps: they play fewer episodes, or are left out."""
    eval_episodes: int
    """episodes in each evaluation, see eval_every; 0: no evaluation, not even at the end."""
    eval_env: str
    """environment of the evaluations, with the same spaces; empty: that of the training."""
    eval_num_envs: int
    """environments that play an evaluation together; 0: num_envs on Gymnasium, up to 512 on JAX."""
    eval_max_steps: int
    """steps after which an evaluation episode is stopped, with the return so far; 0: 100,000."""
    checkpoint_every: int
    """environment steps between checkpoints; 0: a checkpoint with every evaluation."""
    keep_checkpoints: int
    """number of newest checkpoints to keep, in addition to the best; at least 2."""
    tensorboard: bool
    """write TensorBoard events."""
    track: str
    """trackers in addition to TensorBoard: csv, wandb, my_package.module:MyTracker; separate several by commas."""
    histograms: bool
    """record histograms of returns, advantages, ratios, actions, observations, and returns and lengths of episodes, at most fifty times in the run."""
    video_every: int
    """environment steps between videos of a greedy episode, in videos/ and TensorBoard; 0: no videos."""
