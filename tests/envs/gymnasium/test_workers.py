"""Worker processes give the same transitions as this process, and are restarted after every kind of fault."""

import concurrent.futures
import contextlib
import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from vector_envs import in_process, lanes, rollout, with_workers

from process_states import alive, gone_within
from proximo.envs.gymnasium import workers as workers_module
from proximo.errors import EnvError, EnvironmentFault

import gym_toys

TESTS = Path(__file__).parents[2]


def pids(vector_env):
    return [worker.popen.pid for worker in vector_env.workers]


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


def step(vector_env, steps, start=0):
    """Take steps with the action 0."""
    if start == 0:
        vector_env.buffer.clear()
        vector_env.buffer.action[:] = 0
    for t in range(start, start + steps):
        vector_env.send(t, 0)
        vector_env.receive(t, 0)
    return vector_env.buffer


@pytest.mark.parametrize(("workers", "groups", "stagger"), [(1, 1, 0), (3, 1, 20), (4, 2, 0)])
def test_any_number_of_workers_gives_the_same_transitions(vector_env_of, workers, groups, stagger):
    actions = np.random.default_rng(0).integers(0, 3, (40, 4))
    expected = lanes(rollout(in_process(gym_toys.Walk, num_envs=4, stagger=stagger), actions, seed=9))
    vector_env = vector_env_of(gym_toys.Walk, workers, groups=groups, stagger=stagger)
    assert lanes(rollout(vector_env, actions, seed=9)) == expected
    assert vector_env.restarts == 0


def starter(folder):
    """Starts a process that it never ends, and reports its process id."""
    (folder / str(subprocess.Popen(["sleep", "600"]).pid)).touch()
    return gym_toys.Walk()


def test_a_killed_worker_is_restarted_with_new_seeds_and_without_its_processes(vector_env_of, tmp_path):
    messages, named = [], set(os.listdir("/dev/shm"))
    make = functools.partial(starter, tmp_path)
    vector_env = vector_env_of(make, 2, num_steps=20, env=gym_toys.Walk(), warn=messages.append)
    assert set(os.listdir("/dev/shm")) <= named, "shared memory has no name"
    vector_env.reset(1)
    buffer = step(vector_env, 3)
    marks = buffer.observation[0][0, :, 2].copy()
    started, old = {int(path.name) for path in tmp_path.iterdir()}, pids(vector_env)
    assert len(started) == 4
    os.kill(old[1], signal.SIGKILL)
    step(vector_env, 1, 3)
    assert vector_env.restarts == 1
    assert pids(vector_env)[0] == old[0]
    np.testing.assert_array_equal(buffer.lost[3], [False, False, True, True])
    np.testing.assert_array_equal(buffer.valid[3], ~buffer.lost[3])
    assert buffer.episode_start[4][2:].all()
    assert not buffer.reward[3, 2:].any()
    assert not np.intersect1d(buffer.observation[0][4, 2:, 2], marks).size, "the new environments have new seeds"
    assert messages == [
        "The worker of environments 2 … 3 of toy was killed by SIGKILL: it is restarted with new seeds (restart 1 of at most 100)."
    ]
    assert not step(vector_env, 16, 4).lost[4:].any()
    assert sum(map(alive, started)) == 2
    vector_env.close()
    assert gone_within(5.0, [int(path.name) for path in tmp_path.iterdir()])


def test_only_a_worker_that_hangs_is_restarted_after_step_timeout(vector_env_of, tmp_path):
    (tmp_path / "hang").touch()

    def step(self, action):
        if self.now == 2:
            with contextlib.suppress(FileNotFoundError):  # the other environment removed it first
                (tmp_path / "hang").unlink()
                time.sleep(3600)
        return gym_toys.Countdown.step(self, action)

    messages, make = [], gym_toys.altered(gym_toys.Countdown, step=step)
    buffer = rollout(vector_env_of(make, 2, num_envs=2, num_steps=5, step_timeout=1.5, warn=messages.append))
    assert "took more than 1.5 s (step_timeout = 1.5" in messages[0]
    assert len(messages) == buffer.lost.sum() == 1


def once_only(folder):
    """The construction fails if the folder of an earlier one exists. A step ends the process."""
    (folder / "lock").mkdir()
    return gym_toys.Misbehaving("die", 1)


def ends_in_reset(folder):
    """Ends its process in the reset after the first one."""
    file = folder / "once"

    def reset(self, **options):
        if self.now or not file.exists():
            file.unlink(missing_ok=True)
            os._exit(5)
        return gym_toys.Countdown.reset(self, **options)

    return gym_toys.altered(gym_toys.Countdown, reset=reset)(3)


