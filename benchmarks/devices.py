"""Several devices: what they communicate, how several GPUs should scale, and how two processes do.

    JAX_NUM_CPU_DEVICES=2 python benchmarks/devices.py bytes       # what an update communicates, counted from the compiled program
    JAX_NUM_CPU_DEVICES=2 python benchmarks/devices.py predict --milliseconds 10 50   # how updates of these durations should scale
    python benchmarks/devices.py processes                # two processes on one core each against one process on one core

``processes`` prints the weak scaling of two processes with 64 environments each, and its upper limit: two independent trainings at the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time

import numpy as np

import proximo

import jax  # isort: skip  (after proximo, which sets the number of threads)

from proximo.envs import make_env
from proximo.jax_setup import compile_lowered, prepare_jax
from scaling import (
    CASES,
    DRAWING,
    LINKS,
    Communication,
    communication,
    communication_seconds,
    config_of,
    efficiency,
    mesh_of,
)

COUNTS = (2, 4, 8, 16)
"""Numbers of GPUs of the prediction."""


def counted(cases: list[str]) -> dict[str, Communication]:
    """The communication of each case. Exits if there is one device only."""
    if jax.device_count() < 2:
        sys.exit("The program must be compiled for two devices: set JAX_NUM_CPU_DEVICES=2.")
    return {case: communication(config_of(case)) for case in cases}


def show_bytes(options: argparse.Namespace) -> None:
    """Print a table of what updates communicate."""
    found = counted(options.cases)
    if options.json:
        print(json.dumps({case: {**of._asdict(), "bytes": of.size, "formula": of.formula} for case, of in found.items()}))
        return
    print(
        "| Case | Parameters P | Gradient steps K·M | Scalars of a step s | Other numbers u | All-reduces | Bytes | 4 (K·M (P + s) + u) |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for case, of in found.items():
        numbers = (of.parameters, of.gradient_steps, of.step_scalars, of.other_numbers, sum(each.times for each in of.operations))
        print(f"| {case} | " + " | ".join(f"{number:,}" for number in (*numbers, of.size, of.formula)) + " |")


def predict(options: argparse.Namespace) -> None:
    """Print the predicted time of communication, then the weak scaling of updates that take so long on one GPU."""
    found = counted(options.cases)
    seconds = {
        (case, link): [communication_seconds(of.operations, count, LINKS[link]) for count in COUNTS]
        for case, of in found.items()
        for link in LINKS
    }
    print_predicted("Communication of an update, ms", {row: [f"{1e3 * x:.1f}" for x in of] for row, of in seconds.items()})
    for duration in options.milliseconds:
        shares = {
            row: [efficiency(1e-3 * duration, x, DRAWING[row[0]], count) for x, count in zip(of, COUNTS, strict=True)]
            for row, of in seconds.items()
        }
        title = f"Weak scaling of an update of {duration:g} ms, share of linear"
        print_predicted(title, {row: [f"{100 * share:.0f} %" for share in of] for row, of in shares.items()})


def print_predicted(title: str, rows: dict[tuple[str, str], list[str]]) -> None:
    """Print a table with a column for each number of GPUs."""
    print(f"{title}:\n\n| Case | Link | {' | '.join(f'{count} GPUs' for count in COUNTS)} |")
    print("|---|---|" + "---|" * len(COUNTS))
    print("\n".join(f"| {case} | {link} | {' | '.join(cells)} |" for (case, link), cells in rows.items()), end="\n\n")


def process(options: argparse.Namespace) -> None:
    """One of ``count`` processes that train together. Prints the seconds of an update in each repetition."""
    if options.count > 1:
        proximo.processes.join(f"127.0.0.1:{options.port}", options.count, options.rank)
    [case] = options.cases
    config = config_of(case, num_envs=CASES[case][1]["num_envs"] * options.count)
    config = proximo.config.override(config, {"total_steps": options.updates * config.batch_size})
    mesh = mesh_of(options.count) if options.count > 1 else None
    train = jax.jit(proximo.make_train(config, make_env(config.env.id), mesh=mesh))
    program = compile_lowered(train.lower(jax.random.key(0)))
    measured = []
    for repeat in range(options.repeats + 1):
        started = time.perf_counter()
        jax.block_until_ready(program(jax.random.key(repeat)))
        measured.append((time.perf_counter() - started) / options.updates)
    print(json.dumps(measured[1:]), flush=True)


def started(options: argparse.Namespace, count: int, cores: list[int]) -> list[float]:
    """Start one process on each of ``cores``, in groups of ``count`` that share a training. Returns the seconds of an update in the slowest
    process, for each repetition."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, __file__, "process", "--cases", *options.cases, "--count", str(count), "--port", str(port)]
    command += ["--updates", str(options.updates), "--repeats", str(options.repeats)]
    env = {**os.environ, "JAX_NUM_CPU_DEVICES": "1", "NPROC": "4"}
    running = [
        subprocess.Popen(
            ["taskset", "-c", str(core), *command, "--rank", str(n % count)], stdout=subprocess.PIPE, text=True, env=env
        )
        for n, core in enumerate(cores)
    ]
    try:
        outputs = [each.communicate(timeout=600)[0] for each in running]
    finally:
        for each in running:
            each.kill()
    if any(each.returncode for each in running):
        sys.exit("A process failed.")
    return max((json.loads(output.splitlines()[-1]) for output in outputs), key=np.median)


def processes(options: argparse.Namespace) -> None:
    """Print the steps per second of two processes, relative to one: in one training, and in two independent trainings (the upper limit)."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2 or not shutil.which("taskset"):
        sys.exit("Two cores and the program taskset are needed.")
    for case in options.cases:
        of_case = argparse.Namespace(**{**vars(options), "cases": [case]})
        ones, twos, apart = [], [], []
        for number in range(options.rounds):
            ones.append(started(of_case, 1, [cores[number % 2]]))
            twos.append(started(of_case, 2, cores))
            apart.append(started(of_case, 1, cores))
        for name, pairs in (("two processes, one training", twos), ("two independent trainings", apart)):
            ratios = [2 * np.median(one) / np.median(two) for one, two in zip(ones, pairs, strict=True)]
            shortest = 2 * min(map(min, ones)) / min(map(min, pairs))
            rounded = " ".join(f"{ratio:.2f}" for ratio in ratios)
            print(
                f"{case}: {name} / one process = {np.median(ratios):.2f} ({rounded}), shortest updates {shortest:.2f}",
                flush=True,
            )


COMMANDS = {"bytes": show_bytes, "predict": predict, "processes": processes, "process": process}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=list(COMMANDS), metavar="bytes | predict | processes")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), help="settings to measure")
    parser.add_argument("--json", action="store_true", help="bytes: print one line of JSON")
    parser.add_argument(
        "--milliseconds", type=float, nargs="+", default=[10, 50], help="predict: durations of an update on one GPU"
    )
    parser.add_argument("--rounds", type=int, default=3, help="processes: rounds, each in fresh processes")
    parser.add_argument("--updates", type=int, default=10, help="processes: updates of a repetition")
    parser.add_argument("--repeats", type=int, default=5, help="processes: repetitions of a round")
    for name in ("--rank", "--count", "--port"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)  # of a process that ``processes`` starts
    options = parser.parse_args()
    options.cases = options.cases or [case for case in CASES if case != "cnn" or options.command in ("bytes", "predict")]
    prepare_jax()
    COMMANDS[options.command](options)


if __name__ == "__main__":
    main()
