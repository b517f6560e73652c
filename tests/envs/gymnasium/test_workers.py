"""Worker processes give the same transitions as this process, and are restarted after every kind of fault."""

import concurrent.futures
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
from vector_envs import in_process, lanes, rollout, with_workers

from proximo.envs.gymnasium import workers as workers_module
from proximo.errors import EnvError, EnvironmentFault

import gym_toys

TESTS = Path(__file__).parents[2]


def pids(vector_env):
    return [worker.popen.pid for worker in vector_env.all_workers()]


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
def vector_env_of():
    """Makes vector environments with workers, which are closed after the test."""
    opened = []

    def make(*arguments, **options):
        opened.append(with_workers(*arguments, **options))
        return opened[-1]

    yield make
    for vector_env in opened:
        vector_env.close()


@pytest.mark.parametrize(("workers", "groups"), [(1, 1), (2, 1), (3, 1), (2, 2), (4, 2)])
def test_any_number_of_workers_gives_the_same_transitions(vector_env_of, workers, groups):
    actions = np.random.default_rng(0).integers(0, 3, (40, 4))
    expected = lanes(rollout(in_process(gym_toys.Walk, num_envs=4), actions, seed=9))
    vector_env = vector_env_of(gym_toys.Walk, workers, groups=groups)
    assert lanes(rollout(vector_env, actions, seed=9)) == expected
    assert vector_env.restarts == 0


def test_a_staggered_start_is_the_same_in_workers(vector_env_of):
    actions = np.zeros((40, 4), np.int64)
    make = functools.partial(gym_toys.Countdown, 50)
    expected = rollout(in_process(make, num_envs=4, stagger=20), actions, seed=9)
    buffer = rollout(vector_env_of(make, 2, stagger=20), actions, seed=9)
    assert expected.truncated.any()
    np.testing.assert_array_equal(buffer.truncated, expected.truncated)


class HangsAlone(gym_toys.Countdown):
    """Hangs in its third step if it finds the file, and removes it."""

    def __init__(self, file):
        super().__init__(50)
        self.file = Path(file)

    def step(self, action):
        if self.now == 2:
            with contextlib.suppress(FileNotFoundError):  # the other environment removed it first
                self.file.unlink()
                time.sleep(3600)
        return super().step(action)


def test_a_worker_that_has_replied_is_not_killed(vector_env_of, tmp_path):
    (tmp_path / "hang").touch()
    messages = []
    vector_env = vector_env_of(
        functools.partial(HangsAlone, tmp_path / "hang"),
        2,
        num_envs=2,
        num_steps=5,
        options={"step_timeout": 1.5, "warn": messages.append},
    )
    buffer = rollout(vector_env, np.zeros((5, 2), np.int64))
    assert vector_env.restarts == 1, messages
    assert buffer.lost.sum() == 1


class OnceOnly(gym_toys.Countdown):
    """Its constructor fails if the file of an earlier instance exists."""

    def __init__(self, folder, at=6):
        super().__init__(50)
        self.at = at
        (Path(folder) / "lock").mkdir()

    def step(self, action):
        if self.now == self.at:
            os._exit(4)
        return super().step(action)


def test_constructor_that_fails_in_a_restart_stops_the_training(vector_env_of, tmp_path):
    vector_env = vector_env_of(functools.partial(OnceOnly, tmp_path), 1, num_envs=1, env=gym_toys.Countdown())
    with pytest.raises(EnvironmentFault, match=r"ended with exit code 4, and its .* could not be made again \(FileExistsError"):
        rollout(vector_env, np.zeros((40, 1), np.int64))


class EndsInReset(gym_toys.Countdown):
    """Ends its process in the reset after the first one."""

    def reset(self, *, seed=None, options=None):
        if self.now or not Path(self.file).exists():
            Path(self.file).unlink(missing_ok=True)
            os._exit(5)
        return super().reset(seed=seed)

    def __init__(self, file):
        super().__init__(3)
        self.file = file