FAULTS = {
    "exit": (EnvironmentFault, r"toy.step of environment \d .* raised SystemExit: 0"),
    "raise": (EnvironmentFault, r"toy.step of environment \d \(seed \d+.*ZeroDivisionError: the pole has fallen off"),
    "constructor": (OSError, "no simulator on port 4242"),
    "die": (EnvironmentFault, r"ended with exit code 3, and workers were restarted 2 times already.*max_restarts"),
    once_only: (EnvironmentFault, r"exit code 3, and its .* could not be made again \(FileExistsError"),
    ends_in_reset: (EnvironmentFault, r"ended with exit code 5, as 3 workers in succession: training stops"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_in_a_worker_raises_its_sentence(vector_env_of, tmp_path, what):
    (tmp_path / "once").touch()
    make = functools.partial(gym_toys.Misbehaving, what, 2) if isinstance(what, str) else functools.partial(what, tmp_path)
    error, sentence = FAULTS[what]
    with pytest.raises(error, match=sentence):
        rollout(vector_env_of(make, 1, num_envs=1, env=gym_toys.Countdown(), max_restarts=2 if what == "die" else 100))


def test_failure_to_start_a_process_is_reported(vector_env_of, monkeypatch):
    vector_env = vector_env_of(gym_toys.Countdown, 1)
    vector_env.reset(0)
    monkeypatch.setattr(workers_module.WorkerProcess, "start", lambda _: os.listdir("/dev/null"))
    os.kill(pids(vector_env)[0], signal.SIGKILL)
    with pytest.raises(EnvironmentFault, match=r"was killed by SIGKILL, and no process could be started .*Not a directory"):
        step(vector_env, 1)


def test_closing_ends_hung_workers_which_are_not_restarted(vector_env_of):
    """Ctrl-C ends the environments while another thread waits for a step."""
    vector_env = vector_env_of(functools.partial(gym_toys.Misbehaving, "hang"), 2)
    vector_env.reset(0)
    step(vector_env, 6)
    these = pids(vector_env)
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(step, vector_env, 1, 6)
        time.sleep(0.2)
        started = time.monotonic()
        vector_env.close()
        with pytest.raises(EnvError, match="The environments were closed during a step"):
            waiting.result(10)
    assert time.monotonic() - started < 4.0
    assert vector_env.restarts == 0
    assert gone_within(1.0, these)


class Slow(gym_toys.Countdown):
    """The constructor and resets take ``seconds``."""

    def __init__(self, seconds):
        super().__init__(2)
        self.seconds = seconds
        time.sleep(seconds)

    def reset(self, **options):
        time.sleep(self.seconds)
        return super().reset(**options)


def test_construction_and_resets_may_take_ten_times_longer_than_a_step(vector_env_of):
    slow, toy = functools.partial(Slow, 0.6), gym_toys.Countdown()
    vector_env = vector_env_of(slow, 2, num_envs=2, num_steps=2, env=toy, step_timeout=0.4)
    assert rollout(vector_env).terminated[1].all(), "an episode ends, and its environment is reset within a step"
    assert vector_env.restarts == 0
    with pytest.raises(EnvError, match=r"0 … 1 of toy took more than 0\.5 s \(step_timeout = 0.05; 10 times .*before its env"):
        vector_env_of(functools.partial(Slow, 3600.0), 1, 2, env=toy, step_timeout=0.05)


PARENT = """
    import functools, os, sys, time
    import gym_toys
    from vector_envs import with_workers
    vector_env = with_workers(functools.partial(gym_toys.Misbehaving, *sys.argv[1:]), 2, env=gym_toys.Countdown())
    vector_env.reset(0)
    vector_env.buffer.clear()
    for t in range(7):
        vector_env.send(t, 0)
        if t < 6:
            vector_env.receive(t, 0)
    print(*(worker.popen.pid for worker in vector_env.workers), flush=True)
    time.sleep(60)
"""


def test_workers_die_with_a_killed_parent_even_if_they_hold_the_lock():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(Path(__file__).parent), *sys.path])}
    words = [sys.executable, "-c", textwrap.dedent(PARENT), "hold"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, text=True)
    these = [int(word) for word in process.stdout.readline().split()]
    assert len(these) == 2
    assert all(map(alive, these))
    process.kill()
    process.wait()
    assert gone_within(5.0, these)


FOREIGN = "open({folder!r} + '/' + __name__ + '.ran', 'w').close()"


class Placed(gym_toys.Countdown):
    """The reward is the length of the path of the folder from which a user module was imported. Prints, and reads standard input."""

    def __init__(self, cls):
        super().__init__()
        self.place = cls.place

    def step(self, action):
        print("hello from step", self.now + 1, flush=True)
        assert sys.stdin.read() == ""
        assert "jax" not in sys.modules, "a worker does not wait for its import"
        observation, _, *rest = super().step(action)
        return observation, float(len(self.place)), *rest


def test_a_worker_imports_no_library_from_the_working_folder_and_may_print(vector_env_of, tmp_path, monkeypatch, capfd):
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
    assert rollout(vector_env).reward[0].tolist() == [4.0, 4.0]
    assert list(here.glob("*.ran")) == []
    vector_env.close()
    assert "hello from step 1" in capfd.readouterr().err
