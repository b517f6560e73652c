"""The speed of proximo as a library. It compares a custom loop with the command line, a custom network with the built-in one, and a sweep in one call
with one training after the other. Both of a pair alternate in one process; medians of the ratios are written to results/library.json.

    python benchmarks/library.py [--rounds 5] [--rows loop network … "small sweep"] [--steps 500000]
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

import proximo
import jax
import jax.numpy as jnp

from proximo.collect.devices import divided, mesh_for
from proximo.jax_setup import prepare_jax
from proximo.ppo import make_hyperparameters
from proximo.tracking.reporter import Reporter

ENV = "gymnax:CartPole-v1"
RESULTS = Path(__file__).parent / "results" / "library.json"
RATES, SEEDS = (3e-4, 1e-3, 2e-3, 3e-3), 16


def loop_of(config: proximo.Config) -> Callable:
    """The loop of docs/python.md."""
    init, collect, update = proximo.make_functions(config, proximo.make_env(config.env.id))

    def step(state, _):
        state, rollout, episodes = collect(state)
        state, metrics = update(state, rollout)
        return state, {**metrics, **episodes}

    @jax.jit
    def train(key):
        return jax.lax.scan(step, init(key), length=config.total_updates)

    return train


def timed(call: Callable, *arguments) -> float:
    """Seconds of a call, to its last array."""
    started = time.perf_counter()
    jax.block_until_ready(call(*arguments))
    return time.perf_counter() - started


class Clock(Reporter):
    """Seconds from the end of compiling to the end of the training."""

    seconds = 0.0

    def compiled(self, how: str) -> None:
        self.since = time.perf_counter()

    def finished(self, results: list[Any]) -> None:
        self.seconds = time.perf_counter() - self.since


def loop(steps: int, rounds: int) -> dict:
    """The functional loop, and `proximo train` from its first update to its end, with its rows and checkpoints: as it is, and without
    TensorBoard's events."""
    config = proximo.make_config(ENV, {"total_steps": steps})
    train = loop_of(config)
    jax.block_until_ready(train(jax.random.key(0)))

    def command(seed: int, **settings: Any) -> float:
        with tempfile.TemporaryDirectory() as folder:
            clock = Clock()
            proximo.train(ENV, total_steps=steps, eval_episodes=0, seed=seed, runs_dir=folder, reporter=clock, **settings)
        return clock.seconds

    others = {"no TensorBoard": {"tensorboard": False}}
    for settings in ({}, *others.values()):
        command(0, **settings)
    pairs, beside = [], {name: [] for name in others}
    for i in range(1, rounds + 1):
        pairs.append((timed(train, jax.random.key(i)), command(i)))
        for name, settings in others.items():
            beside[name].append(command(i, **settings) / pairs[-1][0])
    row = _row("seconds of the loop, of the command line", pairs, "command line / loop; mark: at most 1.05, aim: 1.02")
    return {**row, **{f"median_ratio, {name}": round(statistics.median(ratios), 3) for name, ratios in beside.items()}}


class Linear(eqx.Module):
    """A custom layer."""

    weight: jax.Array
    bias: jax.Array

    def __init__(self, in_size, out_size, key):
        self.weight, self.bias = jax.random.normal(key, (in_size, out_size)) / in_size**0.5, jnp.zeros(out_size)

    def __call__(self, x):
        return x @ self.weight + self.bias


class Tower(eqx.Module):
    """The built-in encoder of a preset as a custom network."""

    layers: list
    make = Linear

    def __init__(self, key, space):
        keys = jax.random.split(key)
        self.layers = [self.make(space.size, 64, key=keys[0]), self.make(64, 64, key=keys[1])]

    def __call__(self, x):
        for layer in self.layers:
            x = jnp.tanh(layer(x))
        return x


class Head(eqx.Module):
    """The heads of that preset as custom networks."""

    layer: eqx.Module
    make = Linear

    def __init__(self, key, in_size, out_size=1):
        self.layer = self.make(in_size, out_size, key=key)

    def __call__(self, x):
        return self.layer(x)


class EquinoxTower(Tower):
    """The same with Equinox's layers, which store a weight as (out, in)."""

    make = eqx.nn.Linear


class EquinoxHead(Head):
    """The same with Equinox's layer."""

    make = eqx.nn.Linear


class Cell(eqx.Module):
    """Equinox's GRU cell as a custom memory."""

    cell: eqx.nn.GRUCell

    def __init__(self, key, in_size):
        self.cell = eqx.nn.GRUCell(in_size, 128, key=key)

    def init(self):
        return jnp.zeros(128)

    def step(self, state, x):
        state = self.cell(x, state)
        return state, state


def network(steps: int, rounds: int) -> dict:
    """Whole trainings with the built-in encoder and heads, and with the same as custom networks."""
    return _networks(steps, rounds, {}, {"encoder": Tower, "actor": Head, "critic": Head})


def equinox(steps: int, rounds: int) -> dict:
    """The same, written with Equinox's layers."""
    return _networks(steps, rounds, {}, {"encoder": EquinoxTower, "actor": EquinoxHead, "critic": EquinoxHead})


