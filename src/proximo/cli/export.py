"""``proximo export``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from proximo.cli import POLICY_HELP, Parser, print_warnings


def make_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(prog="proximo export", description="Write a policy as files that run without proximo and JAX.")
    parser.add_argument("run", metavar="RUN", help=POLICY_HELP)
    parser.add_flag("--out", "folder to write to (default RUN/export)", "FOLDER")
    parser.add_flag("--stochastic", "add an input for noise, which samples the actions (default: the most probable actions)")
    parser.add_flag("--batch", "accept only N environments (default: any number)", "N", type=int)
    parser.add_shared("--runs-dir")
    return parser


def run(options: argparse.Namespace) -> int:
    """Export a policy and print the files, the largest error and the speed."""
    from proximo.errors import ConfigError

    if options.batch is not None and options.batch < 1:
        raise ConfigError(f"--batch {options.batch}: expected at least 1.")
    from proximo.evaluation.policy import load_policy
    from proximo.export import export
    from proximo.jax_setup import prepare_jax
    from proximo.storage import run_lookup, zoo

    prepare_jax()
    policy = load_policy(options.run, options.runs_dir)
    run_dir = run_lookup.find_run(options.run, Path(options.runs_dir))[0]
    out = Path(options.out) if options.out else zoo.output_folder(run_dir) / "export"
    done = export(policy, out, zoo.label(run_dir), not options.stochastic, options.batch)
    print_warnings(done.warnings)
    print(_summary(done.folder, done.metadata))
    return 0


def _summary(folder: Path, metadata: dict[str, Any]) -> str:
    from proximo.export.folder import METADATA

    parity = metadata["parity"]
    lines = [
        f"{folder}: {', '.join(sorted([METADATA, *metadata['sha256']]))}",
        f"largest error against JAX over {parity['steps']} steps with resets: {parity['largest_error']:.1e}",
    ]
    for count, speed in metadata["latency_microseconds"].items():
        figures = ", ".join(f"{name} {microseconds:,.0f}" for name, microseconds in speed.items())
        lines.append(f"median microseconds per step of {count} environment{'s' if count != '1' else ''}: {figures}")
    return "\n".join(lines)
