"""What other libraries call their settings: known to error messages, and to the pages for those who come from them, only."""

from __future__ import annotations

FOREIGN_NAMES = {
    "share_features_extractor": "towers", "shared_lstm": "towers", "enable_critic_lstm": "towers", "squash_output": "action_mapping", "tensorboard_log": "tensorboard", "activation_fn": "activation",
    "optimizer_class": "optimizer", "optimizer_kwargs": "optimizer", "n_eval_episodes": "eval_episodes", "eval_freq": "eval_every",
    "clip_range": "clip_eps", "clip_coef": "clip_eps", "clip_range_vf": "clip_value_eps", "n_steps": "num_steps",
    "n_epochs": "num_epochs", "update_epochs": "num_epochs", "n_envs": "num_envs", "lr": "learning_rate",
    "batch_size": "num_minibatches", "minibatch_size": "num_minibatches", "ent_weight": "ent_coef",
    "total_timesteps": "total_steps", "timesteps": "total_steps", "value_coef": "vf_coef", "lambda": "gae_lambda",
    "lam": "gae_lambda", "discount": "gamma", "rollout_length": "num_steps", "seq_len": "sequence_length",
    "n_layers": "hidden_sizes", "net_arch": "hidden_sizes", "entropy_coef": "ent_coef", "max_gradient_norm": "max_grad_norm",
    "normalize_env": "normalize_observation", "norm_obs": "normalize_observation", "norm_reward": "normalize_reward", "clip_obs": "clip_observation",
    "norm_adv": "normalize_advantage", "normalize_adv": "normalize_advantage", "anneal_lr": "learning_rate", "n_seeds": "seeds", "rnn": "memory", "lstm_hidden_size": "memory_size", "hidden_size": "memory_size",
    "rnn_type": "memory", "hidden_state_size": "memory_size", "n_lstm_layers": "memory_layers", "use_sde": "sde_every", "sde_sample_freq": "sde_every", "kl_coeff": "kl_coef", "kl_penalty": "objective",
    "features_extractor_class": "encoder", "feature_extractor": "encoder", "kl_weight": "kl_coef", "critic_lr": "critic_learning_rate", "use_beta": "distribution",
    "memory_length": "memory_window", "context_length": "memory_window", "num_heads": "memory_heads", "reset_hidden_state": "reset_memory",
}  # fmt: skip

ANSWERS = {
    "policy": "there is none to choose: the networks follow from the environment's spaces and from the group network, as hidden_sizes and memory.",
    "policy_kwargs": "what it holds are settings by themselves, as hidden_sizes, activation and memory.",
    "verbose": "proximo.PPO prints nothing, proximo.train and `proximo train` say how it goes.",
    "device": "JAX chooses it: JAX_PLATFORMS=cpu in the environment of the process asks for another.",
    "stats_window_size": "rollout/return_mean is over the episodes that ended since the row before.",
}
"""Names of theirs that no setting here stands for."""


def answer(name: str) -> str | None:
    """What to say to ``name``; None where it is no name of theirs."""
    if name in ANSWERS:
        return ANSWERS[name]
    if name not in FOREIGN_NAMES:
        return None
    ours = FOREIGN_NAMES[name]
    if ours == "num_minibatches":
        return "give num_minibatches, the parts of num_envs × num_steps rows."
    return f"{name} is called {ours} here."
