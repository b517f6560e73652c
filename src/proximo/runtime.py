"""What JAX must be told before it starts: a remedy against a deadlock on few cores, and a compilation cache."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

REMEDY_VARIABLE = "JAX_CPU_ENABLE_ASYNC_DISPATCH"
CACHE_VARIABLE = "PROXIMO_CACHE_DIR"


def prevent_deadlock() -> None:
    """Switch off asynchronous dispatch on the CPU, unless the user has decided on it himself.

    XLA's CPU runtime can hang for ever on a machine with few cores: work that was dispatched asynchronously occupies the
    pool's threads and waits for work that needs one (docs/decisions/0002-deadlock.md has the measurements). Called when
    proximo is imported; warns when JAX has started already, because the setting then has no effect.
    """
    if REMEDY_VARIABLE in os.environ:
        return
    if "jax" not in sys.modules:
        os.environ[REMEDY_VARIABLE] = "false"
        return
    import jax
    from jax._src import xla_bridge

    if not xla_bridge.backends_are_initialized():
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    elif jax.default_backend() == "cpu" and getattr(jax.config, "jax_cpu_enable_async_dispatch", True):
        warnings.warn(
            "JAX was started before proximo was imported, so that a remedy against a deadlock of its CPU runtime could not be "
            f"set: import proximo before the first JAX computation, or set {REMEDY_VARIABLE}=false.",
            RuntimeWarning,
            stacklevel=3,
        )


def cache_folder() -> Path:
    """Where compiled programs are kept: ``$PROXIMO_CACHE_DIR``, else ``$XDG_CACHE_HOME/proximo``, else ``~/.cache/proximo``."""
    base = os.environ.get(CACHE_VARIABLE)
    return Path(base) if base else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "proximo"


def enable_compilation_cache() -> None:
    """Keep compiled programs for the next start, unless the user has set a cache of his own."""
    import jax

    if jax.config.jax_compilation_cache_dir is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
