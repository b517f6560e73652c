"""``proximo check``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proximo.cli import Parser, quiet_stdout
from proximo.cli.colour import paint
from proximo.cli.train import add_setting
from proximo.config import LEAVES

SIGNS = {"ok": "✓", "warning": "!", "error": "✗"}
SETTINGS = (
    "env_settings", "num_envs", "max_episode_steps", "preprocessing", "frame_stack", "action_repeat", "life_loss", "encoder",
)  # fmt: skip
PATIENCE_SECONDS = 15.0
COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


def run(arguments: list[str]) -> int:
    """Look for what would go wrong in a training on an environment; exit 2 when something would."""
    options = make_parser().parse_args(arguments)
    settings = {name: value for name in SETTINGS if (value := getattr(options, f"setting_{name}")) is not None}
    # What an environment prints must not stand beside the object.
    with quiet_stdout(True):
        env_id, findings = _findings(options, settings)

    from proximo.checks import verdict, worst

    fit = worst(findings) != "error"
    if options.json:
        lines = [{"check": f.check, "level": f.level, "says": f.says} for f in findings]
        print(json.dumps({"env": env_id, "ok": fit, "findings": lines}))
    else:
        width = max(len(f.check) for f in findings)
        for f in findings:
            print(f"{paint(SIGNS[f.level], COLOURS[f.level])} {f.check:<{width}}  {f.says}")
        print(verdict(env_id, findings))
    return 0 if fit else 2


def make_parser() -> Parser:
    """The flags of the verb."""
    parser = Parser(
        prog="proximo check",
        description="Look whether an environment is fit for training: by Gymnasium's own checker and by ours.",
        usage="proximo check ENV [--SETTING VALUE ...] [--json]",
        allow_abbrev=False,
    )
    parser.add_argument("env", metavar="ENV", help="environment id; `proximo envs` lists them")
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML of settings, such as a run's config.yaml")
    parser.add_argument("--no-preset", action="store_true", help="do not use the environment's preset")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    section = parser.add_argument_group("settings that `proximo train --help-all` explains")
    for name in SETTINGS:
        add_setting(section, LEAVES[name])
    for action in section._group_actions:  # the help is to fit a screen
        action.help = action.help if action.help == argparse.SUPPRESS else ""
    return parser


def _findings(options: argparse.Namespace, settings: dict[str, Any]) -> tuple[str, list[Any]]:
    """The environment's id and what was found; that it cannot be made is a finding too."""
    from proximo.checks import Finding, check_environment, policy
    from proximo.errors import EnvError
    from proximo.run import make_config
    from proximo.run.reuse import environment
    from proximo.runtime import prepare_jax

    prepare_jax()
    config = make_config(options.env, settings, options.config, preset=not options.no_preset)
    try:
        env = environment(config)
    except EnvError as error:
        return config.env.id, [Finding("making", "error", str(error))]
    findings = check_environment(env, config.env.id, config.env.num_envs, config.env.max_episode_steps, _progress())
    return config.env.id, [*findings, policy(env, config)]


def _progress() -> Callable[[str], None]:
    """Says which check begins, once it has taken long: JAX compiles a large environment for minutes."""
    started = time.monotonic()

    def said(check: str) -> None:
        passed = time.monotonic() - started
        if passed > PATIENCE_SECONDS:
            print(f"{passed:.0f} s: {check} … (JAX compiles the environment anew for it)", file=sys.stderr, flush=True)

    return said
