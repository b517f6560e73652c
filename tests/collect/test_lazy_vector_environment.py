"""Environments that are made when they are first needed."""

import concurrent.futures
import threading
from unittest import mock

import pytest

from proximo.collect.lazy_vector_environment import LazyVectorEnvironment
from proximo.envs import GymnasiumEnvironment
from proximo.envs.gymnasium.vector_environment import VectorEnvironment, VectorOptions
from proximo.errors import EnvError


def test_environments_that_are_being_made_when_they_are_closed_end():
    """Ctrl-C does not wait for the thread that makes them."""
    making, go_on = threading.Event(), threading.Event()
    made = mock.create_autospec(VectorEnvironment, instance=True)

    def make(*arguments):
        making.set()
        assert go_on.wait(10)
        return made

    slow = mock.create_autospec(GymnasiumEnvironment, instance=True, id="slow")
    slow.open.side_effect = make
    lazy = LazyVectorEnvironment(slow, VectorOptions(), 2, 1, "for a test")
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        opening = thread.submit(lazy.open)
        assert making.wait(10)
        lazy.close()
        go_on.set()
        with pytest.raises(EnvError, match="slow was closed while its environments were made"):
            opening.result(10)
    assert made.close.call_count == 1
    assert lazy.open() is made  # it may be opened again
    lazy.close()
    assert made.close.call_count == 2
