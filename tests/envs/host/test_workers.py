"""Environments in processes of their own: the same rows as in this one, and every fault that a process can have."""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from proximo.envs.host import workers as workers_module
from proximo.errors import EnvError, EnvironmentFault

import gym_toys
from pools import in_process, lanes, rollout, with_workers

TESTS = Path(__file__).parents[2]


def pids(pool):
    return [process.popen.pid for group in pool._processes for process in group]


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone_within(seconds, these):
    deadline = time.monotonic() + seconds
    while any(map(alive, these)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(alive, these))


@pytest.fixture
def pool_of():
    """Pools that are closed in the end."""
    opened = []

    def make(*arguments, **options):
        opened.append(with_workers(*arguments, **options))
        return opened[-1]

    yield make
    for pool in opened:
        pool.close()


@pytest.mark.parametrize(("workers", "groups"), [(1, 1), (2, 1), (3, 1), (2, 2), (4, 2)])
def test_workers_give_the_rows_of_this_process_whatever_their_number(pool_of, workers, groups):
    actions = np.random.default_rng(0).integers(0, 3, (40, 4))
    expected = lanes(rollout(in_process(gym_toys.Walk, num_envs=4), actions, seed=9))
    pool = pool_of(gym_toys.Walk, workers, groups=groups)
    assert lanes(rollout(pool, actions, seed=9)) == expected
    assert pool.restarts == 0


def test_a_staggered_start_is_the_same_in_workers(pool_of):
    actions = np.zeros((40, 4), np.int64)
    make = functools.partial(gym_toys.Countdown, 50)
    expected = rollout(in_process(make, num_envs=4, stagger=20), actions, seed=9)
    slab = rollout(pool_of(make, 2, stagger=20), actions, seed=9)
    assert expected.truncated.any()
    np.testing.assert_array_equal(slab.truncated, expected.truncated)


def test_what_a_lost_worker_had_written_is_taken_back(pool_of):
    pool = pool_of(gym_toys.Countdown, 2)
    slab = pool.slabs[0]
    slab.clear()
    for flags in (slab.terminated, slab.truncated, slab.life_lost):
        flags[3] = True
    slab.reward[3], slab.success[3] = 7.0, 1
    pool._forget(slab, 3, range(2, 4))
    for flags in (slab.terminated, slab.truncated, slab.life_lost):
        np.testing.assert_array_equal(flags[3], [True, True, False, False])
    np.testing.assert_array_equal(slab.reward[3], [7, 7, 0, 0])
    np.testing.assert_array_equal(slab.filler[3], [False, False, True, True])


def test_all_workers_that_hang_together_are_ended_together_with_overlap_too(pool_of):
    for groups in (1, 2):
        pool = pool_of(functools.partial(gym_toys.Misbehaving, "hang"), 4, groups=groups, options={"step_timeout": 2.0})
        pool.reset(0, 0)
        slab = pool.slabs[0]
        slab.clear()
        slab.action[:] = 0
        started = time.monotonic()
        for t in range(7):
            for group in range(groups):
                pool.send(0, t, group)
            left = list(range(groups))
            while left:
                group = pool.ready(left)
                pool.receive(0, t, group)
                left.remove(group)
        assert slab.cut[6].all()
        assert time.monotonic() - started < 12.0, "one limit for all of them, and their starts"


class HangsAlone(gym_toys.Countdown):
    """Hangs in its third step where it finds the file, which it takes away."""

    def __init__(self, file):
        super().__init__(50)
        self.file = Path(file)

    def step(self, action):
        if self.now == 2:
            with contextlib.suppress(FileNotFoundError):  # the other one was quicker
                self.file.unlink()
                time.sleep(3600)
        return super().step(action)


