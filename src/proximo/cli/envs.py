"""``proximo envs``."""

from __future__ import annotations

import json

from proximo.cli import Parser


def run(arguments: list[str]) -> int:
    """List the ids that can be trained, and which have a preset."""
    parser = Parser(prog="proximo envs", description="List the environments.", allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)

    from proximo import presets
    from proximo.envs import listing
    from proximo.envs.registry import describe

    tuned = set(presets.names())
    rows = {library: [{"id": i, "preset": i in tuned, **describe(i)} for i in ids] for library, ids in listing().items()}
    if options.json:
        print(json.dumps(rows))
        return 0
    for library, entries in rows.items():
        print(library)
        for entry in entries:
            mark = "  preset" if entry["preset"] else ""
            spaces = entry.get("error") or f"{entry['observation']:<26}→ {entry['action']}".removesuffix("→ ").rstrip()
            print(f"  {entry['id']:<34}{spaces}{mark}")
    print("Your own: my_package.module:MyEnv (a class with reset, step, observation_space and action_space)")
    return 0
