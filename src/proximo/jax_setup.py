"""Setup of JAX: CPU threads and their scheduling, a compilation cache, compiler options, and freed memory."""

import contextlib
import ctypes
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

REMEDY_VARIABLE = "NPROC"
SAFE_THREADS = 4
CACHE_VARIABLE = "PROXIMO_CACHE_DIR"
LAUNCHER = "PROXIMO_LAUNCHER"
"""The variable with the process id of ``proximo launch``, with which its processes end."""
CPU_DEVICES_FLAG = "xla_force_host_platform_device_count"
# Vectors of 512 bits are 1.04 to 1.1 times as fast as XLA's default (docs/decisions/0003). Level 2 compiles in
# nine tenths of the time of 3, and the programs are equally fast (docs/decisions/0019-start-and-cores.md).
CPU_OPTIONS = {"xla_cpu_prefer_vector_width": 512, "xla_backend_optimization_level": 2}
BRIEF_CPU_OPTIONS = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
"""For programs that run for less than a second: they compile in about a third of the time, and run slowly."""
_num_core_devices = 0


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_description(entry: str) -> str:
    """The value of an entry of ``/proc/cpuinfo``, such as ``model name``; "" if there is none."""
    with contextlib.suppress(OSError):
        if found := re.search(rf"^{entry}\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return found[1]
    return ""


def prepare_threads() -> None:
    """Give XLA's CPU runtime at least four threads, unless the user has set ``NPROC``: with one or two, it can hang
    forever (docs/decisions/0002-deadlock.md). With more threads than cores, select ``SCHED_BATCH``. ``import proximo``
    calls this. It warns if JAX has already started, because the number of threads is then fixed."""
    started = _jax_has_started()
    if cores() < SAFE_THREADS and REMEDY_VARIABLE not in os.environ:
        if started:
            warnings.warn(
                "JAX started before proximo was imported, so its CPU runtime has too few threads and may hang: import proximo before "
                f"the first JAX computation, or set {REMEDY_VARIABLE}={SAFE_THREADS}.",
                RuntimeWarning,
                stacklevel=3,
            )
        else:
            os.environ[REMEDY_VARIABLE] = str(SAFE_THREADS)
    if threads() > cores() and not started:
        schedule_as_batch()


def schedule_as_batch() -> None:
    """Select ``SCHED_BATCH``, under which a waking thread does not preempt a running one. With more threads than
    cores, training on JAX environments is 1.1 to 1.25 times as fast (docs/decisions/0002-deadlock.md).

    Several processes need it on any number of cores: Gloo's receiving thread polls for a lock, and can keep the
    thread that has it from running (docs/decisions/0017-several-processes.md).
    """
    with contextlib.suppress(AttributeError, OSError):  # no such policy on this system, or not permitted
        if os.sched_getscheduler(0) == os.SCHED_OTHER:  # keep a policy that the user has chosen
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _jax_has_started() -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def threads() -> int:
    """Number of threads of the CPU runtime: ``NPROC`` if it is set to a number, else the number of cores."""
    chosen = os.environ.get(REMEDY_VARIABLE, "")
    return int(chosen) if chosen.isdecimal() else cores()


def cache_folder() -> Path:
    """``$PROXIMO_CACHE_DIR``, else ``$XDG_CACHE_HOME/proximo``, else ``~/.cache/proximo``."""
    if base := os.environ.get(CACHE_VARIABLE):
        return Path(os.path.expanduser(base)).absolute()  # an environment may change the working folder
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")).absolute() / "proximo"


def prepare_jax(for_seeds: bool = False) -> None:
    """Set up JAX's compilation cache, its CPU dispatch and its CPU devices.

    If JAX has not started yet, small programs on the CPU run in the calling thread: passing them to another one takes
    three times as long as acting with a small network (docs/decisions/0006-gymnasium-collector.md). With ``for_seeds``,
    each core then becomes a device, unless the user has chosen a number of CPU devices.
    """
    global _num_core_devices
    import jax

    if not _jax_has_started():
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        is_chosen = jax.config.values["jax_num_cpu_devices"] > 0 or CPU_DEVICES_FLAG in os.environ.get("XLA_FLAGS", "")
        if for_seeds and not is_chosen:
            _num_core_devices = cores()
            jax.config.update("jax_num_cpu_devices", _num_core_devices)
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    folder = cache_folder() / "xla"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        warnings.warn(
            f"Cannot store compiled programs in {folder}, so every start compiles again: set {CACHE_VARIABLE} to a folder that you "
            "can write to.",
            RuntimeWarning,
            stacklevel=2,
        )
        # JAX would repeat this for each program.
        warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    _replace_damaged_entries()


def _replace_damaged_entries() -> None:
    """Make JAX remove entries of its cache that a killed process or a full disk has damaged. It would warn and compile
    again at every start."""
    import jax
    from jax._src import compilation_cache

    read = getattr(compilation_cache, "get_executable_and_time", None)
    if read is None:  # it is private: a later JAX may lack it
        return

    def reading(cache_key: str, *arguments: Any, **options: Any) -> Any:
        try:
            return read(cache_key, *arguments, **options)
        except (OSError, MemoryError):
            raise  # the entry may be intact
        except Exception:
            with contextlib.suppress(OSError):
                (Path(jax.config.values["jax_compilation_cache_dir"] or "") / f"{cache_key}-cache").unlink()
            raise

    compilation_cache.get_executable_and_time = reading


def forget_core_devices() -> None:
    """Leave the CPU one device, for processes that train together. Call this before JAX starts."""
    global _num_core_devices
    import jax

    if _num_core_devices and not _jax_has_started():
        _num_core_devices = 0
        jax.config.update("jax_num_cpu_devices", -1)


def core_devices() -> list[Any]:
    """The devices that ``prepare_jax`` has made of cores, over which only seeds are divided; empty on an accelerator."""
    import jax

    return jax.devices() if _num_core_devices and jax.default_backend() == "cpu" else []


def available_devices() -> list[Any]:
    """The devices that a user may ask for. Devices that ``prepare_jax`` has made of cores are one."""
    import jax

    return core_devices()[:1] or jax.devices()


def compile_lowered(lowered: Any, brief: bool = False) -> Any:
    """Compile ``jax.jit(...).lower(...)``, on the CPU with ``CPU_OPTIONS`` or ``BRIEF_CPU_OPTIONS``, if this XLA has
    them. Options in ``XLA_FLAGS`` stay as they are."""
    import jax

    if jax.default_backend() != "cpu":
        return lowered.compile()
    set_by_user = {flag.partition("=")[0].lstrip("-") for flag in os.environ.get("XLA_FLAGS", "").split()}
    options = (BRIEF_CPU_OPTIONS if brief else CPU_OPTIONS).items()
    try:
        return lowered.compile(compiler_options={name: value for name, value in options if name not in set_by_user})
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return lowered.compile()


def return_freed_memory() -> None:
    """Return to the system the 300 MB that compiling frees, and that glibc would keep until the end."""
    with contextlib.suppress(AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
