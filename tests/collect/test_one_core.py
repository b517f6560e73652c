"""Small programs run on one core, and the threads of XLA get their cores back."""

from __future__ import annotations

import os
import threading

import jax
import jax.numpy as jnp
import pytest

import proximo
from proximo.backends import make_backend
from proximo.collect import one_core
from proximo.collect.compiled_function import CompiledFunction
from proximo.collect.environment import environment
from proximo.collect.gymnasium_programs import GymnasiumPrograms

needs_two_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="one core, or a system that binds no threads",
)


def product(size: int) -> CompiledFunction:
    """Two products in a loop of 100 rounds, 2 · 2 · size³ operations without counting the rounds."""
    return CompiledFunction(
        lambda x: jax.lax.fori_loop(0, 100, lambda _, y: jnp.tanh(y @ x) @ x, x) + jnp.zeros((size, size)), learns=True
    )


def xla_cores() -> set[frozenset[int]]:
    """The sets of cores that the threads of XLA may run on now."""
    jax.block_until_ready(jnp.ones(3) + 1)
    threads = one_core._xla_threads()
    assert threads, "no thread of XLA was found"
    return {frozenset(os.sched_getaffinity(thread)) for thread in threads}


@pytest.fixture
def bound(monkeypatch) -> list[int]:
    """The cores that threads are bound to, one for each call on one core."""
    cores: list[int] = []
    monkeypatch.setattr(one_core, "_bind", cores.append)
    return cores


@needs_two_cores
def test_a_call_binds_the_threads_of_xla_to_one_core_and_gives_their_cores_back():
    before = xla_cores()
    during = one_core.on_one_core(xla_cores)()
    assert len(during) == 1
    assert len(next(iter(during))) == 1
    assert max(map(len, before)) > 1
    assert xla_cores() == before


@needs_two_cores
def test_the_calling_thread_is_not_bound():
    before = os.sched_getaffinity(0)
    assert one_core.on_one_core(lambda: os.sched_getaffinity(0))() == before


@needs_two_cores
def test_an_error_gives_the_cores_back():
    before = xla_cores()

    def fail() -> None:
        raise ValueError("no result")

    with pytest.raises(ValueError, match="no result"):
        one_core.on_one_core(fail)()
    assert xla_cores() == before


@needs_two_cores
def test_a_call_lasts_until_its_result_is_computed():
    class Later:
        def block_until_ready(self) -> None:
            self.cores = xla_cores()

    assert len(one_core.on_one_core(Later)().cores) == 1


@needs_two_cores
def test_calls_at_the_same_time_use_all_cores():
    before, entered, leave = xla_cores(), threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        assert leave.wait(60)

    first = threading.Thread(target=one_core.on_one_core(wait))
    first.start()
    assert entered.wait(60)
    assert xla_cores() != before
    assert one_core.on_one_core(xla_cores)() == before
    leave.set()
    first.join()
    assert len(one_core.on_one_core(xla_cores)()) == 1  # and a later call is on one core again
    assert xla_cores() == before


def test_only_small_programs_that_learn_run_on_one_core(bound):
    small = jnp.eye(64)
    assert jnp.allclose(product(64)(0, small), 0.0, atol=1.0)
    assert len(bound) == 1
    large = jnp.eye(300)  # 1.1e8 operations in a round
    product(300)(0, large)
    assert len(bound) == 1
    CompiledFunction(lambda x: x @ x)(0, small)
    assert len(bound) == 1


def test_programs_of_several_devices_use_all_cores(bound, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    product(64)(0, jnp.eye(64))
    assert not bound


def test_a_training_on_a_jax_environment_runs_on_one_core(bound):
    settings = {"num_envs": 2, "num_steps": 8, "hidden_sizes": "8", "eval_episodes": 0}
    config = proximo.make_config("gymnax:CartPole-v1", settings, preset=False)
    backend = make_backend(config, environment(config))
    state = backend.prepare(lambda: backend.start([0]))
    assert not bound
    backend.advance(state, 2)
    assert len(bound) == 1
    backend.close()


@pytest.mark.parametrize(("lag", "on_one_core"), [(0, True), (1, False)])
def test_a_learner_uses_all_cores_if_the_policy_acts_meanwhile(lag, on_one_core):
    settings = {"num_envs": 2, "num_steps": 8, "learner_lag": lag}
    config = proximo.make_config("CartPole-v1", settings, preset=False)
    programs = GymnasiumPrograms(config, environment(config))
    assert programs.learn._learns is on_one_core
    assert not programs.act._learns


def test_nothing_is_bound_where_the_system_cannot(monkeypatch):
    for name in ("sched_setaffinity", "sched_getaffinity"):
        monkeypatch.delattr(os, name, raising=False)
    for function in (one_core._xla_threads, one_core._sched_getcpu):
        function.cache_clear()
    try:
        assert one_core.on_one_core(lambda: 3)() == 3
        assert one_core._current_core() is None
        assert not one_core._xla_threads()
    finally:
        for function in (one_core._xla_threads, one_core._sched_getcpu):
            function.cache_clear()
