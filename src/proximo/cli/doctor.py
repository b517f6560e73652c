"""``proximo doctor``."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from proximo.cli import Parser
from proximo.cli.colour import paint

TRIAL_UPDATES = 20


def make_parser() -> Parser:
    """The flags of the verb."""
    parser = Parser(prog="proximo doctor", description="Look whether this machine is fit for training.", allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(arguments: list[str]) -> int:
    """Say what this machine offers and what stands in the way; exit 1 when training would fail."""
    options = make_parser().parse_args(arguments)

    from proximo.run.system import system_info

    info = system_info()
    checks = [_device(), _deadlock(), _cache(), _training()]
    healthy = all(check["ok"] for check in checks)
    if options.json:
        print(json.dumps({"healthy": healthy, "checks": checks, "system": info}))
    else:
        for check in checks:
            print(f"{paint('ok  ', 'green') if check['ok'] else paint('FAIL', 'red')}  {check['name']}: {check['says']}")
        versions = info["versions"]
        print("      " + ", ".join(f"{name} {version}" for name, version in versions.items()))
    return 0 if healthy else 1


def _check(name: str, ok: bool, says: str, **figures: Any) -> dict[str, Any]:
    return {"name": name, "ok": ok, "says": says, **figures}


def _device() -> dict[str, Any]:
    import jax

    device = jax.devices()[0]
    hint = ""
    if device.platform == "cpu" and Path("/dev/nvidia0").exists():
        hint = '; there is an NVIDIA card, but JAX has no support for it: pip install "jax[cuda13]"'
    elif device.platform != "cpu":
        hint = (
            "; small networks and few environments are faster on the CPU (JAX_PLATFORMS=cpu): raise num_envs to use this device"
        )
    return _check("device", True, f"{device.device_kind} ({device.platform}), {os.cpu_count()} cores{hint}")


def _deadlock() -> dict[str, Any]:
    import jax

    from proximo.runtime import REMEDY_VARIABLE, SAFE_THREADS, threads

    if jax.default_backend() != "cpu":
        return _check("deadlock remedy", True, "not needed on this device")
    enough = threads() >= SAFE_THREADS
    hint = "" if enough else f": JAX may hang with fewer than {SAFE_THREADS}; set {REMEDY_VARIABLE}={SAFE_THREADS}"
    return _check("deadlock remedy", enough, f"the CPU runtime has {threads()} threads{hint}")


def _cache() -> dict[str, Any]:
    import jax

    from proximo.runtime import CACHE_VARIABLE, prepare_jax

    prepare_jax()
    folder = Path(jax.config.values["jax_compilation_cache_dir"] or "")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    size = sum(f.stat().st_size for f in folder.glob("*") if f.is_file()) / 2**20 if writable else 0.0
    says = f"{folder}, {size:.0f} MiB" if writable else f"{folder} cannot be written to: set {CACHE_VARIABLE}"
    return _check("compilation cache", writable, says)


def _training() -> dict[str, Any]:
    """Train a task of our own for a moment, without a run directory."""
    import jax

    from proximo.envs import make_env
    from proximo.run import make_config
    from proximo.run.program import make_program

    config = make_config(
        "proximo:PocMemory",
        {"num_envs": 64, "num_steps": 128, "num_minibatches": 4, "num_epochs": 4, "updates_per_call": TRIAL_UPDATES},
        preset=False,
    )
    program = make_program(config, make_env(config.env.id), stacked=False)
    state = program.start([0])
    program.compile(state)
    state, _ = program.advance(state, 1)
    started = time.monotonic()
    state, metrics = program.advance(state, TRIAL_UPDATES)
    speed = TRIAL_UPDATES * config.batch_size / (time.monotonic() - started)
    healthy = bool(jax.device_get(state.healthy)) and not metrics["bad/loss"].any()
    says = f"{speed:,.0f} steps/s on proximo:PocMemory without memory (64 environments), {program.compile_seconds:.1f} s of compiling"
    return _check("training", healthy, says, steps_per_second=speed, compile_seconds=program.compile_seconds)
