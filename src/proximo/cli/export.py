"""``proximo export``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from proximo.cli import Parser
from proximo.errors import printable


def make_parser() -> Parser:
    """The flags of the verb."""
    parser = Parser(
        prog="proximo export", description="Write a policy as files that need neither proximo nor JAX.", allow_abbrev=False
    )
    parser.add_argument("run", metavar="RUN", help="a path, a name, or last; with @best, @last or @STEP behind it")
    parser.add_argument(
        "--format", choices=("onnx", "numpy", "both"), help="which files (default both; numpy where ONNX is not installed)"
    )
    parser.add_argument("--out", metavar="DIR", help="the folder to write (default RUN/export)")
    parser.add_argument(
        "--stochastic",
        action="store_true",
        help="noise is an input, which samples the action; the default takes the most probable one",
    )
    parser.add_argument("--batch", type=int, metavar="N", help="for N environments only; the default is for any number")
    parser.add_argument("--runs-dir", default="runs", help="folder of all runs (default runs)")
    return parser


def run(arguments: list[str]) -> int:
    """Write a policy as files that need neither proximo nor JAX."""
    options = make_parser().parse_args(arguments)

    from proximo.errors import ConfigError

    if options.batch is not None and options.batch < 1:
        raise ConfigError(f"--batch {options.batch}: expected 1 or more environments.")
    from proximo.export import export, onnx_is_there
    from proximo.run import directory, load_policy
    from proximo.runtime import prepare_jax

    prepare_jax()
    policy = load_policy(options.run, options.runs_dir)
    run_dir = directory.resolve(options.run, Path(options.runs_dir))[0]
    form = options.format or ("both" if onnx_is_there() else "numpy")
    out = Path(options.out) if options.out else run_dir / "export"
    done = export(policy, out, str(run_dir), form, options.stochastic, options.batch)
    if options.format is None and form == "numpy":
        print("warning: policy.onnx was not written; for it, pip install 'proximo[onnx]'.", file=sys.stderr)
    for warning in done.warnings:
        print(printable(f"warning: {warning}"), file=sys.stderr)
    print(_sentences(done.folder, done.metadata))
    return 0


def _sentences(folder: Path, metadata: dict[str, Any]) -> str:
    from proximo.export.folder import METADATA

    parity = metadata["parity"]
    errors = ", ".join(f"{name} {error:.1e}" for name, error in parity["largest_error"].items())
    lines = [
        f"{folder}: {', '.join(sorted([METADATA, *metadata['sha256']]))}",
        f"largest error against JAX over {parity['steps']} steps with resets: {errors}",
    ]
    for count, speed in metadata["latency_microseconds"].items():
        figures = ", ".join(f"{name} {microseconds:,.0f}" for name, microseconds in speed.items())
        lines.append(f"microseconds a step (median) of {count} environment{'s' if count != '1' else ''}: {figures}")
    return "\n".join(lines)
