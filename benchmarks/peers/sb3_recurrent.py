"""Training speed of sb3-contrib's RecurrentPPO on an environment without velocities: one JSON line.

    python benchmarks/peers/sb3_recurrent.py --env CartPole-v1 --num-envs 8 --num-steps 32 --batch-size 256 --epochs 20 --threads 1 --seconds 20

To be run in an environment of its own (README.md), with sb3-contrib beside Stable-Baselines3. The setting of its zoo for
CartPoleNoVel-v1: an LSTM of 64 for policy and one for value, 64-64 tanh behind each; velocities are multiplied by 0 as there. The
zoo's normaliser is left out on both sides. One rollout with its update warms up, a second one tells how many fill --seconds.
"""

from __future__ import annotations

import json

from host_arguments import host_parser
from sb3_learning import limit_threads, name_of, time_learning, versions_of

VELOCITIES = {"CartPole-v1": (1, 3)}


def main() -> None:
    parser = host_parser(__doc__ or "")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    limit_threads(options.threads)
    import gymnasium
    import numpy as np
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.env_util import make_vec_env

    class Masked(gymnasium.ObservationWrapper):
        def observation(self, observation):
            return observation * visible

    visible = np.ones(gymnasium.make(options.env).observation_space.shape, np.float32)
    visible[list(VELOCITIES[options.env])] = 0
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
    timed = time_learning(model, options)
    environments.close()
    line = {
        "peer": name_of("sb3-contrib RecurrentPPO", options.threads),
        "versions": versions_of("sb3_contrib", "stable_baselines3", "torch", "gymnasium", "numpy"),
        **timed,
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
