"""Functions that are called at the same time."""

import threading

import pytest

from proximo.threads import together


def test_results_have_the_order_of_the_functions_which_run_at_the_same_time():
    barrier = threading.Barrier(3, timeout=30)

    def after_all(result):
        barrier.wait()  # passes only if all three wait
        return result

    assert together(*(lambda result=result: after_all(result) for result in "abc")) == ["a", "b", "c"]


def test_the_first_error_is_raised_when_all_have_ended():
    failed, ended = threading.Event(), []

    def fail(error, after):
        after.wait(30)
        failed.set()
        raise error

    def last():
        failed.wait(30)
        ended.append(True)

    started = threading.Event()
    started.set()
    with pytest.raises(ValueError, match="first"):
        together(last, lambda: fail(ValueError("first"), failed), lambda: fail(KeyError("second"), started))
    assert ended
