"""Nature CNN on the CPU: XLA's convolution compared with the matrix products that proximo uses, in float32 and in bfloat16.

    python benchmarks/convolution.py [--rounds 9] [--batch 256]

Gradients of all parameters (samples/s, memory beside arguments and results) at ``--batch`` images of 84 × 84 × 4 bytes, alone
and for two seeds under vmap; the forward pass (microseconds) at 1, 8 and ``--batch`` images. Each program is compiled once; the
ways take turns, medians are printed, in brackets the best round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import proximo  # before JAX starts: it sets the remedy against the deadlock on few cores
from proximo.config import NetworkConfig
from proximo.jax_setup import compile_lowered, cores
from proximo.networks import convolution
from proximo.networks.image_encoders import NatureCNN
from proximo.spaces import Box

WAYS = {
    "XLA": (convolution.by_xla, "float32"),
    "products": (convolution.convolve, "float32"),
    "bfloat16": (convolution.convolve, "bfloat16"),
}
FORWARD_WAYS = {**WAYS, "products": (convolution.by_products, "float32"), "bfloat16": (convolution.by_products, "bfloat16")}
Way = tuple[Callable, str]
"""How to convolve, and the number format of the network."""
SHAPE = (84, 84, 4)


def forward(way: Way, cnn: NatureCNN, images: jax.Array) -> jax.Array:
    """The features, computed in one way."""
    usual, (convolution.convolve, dtype) = convolution.convolve, way
    try:
        return jax.tree.map(lambda x: x.astype(dtype), cnn)(images).astype(jnp.float32)
    finally:
        convolution.convolve = usual


def gradient(way: Way, cnn: NatureCNN, images: jax.Array) -> NatureCNN:
    """The gradient of some scalar of the features."""
    return jax.grad(lambda cnn: jnp.sum(jnp.sin(forward(way, cnn, images))))(cnn)


def compiled(function: Callable, ways: dict[str, Way], cnn: NatureCNN, images: jax.Array) -> dict[str, jax.stages.Compiled]:
    """A program for each way."""
    return {
        name: compile_lowered(jax.jit(lambda c, x, way=way: function(way, c, x)).lower(cnn, images)) for name, way in ways.items()
    }


def measured(programs: dict[str, jax.stages.Compiled], rounds: int, *arguments) -> dict[str, tuple[float, float]]:
    """Seconds of a call, median and best, the programs in turn."""
    seconds = {name: [] for name in programs}
    for number in range(rounds + 1):
        for name, program in programs.items():
            started = time.perf_counter()
            jax.block_until_ready(program(*arguments))
            if number:
                seconds[name].append(time.perf_counter() - started)
    return {name: (statistics.median(s), min(s)) for name, s in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, default=256)
    options = parser.parse_args()
    print(f"proximo {proximo.__version__}, jax {jax.__version__}, {jax.default_backend()}, {cores()} cores")

    images = jnp.asarray(np.random.default_rng(0).integers(0, 256, (options.batch, *SHAPE)), jnp.uint8)
    cnn, _ = NatureCNN.create(jax.random.key(0), Box(SHAPE, 0.0, 255.0, "uint8"), NetworkConfig())
    twins = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), cnn)

    def of_twins(way: Way, cnn: NatureCNN, images: jax.Array) -> NatureCNN:
        return jax.vmap(lambda c: gradient(way, c, images))(cnn)

    for title, function, parameters, seeds in (("gradient", gradient, cnn, 1), ("gradient, 2 seeds", of_twins, twins, 2)):
        programs = compiled(function, WAYS, parameters, images)
        for name, (median, best) in measured(programs, options.rounds, parameters, images).items():
            memory = programs[name].memory_analysis().temp_size_in_bytes / 1e6
            rows = options.batch * seeds
            print(f"{title:18s} {options.batch:4d} {name:9s} {rows / median:6.0f} samples/s ({rows / best:.0f}), {memory:.0f} MB")
    for count in (1, 8, options.batch):
        programs = compiled(forward, FORWARD_WAYS, cnn, images[:count])
        for name, (median, best) in measured(programs, 5 * options.rounds, cnn, images[:count]).items():
            print(f"{'forward':18s} {count:4d} {name:9s} {median * 1e6:6.0f} µs ({best * 1e6:.0f})")


if __name__ == "__main__":
    main()
