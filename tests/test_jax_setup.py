"""Importing proximo prevents JAX's deadlock, and an option that XLA does not know does no harm."""

import contextlib
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import pytest

from proximo import jax_setup

linux = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="needs Linux")


def run_python(code, **environment):
    variables = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True, env=variables)
    return done.stdout.strip(), done.stderr


@linux
def test_import_gives_enough_threads_and_selects_sched_batch_with_more_threads_than_cores():
    # A child inherits the policy of this process.
    pin = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))"
    policy = "{os.SCHED_OTHER: 'other', os.SCHED_BATCH: 'batch', os.SCHED_IDLE: 'idle'}[os.sched_getscheduler(0)]"
    imported = f"import proximo, threading; print(os.environ['NPROC'], {policy})"
    of_new_thread = f"thread = threading.Thread(target=lambda: print({policy})); thread.start(); thread.join()"
    out, err = run_python(f"{pin}; os.environ.pop('NPROC', None); {imported}; {of_new_thread}")
    assert (out.split(), err) == ([str(jax_setup.SAFE_THREADS), "batch", "batch"], "")
    assert run_python(f"{pin}; {imported}", NPROC="1")[0] == "1 other", "no more threads than cores"
    chosen = "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))"
    assert run_python(f"{pin}; {chosen}; {imported}", NPROC="4")[0] == "4 idle", "the user's policy is kept"


@linux
def test_joining_selects_sched_batch_on_any_number_of_cores():
    code = (
        "import os; os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))\n"
        "from proximo.processes import joining\n"
        "joining._connect = lambda *_: print(os.sched_getscheduler(0) == os.SCHED_BATCH)\n"
        "joining.Peers = joining.use = joining.prepare_jax = joining.multihost_utils.sync_global_devices = lambda *_: None\n"
        "joining.join('127.0.0.1:1', 2, 0)"
    )
    assert run_python(code, NPROC="1") == ("True", "")


@linux
@pytest.mark.parametrize("missing", ["sched_getscheduler", "sched_setscheduler", "SCHED_BATCH", None])
def test_missing_or_forbidden_policy_changes_nothing(monkeypatch, missing):
    asked = []

    def refuse(*_):
        asked.append("refused")
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "sched_getscheduler", lambda _: os.SCHED_OTHER)
        patched.setattr(os, "sched_setscheduler", refuse)
        if missing:
            patched.delattr(os, missing)
        jax_setup.schedule_as_batch()
    assert asked == ([] if missing else ["refused"])


LATE = "import proximo before the first JAX computation, or set NPROC=4"


@pytest.mark.parametrize(
    ("cores", "chosen", "warning", "expected", "threads"),
    [(2, None, "", "4", 4), (8, None, "", None, 8), (2, "3", "", "3", 3), (2, "auto", "", "auto", 2), (2, None, LATE, None, 2)],
)
def test_threads_are_at_least_four_unless_the_user_has_chosen(monkeypatch, cores, chosen, warning, expected, threads):
    monkeypatch.setattr(jax_setup, "_jax_has_started", lambda: bool(warning))
    monkeypatch.setattr(jax_setup, "schedule_as_batch", lambda: None)
    monkeypatch.setattr(jax_setup, "cores", lambda: cores)
    monkeypatch.delenv("NPROC", raising=False)
    if chosen:
        monkeypatch.setenv("NPROC", chosen)
    with pytest.warns(RuntimeWarning, match=warning) if warning else contextlib.nullcontext():
        jax_setup.prepare_threads()
    assert (os.environ.get("NPROC"), jax_setup.threads()) == (expected, threads)


@pytest.mark.parametrize(
    ("then", "variables", "expected"),
    [
        ("", {}, "3 3 1"),
        ("", {"JAX_NUM_CPU_DEVICES": "2"}, "2 0 2"),
        ("", {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}, "4 0 4"),
        ("jax_setup.forget_core_devices(); ", {}, "1 0 1"),  # for processes
    ],
)
def test_cores_become_devices_unless_the_user_has_chosen_a_number(then, variables, expected):
    cores = "from proximo import jax_setup; jax_setup.cores = lambda: 3; jax_setup.prepare_jax(for_seeds=True); "
    counts = "import jax; print(jax.device_count(), len(jax_setup.core_devices()), len(jax_setup.available_devices()))"
    assert run_python(cores + then + counts, NPROC="4", **variables)[0] == expected


def test_xla_options_that_the_user_has_set_stay(monkeypatch):
    given = []
    lowered = SimpleNamespace(compile=lambda compiler_options: given.append(compiler_options))
    for flags in (
        "",
        "--xla_cpu_prefer_vector_width=256 --xla_backend_optimization_level_2=3",
        "--xla_backend_optimization_level=0",
    ):
        monkeypatch.setenv("XLA_FLAGS", flags)
        jax_setup.compile_lowered(lowered)
    assert given[0] == jax_setup.CPU_OPTIONS
    assert [options.keys() for options in given[1:]] == [{"xla_backend_optimization_level"}, {"xla_cpu_prefer_vector_width"}]


def test_unknown_xla_option_is_omitted_and_another_error_raised(monkeypatch):
    def compile_(**_):
        raise jax.errors.JaxRuntimeError("out of memory")

    with pytest.raises(jax.errors.JaxRuntimeError, match="out of memory"):
        jax_setup.compile_lowered(SimpleNamespace(compile=compile_))
    real = jax.jit(lambda x: x + 1).lower(1.0)
    assert jax_setup.compile_lowered(real)(2.0) == 3.0
    monkeypatch.setattr(jax_setup, "CPU_OPTIONS", {"xla_no_such_option": 1})
    assert jax_setup.compile_lowered(real)(2.0) == 3.0


CACHED = """
import pathlib, proximo
from proximo.jax_setup import prepare_jax
prepare_jax()
import jax
folder = pathlib.Path(jax.config.jax_compilation_cache_dir)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event.rpartition("/")[2]))
for damaged in (False, True, False):
    for entry in folder.glob("*-cache") if damaged else ():
        entry.write_bytes(entry.read_bytes()[:100])  # as after a kill or on a full disk
    jax.clear_caches()
    jax.jit(lambda x: x + 1).lower(1.0).compile()
print(*(event for event in events if event in ("cache_hits", "cache_misses")))
"""


def test_damaged_entry_of_the_compilation_cache_is_replaced_and_an_unwritable_folder_warns_once(tmp_path):
    out, err = run_python(CACHED, PROXIMO_CACHE_DIR=str(tmp_path))
    assert out == "cache_misses cache_misses cache_hits"
    assert err.count("Error reading persistent compilation cache entry") == 1
    (tmp_path / "file").touch()
    out, err = run_python(CACHED, PROXIMO_CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert (out, err.count("Warning")) == ("", 1), err
    assert "set PROXIMO_CACHE_DIR to a folder that you can write to" in err


def test_relative_cache_folder_does_not_follow_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROXIMO_CACHE_DIR", "cache")
    folder = jax_setup.cache_folder()
    assert folder == tmp_path / "cache"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PROXIMO_CACHE_DIR", "~/mine")  # from a file that no shell reads
    assert jax_setup.cache_folder() == tmp_path / "mine"
