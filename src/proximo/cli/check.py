"""``proximo check``."""

from __future__ import annotations

import argparse
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from proximo.cli import Parser, paint, print_json, short_warnings
from proximo.cli.setting_flags import add_setting, given_settings
from proximo.config import LEAVES
from proximo.envs.gymnasium import worker_messages
from proximo.envs.gymnasium.worker_process import WorkerProcess, search_path
from proximo.errors import EnvError, ProximoError

BEGIN = "begin"
"""The message of the worker from which on the time counts."""
SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}
SETTINGS = (
    "env_settings", "num_envs", "max_episode_steps", "preprocessing", "frame_stack", "action_repeat", "wrappers",
    "drop_observations", "life_loss", "encoder", "normalize_observation", "normalize_reward",
)  # fmt: skip


def make_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="proximo check",
        description="Check whether an environment can be trained.",
        usage="proximo check ENV [--SETTING VALUE ...] [--json]",
    )
    parser.add_argument("env", metavar="ENV", help="environment id; `proximo envs` lists them")
    parser.add_shared("--config", "--no-preset")
    parser.add_flag(
        "--seconds", "limit of the time to make and play a Gymnasium environment (default 60)", "S", type=float, default=60.0
    )
    parser.add_shared("--json")
    section = parser.add_argument_group("settings that `proximo train --help-all` explains")
    for name in SETTINGS:
        add_setting(section, LEAVES[name])
    for action in section._group_actions:  # so that the help fits a screen
        action.help = action.help if action.help == argparse.SUPPRESS else ""
    return parser


def run(options: argparse.Namespace) -> int:
    """Check an environment and print each finding. Returns 2 if it cannot be trained."""
    from proximo.checks import verdict

    report: dict[str, Any] = {"env": options.env, "not_checked": ["making"]}
    findings = []
    for f in _findings(options, report):
        findings.append(f)
        if not options.json:
            print(f"{paint(*SIGNS[f.level])} {f.check:<28}  {f.message}", flush=True)
    is_ok = all(finding.level != "error" for finding in findings)
    if options.json:
        print_json({"ok": is_ok, **report, "findings": [vars(finding) for finding in findings]})
        return 0 if is_ok else 2
    if report["not_checked"]:
        print(f"Not checked: {', '.join(report['not_checked'])}.")
    print(verdict(report["env"], findings))
    return 0 if is_ok else 2


def _findings(options: argparse.Namespace, report: dict[str, Any]) -> Iterator[Any]:
    """Yield the findings of a worker process, and update ``report``. A process that makes and plays a Gymnasium
    environment for longer than ``options.seconds`` is killed."""
    from proximo.checks import Finding

    process = WorkerProcess(Checks(options, search_path()))

    def end() -> None:
        process.why_killed = "reached the limit"
        process.kill()

    limit = threading.Timer(min(options.seconds, threading.TIMEOUT_MAX), end)
    try:
        process.begin()
        for message in iter(lambda: worker_messages.read_object(process.replies), None):
            if isinstance(message, Exception):
                raise message
            if isinstance(message, Finding):
                yield message
                report["not_checked"] = [name for name in report["not_checked"] if name != message.check]
            elif message == BEGIN:
                limit.start()
            else:
                report.update(message)
                if "tracing" in report["not_checked"]:  # JAX: few steps, long to compile
                    limit.cancel()
    except EOFError:
        if not process.why_killed:
            yield Finding(report["not_checked"][0], "error", f"The process that plays the environment {process.why_lost()}.")
    finally:
        limit.cancel()
        process.release()
    if process.why_killed:
        level = "error" if report["not_checked"] == ["making"] else "warning"
        yield Finding("time", level, f"Stopped after {options.seconds:g} s. --seconds sets another limit.")


@dataclass(frozen=True)
class Checks:
    """The checks of a command, which run in a worker process: an environment may hang, crash or print."""

    options: argparse.Namespace
    path: tuple[str, ...]

    def serve(self, commands: int, replies: int) -> None:
        """Send each finding, and entries of the report; at the end None, or an error of the user."""
        sys.path[:] = self.path
        send = functools.partial(worker_messages.write_object, replies)
        with short_warnings():
            try:
                self._run(send)
                send(None)
            except ProximoError as error:
                send(error)

    def _run(self, send: Callable[[Any], None]) -> None:
        from proximo.checks import Finding, check_environment, check_names
        from proximo.collect.environment import environment
        from proximo.jax_setup import prepare_jax
        from proximo.settings import make_config

        prepare_jax()
        options = self.options
        send(BEGIN)
        try:
            config = make_config(options.env, given_settings(options), options.config, preset=not options.no_preset)
            env = environment(config)
        except EnvError as error:
            send({"not_checked": []})
            send(Finding("making", "error", str(error)))
            return
        send({"env": config.env.id, "not_checked": check_names(env)})
        for finding in check_environment(env, config):
            send(finding)
