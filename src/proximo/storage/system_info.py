"""The system that a run is computed on: recorded when it starts, compared when it is resumed."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proximo.jax_setup import available_devices, core_devices, cores, cpu_description
from proximo.serialization import json_object

_PACKAGES = ("proximo", "jax", "jaxlib", "equinox", "optax", "numpy", "gymnax")
# Extras whose environments are part of the compiled program. Runs from before these were recorded did not use them.
_JAX_EXTRAS = ("brax", "craftax", "jumanji", "mujoco-mjx", "navix", "playground")
# Gymnasium environments restart when a run is resumed, so their libraries are recorded and not compared.
_GYMNASIUM_PACKAGES = (
    "gymnasium",
    "ale-py",
    "box2d",
    "envpool",
    "memory-gym",
    "minigrid",
    "mujoco",
    "opencv-python-headless",
    "popgym",
)
NOT_INSTALLED = "not installed"
_THREAD_VARIABLES = ("XLA_FLAGS", "NPROC", "OMP_NUM_THREADS")
# These change results; other variables (caches, logging) are recorded and not compared.
EXACT_VARIABLES = ("XLA_FLAGS", "NPROC", "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_DEFAULT_PRNG_IMPL")


def version(package: str) -> str:
    """The installed version of ``package``, or ``not installed``."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return NOT_INSTALLED


def python_versions() -> dict[str, str]:
    """The versions that decide about a compiled program, by name."""
    return {"python": platform.python_version(), **{package: version(package) for package in _PACKAGES}}


def _processor() -> str:
    """Model of the CPU. The compiler chooses instructions by it, and these decide about the last bits."""
    return cpu_description("model name") or platform.processor() or platform.machine()


def system_info() -> dict[str, Any]:
    """Python, platform, CPUs, environment variables, versions and devices, as JSON can store them."""
    devices = available_devices()
    variables = {name: text for name, text in sorted(os.environ.items()) if name in _THREAD_VARIABLES or name.startswith("JAX_")}
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cpu_count": os.cpu_count(),
        "cpu_affinity": cores(),
        "environment": variables,
        "versions": {package: version(package) for package in (*_PACKAGES, *_JAX_EXTRAS, *_GYMNASIUM_PACKAGES)},
        "device_kind": devices[0].device_kind,
        "device_count": len(devices),
        "core_devices": len(core_devices()),
    }


def _exactness(system: Mapping[str, Any], several_seeds: bool) -> dict[str, Any]:
    """The part of ``system_info`` that decides about the bits of a run, by its name in messages."""
    names = {
        "processor": "the processor", "cpu_count": "the number of CPUs", "cpu_affinity": "the number of CPUs that may be used",
        "device_kind": "the device", "device_count": "the number of devices",
        **({"core_devices": "the number of cores that share the seeds"} if several_seeds else {}),
    }  # fmt: skip
    variables = {name: system["environment"].get(name, "not set") for name in EXACT_VARIABLES}
    versions = {package: system["versions"].get(package, "not recorded") for package in _PACKAGES}
    versions |= {package: system["versions"].get(package, NOT_INSTALLED) for package in _JAX_EXTRAS}
    return {sentence: system.get(key, "not recorded") for key, sentence in names.items()} | variables | versions


def system_differences(run_dir: Path, several_seeds: bool = False) -> list[str]:
    """One sentence for each difference between the recorded and the present system that may change the bits of a resumed run, or of
    ``several_seeds`` in one program."""
    try:
        recorded = _exactness(json_object(run_dir / "system.json"), several_seeds)
    except (KeyError, TypeError, AttributeError):
        return [
            f"{run_dir / 'system.json'} is missing or damaged, so this system cannot be compared with that of the run: the resumed run may differ in its last bits."
        ]
    present = _exactness(system_info(), several_seeds)
    return [
        f"{name} was {recorded[name]} and is {present[name]} now: the resumed run may differ in its last bits."
        for name in present
        if recorded[name] != present[name]
    ]
