"""Training speed of sb3-contrib's RecurrentPPO on an environment without velocities: one JSON line.

    python benchmarks/peers/sb3_recurrent.py --env CartPole-v1 --num-envs 8 --num-steps 32 --batch-size 256 --epochs 20 --threads 1 --seconds 20

To be run in an environment of its own (README.md), with sb3-contrib beside Stable-Baselines3. The setting of its zoo for
CartPoleNoVel-v1: an LSTM of 64 for policy and one for value, 64-64 tanh behind each; velocities are multiplied by 0 as there. The
zoo's normaliser is left out on both sides. One rollout with its update warms up, a second one tells how many fill --seconds.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import time

from host_arguments import host_parser

VELOCITIES = {"CartPole-v1": (1, 3)}


def main() -> None:
    parser = host_parser(__doc__ or "")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    import gymnasium
    import numpy as np
    import torch
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(options.threads)
    hidden = VELOCITIES[options.env]

    class Masked(gymnasium.ObservationWrapper):
        def observation(self, observation):
            return observation * visible

    visible = np.ones(gymnasium.make(options.env).observation_space.shape, np.float32)
    visible[list(hidden)] = 0
    environments = make_vec_env(
        options.env, options.num_envs, seed=options.seed, wrapper_class=Masked, env_kwargs={"disable_env_checker": True}
    )
    model = RecurrentPPO(
        "MlpLstmPolicy",
        environments,
        n_steps=options.num_steps,
        batch_size=options.batch_size,
        n_epochs=options.epochs,
        seed=options.seed,
        device="cpu",
        policy_kwargs={"lstm_hidden_size": 64, "enable_critic_lstm": True},
    )
    rows = options.num_envs * options.num_steps

    def learn(updates: int) -> float:
        begun = time.perf_counter()
        model.learn(updates * rows, reset_num_timesteps=model.num_timesteps == 0)
        return time.perf_counter() - begun

    learn(1)
    updates = max(1, round(options.seconds / learn(1)))
    seconds = [learn(updates) for _ in range(options.repeats)]
    environments.close()
    packages = ("sb3_contrib", "stable_baselines3", "torch", "gymnasium", "numpy")
    print(
        json.dumps(
            {
                "peer": f"sb3-contrib RecurrentPPO, {options.threads} thread{'s' if options.threads > 1 else ''}",
                "versions": {p: importlib.metadata.version(p) for p in packages} | {"python": platform.python_version()},
                "settings": {**vars(options), "updates": updates},
                "parameters": sum(p.numel() for p in model.policy.parameters()),
                "steps_per_second": [round(updates * rows / one, 1) for one in seconds],
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
