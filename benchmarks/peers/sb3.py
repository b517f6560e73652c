"""Training speed and memory of Stable-Baselines3's PPO on a Gymnasium environment: one JSON line.

    python benchmarks/peers/sb3.py --env CartPole-v1 --num-envs 8 --num-steps 128 --batch-size 256 --epochs 4 \
        --mode dummy --threads 1 --seconds 20 [--normalize] [--memory]

To be run in an environment of its own (README.md). The policies are SB3's defaults: 64-64 tanh for policy and value each, or the
shared Nature CNN where the id ends in NoFrameskip-v4, which then also gets SB3's standard chain (30 no-ops, 4 frames a step with
the maximum of two, 84x84 gray, sign-clipped reward, 4 frames stacked; a lost life ends nothing). One rollout with its update warms
up, a second one tells how many fill --seconds; those are timed inside one call of SB3's ``learn``, without a callback. Gymnasium's
checker is off, as it is on our side. Constant learning rate 3e-4, no value clip. --normalize adds SB3's VecNormalize with its
default settings: it normalizes observations and rewards and clips both to ±10.
"""

from __future__ import annotations

import argparse
import json
import sys

from host_arguments import MUJOCO_TASKS, host_parser
from sb3_learning import limit_threads, name_of, time_learning, versions_of
from tree_memory import PeakMemory


def parse() -> argparse.Namespace:
    parser = host_parser(__doc__ or "")
    parser.add_argument("--mode", choices=("dummy", "subproc"), default="dummy")
    parser.add_argument("--threads", type=int, default=1, help="of torch; each environment's process has one")
    parser.add_argument("--normalize", action="store_true", help="normalize observations and rewards")
    return parser.parse_args()


def make_environments(options: argparse.Namespace):
    """The vectorised environment, as SB3's own helpers make it."""
    import gymnasium
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize

    common = {
        "n_envs": options.num_envs,
        "seed": options.seed,
        "vec_env_cls": {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}[options.mode],
        "env_kwargs": {"disable_env_checker": True},
    }
    if not options.env.endswith("NoFrameskip-v4"):
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


def main() -> None:
    options = parse()
    memory = PeakMemory()
    if options.memory:
        memory.start()
    limit_threads(options.threads)
    from stable_baselines3 import PPO

    environments = make_environments(options)
    images = options.env.endswith("NoFrameskip-v4")
    model = PPO(
        "CnnPolicy" if images else "MlpPolicy",
        environments,
        n_steps=options.num_steps,
        batch_size=options.batch_size,
        n_epochs=options.epochs,
        seed=options.seed,
        device="cpu",
    )
    timed = time_learning(model, options)
    seen = memory.stop()
    environments.close()
    others = ("ale-py", "opencv-python-headless") if images else ("mujoco",) if options.env in MUJOCO_TASKS else ()
    line = {
        "peer": name_of(f"SB3 {options.mode}", options.threads),
        "versions": versions_of("stable_baselines3", "torch", "gymnasium", "numpy", "box2d", *others),
        **timed,
        **seen,
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