def test_workers_that_end_in_succession_stop_the_training(vector_env_of, tmp_path):
    (tmp_path / "once").touch()
    messages = []
    make = functools.partial(EndsInReset, tmp_path / "once")
    vector_env = vector_env_of(make, 1, num_envs=1, env=gym_toys.Countdown(), options={"warn": messages.append})
    with pytest.raises(
        EnvironmentFault, match=r"0 … 0 of toy ended with exit code 5, as 3 workers in succession: training stops"
    ):
        rollout(vector_env, np.zeros((40, 1), np.int64))
    assert len(messages) == 3


class Starter(gym_toys.Countdown):
    """Starts a process that it never ends, and reports its process id."""

    def __init__(self, folder):
        super().__init__(50)
        (Path(folder) / str(subprocess.Popen(["sleep", "600"]).pid)).touch()


@pytest.mark.parametrize("end", ["close", "kill"])
def test_child_processes_of_an_environment_end_with_its_worker(vector_env_of, tmp_path, end):
    vector_env = vector_env_of(functools.partial(Starter, tmp_path), 1, num_envs=2, env=gym_toys.Countdown())
    started = [int(path.name) for path in tmp_path.iterdir()]
    assert len(started) == 2
    if end == "kill":
        os.kill(pids(vector_env)[0], signal.SIGKILL)
        rollout(vector_env, np.zeros((40, 2), np.int64))
    else:
        vector_env.close()
    assert gone_within(5.0, started)


def test_an_environment_that_cannot_be_pickled_raises_one_sentence(vector_env_of):
    lock = threading.Lock()
    with pytest.raises(EnvError, match=r"cannot be sent to a worker process .*num_workers = 0"):
        vector_env_of(lambda: (lock, gym_toys.Countdown())[1], 2, env=gym_toys.Countdown())


@pytest.mark.parametrize("workers", [0, 1])
def test_sys_exit_in_an_environment_raises_with_its_step(vector_env_of, workers):
    make = functools.partial(gym_toys.Misbehaving, "exit")
    vector_env = vector_env_of(make, 1, num_steps=10) if workers else in_process(make, num_envs=4, num_steps=10)
    with pytest.raises(EnvironmentFault, match=r"toy.step of environment \d .* raised SystemExit: 0"):
        rollout(vector_env, np.zeros((10, 4), np.int64))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_worker_is_restarted_within_a_second(vector_env_of, number):
    messages = []
    vector_env = vector_env_of(gym_toys.Countdown, 2, options={"warn": messages.append})
    buffer = rollout(vector_env, np.zeros((40, 4), np.int64))
    buffer.begin_after(buffer)
    buffer.clear()
    buffer.action[:] = 0
    for t in range(3):
        vector_env.send(0, t, 0)
        vector_env.receive(0, t, 0)
    old = pids(vector_env)
    os.kill(old[1], number)
    started = time.monotonic()
    vector_env.send(0, 3, 0)
    vector_env.receive(0, 3, 0)
    assert time.monotonic() - started < 5.0, "a new interpreter starts within this time"
    np.testing.assert_array_equal(buffer.lost[3], [False, False, True, True])
    np.testing.assert_array_equal(buffer.valid[3], ~buffer.lost[3])
    assert buffer.episode_start[4][2:].all()
    assert not buffer.reward[3, 2:].any()
    assert vector_env.restarts == 1
    assert messages == [
        f"The worker of environments 2 … 3 of toy was killed by {signal.Signals(number).name}: it is restarted with new seeds "
        "(restart 1 of at most 100)."
    ]
    for t in range(4, 20):
        vector_env.send(0, t, 0)
        vector_env.receive(0, t, 0)
    assert not buffer.lost[4:].any()
    assert (buffer.reward[4:20] == 1).all()


