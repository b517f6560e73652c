"""List the environments."""

from proximo.cli import Options, Parser, aligned, print_json
from proximo.cli.completion import remember_environments
from proximo.envs.libraries import LIBRARIES

DESCRIBED = ("gymnax", "proximo")
# The others have hundreds of ids, which are listed only on request.
SHORT = ("gymnasium", *DESCRIBED)


def make_parser() -> Parser:
    parser, names = Parser("envs", __doc__), ("gymnasium", *LIBRARIES)
    parser.add("library", f"list only this library: {', '.join(names)}", "LIBRARY", nargs="?", choices=names)
    parser.add_shared("--json")
    return parser


def run(options: Options) -> int:
    from proximo.config import presets
    from proximo.envs import listing
    from proximo.envs.registry import describe

    listed = listing()
    remember_environments(i for ids in listed.values() for i in ids)
    rows = {
        library: [{"id": i, "preset": presets.load(i) is not None, **(describe(i) if library in DESCRIBED else {})} for i in ids]
        for library, ids in listed.items()
        if options.library in (None, library)
    }
    if options.json:
        print_json(rows)
        return 0
    for library, entries in rows.items():
        if not entries:
            print(f"{library}: not installed (pip install {LIBRARIES[library].install})")
        elif library not in SHORT and options.library is None:
            print(f"{library}: {len(entries)} ids, such as {entries[0]['id']}; `proximo envs {library}` lists them")
        else:
            print("\n  ".join([library, *aligned([_cells(**entry) for entry in entries])]))
    print("Yours: my_package.module:MyEnv (a Gymnasium or JAX environment; it needs no base class)")
    return 0


def _cells(id: str, preset: bool, observation: str = "", action: str = "", error: str = "") -> list[str]:
    """The columns of an environment."""
    return [id, observation, f"→ {action}" if action else "", "preset" if preset else "", error]
