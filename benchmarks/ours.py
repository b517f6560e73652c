"""Training speed of proximo on CartPole in the setting of the peers. Prints one JSON line, like the programs of the peers.

    python benchmarks/ours.py --num-envs 64 [--recurrent] [--seeds 8 --seeds-mode vmap|serial] [--set NAME=VALUE ...]

128 steps, 4 epochs x 4 minibatches, value clip; 64-64 tanh in two towers, or with --recurrent a ReLU layer of 128, a GRU of 128 and
heads of 128, whole sequences of 128; --set gives other settings. Compiled ahead of time, one training to warm up, then whole trainings are timed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import time

import proximo
import jax
import numpy as np

from proximo import jax_setup
from proximo.collect.devices import divided, mesh_for
from proximo.collect.jax_vector import over_seeds, vmaps_seeds

SETTING = {
    "num_steps": 128,
    "num_epochs": 4,
    "num_minibatches": 4,
    "learning_rate": "linear(2.5e-4, 0)",
    "clip_value_eps": 0.2,
    "ent_coef": 0.01,
    "normalize_observation": False,
    "normalize_reward": False,
}
RECURRENT = {
    "memory": "gru",
    "memory_size": 128,
    "hidden_sizes": (128,),
    "head_sizes": (128,),
    "activation": "relu",
    "towers": "shared",
}
DEFAULT_STEPS = {False: 786_432, True: 98_304}


def compiled(config: proximo.Config, seeds: int, mode: str):
    """``train(seeds) -> metrics`` for arrays of seeds, compiled, and the seconds that it took."""
    stacked = seeds > 1 and mode == "vmap"
    train = proximo.make_train(config, proximo.make_env(config.env.id), seeds_axis=stacked and vmaps_seeds())
    program = jax.jit(divided(over_seeds(train), mesh_for(None, seeds)) if stacked else train)
    keys = jax.vmap(jax.random.key)(np.arange(seeds))
    started = time.perf_counter()
    executable = jax_setup.compile_lowered(program.lower(keys if stacked else keys[0]))
    seconds = time.perf_counter() - started

    def run(first: int):
        numbers = jax.vmap(jax.random.key)(np.arange(seeds) + first)
        jobs = [numbers] if stacked else list(numbers)
        return [jax.block_until_ready(executable(job)) for job in jobs][-1][1]

    return run, seconds


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--recurrent", action="store_true")
    parser.add_argument("--total-steps", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seeds-mode", choices=("vmap", "serial"), default="vmap")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings in addition to those of the peers")
    return parser.parse_args(arguments)


def settings_of(options: argparse.Namespace) -> dict:
    total = options.total_steps or DEFAULT_STEPS[options.recurrent]
    settings = {**SETTING, **(RECURRENT if options.recurrent else {}), "num_envs": options.num_envs, "total_steps": total}
    return {**settings, **dict(text.split("=", 1) for text in options.set)}


def make_config(options: argparse.Namespace) -> proximo.Config:
    """The settings, checked by proximo."""
    return proximo.make_config("gymnax:CartPole-v1", settings_of(options), preset=False)


def main() -> None:
    options = parse()
    if options.seeds > 1 and options.seeds_mode == "vmap":
        jax_setup.prepare_jax(
            for_seeds=True
        )  # before JAX starts: the cores share the seeds of one program, as in `proximo train`
    config = make_config(options)
    run, compile_seconds = compiled(config, options.seeds, options.seeds_mode)
    metrics = run(0)
    rates = []
    for repeat in range(options.repeats):
        started = time.perf_counter()
        metrics = run(1000 * (repeat + 1))
        steps = config.total_updates * config.batch_size * options.seeds
        rates.append(round(steps / (time.perf_counter() - started)))
    line = {
        "peer": "proximo",
        "versions": {p: importlib.metadata.version(p) for p in ("jax", "equinox", "gymnax")}
        | {"python": platform.python_version()},
        "settings": {**settings_of(options), "seeds": options.seeds, "cpu_count": os.cpu_count(), "threads": jax_setup.threads()},
        "compile_seconds": round(compile_seconds, 2),
        "steps_per_second": rates,
        "return_mean_last": float(np.asarray(metrics["rollout/return_mean"])[..., -1].mean()),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