def memory(steps: int, rounds: int) -> dict:
    """The built-in GRU, whose gradient is written by hand, and Equinox's cell, which is differentiated automatically."""
    base = {"towers": "shared", "sequence_length": 16}
    return _networks(steps // 5, rounds, {**base, "memory": "gru", "memory_size": 128}, {**base, "memory": Cell})


def _networks(steps: int, rounds: int, built_in: dict, custom: dict) -> dict:
    loops = [loop_of(proximo.make_config(ENV, {"total_steps": steps, **settings})) for settings in (custom, built_in)]
    for train in loops:
        jax.block_until_ready(train(jax.random.key(0)))
    pairs = [tuple(timed(train, jax.random.key(i)) for train in loops) for i in range(1, rounds + 1)]
    return _row("seconds with the custom network, with the built-in one", pairs, "built-in / custom; mark: about 1")


def sweep(steps: int, rounds: int) -> dict:
    """16 seeds × 4 learning rates in one call, whose trainings are divided over the cores, and in 64 calls of a compiled training; beside
    them one as a command, which starts Python and compiles each time, and what a core makes of products as the networks have them."""
    row = _sweep(steps, rounds, {})
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        words = ["train", ENV, "--total-steps", str(steps // 10), "--eval-episodes", "0", "--runs-dir", folder]
        subprocess.run([sys.executable, "-m", "proximo", *words], check=True, capture_output=True)
        command = time.perf_counter() - started
    over = round(row["trainings"] * command / row["first_call_with_compiling"], 1)
    return {**row, "one_command": round(command, 1), "commands_over_first_call": over, "gflops_of_products": _products()}


def small_sweep(steps: int, rounds: int) -> dict:
    """The same with rollouts of 4 × 32 rows, whose operations are small."""
    return _sweep(steps, rounds, {"num_envs": 4, "num_steps": 32})


def _products() -> float:
    """Billions of floating-point operations in a second, of a product of 256 × 64 with 64 × 64 after the other."""
    count, x, w = 20_000, jnp.ones((256, 64)), jnp.ones((64, 64)) / 64
    chain = jax.jit(lambda x: jax.lax.fori_loop(0, count, lambda _, x: x @ w, x))
    jax.block_until_ready(chain(x))
    return round(count * 2 * 256 * 64 * 64 / timed(chain, x) / 1e9, 1)


def _sweep(steps: int, rounds: int, settings: dict) -> dict:
    config = proximo.make_config(ENV, {"total_steps": steps // 10, **settings})
    base, env = make_hyperparameters(config.ppo), proximo.make_env(ENV)
    train = proximo.make_train(config, env)

    def with_rate(rate):
        schedule = dataclasses.replace(base.learning_rate, initial=rate)
        return dataclasses.replace(base, learning_rate=schedule)

    def single(rate, key):
        return train(key, with_rate(rate))[1]["rollout/return_mean"]

    def on_a_core(rates, keys):
        return jax.lax.map(lambda pair: single(*pair), (rates, keys))

    pairs = list(itertools.product(RATES, range(SEEDS)))
    rates = jnp.array([rate for rate, _ in pairs])
    keys = jax.vmap(jax.random.key)(np.array([seed for _, seed in pairs]))
    together, alone = jax.jit(divided(on_a_core, mesh_for(None, len(pairs)))), jax.jit(single)
    started = time.perf_counter()
    returns = jax.block_until_ready(together(rates, keys))
    first_call = time.perf_counter() - started
    jax.block_until_ready(alone(rates[0], keys[0]))
    measured = []
    for _ in range(rounds):
        first = timed(together, rates, keys)
        measured.append((first, sum(timed(alone, rate, key) for rate, key in zip(rates, keys, strict=True))))
    row = _row("seconds of the one call, of 64 calls", measured, "64 calls / one call; mark: 1.6 on two cores, aim: 1.8")
    row["first_call_with_compiling"] = round(first_call, 1)
    alone_seconds = statistics.median(seconds for _, seconds in measured)
    started = time.perf_counter()
    with ThreadPoolExecutor(2) as vector_env:
        list(vector_env.map(lambda pair: jax.block_until_ready(alone(*pair)), zip(rates, keys, strict=True)))
    row["one_by_one_in_two_threads"] = round(time.perf_counter() - started, 1)
    row["steps_per_second_one_by_one"] = round(len(pairs) * config.total_updates * config.batch_size / alone_seconds)
    last = np.asarray(returns)[:, -10:].mean(axis=1).reshape(len(RATES), SEEDS).mean(axis=1)
    return {
        **row,
        "trainings": len(pairs),
        "steps_each": steps // 10,
        "return_by_rate": dict(zip(map(str, RATES), last.round(1).tolist(), strict=True)),
    }


def _row(what: str, pairs: list[tuple[float, float]], ratio: str) -> dict:
    """A row of the results."""
    ratios = [other / first for first, other in pairs]
    row = {"what": what, "pairs": [[round(x, 3) for x in pair] for pair in pairs], "ratio_is": ratio}
    return {**row, "ratios": [round(x, 3) for x in ratios], "median_ratio": round(statistics.median(ratios), 3)}


ROWS = {"loop": loop, "network": network, "equinox": equinox, "memory": memory, "sweep": sweep, "small sweep": small_sweep}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["PROXIMO_CACHE_DIR"] = cache  # nothing is compiled already
        measured(options)


def measured(options: argparse.Namespace) -> None:
    """Measure the rows, and save each."""
    prepare_jax(for_seeds=True)  # a sweep is divided over cores; everything else uses the first one
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.rows:
        row = ROWS[name](options.steps, options.rounds)
        machine = {
            "cpu_count": os.cpu_count(),
            "jax": jax.__version__,
            "python": platform.python_version(),
            "backend": jax.default_backend(),
        }
        results[name] = {**row, "machine": machine, "command": shlex.join(["python", *sys.argv])}
        print(name, json.dumps(row), flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
