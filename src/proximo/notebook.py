"""Output in the cells of a notebook."""

from typing import Any


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which displays HTML."""
    from rich.console import Console

    return Console().is_jupyter


def display(content: dict[str, str]) -> Any:
    """Show text by MIME type below the current cell. ``update(content, raw=True)`` of the result replaces it."""
    from IPython.display import display as display_below  # pyright: ignore[reportMissingImports]

    return display_below(content, raw=True, display_id=True)
