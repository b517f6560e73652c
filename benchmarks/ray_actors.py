"""Measures Ray actors on a cluster of two nodes on this machine: their scaling with a slow environment, and a training whose actors are killed.

    pip install -e '.[ray]' -c constraints.txt
    python benchmarks/ray_actors.py                 # --case scaling or --case kills: one of them

Scaling: an environment that sleeps 5 ms in each step, with the same number of environments in each actor. Kills: CartPole, where actors are
killed by SIGKILL, one at a time, at random moments. Results: ``benchmarks/results/ray_actors.json``.
"""

import argparse
import contextlib
import json
import os
import platform
import random
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

# Ray listens on all interfaces: it accepts only processes that know this token. Both are read when Ray is imported.
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32), RAY_USAGE_STATS_ENABLED="0")

import gymnasium as gym
import numpy as np

import proximo
from proximo.backends import make_backend
from proximo.envs.gymnasium.construction import from_class
from proximo.envs.gymnasium.preprocessing import Preprocessing
from proximo.settings import make_config

STEP_SECONDS = 0.005
ENVS_PER_ACTOR = 4
UPDATES = 10
"""Measured updates, after the first one."""
KILLS = 20
RESULTS = Path(__file__).parent / "results" / "ray_actors.json"


class Sleeping(gym.Env):
    """An environment whose step takes 5 ms and no CPU."""

    observation_space, action_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action):
        time.sleep(STEP_SECONDS)
        return self._observation(), 1.0, self.np_random.random() < 0.02, False, {}

    def _observation(self):
        return self.np_random.uniform(-1, 1, 4).astype(np.float32)


@contextlib.contextmanager
def cluster() -> Iterator[None]:
    """Context manager: a Ray cluster of two nodes."""
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    os.environ["RAY_ADDRESS"] = nodes.address
    try:
        yield
    finally:
        ray.shutdown()
        nodes.shutdown()


def actor_processes() -> dict[int, int]:
    """The processes of all actors of this machine, and the process of the node of each."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes().startswith(b"ray::RolloutActor"):
                found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def steps_per_second(actors: int) -> dict:
    """Train on ``Sleeping`` with this number of actors, and return the median speed of an update."""
    settings = {"actors": actors, "num_envs": ENVS_PER_ACTOR * actors, "num_steps": 64, "eval_episodes": 0}
    config = make_config("Sleeping", settings, preset=False)
    program = make_backend(config, from_class(Sleeping, {}, "Sleeping", Preprocessing()))
    try:
        state = program.prepare(lambda: program.start([0]))
        nodes, seconds, shares = len(set(actor_processes().values())), [], []
        for _ in range(1 + UPDATES):
            started = time.perf_counter()
            state, metrics = program.advance(state, 1)
            seconds.append(time.perf_counter() - started)
            shares.append(
                {name: float(metrics[f"time/share_{name}"][0, 0]) for name in ("environment", "policy", "update", "rest")}
            )
    finally:
        program.close()
    speeds = [config.batch_size / one for one in seconds[1:]]
    return {"actors": actors, "nodes": nodes, "num_envs": config.env.num_envs, "steps_per_second": statistics.median(speeds), "shares": {name: statistics.median(one[name] for one in shares[1:]) for name in shares[0]},
            "range": [min(speeds), max(speeds)]}  # fmt: skip


def scaling() -> dict:
    """Speeds with one and with eight actors, and their ratio."""
    one, eight = steps_per_second(1), steps_per_second(8)
    return {
        "step_seconds": STEP_SECONDS,
        "one": one,
        "eight": eight,
        "ratio": eight["steps_per_second"] / one["steps_per_second"],
    }


def kills() -> dict:
    """Train on CartPole with four actors, and kill one again and again. Returns how the training ended and what it learned."""
    rng, killed = random.Random(0), 0
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "proximo", "train", "CartPole-v1", "--actors", "4", "--total-steps", "300_000", "--json", "--runs-dir"]
        process = subprocess.Popen([sys.executable, *command, folder], stdout=subprocess.PIPE, text=True)
        while process.poll() is None:
            if len(running := sorted(actor_processes())) == 4 and killed < KILLS and list(Path(folder).rglob("*.jsonl")):
                time.sleep(rng.uniform(0.2, 0.6))
                os.kill(rng.choice(running), signal.SIGKILL)
                killed += 1
            time.sleep(0.05)
        output = process.communicate()[0]
        metrics = [json.loads(line) for path in Path(folder).rglob("*.jsonl") for line in path.read_text().splitlines()]
    result = json.loads(output) if process.returncode == 0 else {}
    return {
        "kills": killed,
        "exit_code": process.returncode,
        "restarts": sum(row.get("rollout/restarts", 0) for row in metrics),
        "steps": result.get("steps"),
        "return_mean": result.get("return_mean"),
        "seconds": result.get("seconds"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=("scaling", "kills"))
    chosen = parser.parse_args().case
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with cluster():
        for name, measure in {"scaling": scaling, "kills": kills}.items():
            if chosen in (None, name):
                machine = {
                    "date": str(date.today()),
                    "cores": os.cpu_count(),
                    "proximo": proximo.__version__,
                    "machine": platform.machine(),
                }
                results[name] = {**measure(), **machine}
                print(name, json.dumps(results[name], indent=1))
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