def test_failure_to_start_a_process_is_reported(vector_env_of, monkeypatch):
    vector_env = vector_env_of(gym_toys.Countdown, 2)
    vector_env.reset(0, 0)

    def no_process(*_):
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(workers_module.WorkerProcess, "start", no_process)
    os.kill(pids(vector_env)[0], signal.SIGKILL)
    vector_env.send(0, 0, 0)
    with pytest.raises(
        EnvironmentFault, match=r"was killed by SIGKILL, and no process could be started .*temporarily unavailable"
    ):
        vector_env.receive(0, 0, 0)


def test_a_worker_is_not_restarted_after_the_end(vector_env_of):
    """Ctrl-C ends the environments while another thread waits for a step."""
    vector_env = vector_env_of(functools.partial(gym_toys.Misbehaving, "hang"), 2)
    vector_env.reset(0, 0)
    vector_env.buffers[0].clear()
    for t in range(7):
        vector_env.send(0, t, 0)
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(lambda: [vector_env.receive(0, t, 0) for t in range(7)])
        vector_env.close()
        with pytest.raises(EnvError, match="The environments were closed during a step"):
            waiting.result(10)
    assert vector_env.restarts == 0


def test_only_a_killed_worker_gets_new_seeds(vector_env_of):
    vector_env = vector_env_of(gym_toys.Walk, 2)
    vector_env.reset(0, 1)
    before = vector_env.buffers[0].observation[0][0].copy()
    os.kill(pids(vector_env)[0], signal.SIGKILL)
    vector_env.buffers[0].clear()
    vector_env.buffers[0].action[:] = 0
    vector_env.send(0, 0, 0)
    vector_env.receive(0, 0, 0)
    marks = vector_env.buffers[0].observation[0][1, :2, 2]
    assert not np.intersect1d(marks, before[:, 2]).size
    assert not vector_env.buffers[0].lost[0, 2:].any()


def test_a_hung_environment_is_restarted_after_step_timeout(vector_env_of):
    vector_env = vector_env_of(functools.partial(gym_toys.Misbehaving, "hang"), 2, options={"step_timeout": 1.0})
    started = time.monotonic()
    vector_env.reset(0, 0)
    buffer = vector_env.buffers[0]
    buffer.clear()
    buffer.action[:] = 0
    for t in range(7):
        vector_env.send(0, t, 0)
        vector_env.receive(0, t, 0)
    assert buffer.lost[6].all(), "every environment hangs in its seventh step"
    assert 1.0 < time.monotonic() - started < 15.0
    assert vector_env.restarts == 2


class Slow(gym_toys.Countdown):
    """Episodes of ``length`` steps; calls named in ``slow`` take ``seconds``."""

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


def test_construction_and_resets_may_take_longer_than_a_step(vector_env_of):
    options = {"step_timeout": 0.6}
    slow = functools.partial(Slow, ("constructor", "reset"), 1.2)
    vector_env = vector_env_of(slow, 2, num_envs=2, num_steps=2, env=gym_toys.Countdown(), options=options)
    buffer = rollout(vector_env, np.zeros((2, 2), np.int64))
    assert buffer.terminated[1].all(), "an episode ends, and its environment is reset within a step"
    assert vector_env.restarts == 0


def test_slow_environment_construction_raises_at_ten_times_step_timeout(vector_env_of):
    with pytest.raises(EnvError, match=r"0 … 1 of toy took more than 0\.5 s \(step_timeout = 0.05; 10 times .*before its env"):
        vector_env_of(
            functools.partial(Slow, ("constructor",), 3600.0), 1, 2, env=gym_toys.Countdown(), options={"step_timeout": 0.05}
        )


def test_too_many_lost_workers_raise_with_the_reason(vector_env_of):
    vector_env = vector_env_of(functools.partial(gym_toys.Misbehaving, "die", 2), 1, options={"max_restarts": 2})
    with pytest.raises(
        EnvironmentFault, match=r"ended with exit code 3, and workers were restarted 2 times already.*max_restarts"
    ):
        rollout(vector_env, np.zeros((40, 4), np.int64))


