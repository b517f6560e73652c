"""Measure one case on the devices of this machine, and print it as a JSON line: the process that ``accelerator.py`` starts for each case."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import platform
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator

import proximo

import jax  # isort: skip  (after proximo, which sets the number of threads)
import jax.numpy as jnp

from ours import RECURRENT, SETTING
from proximo.collect import JaxCollector, JaxTrainer
from proximo.collect.devices import divided, placed
from proximo.collect.environment import environment
from proximo.config import Config
from proximo.errors import ProximoError
from proximo.jax_setup import compile_lowered
from scaling import mesh_of

ANT = {
    "env_settings": "backend=positional",
    "num_steps": 10,
    "num_minibatches": 32,
    "learning_rate": 3e-4,
    "clip_value_eps": 0.2,
    "ent_coef": 0.0,
    "hidden_sizes": (256, 256),
    "normalize_observation": True,
    "normalize_reward": True,
}
CASES = {
    "CartPole": ("gymnax:CartPole-v1", SETTING),
    "CartPole, GRU": ("gymnax:CartPole-v1", {**SETTING, **RECURRENT}),
    "Brax ant": ("brax:ant", ANT),
    "Nature CNN": ("image_envs:Squares", {**SETTING, "num_steps": 32}),
}
"""The settings of PureJaxRL's programs, and images of 84 × 84 × 4 bytes with shorter rollouts."""


def config_of(case: str, num_envs: int) -> Config:
    """The settings of a case."""
    env_id, settings = CASES[case]
    return proximo.make_config(env_id, {**settings, "num_envs": num_envs, "total_steps": 10**9}, preset=False)


def compiled(config: Config, devices: int, updates: int):
    """``program(state) -> state`` of ``updates`` updates, the first state, and the seconds to trace and compile."""
    collector = JaxCollector(config, environment(config))
    trainer, mesh = JaxTrainer(collector), mesh_of(devices) if devices > 1 else None
    state = placed(jax.jit(collector.init)(jax.random.key(0)), mesh)
    advance = divided(lambda state: trainer.advance(state, jnp.int32(updates), updates), mesh)
    started = time.perf_counter()
    program = compile_lowered(jax.jit(lambda state: advance(state)[0], donate_argnums=0).lower(state))
    return program, state, time.perf_counter() - started


@contextlib.contextmanager
def sampled_utilisation() -> Iterator[list[float]]:
    """Context manager: the utilisation of GPU 0 in percent, as ``nvidia-smi`` samples it; an empty list without that program."""
    samples: list[float] = []
    if jax.default_backend() != "gpu" or not shutil.which("nvidia-smi"):
        yield samples
        return
    command = ["nvidia-smi", "--id=0", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--loop-ms=200"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    lines = process.stdout

    def read() -> None:
        samples.extend(float(line) for line in lines if line.strip().isdigit())

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield samples
    finally:
        process.terminate()
        process.wait()
        thread.join()


def measure(program, state, seconds: float) -> tuple[list[float], float, list[float]]:
    """Call the program until the time is over, at least twice.

    Returns the seconds of each call, the seconds of a call in a queue of calls (the device does not wait), and samples of the utilisation.
    """
    state = jax.block_until_ready(program(state))
    calls: list[float] = []
    with sampled_utilisation() as samples:
        while len(calls) < 2 or sum(calls) < seconds:
            started = time.perf_counter()
            state = jax.block_until_ready(program(state))
            calls.append(time.perf_counter() - started)
    queued = min(len(calls), 8)
    started = time.perf_counter()
    for _ in range(queued):
        state = program(state)
    jax.block_until_ready(state)
    return calls, (time.perf_counter() - started) / queued, samples


def row_of(case: str, num_envs: int, devices: int, seconds: float, updates: int) -> dict:
    """The measured row."""
    config = config_of(case, num_envs)
    program, state, compile_seconds = compiled(config, devices, updates)
    calls, queued, samples = measure(program, state, seconds)
    memory = jax.local_devices()[0].memory_stats() or {}
    middle = statistics.median(calls)
    return {
        "steps_per_second": round(updates * config.batch_size / middle),
        "update_seconds": round(middle / updates, 5),
        "calls": len(calls),
        "compile_seconds": round(compile_seconds, 1),
        "peak_device_memory": memory.get("peak_bytes_in_use"),
        # A call in a queue takes the time of the device alone.
        "busy": round(statistics.mean(samples) / 100 if samples else min(1.0, queued / middle), 3),
        "busy_by": "nvidia-smi" if samples else "queue",
    }


def machine() -> dict:
    """The devices and versions."""
    packages = ("jax", "jaxlib", "equinox", "gymnax", "brax", "flax")
    versions = {"python": platform.python_version(), "proximo": proximo.__version__}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    devices = jax.local_devices()
    return {"device": devices[0].device_kind, "platform": devices[0].platform, "devices": len(devices), "versions": versions}


def main() -> None:
    """Print the machine, or the row of a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=list(CASES), help="None: describe the machine")
    parser.add_argument("--envs", type=int)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=6.0, help="time of the timed calls together")
    parser.add_argument("--updates", type=int, default=4, help="updates of a timed call")
    options = parser.parse_args()
    try:
        arguments = (options.case, options.envs, options.devices, options.seconds, options.updates)
        row = row_of(*arguments) if options.case else machine()
    except ProximoError as error:  # such as a library that is not installed
        row = {"note": str(error)}
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
