"""A Python program that trains two seeds with another process: ``program.py ADDRESS INDEX``."""

import json
import sys

import numpy as np

import proximo


class Keep:
    """Reads the policy in process 0 alone, and saves in both processes."""

    def on_end(self, info):
        if peers.is_first:
            action, _ = info.policy.predict(np.zeros(4, np.float32))
            np.save(f"action-{info.seed}.npy", action)
        info.save(f"kept-{info.seed}")


peers = proximo.processes.join(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]), heartbeat=20)
sizes = {"total_steps": 128, "num_envs": 4, "num_steps": 16, "num_epochs": 1, "num_minibatches": 1, "hidden_sizes": 8}
results = proximo.train("gymnax:CartPole-v1", callbacks=[Keep()], seeds=2, eval_episodes=1, name="run", **sizes)
print(json.dumps([{"steps": result.steps, "return_mean": result.return_mean} for result in results]))
