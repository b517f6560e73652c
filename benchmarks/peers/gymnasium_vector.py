"""Stepping alone by Gymnasium's own vectorisation, with random actions: one JSON line.

    python benchmarks/peers/gymnasium_vector.py --env LunarLander-v3 --num-envs 16 --mode async --seconds 10 [--autoreset same_step]

``async`` is ``AsyncVectorEnv`` with shared memory (its default), ``sync`` is ``SyncVectorEnv``. Counted are true steps: in next-step
mode, Gymnasium's default, the row behind an episode's end ignores its action and is not one. Actions are drawn beforehand.
Run it with the interpreter of the other side, so that Gymnasium and the environments are of the same version.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import time

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

DRAWN = 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="LunarLander-v3")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--mode", choices=("async", "sync"), default="async")
    parser.add_argument("--autoreset", choices=("next_step", "same_step"), default="next_step")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    def make():
        return gymnasium.make(options.env, disable_env_checker=True)

    cls = {"async": AsyncVectorEnv, "sync": SyncVectorEnv}[options.mode]
    mode = {"next_step": AutoresetMode.NEXT_STEP, "same_step": AutoresetMode.SAME_STEP}[options.autoreset]
    environments = cls([make] * options.num_envs, autoreset_mode=mode)
    environments.reset(seed=options.seed)
    environments.action_space.seed(options.seed)
    actions = [environments.action_space.sample() for _ in range(DRAWN)]
    filler = np.zeros(options.num_envs, bool)
    rates = []
    for repeat in range(options.repeats + 1):  # the first one warms up
        steps = t = 0
        limit = options.seconds if repeat else min(1.0, options.seconds)
        started = time.perf_counter()
        while time.perf_counter() - started < limit:
            _, _, terminated, truncated, _ = environments.step(actions[t % DRAWN])
            steps += options.num_envs - int(filler.sum())
            if mode is AutoresetMode.NEXT_STEP:
                filler = terminated | truncated
            t += 1
        rates.append(round(steps / (time.perf_counter() - started), 1))
    environments.close()
    line = {
        "peer": f"Gymnasium {cls.__name__}, {options.autoreset.replace('_', '-')} reset",
        "versions": {p: importlib.metadata.version(p) for p in ("gymnasium", "numpy")} | {"python": platform.python_version()},
        "settings": vars(options),
        "steps_per_second": rates[1:],
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
