"""``proximo envs``."""

from __future__ import annotations

import argparse
from typing import Any

from proximo.cli import Parser, print_json
from proximo.cli.completion import remember_environments
from proximo.envs.libraries import LIBRARIES

DESCRIBED = ("gymnax", "proximo")
# These have hundreds of ids, which are listed only on request.
LONG = tuple(library for library in LIBRARIES if library not in DESCRIBED)


def make_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(prog="proximo envs", description="List the environments.")
    parser.add_argument(
        "library", nargs="?", choices=("gymnasium", *DESCRIBED, *LONG), metavar="LIBRARY",
        help=f"list only this library: {', '.join(('gymnasium', *DESCRIBED, *LONG))}",
    )  # fmt: skip
    parser.add_shared("--json")
    return parser


def run(options: argparse.Namespace) -> int:
    """Print the ids of all environments, and which of them have a preset."""
    from proximo.config import presets
    from proximo.envs import listing
    from proximo.envs.registry import describe

    listed = listing()
    remember_environments(i for ids in listed.values() for i in ids)
    found = {library: ids for library, ids in listed.items() if options.library in (None, library)}
    rows = {
        library: [{"id": i, "preset": presets.has_preset(i), **(describe(i) if library in DESCRIBED else {})} for i in ids]
        for library, ids in found.items()
    }
    if options.json:
        print_json(rows)
        return 0
    for library, entries in rows.items():
        _print(library, entries, whole=options.library is not None)
    print("Yours: my_package.module:MyEnv (a Gymnasium or JAX environment; it needs no base class)")
    return 0


def _print(library: str, entries: list[dict[str, Any]], whole: bool) -> None:
    if not entries:
        print(f"{library}: not installed (pip install {LIBRARIES[library].install})")
        return
    if library in LONG and not whole:
        print(f"{library}: {len(entries)} ids, such as {entries[0]['id']}; `proximo envs {library}` lists them")
        return
    print(library)
    width = max(len(entry["id"]) for entry in entries) + 2
    for entry in entries:
        mark = "  preset" if entry["preset"] else ""
        spaces = entry.get("error", "")
        if "observation" in entry:
            spaces = f"{entry['observation']:<26}→ {entry['action']}".removesuffix("→ ").rstrip()
        print(f"  {entry['id']:<{width}}{spaces}{mark}".rstrip())
