"""``proximo pull``."""

from __future__ import annotations

import argparse

from proximo.cli import Parser, print_json
from proximo.errors import command, printable


def make_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="proximo pull",
        description="Download a published policy. It becomes a run that every command accepts.",
        usage="proximo pull FOLDER [...]\n       proximo pull hf:OWNER/NAME[@REVISION] [...]\n       proximo pull zoo:NAME [...]",
    )
    parser.add_argument("source", metavar="FOLDER", help="a published folder, hf:OWNER/NAME on the Hugging Face Hub, or zoo:NAME")
    parser.add_argument("--name", default="", help="name of the run (default: its name when it was published)")
    parser.add_flag("--trust-code", "accept a policy that imports a module from your Python path")
    parser.add_shared("--runs-dir", "--json")
    return parser


def run(options: argparse.Namespace) -> int:
    """Fetch a published policy."""
    from proximo.publish import pull

    run_dir = pull(options.source, name=options.name, trust_code=options.trust_code, runs_dir=options.runs_dir)
    if options.json:
        print_json({"run": str(run_dir)})
        return 0
    print(
        f"{printable(str(run_dir))}\nNext:  {command('proximo', 'watch', run_dir)}\n       {command('proximo', 'eval', run_dir)}"
    )
    return 0
