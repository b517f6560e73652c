"""What the peer scripts share: ahead-of-time compilation, timing of whole trainings, and the report line.

Import this module before JAX. It sets NPROC=4 unless the caller has set it, the remedy against the deadlock of XLA's CPU
runtime on few cores that proximo applies to itself (docs/decisions/0002-deadlock.md), so that thread counts are equal.
"""

import importlib.metadata
import json
import os
import platform
import time

os.environ.setdefault("NPROC", "4")

import jax


def compile_train(train, seed):
    """Compile `train(key)` ahead of time and call it once, so that no repeat pays for either.

    Returns the compiled function and the seconds for tracing, lowering and compiling together.
    """
    key = jax.random.PRNGKey(seed)
    start = time.perf_counter()
    compiled = jax.jit(train).lower(key).compile()
    compile_seconds = time.perf_counter() - start
    jax.block_until_ready(compiled(key))
    return compiled, compile_seconds


def time_repeats(compiled, total_steps, repeats, seed):
    """Time `repeats` whole trainings, each from its own seed.

    Returns environment steps per second (one float per repeat) and what the last training returned.
    """
    rates, output = [], None
    for repeat in range(1, repeats + 1):
        key = jax.block_until_ready(jax.random.PRNGKey(seed + repeat))
        output = None  # frees the buffers of the repeat before, as a process that trains once would have them free
        start = time.perf_counter()
        output = jax.block_until_ready(compiled(key))
        rates.append(total_steps / (time.perf_counter() - start))
    return rates, output


def whole_updates(total_steps, batch_size):
    """Round `total_steps` down to a whole number of updates of `batch_size` steps.

    Raises ValueError if not even one update fits.
    """
    if total_steps < batch_size:
        raise ValueError(
            f"--total-steps is {total_steps}, but one update takes {batch_size} steps (environments x 128): "
            f"give at least {batch_size}."
        )
    return total_steps - total_steps % batch_size


def versions_of(*packages):
    """Return the Python version and the installed version of each package; None for one that is not installed."""
    versions = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def report(peer, versions, settings, compile_seconds, rates, return_mean):
    """Print the one JSON line that every peer script ends with."""
    machine = {"platform": jax.default_backend(), "cpu_count": os.cpu_count()}
    line = {
        "peer": peer,
        "versions": versions,
        "settings": settings | machine,
        "compile_seconds": round(compile_seconds, 2),
        "steps_per_second": [round(rate) for rate in rates],
        "peak_device_memory": (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
        "return_mean_last": return_mean,
    }
    print(json.dumps(line), flush=True)
