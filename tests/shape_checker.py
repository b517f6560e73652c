"""The checker of annotations that the import hook in ``conftest.py`` applies to every function of proximo."""

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype

_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with checks as those of beartype, but an int passes for a float (PEP 484's numeric tower).

    A function inside of another one is left unchecked: it would get new checks in every call of the outer one, which take a tenth of
    the time for tracing.
    """
    return function if "<locals>" in function.__qualname__ else _beartype(function)
