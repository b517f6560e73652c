"""Names that other libraries use for our settings and arguments, and names that we used before.

Error messages and the pages for users of other libraries read these tables. Nothing here is accepted as a setting.
"""

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
"""Settings of other libraries, and the setting here that replaces each."""

ANSWERS = {
    "policy": "proximo has no policy classes; the network follows from the environment's spaces and from settings such as hidden_sizes and memory.",
    "policy_kwargs": "give its entries as settings, such as hidden_sizes, activation and memory.",
    "verbose": "Python calls print nothing; print in a callback's on_update, or use `proximo train`, which shows the progress.",
    "progress_bar": "Python calls print nothing; print in a callback's on_update, or use `proximo train`, which shows the progress.",
    "tensorboard_log": "proximo.train and `proximo train` write TensorBoard events to the run directory, runs_dir/…/name; proximo.PPO writes no files.",
    "tb_log_name": "use name, the name of a run of proximo.train or `proximo train`.",
    "log_interval": "use updates_per_call; a run logs one row of metrics for every call.",
    "optimizer_kwargs": "set weight_decay; Adam's epsilon is always 1e-5.",
    "ortho_init": "layers are always initialized orthogonally, as with ortho_init=True.",
    "normalize_images": "uint8 images are always divided by 255, as with normalize_images=True.",
    "features_extractor_kwargs": "bind the arguments to your encoder, for example functools.partial(MyEncoder, size=3).",
    "vec_env_cls": "use num_workers, which chooses how Gymnasium environments are stepped.",
    "wrapper_class": "pass a function that makes the wrapped environment instead of an id.",
    "reset_num_timesteps": "learn always continues from the agent's current step.",
    "device": "JAX chooses the device; set the environment variable JAX_PLATFORMS, for example to cpu, to choose another one.",
    "stats_window_size": "rollout/return_mean averages over the episodes that ended since the previous row.",
    "first": "it is the argument episode_start of predict.",
    "mean_return": "the metric is called return_mean, as in rollout/return_mean.",
    "network": "it is a group of settings; give its members, such as hidden_sizes and memory.",
    "stochastic": "training always samples actions; `proximo eval` and `proximo watch` take --stochastic.",
}
"""Names that no single setting replaces, and what to do instead. The last four are names of earlier versions of proximo."""

ARGUMENTS = {
    "total_timesteps": "total_steps", "callback": "callbacks", "n_eval_episodes": "episodes", "state": "memory",
    "first": "episode_start", "action_masks": "action_mask", "network": "actor_critic", "mean_return": "return_mean",
}  # fmt: skip
"""Arguments of functions in other libraries, and in earlier versions of this one, with their names here."""

ARGUMENT_ANSWERS = {
    **ANSWERS,
    "stochastic": "use deterministic, which is its opposite: deterministic=False samples actions.",
}

ATTRIBUTES = {
    "DeviceDriver": "it is called JaxCollector now", "push": "use `from proximo.publish import push`",
    "pull": "use `from proximo.publish import pull`",
}  # fmt: skip
"""Earlier public names, and what to use now."""

REPORTER_METHODS = {"begun": "seeds_started", "left": "exiting"}
"""Earlier names of methods of ``Reporter``, with their names now."""


def answer(name: str) -> str | None:
    """What replaces a setting ``name`` of another library; None if the name is unknown."""
    name = name if name in FOREIGN_NAMES else name.lower()  # PureJaxRL's are in capitals
    if name in ANSWERS:
        return ANSWERS[name]
    if name not in FOREIGN_NAMES:
        return None
    ours = FOREIGN_NAMES[name]
    if ours == "num_minibatches":
        return "use num_minibatches, the number of equal parts of num_envs × num_steps transitions."
    return f"{name} is called {ours} here."


def answer_call(given: list[Any], unknown: list[str]) -> str:
    """Sentences to append to an error about a call: ``given`` are all values, ``unknown`` the names of unknown arguments."""
    policies = [value for value in given if isinstance(value, str) and value.endswith("Policy")]
    if policies:
        return f" The environment is the first argument, without {policies[0]!r}: {ANSWERS['policy']}"
    sentences = [f"{name} is called {ARGUMENTS[name]} here." for name in unknown if name in ARGUMENTS]
    sentences += [f"{name}: {ARGUMENT_ANSWERS[name]}" for name in unknown if name in ARGUMENT_ANSWERS and name not in ARGUMENTS]
    return "".join(f" {sentence}" for sentence in sentences)
