"""HTML that is safe against injection: text is escaped, except markup made by this module."""

from __future__ import annotations

import html
from typing import Any


class Markup(str):
    """Text that is already HTML."""


def escaped(content: Any) -> Markup:
    """``content`` as HTML: markup unchanged, None empty, anything else escaped as text."""
    return content if isinstance(content, Markup) else Markup("" if content is None else html.escape(str(content)))


def tag(name: str, /, *content: Any, **attributes: Any) -> Markup:
    """An element. The attribute ``class_`` is named ``class``, and ``data_x`` ``data-x``; None omits an attribute."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    pairs = "".join(f' {key}="{escaped(value)}"' for key, value in given.items())
    return Markup(f"<{name}{pairs}>{''.join(map(escaped, content))}</{name}>")
