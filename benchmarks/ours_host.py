"""Training speed, memory and shares of the wall time of proximo on a Gymnasium environment, or the speed of stepping alone. Prints one JSON line.

    python benchmarks/ours_host.py --env CartPole-v1 --num-envs 8 --num-steps 128 --batch-size 256 --epochs 4 --seconds 20 \
        [--workers N] [--overlap] [--lag] [--images] [--memory] [--set NAME=VALUE ...]
    python benchmarks/ours_host.py --env LunarLander-v3 --num-envs 16 --workers 2 --stepping --seconds 10

The settings are SB3's defaults beside those given: 64-64 tanh for policy and value each (--images: the shared Nature CNN, and the
learner sees the sign of the rewards), learning rate 3e-4, no value clip. Everything is compiled first, two updates warm up, then
updates are timed one by one until --seconds are over. Autoreset steps, which ignore their
action, do not count.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

from peers.host_arguments import host_parser
from peers.tree_memory import PeakMemory

IMAGES = {"encoder": "nature_cnn", "towers": "shared", "clip_reward": "sign"}
FOREVER = 10**12
"""Steps of the whole training: no schedule ends, and with learner_lag no rollout is the last."""
WARM_UP = 2


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = host_parser(__doc__ or "")
    parser.add_argument("--workers", type=int, default=-1)
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument("--lag", action="store_true")
    parser.add_argument("--images", action="store_true")
    parser.add_argument("--stepping", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="further settings of proximo")
    return parser.parse_args(arguments)


def make_config(options: argparse.Namespace):
    """The settings, checked by proximo."""
    import proximo

    settings: dict[str, Any] = {
        "num_envs": options.num_envs,
        "num_steps": options.num_steps,
        "num_minibatches": options.num_envs * options.num_steps // options.batch_size,
        "num_epochs": options.epochs,
        "total_steps": FOREVER,
        "eval_episodes": 0,
        "num_workers": options.workers,
        "overlap": options.overlap,
        "learner_lag": int(options.lag),
        "normalize_observation": False,
        "normalize_reward": False,
    }
    if options.images:
        settings |= IMAGES
    settings |= dict(text.split("=", 1) for text in options.set)
    return proximo.make_config(options.env, settings, preset=False)


def trained(options: argparse.Namespace, config) -> dict[str, Any]:
    """Steps per second of training, and where the time went."""
    import jax

    from proximo.collect.environment import environment
    from proximo.training.backends import GymnasiumBackend

    started = time.perf_counter()
    program = GymnasiumBackend(config, environment(config))
    state = program.prepare(lambda: program.start([options.seed]))
    compile_seconds = time.perf_counter() - started

    def update(state):
        state, metrics = program.advance(state, 1)
        return (
            state,
            int(program.last_rollout.valid.sum()),
            {name: float(row[0, -1]) for name, row in metrics.items()},
        )

    for _ in range(WARM_UP):
        state, _, _ = update(state)
    rates, shares, returns = [], {}, []
    for _ in range(options.repeats):
        begun, steps = time.perf_counter(), 0
        spent: dict[str, float] = {}
        while not steps or time.perf_counter() - begun < options.seconds:
            before = time.perf_counter()
            state, rows, metrics = update(state)
            seconds, steps = time.perf_counter() - before, steps + rows
            for name, value in metrics.items():
                if name.startswith("time/share_"):
                    spent[name[len("time/share_") :]] = spent.get(name[len("time/share_") :], 0.0) + value * seconds
            returns = (returns + [metrics["rollout/return_mean"]] * (metrics["rollout/episodes"] > 0))[-5:]
        whole = time.perf_counter() - begun
        rates.append(round(steps / whole, 1))
        shares = {name: seconds / whole for name, seconds in spent.items()}
        named = sum(seconds for name, seconds in spent.items() if name != "rest")
        shares["rest"] = max(0.0, 1.0 - named / whole)  # what lies between two updates too
    workers = program.collector.environments.open().num_workers
    healthy = bool(state.healthy)
    program.close()
    if not healthy:
        raise SystemExit("The training has produced NaN or infinity, so its speed is meaningless.")
    return {
        "num_workers": workers,
        "parameters": sum(x.size for x in jax.tree.leaves(state.learner.policy) if hasattr(x, "size")),
        "compile_seconds": round(compile_seconds, 2),
        "steps_per_second": rates,
        "shares": {name: round(value, 4) for name, value in shares.items()},
        "return_mean_last": sum(returns) / len(returns) if returns else None,
    }


def stepped(options: argparse.Namespace, config) -> dict[str, Any]:
    """Steps per second of the environments alone, with random actions that were drawn beforehand."""
    import numpy as np

    from proximo.collect.environment import environment, vector_options
    from proximo.spaces import random_actions

    env = environment(config)
    vector_env = env.open(options.num_envs, options.num_steps, vector_options(config))
    rng = np.random.default_rng(options.seed)
    vector_env.reset(options.seed)
    buffer, rates = vector_env.buffer, []
    buffer.clear()
    for row in buffer.action:
        row[...] = random_actions(env.action_space, rng, options.num_envs)
    for repeat in range(options.repeats + 1):  # the first one warms up
        begun, steps = time.perf_counter(), 0
        limit = options.seconds if repeat else min(1.0, options.seconds)
        while time.perf_counter() - begun < limit:
            _step_through(vector_env, options.num_steps)
            steps += int(buffer.valid[:-1].sum())
            buffer.begin_again()
            buffer.clear()
        rates.append(round(steps / (time.perf_counter() - begun), 1))
    workers = vector_env.num_workers
    vector_env.close()
    return {"num_workers": workers, "steps_per_second": rates[1:]}


def _step_through(vector_env, num_steps: int) -> None:
    """Fill the rollout buffer with steps. Groups step independently, as in the collector."""
    at = [0] * len(vector_env.groups)
    for group in range(len(at)):
        vector_env.send(0, group)
    running = list(range(len(at)))
    while running:
        group = vector_env.ready(running)
        vector_env.receive(at[group], group)
        at[group] += 1
        if at[group] < num_steps:
            vector_env.send(at[group], group)
        else:
            running.remove(group)


def main() -> None:
    options = parse()
    memory = PeakMemory()
    if options.memory:
        memory.start()
    from measurements import circumstances
    from proximo import jax_setup

    jax_setup.prepare_jax()
    config = make_config(options)
    measured = stepped(options, config) if options.stepping else trained(options, config)
    line = {
        "peer": "proximo",
        "versions": circumstances()["versions"],
        "settings": {**vars(options), "cpu_count": os.cpu_count(), "threads": jax_setup.threads()},
        **measured,
        **memory.stop(),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
