"""Functions that are called at the same time."""

import subprocess
import sys
import threading
import time

import pytest

from proximo import threads
from proximo.threads import IdleWatch, together


def test_results_have_the_order_of_the_functions_which_run_at_the_same_time():
    barrier = threading.Barrier(3, timeout=30)

    def after_all(result):
        barrier.wait()  # passes only if all three wait
        return result

    assert together(*(lambda result=result: after_all(result) for result in "abc")) == ["a", "b", "c"]


def test_the_first_error_is_raised_when_all_have_ended():
    failed, ended = threading.Event(), []

    def fail(error):
        failed.set()
        raise error

    def last():
        failed.wait(30)
        time.sleep(0.2)
        ended.append(True)

    with pytest.raises(ValueError, match="first"):
        together(lambda: failed.wait(30) and fail(ValueError("first")), lambda: fail(KeyError("second")), last)
    assert ended


@pytest.mark.parametrize(
    ("times", "busy", "idle"),
    [
        ([0, 1, 2, 50, 51], [0, 0, 0, 0], 1),  # as after Ctrl-Z and fg
        ([0, 1, 2, 3, 4], [0, 0, 0, 0], 3),
        ([0, 1, 2, 3, 4], [0, 0, 1, 1], 1),  # computed, or waited for a core
        ([0, 1, 2, 3, 4], [5, 5, 1, 1], 1),  # a thread that has waited has ended
    ],
)
def test_idle_time_counts_while_all_threads_sleep(times, busy, idle, monkeypatch):
    monkeypatch.setattr(threads.time, "monotonic", iter(times).__next__)
    monkeypatch.setattr(threads, "_busy_seconds", iter(busy).__next__)
    watch = IdleWatch()
    assert [watch.seconds() for _ in range(4)][-1] == idle


def test_a_thread_that_waits_for_a_core_is_not_idle():
    """On one core, one of two threads waits while the other computes."""
    program = """
import hashlib, os, time
from proximo.threads import _busy_seconds, in_thread
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
end = time.monotonic() + 2
def spin():
    while time.monotonic() < end:
        hashlib.sha256(bytes(10**6))
in_thread(spin), in_thread(spin)
time.sleep(1)
before = _busy_seconds()
time.sleep(0.4)
print(_busy_seconds() - before)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(ended.stdout) > 0.4 * 0.02