def test_a_worker_that_has_replied_does_not_pay_for_one_that_hangs(pool_of, tmp_path):
    (tmp_path / "hang").touch()
    told = []
    pool = pool_of(
        functools.partial(HangsAlone, tmp_path / "hang"),
        2,
        num_envs=2,
        num_steps=5,
        options={"step_timeout": 1.5, "notify": told.append},
    )
    slab = rollout(pool, np.zeros((5, 2), np.int64))
    assert pool.restarts == 1, told
    assert slab.cut.sum() == 1


class OnceOnly(gym_toys.Countdown):
    """Its constructor fails where the file of an earlier one is still there."""

    def __init__(self, folder, at=6):
        super().__init__(50)
        self.at = at
        (Path(folder) / "lock").mkdir()

    def step(self, action):
        if self.now == self.at:
            os._exit(4)
        return super().step(action)


def test_a_worker_that_cannot_be_made_anew_counts_and_ends_the_training_in_words(pool_of, tmp_path):
    pool = pool_of(functools.partial(OnceOnly, tmp_path), 1, num_envs=1, env=gym_toys.Countdown(), options={"max_restarts": 2})
    with pytest.raises(EnvironmentFault, match=r"made again \(FileExistsError.*started anew 2 times already"):
        rollout(pool, np.zeros((40, 1), np.int64))
    pool.close()


def test_a_constructor_that_fails_again_and_again_ends_the_training_soon(pool_of, tmp_path):
    told = []
    options = {"max_restarts": 50, "notify": told.append}
    pool = pool_of(functools.partial(OnceOnly, tmp_path), 1, num_envs=1, env=gym_toys.Countdown(), options=options)
    with pytest.raises(EnvironmentFault, match=r"ended with exit code 4.*failed 3 times: FileExistsError"):
        rollout(pool, np.zeros((40, 1), np.int64))
    assert len(told) == 3


class Starter(gym_toys.Countdown):
    """Starts a process that it never ends, and tells its number."""

    def __init__(self, folder):
        super().__init__(50)
        (Path(folder) / str(subprocess.Popen(["sleep", "600"]).pid)).touch()


@pytest.mark.parametrize("end", ["close", "kill"])
def test_what_an_environment_has_started_ends_with_its_worker(pool_of, tmp_path, end):
    pool = pool_of(functools.partial(Starter, tmp_path), 1, num_envs=2, env=gym_toys.Countdown())
    started = [int(path.name) for path in tmp_path.iterdir()]
    assert len(started) == 2
    if end == "kill":
        os.kill(pids(pool)[0], signal.SIGKILL)
        rollout(pool, np.zeros((40, 2), np.int64))
    else:
        pool.close()
    assert gone_within(5.0, started)


def test_what_cannot_be_pickled_is_told_in_a_sentence(pool_of):
    lock = threading.Lock()
    with pytest.raises(EnvError, match=r"cannot be sent to a worker process .*num_workers = 0"):
        pool_of(lambda: (lock, gym_toys.Countdown())[1], 2, env=gym_toys.Countdown())


@pytest.mark.parametrize("workers", [0, 1])
def test_sys_exit_in_an_environment_is_a_fault_with_its_place(pool_of, workers):
    make = functools.partial(gym_toys.Misbehaving, "exit")
    pool = pool_of(make, 1, num_steps=10) if workers else in_process(make, num_envs=4, num_steps=10)
    with pytest.raises(EnvironmentFault, match=r"toy.step of environment \d .* raised SystemExit: 0"):
        rollout(pool, np.zeros((10, 4), np.int64))


