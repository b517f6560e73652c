"""``proximo check``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proximo.cli import Parser, print_json, quiet_stdout
from proximo.cli.color import paint
from proximo.cli.train import add_setting, given_settings
from proximo.config import LEAVES

SIGNS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}
SETTINGS = (
    "env_settings", "num_envs", "max_episode_steps", "preprocessing", "frame_stack", "action_repeat", "wrappers",
    "drop_observations", "life_loss", "encoder", "normalize_observation", "normalize_reward",
)  # fmt: skip
PATIENCE_SECONDS = 15.0


def run(arguments: list[str]) -> int:
    """Check an environment and print the findings. Returns 2 if it cannot be trained."""
    options = make_parser().parse_args(arguments)
    # The output of an environment must not mix with the findings.
    with quiet_stdout(True):
        env_id, findings = _findings(options)

    from proximo.checks import verdict, worst

    can_be_trained = worst(findings) != "error"
    if options.json:
        print_json({"env": env_id, "ok": can_be_trained, "findings": [vars(finding) for finding in findings]})
    else:
        width = max(len(f.check) for f in findings)
        for f in findings:
            print(f"{paint(*SIGNS[f.level])} {f.check:<{width}}  {f.message}")
        print(verdict(env_id, findings))
    return 0 if can_be_trained else 2


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
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    section = parser.add_argument_group("settings that `proximo train --help-all` explains")
    for name in SETTINGS:
        add_setting(section, LEAVES[name])
    for action in section._group_actions:  # so that the help fits a screen
        action.help = action.help if action.help == argparse.SUPPRESS else ""
    return parser


def _findings(options: argparse.Namespace) -> tuple[str, list[Any]]:
    """The environment's id and all findings. If the environment cannot be made, that is a finding."""
    from proximo.checks import Finding, check_environment, check_policy, hints
    from proximo.collect.environment import environment
    from proximo.errors import EnvError
    from proximo.jax_setup import prepare_jax
    from proximo.settings import make_config

    prepare_jax()
    try:
        config = make_config(options.env, given_settings(options), options.config, preset=not options.no_preset)
        env = environment(config)
    except EnvError as error:
        return options.env, [Finding("making", "error", str(error))]
    findings = check_environment(env, config, _progress())
    return config.env.id, [*findings, *hints(env, config), check_policy(env, config)]


def _progress() -> Callable[[str], None]:
    """A function that prints which check begins, if the checks take long: JAX compiles a large environment for minutes."""
    started = time.monotonic()

    def on_check(check: str) -> None:
        passed = time.monotonic() - started
        if passed > PATIENCE_SECONDS:
            print(f"{passed:.0f} s: {check} … (JAX compiles the environment for this check)", file=sys.stderr, flush=True)

    return on_check
