"""Time of a whole training with Stable-Baselines3's PPO and the settings of its zoo, from the start of the script: one JSON line.

    python benchmarks/peers/sb3_zoo.py CartPole-v1 --threads 1
    python benchmarks/peers/sb3_zoo.py BipedalWalker-v3 --share 0.1     # a tenth of the steps; the rest is extrapolated

To be run in a separate virtual environment (README.md). The settings are those of rl-baselines3-zoo, hyperparams/ppo.yml (November 2026), on
one ``DummyVecEnv``, the zoo's default. Those of MuJoCo are for version 4 there, and are used on version 5 here. With ``--share``, speed
is that of the part that was trained, without the first update; a decreasing learning rate does not change it.
"""

from __future__ import annotations

import argparse
import json
import time

from sb3 import limit_threads, versions_of

STARTED = time.perf_counter()  # SB3 and PyTorch are imported later

MUJOCO = {"log_std_init": -2, "ortho_init": False, "layers": [256, 256]}
ZOO = {
    "CartPole-v1": {
        "n_envs": 8, "steps": 100_000, "normalize": False, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20,
        "learning_rate": "lin_0.001", "clip_range": "lin_0.2",
    },
    "LunarLander-v3": {
        "n_envs": 16, "steps": 1_000_000, "normalize": False, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4,
        "ent_coef": 0.01,
    },
    "BipedalWalker-v3": {
        "n_envs": 32, "steps": 5_000_000, "normalize": True, "n_steps": 2048, "batch_size": 64, "gae_lambda": 0.95, "gamma": 0.999, "n_epochs": 10,
        "learning_rate": 3e-4, "clip_range": 0.18,
    },
    "HalfCheetah-v5": {
        "n_envs": 1, "steps": 1_000_000, "normalize": True, "n_steps": 512, "batch_size": 64, "gae_lambda": 0.92, "gamma": 0.98, "n_epochs": 20,
        "learning_rate": 2.0633e-05, "ent_coef": 0.000401762, "clip_range": 0.1, "max_grad_norm": 0.8, "vf_coef": 0.58096, **MUJOCO,
    },
    "Hopper-v5": {
        "n_envs": 1, "steps": 1_000_000, "normalize": True, "n_steps": 512, "batch_size": 32, "gae_lambda": 0.99, "gamma": 0.999, "n_epochs": 5,
        "learning_rate": 9.80828e-05, "ent_coef": 0.00229519, "max_grad_norm": 0.7, "vf_coef": 0.835671, **MUJOCO,
    },
}  # fmt: skip


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env", choices=ZOO)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--share", type=float, default=1.0, help="share of the steps that is trained, 0 … 1")
    options = parser.parse_args()
    rollout = ZOO[options.env]["n_envs"] * ZOO[options.env]["n_steps"]
    if options.share * ZOO[options.env]["steps"] < 2 * rollout:
        parser.error(
            f"--share {options.share}: expected two rollouts of {rollout:,} steps or more, because the first one only warms up."
        )
    return options


def scheduled(value):
    """The zoo's ``lin_0.001`` as a function of the remaining share of the training."""
    start = float(value.removeprefix("lin_")) if isinstance(value, str) else None
    return value if start is None else lambda remaining: remaining * start


def main() -> None:
    options = parse()
    limit_threads(options.threads)
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize
    from torch import nn

    settings = {name: scheduled(value) for name, value in ZOO[options.env].items()}
    num_envs, steps, layers = settings.pop("n_envs"), settings.pop("steps"), settings.pop("layers", None)
    environments = make_vec_env(options.env, n_envs=num_envs, seed=options.seed)
    if settings.pop("normalize"):
        environments = VecNormalize(environments, gamma=settings["gamma"])
    if layers:
        of_policy = {name: settings.pop(name) for name in ("log_std_init", "ortho_init")}
        settings["policy_kwargs"] = {**of_policy, "activation_fn": nn.ReLU, "net_arch": {"pi": layers, "vf": layers}}
    model = PPO("MlpPolicy", environments, seed=options.seed, device="cpu", **settings)

    class Clock(BaseCallback):
        """When each rollout begins."""

        def __init__(self):
            super().__init__()
            self.at = []

        def _on_rollout_start(self):
            self.at.append((self.num_timesteps, time.perf_counter()))

        def _on_step(self):
            return True

    clock = Clock()
    trained = round(options.share * steps)
    model.learn(trained, callback=clock)
    ended = time.perf_counter()
    (first_step, first), done = clock.at[1], model.num_timesteps
    speed = (done - first_step) / (ended - first)
    if isinstance(environments, VecNormalize):
        environments.training = environments.norm_reward = False
    mean, deviation = evaluate_policy(model, environments, n_eval_episodes=100) if options.share == 1 else (None, None)
    line = {
        "peer": f"SB3 with its zoo's settings, {options.threads} thread{'s' if options.threads > 1 else ''}",
        "env": options.env,
        "seed": options.seed,
        "settings": ZOO[options.env],
        "steps": steps,
        "trained_steps": done,
        "wall_seconds": round(ended - STARTED + max(0, steps - done) / speed, 1),
        "steps_per_second": round(speed),
        "return_mean": mean,
        "return_std": deviation,
        "versions": versions_of("stable_baselines3", "torch", "gymnasium", "numpy"),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
