"""Untrusted YAML and JSON: read, or one ``ValueError``."""

import contextlib
import random
import time

import pytest

from proximo.serialization import dump_yaml, read_json, read_yaml

BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (BOMB, r"line 2: aliases \(\*name\) are not supported"),
        ("a: &a [*a]", "aliases"),
        ("[" * 50_000, "^it is nested too deeply$"),
        ("- " * 50_000, "^it is nested too deeply$"),
        ("x" * 10**6, "it has 1,000,000 characters, expected at most 200,000"),
        ("a: 1\nb: 2\na: 3", "a is given 2 times"),
        ("a: 2024-13-45", "month must be in 1..12"),
        ("a: " + "9" * 5000, "digit"),
        ("a: !!timestamp x", "NoneType"),
        ("a: !!python/name:os.system", "could not determine a constructor"),
        ("a: \x1b[31m", "special characters are not allowed"),
        (b"\xff\xfe\x00", "codec can't decode"),
    ],
)
def test_invalid_yaml_raises(text, why):
    begin = time.perf_counter()
    with pytest.raises(ValueError, match=why) as caught:
        read_yaml(text)
    assert time.perf_counter() - begin < 5
    assert len(str(caught.value)) <= 301
    assert str(caught.value).isprintable()


def test_any_yaml_returns_or_raises_value_error():
    rng = random.Random(0)
    parts = [
        "a", ": ", "- ", "[", "]", "{", "}", ",", "&x ", "*x", "!!int ", "!!set ", "? ", "<<", "\n", "  ", "'", '"', "|", "1e3", "~", "0x1",
        "2024-01-01", "1:2",
    ]  # fmt: skip
    for _ in range(300):
        with contextlib.suppress(ValueError):
            read_yaml("".join(rng.choice(parts) for _ in range(rng.randrange(1, 12))), aliases=rng.random() < 0.5)


def test_repeated_object_is_written_without_aliases():
    shared = [1, 2]
    assert read_yaml(dump_yaml({"b": shared, "a": shared})) == {"b": [1, 2], "a": [1, 2]}


def test_deep_json_raises():
    assert len(read_json("[" + "{}," * 1000 + "{}]")) == 1001
    for text in ("[" * 10**5, b"[" * 10**5 + b"]" * 10**5, '{"a":' * 10**5):
        with pytest.raises(ValueError, match=r"^it is nested too deeply$"):
            read_json(text)


def test_numbers_with_colons_are_text():
    assert read_yaml("levels: 10:50\nnegative: -1:30\nnumber: 10") == {"levels": "10:50", "negative": "-1:30", "number": 10}
    assert read_yaml("[010, -0_10, 0x10, 0b10, 0]") == [10, -10, 16, 2, 0]
    assert read_yaml(dump_yaml({"levels": "10:50"})) == {"levels": "10:50"}
