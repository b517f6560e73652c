"""The speed of trainings as a share of their limit: only their matrix products, at the peak of the processor, and stepping the environment.

    python benchmarks/limits.py [--rows NAME ...] [--rounds 3] [--out benchmarks/results/limits.json]
    python benchmarks/limits.py --show        # prints the table of the file; nothing is measured

The script counts the matrix products in the program that JAX traces, except those whose results are never used. The peak is that of
products of large matrices, measured in the same round. To a step on a Gymnasium environment is added the time that stepping alone takes
(`ours_host.py --stepping`). The limit leaves out everything else: activations and their gradients, the optimizer, normalization, copies,
and the steps of JAX environments; and small matrices do not reach the peak.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.interpreters.partial_eval import dce_jaxpr

import host_speed_rows
import ours
import ours_host
import proximo
from measurements import circumstances
from memory_speed import LSTM, ZOO
from proximo.jax_setup import cores
from proximo.spaces import zeros
from speed import measure

HERE = Path(__file__).parent
OUT = HERE / "results/limits.json"


def gymnasium(key: str, env: str = "") -> tuple[str, list[str]]:
    """The setting of a row of host_speed.py, on ``env`` if it is given."""
    row = host_speed_rows.ROWS[key]
    return "ours_host.py", ["--env", env or row.env, *row.setting, "--seconds", "10", *row.common]


ROWS: dict[str, tuple[str, list[str]]] = {
    "CartPole in JAX, 64 environments": ("ours.py", ["--num-envs", "64"]),
    "CartPole in JAX, 4 environments": ("ours.py", ["--num-envs", "4"]),
    "CartPole in JAX, GRU of 128 units, sequences of 16": (
        "ours.py", ["--num-envs", "64", "--recurrent", "--set", "diagnose_every=-1", "sequence_length=16"],
    ),
    "CartPoleNoVel, LSTM of 64 units, settings of RecurrentPPO": ("ours_host.py", ["--env", "CartPoleNoVel-v1", *ZOO, "--set", *LSTM]),
    "CartPole-v1, 8 × 128": gymnasium("cartpole"),
    "LunarLander-v3, 16 × 1024": gymnasium("lunarlander"),
    "LunarLander-v3 with EnvPool, 16 × 1024": gymnasium("lunarlander", "envpool:LunarLander-v3"),
    "HalfCheetah-v5, 1 × 2048": gymnasium("halfcheetah"),
    "HalfCheetah-v5, 8 × 256": gymnasium("halfcheetah8"),
    "Pong, 8 × 128": gymnasium("pong"),
}  # fmt: skip


class Product(NamedTuple):
    """``batch`` products of an m × k with a k × n matrix."""

    batch: int
    m: int
    k: int
    n: int


class Spaces:
    """A JAX environment with the spaces of another one: the same products, without its steps."""

    default_params = ()

    def __init__(self, env: Any):
        self.observation_space, self.action_space = env.observation_space, env.action_space

    def reset(self, key: Any, params: Any) -> Any:
        return (), zeros(self.observation_space, ())

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        return (), zeros(self.observation_space, ()), 0.0, False, False, {}


def products_of(jaxpr: Jaxpr, times: int = 1) -> Iterator[tuple[Product, int]]:
    """Every product in ``jaxpr``, with how often it is computed. Of code that depends on the platform, that of the CPU counts. The branches of
    other conditions do not count: they are rarely computed."""
    platforms = {equation.outvars[0] for equation in jaxpr.eqns if equation.primitive.name == "platform_index"}
    for equation in jaxpr.eqns:
        name, parameters = equation.primitive.name, equation.params
        if name == "cond" and equation.invars[0] in platforms:
            yield from products_of(parameters["branches"][0].jaxpr, times)  # ``convolution.py`` names the CPU first
            continue
        if name == "dot_general":
            left, right = (v.aval.shape for v in equation.invars)
            (contract, _), (batch, _) = parameters["dimension_numbers"]
            b, k = (math.prod(left[axis] for axis in axes) for axes in (batch, contract))
            yield Product(b, math.prod(left) // (b * k), k, math.prod(right) // (b * k)), times
        elif name != "cond":
            assert name != "conv_general_dilated", "convolutions are not counted"
            inner = times * parameters["length"] if name == "scan" else times
            found = [product for part in parts_of(parameters) for product in products_of(part, inner)]
            assert name != "while" or not found, "products in a loop whose number of iterations is not known"
            yield from found


def parts_of(parameters: dict[str, Any]) -> list[Jaxpr]:
    """The programs in the parameters of an operation, such as the body of a scan."""
    leaves = jax.tree.leaves(parameters, is_leaf=lambda x: isinstance(x, (Jaxpr, ClosedJaxpr)))
    return [getattr(leaf, "jaxpr", leaf) for leaf in leaves if isinstance(leaf, (Jaxpr, ClosedJaxpr))]


def peak(size: int = 1024, count: int = 20) -> float:
    """Floating-point operations in a second in products of large square matrices: one call that uses all threads, or one call on each core,
    whichever is faster, the fastest of five."""
    left = jnp.ones((size, size)) / size
    program = jax.jit(lambda x: jax.lax.fori_loop(0, count, lambda _, x: x @ left, x))

    def run(_: int = 0) -> None:
        jax.block_until_ready(program(left))

    def seconds(call: Callable[[], Any]) -> float:
        started = time.perf_counter()
        call()
        return time.perf_counter() - started

    run()  # compiles
    with ThreadPoolExecutor(cores()) as pool:
        together = min(seconds(lambda: list(pool.map(run, range(cores())))) for _ in range(5))
    return 2 * size**3 * count / min(min(seconds(run) for _ in range(5)), together / cores())


def measured(name: str, rounds: int) -> dict[str, Any]:
    """Steps per second of a training, and at its limit."""
    script, arguments = ROWS[name]
    module = ours if script == "ours.py" else ours_host
    config = module.make_config(module.parse(arguments))
    env = proximo.make_env(config.env.id)
    init, collect, update = proximo.make_functions(config, env if script == "ours.py" else Spaces(env))

    def step(state: Any) -> Any:
        state, rollout, _ = collect(state)
        return update(state, rollout)

    traced = jax.make_jaxpr(step)(jax.eval_shape(init, jax.random.key(0))).jaxpr
    needed, _ = dce_jaxpr(traced, [True] * len(traced.outvars))  # without the gradients of observations, for example
    counts: collections.Counter[Product] = collections.Counter()
    for product, times in products_of(needed):
        counts[product] += times
    operations = sum(2 * math.prod(product) * times for product, times in counts.items()) / config.batch_size
    rates, limits, alone = [], [], []
    for _ in range(rounds):
        rates.append(statistics.median(measure([sys.executable, str(HERE / script), *arguments])["steps_per_second"]))
        seconds = operations / peak()
        if script != "ours.py":
            line = measure([sys.executable, str(HERE / script), *arguments, "--stepping"])
            alone.append(statistics.median(line["steps_per_second"]))
            seconds += 1 / alone[-1]
        limits.append(round(1 / seconds))
    return {
        "steps_per_second": rates,
        "limits": limits,
        "share": round(statistics.median(rate / limit for rate, limit in zip(rates, limits, strict=True)), 2),
        "stepping_alone": alone,
        "operations_per_step": round(operations),
        "products": [{**product._asdict(), "times": times} for product, times in counts.items()],
        **circumstances(),
    }


def table(results: dict[str, Any]) -> str:
    """Markdown."""
    lines = ["| Setting | Steps/s | Limit | Share |", "|---|---|---|---|"]
    for name, row in results.items():
        rate, limit = (statistics.median(row[key]) for key in ("steps_per_second", "limits"))
        lines.append(f"| {name} | {rate:,.0f} | {limit:,.0f} | {row['share']:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    results = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in [] if options.show else options.rows:
        results[name] = measured(name, options.rounds)
        options.out.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        print(name, results[name]["share"], file=sys.stderr, flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
