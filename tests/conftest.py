"""For every test: shapes are checked against annotations, and compiled programs are kept."""

import gc
import importlib.metadata
import importlib.util
import inspect
import os
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

# Programs that run once need no fast code: without XLA's emitters of fusions and optimisations it is compiled in a third of the
# time, which is most of the suite's. Processes that tests start inherit it, so that
# their bits are these.
FLAGS = ["--xla_backend_optimization_level=0"]
if tuple(int(part) for part in importlib.metadata.version("jaxlib").split(".")[:2]) < (0, 11):
    # Later ones do not know these, and end the process at a flag that they do not know.
    FLAGS += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *FLAGS])

# No test cuts the power, and a disk takes up to 10 ms for each.
os.fsync = lambda descriptor: None

# Where the annotations have shapes; the files above them handle no arrays of their own.
SHAPED = ("math", "distributions", "networks", "envs", "ppo", "collect", "types")
install_import_hook([f"proximo.{name}" for name in SHAPED], "shape_checker.check")

import jax  # noqa: E402

import proximo  # noqa: E402, F401  (before JAX starts: it sets the remedy against the deadlock on few cores)
from proximo.collect import program_cache  # noqa: E402
from proximo.jax_setup import prepare_jax, return_freed_memory  # noqa: E402

prepare_jax()

# Tracing makes many objects that stay. Looking for garbage among them after every 700 new ones, as Python does, takes time.
gc.set_threshold(50_000)


# A module goes to one worker as a whole. Those that take longest go first, so that none is left for one worker in the end. The first one
# copies its process hundreds of times, which is fast only while the process is small.
LONGEST = (
    "test_crashes.py", "test_trainings_of_processes.py", "test_code_of_the_pages.py", "test_devices.py",
    "test_core_devices.py", "test_training.py", "test_gymnasium_training.py", "test_processes.py",
    "test_pretraining.py", "test_agent.py", "test_examples.py", "test_probes.py", "test_interrupts.py",
    "test_gymnasium_collector.py", "test_custom_networks.py", "test_objectives.py",
    "test_step_equals_unroll.py", "test_check_environment.py", "test_publish.py", "test_resume.py",
    "test_actions.py", "test_functional.py", "test_workers.py",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    """The longest first. Beside Gymnasium 1.4 gymnax cannot be installed: what names it is skipped, and only there. Elsewhere, where it
    lacks by mistake, the tests fail."""
    place = {name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))
    old = tuple(map(int, importlib.metadata.version("gymnasium").split(".")[:2])) < (1, 4)
    if old or importlib.util.find_spec("gymnax") is not None:
        return
    for item in items:
        source = inspect.getsource(item.function)
        if "gymnax" in item.name or "gymnax" in source:
            item.add_marker(pytest.mark.skip(reason="there is no gymnax for this Gymnasium"))


MAX_BYTES = 2e9
"""A worker that uses more memory after a test drops its compiled programs. Each takes 1.4 MB or more, and JAX keeps all of them."""
WORTH_DROPPING = 3e8
"""Bytes by which the memory must have grown since programs were last dropped."""
_kept = 0


@pytest.hookimpl(trylast=True)  # after the fixtures of the test have ended
def pytest_runtest_teardown():
    """Keep the memory of a worker bounded: without this it reaches 5 GB."""
    global _kept
    if memory() > max(MAX_BYTES, _kept + WORTH_DROPPING):
        program_cache._kept.clear()
        jax.clear_caches()
        gc.collect()
        return_freed_memory()
        _kept = memory()


def memory():
    """Bytes of this process in memory; 0 where the system does not tell."""
    statistics = Path("/proc/self/statm")
    return int(statistics.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statistics.exists() else 0
