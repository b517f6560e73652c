"""Check whether an environment can be trained.

proximo check ENV [--SETTING VALUE ...] [--json]
"""

import functools
import math
import pickle
import threading
import time
from collections.abc import Iterator
from typing import IO, Any

from proximo.cli import Options, Parser, UsageError, paint, print_json, short_warnings
from proximo.cli.setting_flags import add_setting, given_settings
from proximo.config import LEAVES
from proximo.envs.gymnasium import worker_process
from proximo.envs.gymnasium.worker_process import POSIX, WorkerProcess
from proximo.errors import EnvError, ProximoError

SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}
STOPPED = "Stopped after {:g} s. --seconds sets another limit."
SETTINGS = (
    "env_settings", "num_envs", "max_episode_steps", "preprocessing", "frame_stack", "action_repeat", "wrappers",
    "drop_observations", "life_loss", "randomize", "encoder", "normalize_observation", "normalize_reward",
)  # fmt: skip


def make_parser() -> Parser:
    parser = Parser("check", __doc__)
    parser.add("env", "environment id; `proximo envs` lists them", "ENV")
    parser.add_shared("--config", "--no-preset")
    parser.add("--seconds", "limit of the time to play (default 60)", "SECONDS", default=60.0)
    parser.add_shared("--json")
    section = parser.add_argument_group("settings that `proximo train --help-all` explains")
    for name in SETTINGS:
        add_setting(section, LEAVES[name], help="")  # without help, all flags fit on a screen
    return parser


def run(options: Options) -> int:
    from proximo.checks import verdict

    if not POSIX:
        raise UsageError("`proximo check` plays the environment in a worker process, which needs Linux or macOS.")
    if not 0 < options.seconds < math.inf:
        raise UsageError(f"--seconds {options.seconds:g}: expected a number of seconds, more than 0.")
    report: dict[str, Any] = {"env": options.env, "not_checked": ["making"], "compile_seconds": 0.0}
    findings = []
    for f in _findings(options, report):
        findings.append(f)
        if not options.json:
            print(f"{paint(*SIGNS[f.level])} {f.check:<28}  {f.message}", flush=True)
    is_ok = all(finding.level != "error" for finding in findings)
    if options.json:
        print_json({"ok": is_ok, **report, "findings": [vars(finding) for finding in findings]})
    else:
        if report["not_checked"]:
            print(f"Not checked: {', '.join(report['not_checked'])}.")
        if report["compile_seconds"]:
            print(f"JAX compiled for {report['compile_seconds']:.1f} s. --seconds does not include this time.")
        print(verdict(report["env"], findings))
    return 0 if is_ok else 2


def _findings(options: Options, report: dict[str, Any]) -> Iterator[Any]:
    """Yield the findings of a worker process, and update ``report``. A process that makes and plays a Gymnasium
    environment for longer than ``options.seconds`` is killed."""
    from proximo.checks import Finding

    process = WorkerProcess(functools.partial(_serve, options))
    limit = threading.Timer(min(options.seconds, threading.TIMEOUT_MAX), process.kill, ["reached the limit"])
    try:
        process.begin()
        for message in iter(lambda: pickle.load(process.replies), None):
            if isinstance(message, Exception):
                raise message
            if isinstance(message, Finding):
                yield message
                report["not_checked"] = [name for name in report["not_checked"] if name != message.check]
            elif not message:
                limit.start()
            else:
                report.update(message)
                if "tracing" in report["not_checked"]:  # a JAX environment limits itself, because compiling may take long
                    limit.cancel()
    except (EOFError, pickle.UnpicklingError):
        if process.why_killed and report["not_checked"]:
            level = "error" if report["not_checked"] == ["making"] else "warning"
            yield Finding("time", level, STOPPED.format(options.seconds))
        elif not process.why_killed:
            yield Finding(report["not_checked"][0], "error", f"The process that plays the environment {process.why_lost()}.")
    finally:
        limit.cancel()
        process.release()


def _serve(options: Options, commands: IO[bytes], replies: IO[bytes]) -> None:
    """Send the messages, and at the end None, or an error of the user. It runs in a worker process, because an environment may hang,
    crash or print."""
    send = functools.partial(worker_process.send, replies, b"")
    with short_warnings():
        try:
            for message in _messages(options):
                send(message)
            send(None)
        except ProximoError as error:
            send(error)


def _messages(options: Options) -> Iterator[Any]:
    """Each finding, and entries of the report; first none, when the time begins."""
    import jax

    from proximo.checks import Finding, check_environment, check_names
    from proximo.collect.environment import environment
    from proximo.jax_setup import prepare_jax
    from proximo.settings import make_config

    prepare_jax()
    started, compiling = time.monotonic(), [0.0]

    def on_event(event: str, duration_secs: float, **_: Any) -> None:
        compiling[0] += duration_secs * event.startswith("/jax/core/compile")

    jax.monitoring.register_event_duration_secs_listener(on_event)
    yield {}
    try:
        config = make_config(options.env, given_settings(options), options.config, preset=not options.no_preset)
        env = environment(config)
    except EnvError as error:
        yield {"not_checked": []}
        yield Finding("making", "error", str(error))
        return
    names = check_names(env)
    yield {"env": config.env.id, "not_checked": names}
    for finding in check_environment(env, config):
        yield finding
        if "tracing" in names:
            yield {"compile_seconds": compiling[0]}
            is_over = time.monotonic() - started - compiling[0] > options.seconds
            if is_over and finding.check != names[-1]:
                yield Finding("time", "warning", STOPPED.format(options.seconds))
                return
