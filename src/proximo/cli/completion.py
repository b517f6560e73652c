"""Print a script that lets a shell complete commands, flags, settings, environments and runs."""

# ``shtab`` writes commands, flags and choices into the script. The script asks ``proximo __complete`` for the names of environments, runs
# and studies; listing them imports no slow library.

import argparse
import contextlib
import importlib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from proximo.cli import COMPLETE, VERBS, Options, Parser, first_clause
from proximo.jax_setup import cache_folder
from proximo.storage import zoo
from proximo.storage.named_folders import is_run, known_folders

ENVIRONMENTS_FILE = "environments.txt"
KINDS = {"ENV": "environments", "RUN": "runs", "STUDY": "studies"}
BASH = Path(__file__).with_name("completion.bash")
BASH_NAMES = r"""
_proximo_names() { compgen -W "$(proximo __complete "$1" "$2" 2>/dev/null)" -- "$2"; }
"""
ZSH_NAMES = r"""
_proximo_names() { compadd -- ${(f)"$(proximo __complete $1 "$PREFIX" 2>/dev/null)"} }
"""


def make_parser() -> Parser:
    epilog = (
        'For example, add this line to ~/.bashrc: eval "$(proximo completion bash)". Environments without a preset are completed after '
        "`proximo envs` has listed them."
    )
    parser = Parser("completion", __doc__, epilog=epilog)
    parser.add("shell", "bash, zsh or fish", "SHELL", choices=("bash", "zsh", "fish"))
    return parser


def run(options: Options) -> int:
    import shtab

    parser = argparse.ArgumentParser(prog="proximo")
    parser.add_argument("--version", action="store_true", help="print the version")
    verbs = parser.add_subparsers()
    for verb, text in VERBS.items():
        flags = importlib.import_module(f"proximo.cli.{verb}").make_parser()
        for action in flags._actions:
            _describe(action)
        verbs.add_parser(verb, help=text, description=text, parents=[flags], add_help=False)
    ours = f"\n{BASH.read_text(encoding='utf-8')}" if options.shell == "bash" else ""
    print(shtab.complete(parser, shell=options.shell) + ours)
    return 0


def _describe(action: Any) -> None:
    """Set what completes an argument, and a help text and a metavar that fit into each shell's script."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if kind := KINDS.get(metavar):
        function = f"_proximo_{kind}"
        one = f'{function}() {{ _proximo_names {kind} "$1"; }}\n'
        fish = f"(proximo {COMPLETE} {kind} (commandline -ct))"
        preamble = {"bash": BASH_NAMES + one, "zsh": ZSH_NAMES + one}
        action.complete = {"bash": function, "zsh": function, "fish": fish, "preamble": preamble}
    elif metavar in ("FILE", "FOLDER"):
        action.complete = "file"
    elif "|" in metavar:  # such as none|gru|lstm|MODULE:NAME, but not VALUE|VALUE@SHARE,...
        words = metavar.removesuffix("|MODULE:NAME")
        action.choices = words.split("|") if re.fullmatch(r"[a-z0-9_.|]+", words) else None
    action.metavar = re.sub(r"\W", "-", metavar) or None  # zsh takes ":" as the end of a word
    if action.help not in (None, "", argparse.SUPPRESS):
        action.help = first_clause(action.help, ";\n")


def print_names(kind: str, word: str = "") -> int:
    """Print the names that may complete ``word``, without those that a shell would have to quote."""
    print("\n".join(name for name in known_names(kind, word) if re.fullmatch(r"[\w@%+=:,./-]+", name)))
    return 0


def known_names(kind: str, word: str = "") -> list[str]:
    """Names of ``environments``, ``runs`` or ``studies``. ``word`` is what the user has typed."""
    if kind == "environments":
        from proximo.config import presets

        # Environments that `proximo envs` has listed: asking all libraries takes seconds.
        listed: list[str] = []
        with contextlib.suppress(OSError, UnicodeDecodeError):
            listed = (cache_folder() / ENVIRONMENTS_FILE).read_text(encoding="utf-8").split()
        return sorted({*listed, *presets.names()})
    if word.startswith(zoo.PREFIX):
        return zoo.names()
    is_one = is_run if kind == "runs" else lambda path: (path / "journal.log").is_file()
    found = known_folders(Path(kind if kind == "runs" else "tune"), is_one)
    counts = Counter(path.name for path in found)
    # Shortest first: the name alone only if it is unique.
    all_names = {path: [path.name, "/".join(path.parts[-2:]), str(path)] for path in found}
    names = {path: some[counts[path.name] > 1 :] for path, some in all_names.items()}
    name, at, _ = word.rpartition("@")
    if at and kind == "runs":
        run_dir = next((path for path in found if name in names[path]), Path(name))
        steps = (int(path.name) for path in run_dir.glob("checkpoints/*") if path.name.isdigit())
        return [f"{name}@{checkpoint}" for checkpoint in ("best", "last", *sorted(steps, reverse=True))]
    # The shortest name of each, until the user has typed something.
    return ["last", *(name for path in found for name in names[path][: None if word else 1])] if found else []


def remember_environments(ids: Iterable[str]) -> None:
    """Save the ids for ``known_names``, if the file can be written: only completion reads it."""
    path = cache_folder() / ENVIRONMENTS_FILE
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(ids) + "\n", encoding="utf-8")
