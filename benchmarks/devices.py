"""What several devices cost: the divided program on a mesh of one device against the ordinary program, in one process.

    python benchmarks/devices.py
    JAX_NUM_CPU_DEVICES=2 python benchmarks/devices.py --devices 2    # virtual devices: the cost of communication, no speedup

Prints the median of the ratios of alternating pairs of calls, their quartiles, and the ratio of the shortest calls, which other work on the
machine disturbs least.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import proximo

import jax  # isort: skip  (after proximo, which sets the number of threads)
import jax.numpy as jnp

from proximo.collect import JaxCollector, JaxTrainer
from proximo.collect.devices import divided, placed
from proximo.envs import make_env
from proximo.jax_setup import prepare_jax

UPDATES = 4
CASES = {
    "mlp": ("gymnax:CartPole-v1", {"num_envs": 64}),
    "gru": ("proximo:PocMemory", {"num_envs": 64, "memory": "gru", "sequence_length": 32, "memory_size": 64}),
}


def seconds(program, state) -> float:
    """Seconds of one call of ``UPDATES`` updates."""
    started = time.perf_counter()
    jax.block_until_ready(program(state))
    return time.perf_counter() - started


def times(case: str, count: int, pairs: int) -> np.ndarray:
    """Seconds of the divided program on ``count`` devices and of the ordinary one, for each pair of calls."""
    env_id, settings = CASES[case]
    config = proximo.make_config(env_id, settings, preset=False)
    collector = JaxCollector(config, make_env(env_id))
    advance = JaxTrainer(collector).advance
    mesh = jax.make_mesh((count,), ("envs",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:count])
    state = jax.jit(collector.init)(jax.random.key(0))

    def compiled(mesh):
        return jax.jit(divided(lambda state: advance(state, jnp.int32(UPDATES), UPDATES), mesh))

    programs = [(compiled(mesh), placed(state, mesh)), (compiled(None), state)]
    for program, start in programs:
        seconds(program, start)
    return np.array([[seconds(*program) for program in programs] for _ in range(pairs)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=1, help="devices of the divided program")
    parser.add_argument("--pairs", type=int, default=40, help="pairs of calls")
    options = parser.parse_args()
    prepare_jax()
    for case in CASES:
        measured = times(case, options.devices, options.pairs)
        low, middle, high = np.percentile(measured[:, 0] / measured[:, 1], (25, 50, 75))
        shortest = measured[:, 0].min() / measured[:, 1].min()
        print(
            f"{case}: {options.devices} / ordinary = {middle:.3f}, quartiles {low:.3f} … {high:.3f}, shortest calls {shortest:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