def test_a_failing_constructor_in_a_worker_raises_its_exception(vector_env_of):
    with pytest.raises(OSError, match="no simulator on port 4242"):
        vector_env_of(functools.partial(gym_toys.Misbehaving, "constructor"), 2, env=gym_toys.Countdown())


def test_an_error_in_a_worker_raises_with_its_traceback(vector_env_of):
    vector_env = vector_env_of(functools.partial(gym_toys.Misbehaving, "raise"), 2, num_steps=10)
    with pytest.raises(
        EnvironmentFault, match=r"toy.step of environment \d \(seed \d+.*ZeroDivisionError: the pole has fallen off"
    ):
        rollout(vector_env, np.zeros((10, 4), np.int64))


def test_closing_ends_all_processes_even_a_hung_one(vector_env_of):
    vector_env = vector_env_of(functools.partial(gym_toys.Misbehaving, "hang"), 2)
    vector_env.reset(0, 0)
    vector_env.buffers[0].clear()
    stepping = threading.Thread(target=lambda: [vector_env.send(0, t, 0) for t in range(7)])
    stepping.start()
    stepping.join()
    these = pids(vector_env)
    started = time.monotonic()
    vector_env.close()
    assert time.monotonic() - started < 4.0
    assert gone_within(1.0, these)


PARENT = """
    import functools, os, sys, time
    import gym_toys
    from vector_envs import with_workers
    vector_env = with_workers(functools.partial(gym_toys.Misbehaving, *sys.argv[1:]), 2, env=gym_toys.Countdown())
    vector_env.reset(0, 0)
    vector_env.buffers[0].clear()
    for t in range(7):
        vector_env.send(0, t, 0)
        if t < 6:
            vector_env.receive(0, t, 0)
    print(*(worker.popen.pid for worker in vector_env.all_workers()), flush=True)
    time.sleep(60)
"""


def parent(*what, wait=True):
    """Start a process with two workers whose environments have the fault ``what``. Returns it and the pids of its workers."""
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
def test_workers_die_with_a_killed_parent_even_if_hung(what):
    process, these = parent(what)
    assert len(these) == 2
    assert all(map(alive, these))
    process.kill()
    process.wait()
    assert gone_within(5.0, these)


def test_what_an_environment_prints_does_not_disturb_the_pipes(vector_env_of, capfd):
    vector_env = vector_env_of(Chatty, 1, num_envs=2)
    rollout(vector_env, np.zeros((40, 2), np.int64))
    vector_env.close()
    assert "hello from step 1" in capfd.readouterr().err


class Chatty(gym_toys.Countdown):
    """Prints in every step, and reads standard input."""

    def step(self, action):
        print("hello from step", self.now + 1, flush=True)
        assert sys.stdin.read() == ""
        return super().step(action)


FOREIGN = "open({folder!r} + '/' + __name__ + '.ran', 'w').close()"


def test_a_worker_imports_no_library_from_the_working_folder(vector_env_of, tmp_path, monkeypatch):
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
    vector_env = vector_env_of(functools.partial(Placed, mine), 1, num_envs=2, num_steps=3, env=gym_toys.Countdown())
    assert rollout(vector_env, np.zeros((3, 2), np.int64)).reward[0].tolist() == [4.0, 4.0]
    assert list(here.glob("*.ran")) == []


class Placed(gym_toys.Countdown):
    """The reward is the length of the path of the folder from which a user module was imported."""

    def __init__(self, cls):
        super().__init__()
        self.place = cls.place

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, float(len(self.place)), *rest


def test_shared_memory_has_no_named_files(vector_env_of):
    before = set(os.listdir("/dev/shm"))
    vector_env = vector_env_of(gym_toys.Walk, 2)
    rollout(vector_env, np.zeros((40, 4), np.int64))
    assert set(os.listdir("/dev/shm")) <= before, "there is no name, even while it is in use"
