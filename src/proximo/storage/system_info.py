"""The system that a run is computed on: recorded when it starts, compared when it is resumed."""

import functools
import os
import platform
import re
from importlib import metadata
from pathlib import Path

from proximo.jax_setup import available_devices, core_devices, cores, cpu_description
from proximo.serialization import JsonObject, json_object

_PACKAGES = ("proximo", "jax", "jaxlib", "equinox", "optax", "numpy")
_OF_EXTRA = re.compile(r"([\w.-]+)[^;]*; extra == '(?!(dev|test|docs)')")
EXACT_VARIABLES = ("XLA_FLAGS", "NPROC", "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION", "JAX_DEFAULT_PRNG_IMPL")
"""They change results; other variables (caches, logging) are recorded and not compared."""
COMPARED = {
    "processor": "the processor", "cpu_count": "the number of CPUs", "cpu_affinity": "the number of CPUs that may be used",
    "device_kind": "the device", "device_count": "the number of devices",
    "core_devices": "the number of cores that share the seeds",  # only of several seeds in one program
}  # fmt: skip


@functools.cache
def versions() -> dict[str, str]:
    """The versions of the installed packages that decide about results, or that an extra requires, by name."""
    try:
        required = metadata.requires("proximo") or []
    except metadata.PackageNotFoundError:  # a copy of the source on Python's path
        required = []
    of_extras = [found[1] for text in required if (found := _OF_EXTRA.match(text))]
    names = dict.fromkeys([*_PACKAGES, "gymnasium", "gymnax", *of_extras])
    return {name: text for name in names if (text := version(name))}


def version(package: str) -> str:
    """The installed version of ``package``; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def exact_versions() -> dict[str, str]:
    """The versions that decide about a compiled program, by name."""
    return {"python": platform.python_version(), **{package: version(package) for package in _PACKAGES}}


def system_info() -> JsonObject:
    """Python, platform, CPUs, environment variables, versions and devices, as JSON can store them."""
    devices = available_devices()
    names = sorted(name for name in os.environ if name in (*EXACT_VARIABLES, "OMP_NUM_THREADS") or name.startswith("JAX_"))
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        # The compiler chooses instructions by the model, and these decide about the last bits.
        "processor": cpu_description("model name") or platform.processor() or platform.machine(),
        "cpu_count": os.cpu_count(),
        "cpu_affinity": cores(),
        "environment": {name: os.environ[name] for name in names},
        "versions": dict(versions()),
        "device_kind": devices[0].device_kind,
        "device_count": len(devices),
        "core_devices": len(core_devices()),
    }


def system_differences(run_dir: Path, library: str, several_seeds: bool = False) -> list[str]:
    """One sentence for each difference between the recorded and the present system that may change the bits of a resumed
    run on an environment of ``library``, or of ``several_seeds`` in one program."""

    def exact(system: JsonObject) -> JsonObject:
        found = {
            name: system.get(key, "not recorded") for key, name in COMPARED.items() if several_seeds or key != "core_devices"
        }
        found |= {name: system["environment"].get(name, "not set") for name in EXACT_VARIABLES}
        return found | {name: system["versions"].get(name, "not installed") for name in (*_PACKAGES, library)}

    differ = "the resumed run may differ in its last bits."
    try:
        recorded, present = exact(json_object(run_dir / "system.json")), exact(system_info())
    except (KeyError, TypeError, AttributeError):
        return [f"{run_dir / 'system.json'} is missing or damaged: {differ}"]
    return [f"{name} was {recorded[name]} and is {x} now: {differ}" for name, x in present.items() if recorded[name] != x]
