"""Train Craftax with several hyperparameters on two tuning seeds, all in one program on an accelerator, to choose the settings of ``suites/craftax.yaml``.

    python benchmarks/craftax_sweep.py "64 environments"

Prints the mean return of each training over the last twentieth of the steps, and adds the curves to ``results/craftax_sweep.json``, also after
Ctrl-C. A group of ``GROUPS`` shares the settings that change the program.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import proximo

import jax  # isort: skip  (after proximo, which sets the number of threads)
import jax.numpy as jnp
import numpy as np

from measurements import circumstances
from proximo.collect import JaxCollector, JaxTrainer
from proximo.collect.environment import environment
from proximo.jax_setup import compile_lowered
from proximo.ppo import make_hyperparameters

HERE = Path(__file__).parent
ENV = "craftax:Craftax-Symbolic-v1"
SEEDS = (100, 101)
UPDATES, LINES, WINDOW = 8, 14, 20
"""Updates of a call, lines of a whole training, and the part of the training that a line shows."""
FASTER, LESS_ENTROPY = {"learning_rate": "linear(4e-4, 0)"}, {"ent_coef": 0.003}
GROUPS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "64 environments": (
        {"num_envs": 64},
        [
            {},
            FASTER,
            LESS_ENTROPY,
            {"gamma": 0.98},
            {"gae_lambda": 0.92},
            {"learning_rate": "linear(3e-4, 1e-4)"},
            {"vf_coef": 1.0},
            FASTER | LESS_ENTROPY,
        ],
    ),
    "32 environments": ({"num_envs": 32}, [{}, {"learning_rate": "linear(3e-4, 0)"}, LESS_ENTROPY]),
    "layer normalization": ({"num_envs": 64, "layer_norm": True}, [{}, FASTER]),
}


def main() -> None:
    """Train one group."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", choices=list(GROUPS))
    parser.add_argument("--total-steps", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=HERE / "results/craftax_sweep.json")
    arguments = parser.parse_args()
    shared, combinations = GROUPS[arguments.group]
    shared = {**shared, "total_steps": arguments.total_steps}
    config = proximo.make_config(ENV, shared)
    trainer = JaxTrainer(JaxCollector(config, environment(config), seeds_axis=True))
    trainings = list(itertools.product(combinations, SEEDS))
    hyperparameters = [make_hyperparameters(proximo.make_config(ENV, shared | changed).ppo) for changed, _ in trainings]
    keys = jax.vmap(jax.random.key)(jnp.array([seed for _, seed in trainings]))
    init = jax.vmap(trainer.collector.init, axis_name="seeds")
    states = jax.jit(init)(keys, jax.tree.map(lambda *x: jnp.stack(x), *hyperparameters))
    advance = jax.vmap(lambda state: trainer.advance(state, jnp.int32(UPDATES), UPDATES), axis_name="seeds")
    program = compile_lowered(jax.jit(advance, donate_argnums=0).lower(states))
    curves: list[list[list[float]]] = [[] for _ in trainings]
    ended: list[np.ndarray] = []
    returns: list[np.ndarray] = []
    calls = config.total_updates // UPDATES
    try:
        for call in range(1, calls + 1):
            states, metrics = program(states)
            episodes = np.asarray(metrics["rollout/episodes"])
            ended.append(episodes.sum(1))
            returns.append((episodes * np.asarray(metrics["rollout/return_mean"])).sum(1))
            if call % max(1, calls // LINES) == 0 or call == calls:
                last = slice(-max(1, calls // WINDOW), None)
                step, means = call * UPDATES * config.batch_size, sum(returns[last]) / np.maximum(sum(ended[last]), 1)
                for curve, mean in zip(curves, means, strict=True):
                    curve.append([step, round(float(mean), 2)])
                print(f"{step:,}", *(f"{mean:.2f}" for mean in means), flush=True)
    finally:
        rows = [
            {"group": arguments.group, "changed": changed, "seed": seed, "curve": curve}
            for (changed, seed), curve in zip(trainings, curves, strict=True)
        ]
        before = json.loads(arguments.out.read_text())["rows"] if arguments.out.is_file() else []
        rows = [row for row in before if row["group"] != arguments.group] + rows
        arguments.out.write_text(
            json.dumps({"script": "benchmarks/craftax_sweep.py", **circumstances(), "rows": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
