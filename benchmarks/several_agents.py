"""Trainings of several agents beside JaxMARL's own IPPO with its settings: speed, and curves over seeds.

    python benchmarks/several_agents.py --task mpe --jaxmarl CHECKOUT [--seeds 20,21,22,23,24]     # minutes, on a quiet machine
    python benchmarks/several_agents.py --task smax --jaxmarl CHECKOUT --seeds 20,21,22

mpe: simple_spread, the return of an agent; smax: the scenario 3m against scripted enemies, the share of won battles. The two programs run
one after the other, each in its own process. Each makes one untimed training, and then trains every seed once. Writes results/several_agents.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from alternating import measure
from ours import SETTING

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "several_agents.json"
POINTS = 50
"""Points of a curve at most, each the mean of some updates."""
TASKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mpe": ("jaxmarl:MPE_simple_spread_v3", "rollout/return_mean", {
        **SETTING, "num_envs": 16,
    }),
    "smax": ("jaxmarl:HeuristicEnemySMAX", "rollout/success_rate", {
        **SETTING, "num_envs": 128, "learning_rate": "linear(4e-3, 0)", "clip_eps": 0.05, "clip_value_eps": 0.05, "max_grad_norm": 0.25,
        "env_settings": {"scenario": "3m", "see_enemy_actions": True, "walls_cause_death": True, "attack_mode": "closest"},
        "memory": "gru", "memory_size": 128, "hidden_sizes": (128,), "head_sizes": (128,), "activation": "relu", "towers": "shared",
    }),
}  # fmt: skip


def ours(task: str, total_steps: int, seeds: list[int]) -> None:
    """Train each seed, and print a line of JSON as the peer does."""
    import jax
    import numpy as np

    import proximo
    from proximo import jax_setup

    env_id, metric, settings = TASKS[task]
    config = proximo.make_config(env_id, {**settings, "total_steps": total_steps}, preset=False)
    train = jax.jit(proximo.make_train(config, proximo.make_env(env_id, settings.get("env_settings"))))
    start = time.perf_counter()
    compiled = jax_setup.compile_lowered(train.lower(jax.random.key(0)))
    compile_seconds = time.perf_counter() - start
    jax.block_until_ready(compiled(jax.random.key(0)))
    rates, curves = [], []
    for seed in seeds:
        start = time.perf_counter()
        _, metrics = jax.block_until_ready(compiled(jax.random.key(seed)))
        rates.append(config.total_updates * config.batch_size / (time.perf_counter() - start))
        curves.append(np.asarray(metrics[metric], float).round(4).tolist())
    line = {"settings": {"seeds": seeds, "curves": curves}, "compile_seconds": compile_seconds, "steps_per_second": rates}
    print(json.dumps(line), flush=True)


def summary(line: dict[str, Any]) -> dict[str, Any]:
    """Speed, the value of each seed over the last tenth of its training, and its curve."""
    curves = line["settings"]["curves"]
    last = [round(statistics.fmean(curve[-max(1, len(curve) // 10) :]), 4) for curve in curves]
    each = -(-len(curves[0]) // POINTS)
    curves = [[round(statistics.fmean(curve[i : i + each]), 3) for i in range(0, len(curve), each)] for curve in curves]
    return {"steps_per_second": [round(x) for x in line["steps_per_second"]], "last_tenth": last, "curves": curves}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--jaxmarl", type=Path, help="a checkout of JaxMARL")
    parser.add_argument("--total-steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", default="20,21,22,23,24")
    parser.add_argument("--own", action="store_true", help="run proximo's trainings in this process")
    options = parser.parse_args()
    if options.own:
        ours(options.task, options.total_steps, [int(x) for x in options.seeds.split(",")])
        sys.exit()
    shared = ["--task", options.task, "--total-steps", str(options.total_steps), "--seeds", options.seeds]
    lines = {
        "proximo": measure([sys.executable, __file__, "--own", *shared]),
        "JaxMARL": measure([sys.executable, str(HERE / "peers/jaxmarl_ippo.py"), "--repo", str(options.jaxmarl), *shared]),
    }
    found = {name: summary(line) for name, line in lines.items()}
    ratio = statistics.median(found["proximo"]["steps_per_second"]) / statistics.median(found["JaxMARL"]["steps_per_second"])
    for name, row in found.items():
        print(f"{name}: {statistics.median(row['steps_per_second']):,.0f} steps/s, last tenth {row['last_tenth']}")
    print(f"ratio of speeds {ratio:.2f}")
    record = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    record[options.task] = {"steps": options.total_steps, "seeds": options.seeds, "ratio": round(ratio, 2), **found}
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")
