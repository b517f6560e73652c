"""Output in the cells of a notebook."""

from typing import Any


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which displays HTML."""
    from rich.console import Console

    return Console().is_jupyter


def display(content: dict[str, str]) -> Any:
    """Show ``content``, text by MIME type, below the current cell. Returns a handle whose ``update(content, raw=True)`` replaces it."""
    from IPython.display import display as display_below  # pyright: ignore[reportMissingImports]

    return display_below(content, raw=True, display_id=True)
