"""Training speed and memory of Stable-Baselines3's PPO, or of sb3-contrib's RecurrentPPO, on a Gymnasium environment: one JSON line.

    python benchmarks/peers/sb3.py --env CartPole-v1 --num-envs 8 --num-steps 128 --batch-size 256 --epochs 4 \
        --mode dummy --threads 1 --seconds 20 [--normalize] [--memory]
    python benchmarks/peers/sb3.py --recurrent --env CartPole-v1 --num-envs 8 --num-steps 32 --batch-size 256 --epochs 20 --threads 1

To be run in a separate virtual environment (README.md). The policies are SB3's defaults: 64-64 tanh for policy and value each, or the
shared Nature CNN where the id ends in NoFrameskip-v4, which then also gets SB3's standard chain (30 no-ops, 4 frames a step with
the maximum of two, 84x84 gray, sign-clipped reward, 4 frames stacked; a lost life ends nothing). One rollout with its update warms
up, a second one shows how many fill --seconds; those are timed inside one call of SB3's ``learn``, without a callback. Gymnasium's
checker is off, as it is on our side. Constant learning rate 3e-4, no value clip. --normalize adds SB3's VecNormalize with its
default settings: it normalizes observations and rewards and clips both to ±10.

--recurrent: the setting of SB3's zoo for CartPoleNoVel-v1: an LSTM of 64 for policy and one for value, 64-64 tanh after each; velocities
are multiplied by 0 as there. The zoo's normalizer is left out on both sides.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time

from host_arguments import MUJOCO_TASKS, host_parser
from tree_memory import PeakMemory

VELOCITIES = {"CartPole-v1": (1, 3)}
"""The entries of the observation that --recurrent hides."""
ATARI = "NoFrameskip-v4"


def parse() -> argparse.Namespace:
    parser = host_parser(__doc__ or "")
    parser.add_argument("--mode", choices=("dummy", "subproc"), default="dummy")
    parser.add_argument("--threads", type=int, default=1, help="of torch; each environment's process has one")
    parser.add_argument("--normalize", action="store_true", help="normalize observations and rewards")
    parser.add_argument("--recurrent", action="store_true", help="RecurrentPPO on an environment without velocities")
    return parser.parse_args()


def limit_threads(count: int) -> None:
    """Let PyTorch compute with ``count`` threads. Call it before anything else imports PyTorch."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(count)
    import torch

    torch.set_num_threads(count)


def versions_of(*packages: str) -> dict[str, str]:
    """The versions of Python and of the packages."""
    return {package: importlib.metadata.version(package) for package in packages} | {"python": platform.python_version()}


def make_environments(options: argparse.Namespace):
    """The vectorized environment, as SB3's own helpers make it."""
    import gymnasium
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize

    common = {
        "n_envs": options.num_envs,
        "seed": options.seed,
        "vec_env_cls": {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}[options.mode],
        "env_kwargs": {"disable_env_checker": True},
    }
    if options.recurrent:
        return make_vec_env(options.env, wrapper_class=without_velocities(options.env), **common)
    if not options.env.endswith(ATARI):
        environments = make_vec_env(options.env, **common)
        return VecNormalize(environments) if options.normalize else environments
    import ale_py

    gymnasium.register_envs(ale_py)
    held = gymnasium.spec(options.env).kwargs
    expected = {"repeat_action_probability": 0.0, "full_action_space": False, "frameskip": 1}
    if {name: held.get(name) for name in expected} != expected:
        sys.exit(f"{options.env} is registered with {held}: expected {expected}.")
    # The module's name before the id has it registered in the processes of SubprocVecEnv too.
    return VecFrameStack(make_atari_env(f"ale_py:{options.env}", wrapper_kwargs={"terminal_on_life_loss": False}, **common), 4)


def without_velocities(env: str) -> type:
    """A wrapper that multiplies the velocities by 0."""
    import gymnasium
    import numpy as np

    visible = np.ones(gymnasium.make(env).observation_space.shape, np.float32)
    visible[list(VELOCITIES[env])] = 0

    class Masked(gymnasium.ObservationWrapper):
        def observation(self, observation):
            return observation * visible

    return Masked


def make_model(options: argparse.Namespace, environments):
    """The algorithm with its policy."""
    common = {"n_steps": options.num_steps, "batch_size": options.batch_size, "n_epochs": options.epochs}
    common |= {"seed": options.seed, "device": "cpu"}
    if options.recurrent:
        from sb3_contrib import RecurrentPPO

        kwargs = {"lstm_hidden_size": 64, "enable_critic_lstm": True}
        return RecurrentPPO("MlpLstmPolicy", environments, policy_kwargs=kwargs, **common)
    from stable_baselines3 import PPO

    return PPO("CnnPolicy" if options.env.endswith(ATARI) else "MlpPolicy", environments, **common)


def time_learning(model, options: argparse.Namespace) -> dict:
    """Warm up by one rollout and its update, use a second one to estimate how many fill ``--seconds``, and time those."""
    rows = options.num_envs * options.num_steps

    def learn(updates):
        begun = time.perf_counter()
        model.learn(updates * rows, reset_num_timesteps=model.num_timesteps == 0)
        return time.perf_counter() - begun

    warm = learn(1)
    updates = max(1, round(options.seconds / learn(1)))
    seconds = [learn(updates) for _ in range(options.repeats)]
    returns = [episode["r"] for episode in model.ep_info_buffer or []]
    return {
        "settings": {**vars(options), "updates": updates, "policy": type(model.policy).__name__},
        "parameters": sum(p.numel() for p in model.policy.parameters()),
        "first_update_seconds": round(warm, 2),
        "steps_per_second": [round(updates * rows / one, 1) for one in seconds],
        "return_mean_last": sum(returns) / len(returns) if returns else None,
    }


def main() -> None:
    options = parse()
    memory = PeakMemory()
    if options.memory:
        memory.start()
    limit_threads(options.threads)
    environments = make_environments(options)
    timed = time_learning(make_model(options, environments), options)
    seen = memory.stop()
    environments.close()
    title = "sb3-contrib RecurrentPPO" if options.recurrent else f"SB3 {options.mode}"
    others = ("ale-py", "opencv-python-headless") if options.env.endswith(ATARI) else ()
    others += ("mujoco",) * (options.env in MUJOCO_TASKS) + ("sb3_contrib",) * options.recurrent
    line = {
        "peer": f"{title}, {options.threads} thread{'s' if options.threads > 1 else ''}",
        "versions": versions_of("stable_baselines3", "torch", "gymnasium", "numpy", "box2d", *others),
        **timed,
        **seen,
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
