"""Functions that are called at the same time."""

import threading
import time

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

    def fail(error):
        failed.set()
        raise error

    def fail_later(error):
        failed.wait(30)
        fail(error)

    def last():
        failed.wait(30)
        time.sleep(0.2)
        ended.append(True)

    with pytest.raises(ValueError, match="first"):
        together(lambda: fail_later(ValueError("first")), lambda: fail(KeyError("second")), last)
    assert ended
