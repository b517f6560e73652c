"""Train a suite of tasks over seeds, and show its results beside published ones.

    python benchmarks/suite.py mujoco --minutes 140 --jobs 2
    python benchmarks/suite.py mujoco --show      # prints the table and draws the curves; nothing is trained

``suites/NAME.yaml`` lists the tasks, with their seeds and published results. Results are in ``results/suite_NAME.json``. A task that has
no settings trains with its preset. No training and no tuning uses the environment seeds on which the final policies are evaluated.

The unit of work is one seed. The first seed of all tasks comes first, then the second, and so on: an interrupted suite is a complete smaller one. Seeds
that are in the results are skipped. When the minutes are over, or after Ctrl-C, the running seeds are saved in the work folder, and the
next start resumes them. With ``--jobs K``, K seeds train at a time, each on its share of the cores.
``--only``, ``--candidate`` and ``--seeds`` choose tasks, candidates and seeds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proximo.jax_setup import cache_folder
from proximo.tracking.progress import amount
from suite_candidates import candidates_table
from suite_pages import write_pages
from suite_report import plot, table
from suite_tasks import Suite, load_suite, read_results

HERE = Path(__file__).parent
Seed = tuple[str, int]
"""The name of a task, and a seed."""


def pending(suite: Suite, results: dict[str, Any]) -> list[Seed]:
    """The seeds that are not in ``results`` yet, in the order of training."""
    done = {(name, int(seed)) for name, record in results["tasks"].items() for seed in record["seeds"]}
    most = max(task.seeds for task in suite.tasks.values())
    seeds = [(name, task.first_seed + i) for i in range(most) for name, task in suite.tasks.items() if i < task.seeds]
    return [seed for seed in seeds if seed not in done]


@dataclass
class Job:
    """A process that trains one seed."""

    seed: Seed
    log: Path
    process: subprocess.Popen[bytes]


def start(arguments: argparse.Namespace, seed: Seed, cores: set[int]) -> Job:
    """Start the process of a seed on some cores."""
    name, number = seed
    log = arguments.work / arguments.suite / f"{name.replace('/', '-')}-{number}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(HERE / "suite_seed.py"), str(arguments.file), name, str(number)]
    command += ["--work", str(arguments.work), "--out", str(arguments.out)]
    if shutil.which("taskset"):
        command = ["taskset", "--cpu-list", ",".join(map(str, sorted(cores))), *command]
    with log.open("ab") as file:
        # A new session: Ctrl-C reaches this process only, which then stops each job once.
        process = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, start_new_session=True)
    print(f"{name} seed {number}: started; its log is {log}", flush=True)
    return Job(seed, log, process)


def report(job: Job, out: Path) -> bool:
    """Print what became of a job that has ended. Returns whether it failed."""
    name, seed = job.seed
    record = read_results(out)["tasks"].get(name, {"seeds": {}})
    if row := record["seeds"].get(str(seed)):
        last = "–" if row["last_100"] is None else f"{row['last_100']:.4g}"
        took = "" if row["wall_seconds"] is None else f", {row['wall_seconds']:.0f} s"
        print(f"{name} seed {seed}: {row['score']:.4g}, last 100 episodes {last}{took}", flush=True)
        return False
    if job.process.returncode == 128 + signal.SIGINT:
        print(f"{name} seed {seed}: stopped, the next start continues it", flush=True)
        return False
    lines = job.log.read_text(errors="replace").splitlines()
    print(f"{name} seed {seed}: failed ({job.log})\n  " + "\n  ".join(lines[-5:]), flush=True)
    return True


def train(arguments: argparse.Namespace, seeds: list[Seed]) -> int:
    """Train ``seeds``, several at a time, until the time is over. Returns how many failed."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    shares = [set(allowed[job :: arguments.jobs]) or set(allowed) for job in range(arguments.jobs)]
    seeds, running, failed = list(seeds), dict[int, Job](), 0
    deadline = time.monotonic() + 60 * arguments.minutes
    with stop_requests() as stops:
        handled = 0
        while True:
            if time.monotonic() > deadline and not stops:
                stops.append(signal.SIGINT)
            if stops:
                seeds.clear()
            for share in set(range(arguments.jobs)) - set(running):
                if seeds:
                    running[share] = start(arguments, seeds.pop(0), shares[share])
            if len(stops) > handled:  # a second Ctrl-C ends a job at once
                handled = len(stops)
                for job in running.values():
                    job.process.send_signal(signal.SIGINT)
            for share in [share for share, job in running.items() if job.process.poll() is not None]:
                failed += report(running.pop(share), arguments.out)
            if not seeds and not running:
                return failed
            time.sleep(0.1)


