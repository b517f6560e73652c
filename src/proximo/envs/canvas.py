"""Draws lines, shapes, text and boards with Pillow, without a window.

Pictures are drawn at twice their size and reduced, which smooths the edges. Positions are pixels; y grows downwards.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

Color = tuple[int, int, int]
Point = tuple[float, float]

INK: Color = (38, 43, 51)
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
"""Pixels of a picture, along each side."""
SUPERSAMPLING = 2


@functools.cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


class Canvas:
    """A picture of ``SIZE`` pixels along each side."""

    def __init__(self):
        from PIL import Image, ImageDraw  # imported only to draw

        self._image = Image.new("RGB", (SIZE * SUPERSAMPLING, SIZE * SUPERSAMPLING), PAPER)
        self._draw = ImageDraw.Draw(self._image)

    def line(self, points: Sequence[Point], color: Color = INK, width: int = 2) -> None:
        """A line through ``points``, ``width`` pixels wide."""
        self._draw.line(_scaled(*points), fill=color, width=width * SUPERSAMPLING, joint="curve")

    def box(self, lower: Point, upper: Point, color: Color | None, edge: Color | None = None) -> None:
        """A rectangle from its upper left to its lower right corner."""
        self._draw.rectangle(_scaled(lower, upper), fill=color, outline=edge, width=2 * SUPERSAMPLING)

    def disc(self, center: Point, radius: float, color: Color) -> None:
        """A disc."""
        (x, y), r = center, radius
        self._draw.ellipse(_scaled((x - r, y - r), (x + r, y + r)), fill=color)

    def text(self, place: Point, words: str, size: int = 20, color: Color = INK) -> None:
        """Text whose middle is at ``place``, ``size`` pixels high."""
        self._draw.text(*_scaled(place), words, fill=color, font=_font(size * SUPERSAMPLING), anchor="mm")

    def array(self) -> np.ndarray:
        """Return the picture, uint8 [height, width, 3]."""
        return np.array(self._image.reduce(SUPERSAMPLING))


def _scaled(*points: Point) -> list[Point]:
    return [(float(x) * SUPERSAMPLING, float(y) * SUPERSAMPLING) for x, y in points]


def board(cells: np.ndarray, marks: Sequence[tuple[Any, Any, Color]] = ()) -> np.ndarray:
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
