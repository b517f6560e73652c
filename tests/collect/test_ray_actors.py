"""Actors of a Ray that runs on this machine: they train as local groups do, are replaced when they die, and end with the training.

Needs the extra ray, which the gate does not install: bash .ci/extras ray
"""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from proximo.collect.ray_collector import RolloutActor, connect
from proximo.config import Config, override
from proximo.envs.custom import from_class
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.errors import EnvError, EnvironmentFault
from proximo.training.backends import make_backend

import gym_toys
from helpers import bits

SETTINGS = {
    "id": "toy", "num_envs": 4, "num_steps": 8, "num_epochs": 1, "num_minibatches": 1, "total_steps": 6400, "hidden_sizes": (8,),
    "memory": "gru", "memory_size": 8, "towers": "shared", "eval_episodes": 0, "diagnose_every": -1,
}  # fmt: skip
ACTORS = {"actors": 2}
pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")


@pytest.fixture(autouse=True, scope="module")
def token():
    """Have Ray, which listens on all interfaces, refuse processes without this token. It reads it when it is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", "local")
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", os.urandom(32).hex())
        yield
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()


@contextlib.contextmanager
def training(env=gym_toys.Walk, env_settings=None, **settings):
    """A function that trains for one update and returns its metrics, the backend, and the warnings so far."""
    made = from_class(env, env_settings or {}, "toy", Preprocessing())
    backend = make_backend(override(Config(), {**SETTINGS, **settings}), made)
    warnings, state = [], backend.start([0])
    backend.send_warnings_to(warnings.append)

    def update():
        nonlocal state
        state, metrics = backend.advance(state, 1)
        return {name: float(x[0, 0]) for name, x in metrics.items() if not name.startswith("time")}

    try:
        backend.prepare(lambda: state)
        yield update, backend, warnings, lambda: bits(state)
    finally:
        backend.close()


def processes():
    """The processes of the actors, oldest first."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes().startswith(b"ray::RolloutActor"):
                found.append(int(folder.name))
    return sorted(found)


def assert_all_end():
    deadline = time.monotonic() + 20
    while processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes() == []


@pytest.mark.parametrize("learner_lag", [0, 1])
def test_actors_train_as_local_groups_do(learner_lag):
    with training(overlap=True, num_workers=0, learner_lag=learner_lag) as (update, _, _, state):
        local, expected = [update() for _ in range(3)], state()
    with training(**ACTORS, learner_lag=learner_lag) as (update, backend, warnings, state):
        assert backend.describe().startswith("environments in 2 Ray actors")
        assert [update() for _ in range(3)] == local
        assert state() == expected
        # A busy machine starts actors slowly.
        assert [warning for warning in warnings if "Still waiting for" not in warning] == []
    assert_all_end()


def test_a_killed_actor_is_replaced_until_the_limit():
    with training(**ACTORS, worker_settings="max_restarts=1") as (update, backend, warnings, _):
        assert update()["rollout/restarts"] == 0
        os.kill(processes()[0], signal.SIGKILL)
        assert update()["rollout/restarts"] == 1
        assert not np.all(valid := backend.last_rollout.valid)
        assert np.all(valid[:, :2]) != np.all(valid[:, 2:]), "one part is invalid"
        assert update()["rollout/restarts"] == 0
        assert backend.last_rollout.valid.all()
        # A busy machine starts actors slowly.
        [restart] = [warning for warning in warnings if "Still waiting for" not in warning]
        assert "restarted with new episodes (restart 1 of at most 1)" in restart
        os.kill(processes()[-1], signal.SIGKILL)
        with pytest.raises(EnvironmentFault, match=r"restarted 1 times already: training stops.* or increase max_restarts"):
            update()
    assert_all_end()


HANG = {"worker_settings": "step_timeout=1,max_restarts=0"}