@contextlib.contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Context manager: the signals that ask this process to stop, as a list that grows. A closed terminal is one of them."""
    received: list[int] = []
    before = {
        number: signal.signal(number, lambda n, _: received.append(n))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", metavar="NAME", help="name of a suite in benchmarks/suites, or path of a YAML file")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time; by default, train all seeds")
    parser.add_argument("--jobs", type=int, default=1, help="seeds that train at a time, each on its share of the cores")
    parser.add_argument("--only", nargs="+", metavar="TASK", help="train or show only these tasks")
    parser.add_argument("--candidate", nargs="+", metavar="NAME", help="train or show only these candidates of the suite")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="SEED", help="train only these seeds")
    parser.add_argument(
        "--work", type=Path, default=cache_folder() / "suites", help="folder of the run directories (%(default)s)"
    )
    parser.add_argument("--out", type=Path, help="file of the results (benchmarks/results/suite_NAME.json)")
    parser.add_argument("--show", action="store_true", help="print the table and draw the curves; nothing is trained")
    arguments = parser.parse_args()
    given = Path(arguments.suite)
    arguments.file = given if given.suffix == ".yaml" else HERE / "suites" / f"{given}.yaml"
    if not arguments.file.is_file():
        known = ", ".join(sorted(path.stem for path in (HERE / "suites").glob("*.yaml")))
        parser.error(f"there is no suite {arguments.suite}: expected {known}, or the path of a YAML file")
    if arguments.show and arguments.seeds:
        parser.error("--show shows all seeds: leave out --seeds")
    if arguments.jobs < 1:
        parser.error(f"--jobs {arguments.jobs}: expected 1 or more")
    if not arguments.minutes > 0:
        parser.error(f"--minutes {arguments.minutes:g}: expected more than 0")
    arguments.suite = arguments.file.stem
    arguments.out = arguments.out or HERE / "results" / f"suite_{arguments.suite}.json"
    arguments.work = arguments.work.absolute()
    return arguments


def main() -> int:
    """Train or show the suite."""
    arguments = parse()
    whole = load_suite(arguments.file)
    suite = whole.only(arguments.only, arguments.candidate)
    known = {task.first_seed + i for task in suite.tasks.values() for i in range(task.seeds)}
    chosen = set(arguments.seeds or known)
    if unknown := chosen - known:
        sys.exit(
            f"There is no seed {', '.join(map(str, sorted(unknown)))}: expected some of {', '.join(map(str, sorted(known)))}."
        )
    failed = 0
    if not arguments.show:
        seeds = [seed for seed in pending(suite, read_results(arguments.out)) if seed[1] in chosen]
        print(f"{amount(len(seeds), 'seed')} to train" + ("" if seeds else f": all are in {arguments.out}"), flush=True)
        failed = train(arguments, seeds)
    results = read_results(arguments.out)
    if not any(name in results["tasks"] for name in suite.tasks):
        print(f"No seed is recorded in {arguments.out} yet.")
        return 1 if failed else 0
    print(candidates_table(suite, results) if suite.candidates else table(suite, results))
    if arguments.show and not suite.candidates:
        plot(whole, results, arguments.out.with_suffix(".png"))
        print(f"The learning curves are in {arguments.out.with_suffix('.png')}.", file=sys.stderr)
    if arguments.out.parent == HERE / "results":
        write_pages()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
