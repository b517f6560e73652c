"""Messages: untrusted values are short and printable, and suggested commands can be copied."""

import ast
import itertools
import random
import re
import shlex
from pathlib import Path

import proximo
from proximo.cli import VERBS
from proximo.custom_code import exception_text
from proximo.errors import command, is_plain, printable, shown

SOURCE = Path(proximo.__file__).parent
CHARACTERS = "ab é日-_ /$`'\"\\;&|<>()*?#~!{}[]=%@\n\t\x00\x07\x1b\x7f\x9b‮\u2028\ud800"


def test_no_text_reaches_a_terminal_with_control_characters():
    rng = random.Random(0)
    for _ in range(300):
        text = "".join(rng.choice(CHARACTERS) for _ in range(rng.randrange(12)))
        for made in (printable(text), command("proximo", "watch", text), shown(text), shown([text])):
            assert all(c.isprintable() or c in "\n\t" for c in made)
        if is_plain(text):
            assert printable(text) == text
            assert shlex.split(command("proximo", "watch", Path(text or "."))) == ["proximo", "watch", str(Path(text))]


def test_long_value_is_shortened():
    assert shown("x" * 10**6) == "'" + "x" * 79 + "…"
    assert shown({"a": 1}) == "{'a': 1}"


def test_exception_without_a_text_names_its_line_even_in_a_library():
    for path, message, text in (
        ("site-packages/robot.py", "", "AssertionError (robot.py, line 2)"),
        ("site-packages/robot.py", ", 'fell'", "AssertionError: fell"),
        ("my.py", "", "AssertionError (my.py, line 2)"),
    ):
        found: dict[str, BaseException] = {}
        exec(compile(f"try:\n    assert 0{message}\nexcept AssertionError as error:\n    found = error", path, "exec"), found)
        assert exception_text(found["found"]) == text


def test_every_proposed_command_is_quoted():
    """Values in the text of a suggested command line are formatted by ``command``."""
    proposal = re.compile(rf"proximo ({'|'.join(VERBS)})( --?[\w-]+)* $")
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.values if isinstance(node, ast.JoinedStr) else []
            for before, value in itertools.pairwise(parts):
                if isinstance(before, ast.Constant) and proposal.search(before.value) and ast.unparse(value.value) != "library":
                    found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert found == []
