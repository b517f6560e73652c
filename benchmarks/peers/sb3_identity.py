"""Stable-Baselines3's PPO on the identity environments of benchmarks/identity_envs.py, in the setting of its own test: one JSON line.

python benchmarks/peers/sb3_identity.py --kind Discrete --seeds 0 1 2
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
from pathlib import Path

from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv

sys.path.insert(0, str(Path(__file__).parents[1]))
from identity_envs import BATCH_SIZE, EPISODES, KINDS, NUM_EPOCHS, NUM_STEPS, SETTINGS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=tuple(KINDS), required=True)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    options = parser.parse_args()
    setting, scores = SETTINGS[options.kind], {}
    for seed in options.seeds:
        model = PPO(
            "MlpPolicy",
            DummyVecEnv([KINDS[options.kind]]),
            n_steps=NUM_STEPS,
            batch_size=BATCH_SIZE,
            n_epochs=NUM_EPOCHS,
            learning_rate=setting["learning_rate"],
            gamma=setting["gamma"],
            seed=seed,
            device="cpu",
        )
        model.learn(int(setting["steps"]))
        judge = DummyVecEnv([KINDS[options.kind]])
        judge.seed(1_000_000 + seed)
        scores[seed] = float(evaluate_policy(model, judge, n_eval_episodes=EPISODES, warn=False)[0])
    versions = {name: importlib.metadata.version(name) for name in ("stable_baselines3", "torch", "gymnasium")}
    print(json.dumps({"peer": "SB3", "versions": versions, "scores": scores}), flush=True)


if __name__ == "__main__":
    main()