def test_blocks_are_contiguous_and_cover_every_environment(pool_of):
    pool = pool_of(gym_toys.Walk, 3, num_envs=8)
    assert [tuple(setup.columns) for setup in pool._setups[0]] == [(0, 1), (2, 3, 4), (5, 6, 7)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_worker_is_noticed_within_a_second_and_started_anew(pool_of, number):
    told = []
    pool = pool_of(gym_toys.Countdown, 2, options={"notify": told.append})
    slab = rollout(pool, np.zeros((40, 4), np.int64))
    slab.begin_after(slab)
    slab.clear()
    slab.action[:] = 0
    for t in range(3):
        pool.send(0, t, 0)
        pool.receive(0, t, 0)
    old = pids(pool)
    os.kill(old[1], number)
    started = time.monotonic()
    pool.send(0, 3, 0)
    pool.receive(0, 3, 0)
    assert time.monotonic() - started < 5.0, "a new interpreter starts within this time"
    np.testing.assert_array_equal(slab.cut[3], [False, False, True, True])
    np.testing.assert_array_equal(slab.filler[3], slab.cut[3])
    assert slab.first[4][2:].all()
    assert not slab.reward[3, 2:].any()
    assert pool.restarts == 1
    assert told == [
        f"The worker of environments 2 … 3 was killed by {signal.Signals(number).name}: it is started anew with new seeds "
        "(1 of at most 100 times)."
    ]
    for t in range(4, 20):
        pool.send(0, t, 0)
        pool.receive(0, t, 0)
    assert not slab.cut[4:].any()
    assert (slab.reward[4:20] == 1).all()


def test_that_no_process_can_be_started_is_told(pool_of, monkeypatch):
    pool = pool_of(gym_toys.Countdown, 2)
    pool.reset(0, 0)

    def no_process(setup):
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(workers_module, "Process", no_process)
    os.kill(pids(pool)[0], signal.SIGKILL)
    pool.send(0, 0, 0)
    with pytest.raises(
        EnvironmentFault, match=r"was killed by SIGKILL, and no process could be started .*temporarily unavailable"
    ):
        pool.receive(0, 0, 0)


def test_a_killed_worker_gets_new_seeds_and_the_others_keep_theirs(pool_of):
    pool = pool_of(gym_toys.Walk, 2)
    pool.reset(0, 1)
    before = pool.slabs[0].observation[0][0].copy()
    os.kill(pids(pool)[0], signal.SIGKILL)
    pool.slabs[0].clear()
    pool.slabs[0].action[:] = 0
    pool.send(0, 0, 0)
    pool.receive(0, 0, 0)
    marks = pool.slabs[0].observation[0][1, :2, 2]
    assert not np.intersect1d(marks, before[:, 2]).size
    assert not pool.slabs[0].cut[0, 2:].any()


def test_a_hung_environment_is_ended_after_its_time_and_started_anew(pool_of):
    pool = pool_of(functools.partial(gym_toys.Misbehaving, "hang"), 2, options={"step_timeout": 1.0})
    started = time.monotonic()
    pool.reset(0, 0)
    slab = pool.slabs[0]
    slab.clear()
    slab.action[:] = 0
    for t in range(7):
        pool.send(0, t, 0)
        pool.receive(0, t, 0)
    assert slab.cut[6].all(), "every environment hangs in its seventh step"
    assert 1.0 < time.monotonic() - started < 15.0
    assert pool.restarts == 2


class Slow(gym_toys.Countdown):
    """Takes ``seconds`` for the calls of ``slow``, and ``length`` steps."""

    def __init__(self, slow, seconds=0.5, length=2):
        super().__init__(length)
        self.slow, self.seconds = slow, seconds
        self.take("constructor")

    def take(self, call):
        if call in self.slow:
            time.sleep(self.seconds)

    def reset(self, *, seed=None, options=None):
        self.take("reset")
        return super().reset(seed=seed)

    def step(self, action):
        self.take("step")
        return super().step(action)


def test_construction_and_resets_may_take_longer_than_a_step(pool_of):
    options = {"step_timeout": 0.3, "reset_timeout": 60.0}
    slow = functools.partial(Slow, ("constructor", "reset"))
    pool = pool_of(slow, 2, num_envs=2, num_steps=2, env=gym_toys.Countdown(), options=options)
    slab = rollout(pool, np.zeros((2, 2), np.int64))
    assert slab.terminated[1].all(), "an episode ends, and its environment is reset within a step"
    assert pool.restarts == 0


def test_step_hanging_after_slow_reset_ends_at_step_timeout(pool_of):
    options = {"step_timeout": 0.3, "reset_timeout": 60.0}
    pool = pool_of(
        functools.partial(HangsBesideResets, 0.5), 1, num_envs=2, num_steps=2, env=gym_toys.Countdown(), options=options
    )
    started = time.monotonic()
    slab = rollout(pool, np.zeros((2, 2), np.int64))
    assert slab.cut[1].all()
    assert time.monotonic() - started < 20.0


class HangsBesideResets(Slow):
    """In the second step, the first environment of a process resets slowly, and the second one hangs."""

    made = 0

    def __init__(self, seconds):
        super().__init__(("reset",), seconds)
        HangsBesideResets.made += 1
        self.number = HangsBesideResets.made

    def step(self, action):
        if self.number == 2 and self.now == 1:
            time.sleep(3600)
        return super().step(action)


def test_slow_environment_construction_raises_at_reset_timeout(pool_of):
    with pytest.raises(EnvError, match=r"0 … 1 of toy took more than 0\.5 s .*reset_timeout"):
        pool_of(functools.partial(Slow, ("constructor",), 3600.0), 1, 2, env=gym_toys.Countdown(), options={"reset_timeout": 0.5})


@pytest.mark.slow
def test_repeatedly_hanging_reset_stops_the_training(pool_of):
    told = []
    options = {"reset_timeout": 3.0, "notify": told.append}
    pool = pool_of(functools.partial(Slow, ("reset",), 3600.0), 1, 2, env=gym_toys.Countdown(), options=options)
    with pytest.raises(EnvironmentFault, match=r"0 … 1 of toy were lost .*failed 3 times: their worker took more than 3 s"):
        pool.reset(0, 0)
    assert len(told) == 3, told


def test_too_many_lost_workers_end_the_training_with_the_reason(pool_of):
    pool = pool_of(functools.partial(gym_toys.Misbehaving, "die", 2), 1, options={"max_restarts": 2})
    with pytest.raises(
        EnvironmentFault, match=r"ended with exit code 3, and workers were started anew 2 times already.*max_restarts"
    ):
        rollout(pool, np.zeros((40, 4), np.int64))


def test_a_constructor_that_fails_in_a_worker_gives_its_own_exception(pool_of):
    with pytest.raises(OSError, match="no simulator on port 4242"):
        pool_of(functools.partial(gym_toys.Misbehaving, "constructor"), 2, env=gym_toys.Countdown())


def test_an_environment_that_raises_in_a_worker_is_named_with_its_traceback(pool_of):
    pool = pool_of(functools.partial(gym_toys.Misbehaving, "raise"), 2, num_steps=10)
    with pytest.raises(
        EnvironmentFault, match=r"toy.step of environment \d \(seed \d+.*ZeroDivisionError: the pole has fallen off"
    ):
        rollout(pool, np.zeros((10, 4), np.int64))


def test_a_wrong_value_in_a_worker_is_the_same_sentence(pool_of):
    pool = pool_of(functools.partial(gym_toys.Misbehaving, "shape"), 2, num_steps=10)
    with pytest.raises(EnvError, match=r"returned observation of shape \(2, 1\)"):
        rollout(pool, np.zeros((10, 4), np.int64))


def test_closing_leaves_no_process_not_even_a_hung_one(pool_of):
    pool = pool_of(functools.partial(gym_toys.Misbehaving, "hang"), 2)
    pool.reset(0, 0)
    pool.slabs[0].clear()
    stepping = threading.Thread(target=lambda: [pool.send(0, t, 0) for t in range(7)])
    stepping.start()
    stepping.join()
    these = pids(pool)
    started = time.monotonic()
    pool.close()
    assert time.monotonic() - started < 4.0
    assert gone_within(1.0, these)


PARENT = """
    import functools, os, sys, time
    import gym_toys
    from pools import with_workers
    pool = with_workers(functools.partial(gym_toys.Misbehaving, *sys.argv[1:]), 2, env=gym_toys.Countdown())
    pool.reset(0, 0)
    pool.slabs[0].clear()
    for t in range(7):
        pool.send(0, t, 0)
        if t < 6:
            pool.receive(0, t, 0)
    print(*(process.popen.pid for group in pool._processes for process in group), flush=True)
    time.sleep(60)
"""


def parent(*what, wait=True):
    """A process with two workers, whose environments do ``what``: itself, and the pids of its workers."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(Path(__file__).parent), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), *what], stdout=subprocess.PIPE, env=environment, text=True
    )
    return process, [int(word) for word in process.stdout.readline().split()] if wait else []


def test_workers_die_if_parent_is_killed_during_environment_construction(tmp_path):
    process, _ = parent("start", "", str(tmp_path), wait=False)
    deadline = time.monotonic() + 60.0
    while len(list(tmp_path.iterdir())) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    started = [int(path.name) for path in tmp_path.iterdir()]
    assert len(started) == 4, "two workers, and a simulator of each"
    assert gone_within(5.0, started)


@pytest.mark.parametrize("what", ["nothing", "hang", "hold"])
def test_workers_die_with_a_killed_parent_even_when_they_hang(what):
    process, these = parent(what)
    assert len(these) == 2
    assert all(map(alive, these))
    process.kill()
    process.wait()
    assert gone_within(5.0, these)


def test_what_an_environment_prints_does_not_disturb_the_pipes(pool_of, capfd):
    pool = pool_of(Chatty, 1, num_envs=2)
    rollout(pool, np.zeros((40, 2), np.int64))
    pool.close()
    assert "hello from step 1" in capfd.readouterr().err


class Chatty(gym_toys.Countdown):
    """Prints in every step, and reads standard input."""

    def step(self, action):
        print("hello from step", self.now + 1, flush=True)
        assert sys.stdin.read() == ""
        return super().step(action)


FOREIGN = "open({folder!r} + '/' + __name__ + '.ran', 'w').close()"


def test_a_worker_imports_no_library_from_the_working_folder(pool_of, tmp_path, monkeypatch):
    here, later = tmp_path / "here", tmp_path / "later"
    for folder in (here, later):
        folder.mkdir()
        (folder / "twin_of_toys.py").write_text(f"import json, calendar\nplace = {folder.name!r}")
    for name in ("json", "types", "enum", "calendar", "numpy", "cloudpickle", "gymnasium", "proximo"):
        (here / f"{name}.py").write_text(FOREIGN.format(folder=str(here)))
    (here / "toy_of_mine.py").write_text(
        "from gym_toys import Countdown\nfrom twin_of_toys import place\nclass Mine(Countdown): place = place"
    )
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", ["", Path("no text"), *sys.path, str(later)])
    mine = __import__("toy_of_mine").Mine
    assert mine.place == "here"
    for ran in here.glob("*.ran"):
        ran.unlink()  # this process uses Python's import order
    pool = pool_of(functools.partial(Placed, mine), 1, num_envs=2, num_steps=3, env=gym_toys.Countdown())
    assert rollout(pool, np.zeros((3, 2), np.int64)).reward[0].tolist() == [4.0, 4.0]
    assert list(here.glob("*.ran")) == []


class Placed(gym_toys.Countdown):
    """The reward is the length of the path of the folder from which a user module was imported."""

    def __init__(self, cls):
        super().__init__()
        self.place = cls.place

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, float(len(self.place)), *rest


def test_no_name_is_left_in_shared_memory(pool_of):
    before = set(os.listdir("/dev/shm"))
    pool = pool_of(gym_toys.Walk, 2)
    rollout(pool, np.zeros((40, 4), np.int64))
    assert set(os.listdir("/dev/shm")) <= before, "there is no name, even while it is in use"
