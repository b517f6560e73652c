"""``proximo check``."""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proximo.cli import Parser, UsageError, print_json, short_warnings
from proximo.cli.color import paint
from proximo.cli.train import add_setting, given_settings
from proximo.config import LEAVES
from proximo.envs.gymnasium import worker_messages
from proximo.envs.gymnasium.worker_process import WorkerProcess, search_path
from proximo.errors import EnvError, ProximoError

SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}
SETTINGS = (
    "env_settings", "num_envs", "max_episode_steps", "preprocessing", "frame_stack", "action_repeat", "wrappers",
    "drop_observations", "life_loss", "encoder", "normalize_observation", "normalize_reward",
)  # fmt: skip
PATIENCE_SECONDS = 15.0


def run(arguments: list[str]) -> int:
    """Check an environment and print each finding. Returns 2 if it cannot be trained."""
    from proximo.checks import verdict, worst

    options = make_parser().parse_args(arguments)
    if not 0 < options.seconds < math.inf:
        raise UsageError(f"--seconds {options.seconds:g}: expected a number of seconds, more than 0.")
    report: dict[str, Any] = {"env": options.env, "ok": False, "not_checked": [], "compile_seconds": 0.0}
    findings = []
    for f in _findings(options, report):
        findings.append(f)
        if not options.json:
            print(f"{paint(*SIGNS[f.level])} {f.check:<17}  {f.message}", flush=True)
    report["ok"] = worst(findings) != "error"
    if options.json:
        print_json({**report, "findings": [vars(finding) for finding in findings]})
    else:
        if report["not_checked"]:
            print(f"Not checked: {', '.join(report['not_checked'])}.")
        if report["compile_seconds"]:
            print(f"JAX compiled for {report['compile_seconds']:.1f} s. --seconds does not include this time.")
        print(verdict(report["env"], findings))
    return 0 if report["ok"] else 2


def make_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="proximo check",
        description="Check whether an environment can be trained.",
        usage="proximo check ENV [--SETTING VALUE ...] [--json]",
    )
    parser.add_argument("env", metavar="ENV", help="environment id; `proximo envs` lists them")
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML of settings, such as a run's config.yaml")
    parser.add_argument("--no-preset", action="store_true", help="no preset, and no defaults by kind")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="limit of the time to play (default 60)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    section = parser.add_argument_group("settings that `proximo train --help-all` explains")
    for name in SETTINGS:
        add_setting(section, LEAVES[name])
    for action in section._group_actions:  # so that the help fits a screen
        action.help = action.help if action.help == argparse.SUPPRESS else ""
    return parser


def _findings(options: argparse.Namespace, report: dict[str, Any]) -> Iterator[Any]:
    """Yield the findings of a worker process, and fill ``report``. If a Gymnasium environment plays for longer than ``options.seconds``, the
    process is killed."""
    from proximo.checks import Finding

    process = WorkerProcess(checks := Checks(options, search_path()))

    def end() -> None:
        process.why_killed = "reached the limit"
        process.kill()

    limit, started, announced = threading.Timer(min(options.seconds, threading.TIMEOUT_MAX), end), 0.0, 0.0
    first, timed_out = "making", False
    try:
        process.begin(checks)
        while not isinstance(message := worker_messages.read_object(process.replies), tuple):
            if isinstance(message, Exception):
                raise message
            if message is None:
                limit.cancel()
            elif isinstance(message, list):
                report["not_checked"], first = message, message[0]
                if not limit.ident:
                    limit.start()
                    started = announced = time.monotonic()
            else:
                yield message
                report["not_checked"] = [name for name in report["not_checked"] if name != message.check]
                now = time.monotonic()
                if report["not_checked"] and now - announced > PATIENCE_SECONDS:
                    print(f"{now - started:.0f} s: {report['not_checked'][0]} …", file=sys.stderr, flush=True)
                    announced = now
        report["env"], report["compile_seconds"], timed_out = message
    except EOFError:
        if not process.why_killed:
            during = (report["not_checked"] or ["making"])[0]
            yield Finding(during, "error", f"The process that plays the environment {process.why_lost()}.")
    finally:
        limit.cancel()
        process.release()
    if report["not_checked"] and (timed_out or process.why_killed):
        level = "error" if first in report["not_checked"] else "warning"
        yield Finding("time", level, f"Stopped after {options.seconds:g} s. --seconds sets another limit.")


@dataclass(frozen=True)
class Checks:
    """The checks of a command, which run in a worker process: an environment may hang, crash or print."""

    options: argparse.Namespace
    path: tuple[str, ...]

    def serve(self, commands: int, replies: int) -> None:
        """Send lists of the names of the checks that follow, None if the process must not be killed, and each finding. The last message is an error
        of the user, or the environment's id, the seconds in which JAX compiled, and whether the time was over before the last check."""
        sys.path[:] = self.path
        send = functools.partial(worker_messages.write_object, replies)
        with short_warnings():
            try:
                send(self._run(send))
            except ProximoError as error:
                send(error)

    def _run(self, send: Callable[[Any], None]) -> tuple[str, float, bool]:
        import jax

        from proximo.checks import Finding, check_environment, check_names, check_policy, hints
        from proximo.collect.environment import environment
        from proximo.jax_setup import prepare_jax
        from proximo.settings import make_config

        prepare_jax()
        options, started, compiling = self.options, time.monotonic(), [0.0]

        def on_event(event: str, duration_secs: float, **_: Any) -> None:
            compiling[0] += duration_secs * event.startswith("/jax/core/compile")

        jax.monitoring.register_event_duration_secs_listener(on_event)
        send(["making"])
        try:
            config = make_config(options.env, given_settings(options), options.config, preset=not options.no_preset)
            env = environment(config)
        except EnvError as error:
            send(Finding("making", "error", str(error)))
            return options.env, 0.0, False
        send(check_names(env))
        is_jax = "jit" in check_names(env)
        if is_jax:
            send(None)  # it may compile for long
        over = False
        for finding in itertools.chain(hints(env, config), [check_policy(env, config)], check_environment(env, config)):
            send(finding)
            if over := time.monotonic() - started - compiling[0] > options.seconds:
                break
        return config.env.id, compiling[0] if is_jax else 0.0, over
