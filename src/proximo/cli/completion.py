"""``proximo completion``: prints a completion script for a shell.

``shtab`` writes commands, flags and choices into the script. The script asks ``proximo __complete`` for the names of
environments, runs and studies.
"""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path
from typing import Any

from proximo.cli import COMPLETE, VERBS, Parser, first_clause

SHELLS = ("bash", "zsh", "fish")
KINDS = {"ENV": "environments", "RUN": "runs", "STUDY": "studies"}
# bash also splits words at ":", "=" and "@", which are parts of our names. The function joins the words again before it calls shtab's
# function. It then removes from each reply the prefix that bash keeps on the line, up to the last of these characters.
BASH = r"""
_proximo() {
    local line="${COMP_LINE:0:COMP_POINT}" last="${COMP_WORDS[COMP_CWORD]}" COMP_CWORD word
    local -a COMP_WORDS
    [[ ${line##*[[:space:]]} == --*=* ]] && line="${line%=*} ${line##*=}"
    read -ra COMP_WORDS <<< "$line"
    [[ -z $line || $line == *[[:space:]] ]] && COMP_WORDS+=("")
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    word="${COMP_WORDS[COMP_CWORD]}"
    [[ $last == [:=] ]] && last=""
    _shtab_proximo
    [[ $word == *"$last" ]] && COMPREPLY=("${COMPREPLY[@]#"${word%"$last"}"}")
}
complete -o bashdefault -F _proximo proximo"""
BASH_NAMES = r"""
_proximo_names() { compgen -W "$(proximo __complete "$1" "$2" 2>/dev/null)" -- "$2"; }
"""
ZSH_NAMES = r"""
_proximo_names() { compadd -- ${(f)"$(proximo __complete $1 "$PREFIX" 2>/dev/null)"} }
"""


def make_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="proximo completion",
        description="Print a script that lets a shell complete commands, flags, settings, environments and runs.",
        epilog='For example, add this line to ~/.bashrc: eval "$(proximo completion bash)". Environments without a preset are '
        "completed after `proximo envs` has listed them.",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    return parser


def run(arguments: list[str]) -> int:
    """Print the script of a shell."""
    import shtab

    options = make_parser().parse_args(arguments)
    print(shtab.complete(_all_verbs(), shell=options.shell) + (BASH if options.shell == "bash" else ""))
    return 0


def print_names(arguments: list[str]) -> int:
    """``KIND [WORD]``: print the names that may complete ``WORD``, one on each line. Names that a shell would have to quote are omitted."""
    from proximo.cli.known_names import known_names

    print("\n".join(name for name in known_names(*arguments) if re.fullmatch(r"[\w@%+=:,./-]+", name)))
    return 0


def _all_verbs() -> argparse.ArgumentParser:
    """One parser with every command as a subparser, and for each argument what completes it."""
    parser = argparse.ArgumentParser(prog="proximo")
    parser.add_argument("--version", action="store_true", help="print the version")
    verbs = parser.add_subparsers()
    for verb, text in VERBS.items():
        flags = importlib.import_module(f"proximo.cli.{verb}").make_parser()
        for action in flags._actions:
            _describe(action)
        verbs.add_parser(verb, help=text, description=text, parents=[flags], add_help=False)
    return parser


def _describe(action: Any) -> None:
    """Set what completes an argument, and a help text and a metavar that shtab can write into each shell's script."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if metavar.removesuffix("...") in KINDS:
        action.complete = _names(KINDS[metavar])
    elif action.type is Path or metavar in ("FILE", "FOLDER", "DIR", "PATH"):
        action.complete = "file"
    else:
        action.choices = action.choices or _choices(metavar)
    action.metavar = re.sub(r"\W", "-", metavar) or None  # zsh takes ":" as the end of a word
    if action.help not in (None, "", argparse.SUPPRESS):
        action.help = first_clause(action.help, ";\n")


def _choices(metavar: str) -> list[str] | None:
    """The values that a setting's metavar lists, such as ``none|gru|lstm|MODULE:NAME``."""
    words = [word for word in metavar.split("|") if word != "MODULE:NAME"]
    listed = "|" in metavar and all(re.fullmatch(r"[a-z0-9_.]+", word) for word in words)
    return words if listed else None


def _names(kind: str) -> dict[str, Any]:
    """What shtab writes for an argument that is completed by ``proximo __complete KIND``."""
    function = f"_proximo_{kind}"
    one = f'{function}() {{ _proximo_names {kind} "$1"; }}\n'
    return {
        "bash": function,
        "zsh": function,
        "fish": f"(proximo {COMPLETE} {kind} (commandline -ct))",
        "preamble": {"bash": BASH_NAMES + one, "zsh": ZSH_NAMES + one},
    }
