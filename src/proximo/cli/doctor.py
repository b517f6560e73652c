"""Check whether this machine is ready for training."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from proximo.cli import Options, Parser, paint, print_json

TRIAL_UPDATES = 20
Check = tuple[str, bool, str, dict[str, float]]
"""A name, whether it is well, a message, and figures for ``--json``."""


def make_parser() -> Parser:
    parser = Parser("doctor", __doc__)
    parser.add_shared("--json")
    return parser


def run(options: Options) -> int:
    from proximo.jax_setup import prepare_jax
    from proximo.storage.system_info import system_info

    prepare_jax()  # before JAX starts, as for a training
    info = system_info()
    found = (*_machine(), _training())
    checks = [{"name": name, "ok": ok, "message": message, **figures} for name, ok, message, figures in found]
    healthy = all(check["ok"] for check in checks)
    if options.json:
        print_json({"healthy": healthy, "checks": checks, "system": info})
    else:
        for check in checks:
            print(f"{paint('ok  ', 'green') if check['ok'] else paint('FAIL', 'red')}  {check['name']}: {check['message']}")
        print("      " + ", ".join(f"{name} {version}" for name, version in info["versions"].items()))
    return 0 if healthy else 1


def _machine() -> Iterator[Check]:
    import jax

    from proximo.jax_setup import CACHE_VARIABLE, REMEDY_VARIABLE, SAFE_THREADS, cores, threads
    from proximo.tracking.progress import amount

    device, hint = jax.devices()[0], ""
    if device.platform != "cpu":
        slow = "small networks and few environments are faster on the CPU (JAX_PLATFORMS=cpu)"
        hint = f"; {slow}: raise num_envs to use this device"
    elif Path("/dev/nvidia0").exists():
        hint = '; this machine has an NVIDIA GPU, but JAX cannot use it: pip install "jax[cuda13]"'
    yield "device", True, f"{device.device_kind} ({device.platform}), {amount(cores(), 'core')}{hint}", {}

    is_safe = device.platform != "cpu" or threads() >= SAFE_THREADS
    hint = "" if is_safe else f": JAX may hang with fewer than {SAFE_THREADS}: set {REMEDY_VARIABLE}={SAFE_THREADS}"
    yield "threads", is_safe, f"the CPU runtime has {threads()} threads{hint}", {}

    folder, size, is_usable = Path(jax.config.values["jax_compilation_cache_dir"] or ""), 0, False
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        size, is_usable = sum(f.stat().st_size for f in folder.iterdir() if f.is_file()), os.access(folder, os.W_OK)
    found = f", {size / 2**20:.0f} MiB" if is_usable else f" cannot be written to: set {CACHE_VARIABLE}"
    yield "compilation cache", is_usable, f"{folder}{found}", {}


def _training() -> Check:
    """Train one of proximo's tasks briefly, without a run directory."""
    from proximo.envs import make_env
    from proximo.settings import make_config
    from proximo.training.backends import make_backend

    sizes = {"num_envs": 64, "num_steps": 128, "num_minibatches": 4, "num_epochs": 4, "updates_per_call": TRIAL_UPDATES}
    config = make_config("proximo:PocMemory", sizes, preset=False)
    backend = make_backend(config, make_env(config.env.id), stacked=False)
    state = backend.prepare(lambda: backend.start([0]))
    state, _ = backend.advance(state, 1)
    started = time.monotonic()
    state, _ = backend.advance(state, TRIAL_UPDATES)
    speed, compiling = TRIAL_UPDATES * config.batch_size / (time.monotonic() - started), backend.compile_seconds
    message = f"{speed:,.0f} steps/s on proximo:PocMemory without memory (64 environments), {compiling:.1f} s to compile"
    return "training", bool(state.healthy), message, {"steps_per_second": speed, "compile_seconds": compiling}
