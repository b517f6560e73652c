"""The settings as keyword arguments, for editors and type checkers.

The file is generated from ``schema.py``: ``python tests/config/test_typed_settings.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from proximo.config.schema import Activation


class ResumeAgentSettings(TypedDict, total=False):
    """Settings of an agent that a resume may change, and custom code, which may be passed again."""

    randomize: Literal["none"] | object
    num_workers: int
    worker_settings: Mapping[str, Any] | str
    actors: int
    total_steps: int
    total_updates: int
    learning_rate: float | str | Callable[[Any], Any]
    clip_eps: float | str | Callable[[Any], Any]
    clip_value_eps: float | str | Callable[[Any], Any]
    ent_coef: float | str | Callable[[Any], Any]
    objective: Literal["clip", "spo", "kl_penalty"] | object
    extra_loss: Literal["none"] | object
    critic_learning_rate: float | str | Callable[[Any], Any]
    optimizer: Literal["adam", "adamw"] | object
    critic_optimizer: Literal["same", "adam", "adamw"] | object
    encoder: Literal["auto", "mlp", "nature_cnn", "impala_cnn", "small_cnn"] | object
    memory: Literal["none", "gru", "lstm", "mingru", "lru", "gtrxl"] | object
    actor: Literal["auto"] | object
    critic: Literal["auto"] | object
    actor_critic: Literal["none"] | object
    distribution: Literal["auto", "beta"] | object
    devices: int | Literal["all"]
    updates_per_call: int
    eval_every: int
    eval_episodes: int
    eval_num_envs: int
    eval_max_steps: int


class ResumeRunSettings(TypedDict, total=False):
    """Settings of run directories that a resume may change."""

    eval_env: str
    checkpoint_every: int
    keep_checkpoints: int
    tensorboard: bool
    track: str
    histograms: bool
    video_every: int


class AgentSettings(ResumeAgentSettings, total=False):
    """Settings of an agent: all except settings of run directories."""

    num_envs: int
    max_episode_steps: int
    stagger_steps: int
    preprocessing: Literal["none", "atari"]
    frame_stack: int
    action_repeat: int
    levels: str
    wrappers: Sequence[str]
    drop_observations: Sequence[str]
    life_loss: bool
    opponents: Literal["current", "past"]
    agent_id: bool
    overlap: bool
    env_settings: Mapping[str, Any] | str
    num_steps: int
    num_epochs: int
    num_minibatches: int
    minibatch_size: int
    gamma: float
    gae_lambda: float
    vf_coef: float
    max_grad_norm: float
    target_kl: float
    normalize_advantage: Literal["none", "batch", "minibatch"]
    normalize_observation: bool | Literal["auto"]
    clip_observation: float
    clip_reward: Literal["none", "sign"]
    reward_scale: float
    normalize_reward: bool | Literal["auto"]
    recompute_advantage: bool
    sequence_length: int
    burn_in: int
    refresh_memory: bool
    learner_lag: int
    objective_settings: Mapping[str, Any] | str
    desired_kl: float
    rpo_alpha: float
    critic_max_grad_norm: float
    optimizer_settings: Mapping[str, Any] | str
    hidden_sizes: int | Sequence[int] | str
    critic_hidden_sizes: int | Sequence[int] | str
    cnn_features: int
    activation: Activation
    layer_norm: bool
    towers: Literal["separate", "shared"]
    privileged: Sequence[str]
    memory_size: int
    memory_settings: Mapping[str, Any] | str
    reset_memory: bool
    observe_action: bool
    observe_reward: bool
    shared_sizes: int | Sequence[int] | str
    head_sizes: int | Sequence[int] | str
    critic_head_sizes: int | Sequence[int] | str
    action_mapping: Literal["clip", "tanh"]
    state_dependent_std: bool
    log_std_init: float
    action_relevance: Sequence[str]
    sde_every: int
    compute_dtype: Literal["float32", "bfloat16"]
    seed: int
    eval_env_settings: Mapping[str, Any] | str
    diagnose_every: int
    matmul_precision: Literal["default", "high", "highest"]


class Settings(AgentSettings, ResumeRunSettings, total=False):
    """Settings of a training."""

    seeds: int
    seeds_mode: Literal["auto", "vmap", "serial"]
    runs_dir: str
    name: str


class ResumeSettings(ResumeAgentSettings, ResumeRunSettings, total=False):
    """Settings of a training that a resume may change, and custom code, which may be passed again."""
