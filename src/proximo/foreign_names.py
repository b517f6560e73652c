"""What other libraries call their settings: known to error messages, and to the pages for those who come from them, only."""

from __future__ import annotations

from typing import Any

FOREIGN_NAMES = {
    "share_features_extractor": "towers", "shared_lstm": "towers", "enable_critic_lstm": "towers", "squash_output": "action_mapping", "activation_fn": "activation",
    "optimizer_class": "optimizer", "env_kwargs": "env_settings", "save_freq": "checkpoint_every", "n_eval_episodes": "eval_episodes", "eval_freq": "eval_every",
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
    "verbose": "nothing is printed from Python, where a callback's on_update may do it; `proximo train` shows how it goes.",
    "progress_bar": "nothing is printed from Python, where a callback's on_update may do it; `proximo train` shows how it goes.",
    "tensorboard_log": "a run of proximo.train or `proximo train` has TensorBoard's events in its folder, runs_dir/…/name; proximo.PPO writes nothing.",
    "tb_log_name": "it is name, of a run of proximo.train or `proximo train`.",
    "log_interval": "a run has a row of metrics for every call, updates_per_call.",
    "optimizer_kwargs": "of what it holds weight_decay is a setting; Adam's epsilon is 1e-5.",
    "ortho_init": "layers are orthogonal at the start, as with ortho_init=True.",
    "normalize_images": "pictures of bytes are divided by 255, as with normalize_images=True.",
    "features_extractor_kwargs": "an encoder of your own takes them by itself, as functools.partial(MyEncoder, size=3).",
    "vec_env_cls": "num_workers says how environments of Gymnasium are stepped.",
    "wrapper_class": "give a function that makes the wrapped environment in place of an id.",
    "reset_num_timesteps": "learn goes on from the step where the agent stands.",
    "device": "JAX chooses it: JAX_PLATFORMS=cpu in the environment of the process asks for another.",
    "stats_window_size": "rollout/return_mean is over the episodes that ended since the row before.",
}
"""Names of theirs that no setting here stands for."""


ARGUMENTS = {
    "total_timesteps": "total_steps", "callback": "callbacks", "n_eval_episodes": "episodes", "state": "memory", "episode_start": "first",
}  # fmt: skip
"""Arguments of their functions, by ours."""


def of_call(given: list[Any], unknown: list[str]) -> str:
    """What to say, behind a sentence, to a call with arguments that a function has not."""
    policies = [x for x in given if isinstance(x, str) and x.endswith("Policy")]
    if policies:
        return f" The environment is the first argument, without {policies[0]!r}: {ANSWERS['policy']}"
    said = [f"{name} is called {ARGUMENTS[name]} here." for name in unknown if name in ARGUMENTS]
    said += [f"{name}: {ANSWERS[name]}" for name in unknown if name in ANSWERS]
    return "".join(f" {sentence}" for sentence in said)


def answer(name: str) -> str | None:
    """What to say to ``name``; None where it is no name of theirs."""
    name = name if name in FOREIGN_NAMES else name.lower()  # PureJaxRL's are in capitals
    if name in ANSWERS:
        return ANSWERS[name]
    if name not in FOREIGN_NAMES:
        return None
    ours = FOREIGN_NAMES[name]
    if ours == "num_minibatches":
        return "give num_minibatches, the parts of num_envs × num_steps rows."
    return f"{name} is called {ours} here."