@pytest.mark.parametrize(
    ("env", "env_settings", "settings", "message"),
    [
        (
            gym_toys.Misbehaving,
            {"what": "raise", "at": 3},
            {"num_envs": 2},
            r"toy.step of environment 0 .* raised ZeroDivisionError",
        ),
        (gym_toys.Misbehaving, {"what": "hang", "at": 3}, {"num_envs": 2, "num_workers": 0, **HANG}, r"step_timeout"),
        (gym_toys.HangingVector, {}, HANG, r"environments 0 … 1 was lost"),  # without workers
    ],
)
def test_a_fault_and_a_hang_in_an_actor_end_the_training(env, env_settings, settings, message):
    with training(env, env_settings, **ACTORS, **settings) as (update, *_), pytest.raises(EnvironmentFault, match=message):
        update()
    assert_all_end()


class Foreign(RolloutActor):
    """Is in a module that an actor does not find, as where proximo is not installed."""


def test_an_actor_that_cannot_start_is_one_sentence(monkeypatch):
    monkeypatch.setattr("proximo.collect.ray_collector.RolloutActor", Foreign)
    message = r"environments 0 … 1 cannot start: ModuleNotFoundError: No module named 'test_ray_actors'\.$"
    with pytest.raises(EnvError, match=message), training(**ACTORS):
        pass


def test_local_ray_listens_on_loopback_and_keeps_signal_handlers():
    before = signal.getsignal(signal.SIGTERM)
    connect()
    assert signal.getsignal(signal.SIGTERM) is before
    port = int(sys.modules["ray"].get_runtime_context().gcs_address.split(":")[1])
    sockets = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    listening = [socket[1] for socket in sockets if socket[3] == "0A" and socket[1].endswith(f":{port:04X}")]
    assert [address for address in listening if not address.split(":")[0].endswith("0100007F")] == []
    assert listening


def test_a_training_without_actors_does_not_import_ray():
    code = "import proximo, sys; proximo.PPO('CartPole-v1', num_workers=0, num_steps=8, eval_episodes=0).learn(64); print('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"


def command(folder, *words, **settings):
    """A training of two actors in its own process, as a user starts it."""
    words = [sys.executable, "-P", "-m", "proximo", "train", *words, "--actors", "2"]
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)


def test_ctrl_c_saves_a_training_that_has_started_ray(tmp_path):
    """Ray and its processes are not ended by the terminal's signal, nor with the thread in which the training compiles."""
    train = command(tmp_path, "CartPole-v1", "--total-steps", "100_000_000", start_new_session=True)
    for line in train.stdout:
        if "steps/s" in line:
            break
    os.killpg(train.pid, signal.SIGINT)
    assert "saved. Go on with: proximo train --resume" in train.communicate()[0]
    assert train.returncode == 130


def test_an_actor_imports_no_library_from_the_working_folder(tmp_path):
    for name in ("json", "enum", "csv", "yaml", "cloudpickle", "proximo"):
        (tmp_path / f"{name}.py").write_text("open(__file__ + '.ran', 'w').close()")
    (tmp_path / "mine.py").write_text("from gymnasium.envs.classic_control import CartPoleEnv\nclass Mine(CartPoleEnv): pass")
    train = command(tmp_path, "mine:Mine", "--smoke", "--num-envs", "4")
    assert train.wait() == 0, train.communicate()
    assert list(tmp_path.glob("*.ran")) == []


@pytest.mark.parametrize(
    ("address", "reason"),
    [("127.0.0.1:9", "Connection refused"), ("ray://head:10001", "expected local, or HOST:PORT of its head")],
)
def test_an_address_without_a_cluster_is_one_sentence(address, reason, tmp_path):
    train = command(tmp_path, "CartPole-v1", env={**os.environ, "RAY_ADDRESS": address})
    sentence = f"no Ray cluster answers at RAY_ADDRESS = {address} ({reason}): start its head with `ray start --head`"
    assert sentence in train.communicate()[1]
    assert train.returncode == 2
