"""Draws boards of colored cells: the pictures of proximo's tasks, and of MinAtar."""

from collections.abc import Iterable
from typing import Any

import numpy as np

Color = tuple[int, int, int]

PAPER: Color = (252, 252, 250)
GRAY: Color = (150, 156, 164)
PALE: Color = (226, 229, 233)
BLUE: Color = (45, 104, 196)
GREEN: Color = (24, 138, 82)
RED: Color = (205, 52, 52)
AMBER: Color = (222, 150, 20)
TINTS: tuple[Color, ...] = (
    BLUE, AMBER, GREEN, RED, (128, 84, 190), (30, 158, 172), (212, 90, 150), (120, 120, 40), (110, 78, 60), (90, 100, 116),
)  # fmt: skip
"""Distinct colors for several kinds of objects."""
SIZE = 400
"""Pixels of a picture, along its longer side."""


def board(cells: Any, marks: Iterable[tuple[Any, Any, Color]] = ()) -> np.ndarray:
    """Draw a board of about ``SIZE`` pixels, with thin lines between the cells.

    Args:
        cells: the color of each cell, [rows, columns, 3].
        marks: (row, column, color) of further cells; those outside are not drawn.

    Returns:
        The picture, uint8 [height, width, 3].
    """
    cells = np.array(cells, np.uint8)
    rows, columns = cells.shape[:2]
    for row, column, color in marks:
        if 0 <= int(row) < rows and 0 <= int(column) < columns:
            cells[int(row), int(column)] = color
    size = max(4, SIZE // max(rows, columns)) // 2 * 2
    picture = cells.repeat(size, axis=0).repeat(size, axis=1)
    for lines in (picture[size::size], picture[:, size::size]):
        lines[:] = lines // 8 * 7
    return picture
