"""The command line as the tests call it: in this process or another; and what runs leave behind."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import safetensors.numpy

from proximo.cli import main
from proximo.storage import checkpoint, run_lookup
from proximo.tracking.run_trackers import read_rows

TESTS = Path(__file__).parent
ENV = "toys:RandomEnds"
SMALL = {
    "num_envs": 4, "num_steps": 8, "num_epochs": 2, "num_minibatches": 2, "hidden_sizes": 8,
    "normalize_observation": "true", "normalize_reward": "true", "total_steps": 640, "updates_per_call": 2,
    "eval_episodes": 4, "tensorboard": "false",
}  # fmt: skip
GRU = {"memory": "gru", "memory_size": 8, "sequence_length": 4}
BATCH = 32


def flags(**settings: Any) -> list[str]:
    """``--num-envs 4 …``."""
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def train_words(runs_dir: Path, name: str, env: str = ENV, **settings: Any) -> list[str]:
    """The command line of a small training, of ``2 * 10`` updates and an evaluation at every second one."""
    return ["train", env, "--no-preset", *flags(**{**SMALL, **settings}, runs_dir=runs_dir, name=name)]


def trained(runs_dir: Path, name: str, env: str = ENV, **settings: Any) -> Path:
    """The run directory of a small training in this process."""
    assert main(train_words(runs_dir, name, env, **settings)) == 0
    return next(runs_dir.glob(f"*/{name}"))


def copied(run_dir: Path, folder: Path) -> Path:
    """A copy of a run that a test may change."""
    return Path(shutil.copytree(run_dir, folder / run_dir.name, symlinks=True))


def final_state(run_dir: Path) -> dict[str, bytes]:
    """Every leaf of the newest checkpoint, as its bytes."""
    saved, warnings = run_lookup.load_newest(run_dir / "checkpoints")
    assert not warnings
    arrays = safetensors.numpy.load(saved.files[checkpoint.STATE])
    return {"step": saved.path.name.encode(), **{name: np.asarray(x).tobytes() for name, x in arrays.items()}}


def rows(run_dir: Path) -> list[dict[str, Any]]:
    """The metrics, without what depends on the clock."""
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in read_rows(run_dir / "metrics.jsonl")]


class Ended(NamedTuple):
    """A process that is over."""

    code: int
    out: str
    err: str


class Process:
    """``proximo`` in a process that finds the tests' modules; ``before`` is Python that runs first."""

    def __init__(self, *words: Any, before: str = "", **environment: str):
        program = f"import sys\n{before}\nfrom proximo.cli import main\nsys.exit(main(sys.argv[1:]))"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(TESTS), *filter(None, sys.path))), **environment},
        )

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def wait_for(self, happened: Callable[[], object], seconds: float = 300.0) -> None:
        """Until ``happened()`` is true. Fails when the process ends before."""
        deadline = time.monotonic() + seconds
        while not happened():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def read_until(self, text: str) -> None:
        """Read stdout until a line holds ``text``."""
        while text not in (line := self.process.stdout.readline()):
            assert line, self.process.communicate()

    def send(self, signal: int) -> None:
        self.process.send_signal(signal)

    def end(self, seconds: float = 300.0) -> Ended:
        """Wait for its end."""
        out, err = self.process.communicate(timeout=seconds)
        return Ended(self.process.returncode, out, err)


def pressed_twice(*_: Any) -> None:
    """A call during which the user presses Ctrl-C, and once more."""
    for _ in range(2):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.3)  # two that are pending are one


def ended_at_once(code: int) -> NoReturn:
    """In place of ``os._exit``."""
    raise SystemExit(code)


def free_address() -> str:
    """``HOST:PORT`` on loopback where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def last_best(evaluations: dict[int, float]) -> int:
    """The step of the best evaluation; among equals of the latest."""
    return max(evaluations, key=lambda step: (evaluations[step], step))
