"""Settings as flags of a command."""

import argparse
import functools
from collections.abc import Collection
from typing import Any

from proximo.cli import Options, Pairs, Parser, UsageError, first_clause
from proximo.config import LEAVES, text_of, unknown
from proximo.config.coercion import READERS, Leaf


class SettingsParser(Parser):
    """The parser of a command with settings. Its options have the ``settings`` that the user gave, by name. ``--help``
    prints the flags of the ``common`` settings and a ``note``, ``--help-all`` all flags. Messages show a flag as an
    ``example``, and the reason ``why_not`` a setting is refused."""

    def __init__(self, verb: str, doc: str | None, common: Collection[str], note: str, example: str, why_not: str = ""):
        width = functools.partial(argparse.HelpFormatter, max_help_position=25)
        # "resolve": the short help adds its flags a second time.
        super().__init__(verb, doc, add_help=False, conflict_handler="resolve", formatter_class=width)
        self._common, self._note, self._example, self._why_not = common, note, example, why_not
        self.add_argument("-h", "--help", action="store_true", help="show the common flags")
        self.add_argument("--help-all", action="help", help="show all flags")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unread = self.parse_known_args(args)
        if options.help:
            del self._action_groups[2:]
            section = self.add_argument_group("common settings")
            for name in self._common:
                add_setting(section, LEAVES[name], brief=True)
            self.epilog = self._note
            self.print_help()
            self.exit()
        flags = {word: word.removeprefix("--").partition("=")[0] for word in unread if word.startswith("--")}
        for word, name in flags.items():
            if self._why_not and name.replace("-", "_").removeprefix("no_") in LEAVES:
                raise UsageError(f"`{self.prog}` does not accept {word}, because {self._why_not}; see `{self.prog} --help`.")
        if flags:
            raise UsageError(" ".join(str(unknown(name)) for name in flags.values()))
        if unread:
            raise UsageError(
                f"Unexpected {unread[0]!r}: expected one environment, then flags, as in `{self.prog} CartPole-v1 {self._example}`. Several "
                "values of a flag are separated by commas, as in `--hidden-sizes 64,64`."
            )
        options.settings = given_settings(options)
        return options


def given_settings(options: Options) -> dict[str, Any]:
    """The settings that the user gave as flags."""
    return {name: value for name in LEAVES if (value := getattr(options, f"setting_{name}", None)) is not None}


def add_setting(section: Any, leaf: Leaf, brief: bool = False, help: str | None = None) -> None:
    """Add the flag of a setting to a command's parser. ``brief`` shows only the first clause of its help."""
    flag, default, words = f"--{leaf.name.replace('_', '-')}", text_of(leaf.default), leaf.words
    is_switch, custom = leaf.base is bool, ["MODULE:NAME"] if leaf.takes_custom else []
    metavar = "|".join((READERS[leaf.base][0], *words) if leaf.base else (*words, *custom))
    common: dict[str, Any] = {
        "dest": f"setting_{leaf.name}",
        "metavar": first_clause(metavar, "|") if brief and not is_switch and not words else metavar,
        **({"action": Pairs} if leaf.base in (dict[str, Any], tuple[str, ...]) else {}),
        **({"nargs": "?", "const": "true"} if is_switch else {}),
    }
    if help is None:
        help = (first_clause(leaf.help) if brief else leaf.help).replace("%", "%%") + (f" (default {default})" if default else "")
    section.add_argument(flag, *(["--wrapper"] if leaf.name == "wrappers" else []), help=help, **common)
    if "_" in leaf.name:
        section.add_argument(f"--{leaf.name}", help=argparse.SUPPRESS, **common)
    if is_switch:
        off = flag.replace("--", "--no-", 1)
        section.add_argument(off, dest=common["dest"], action="store_const", const="false", help=argparse.SUPPRESS)
