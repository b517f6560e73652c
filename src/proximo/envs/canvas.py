"""Draws lines, shapes and text in world coordinates, with Pillow and without a window.

Pictures are drawn at twice their size and reduced, which smooths the edges.
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
SUPERSAMPLING = 2


@functools.cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


class Canvas:
    """A picture of ``width`` × ``height`` pixels.

    ``world`` is the visible part, ``(left, right, bottom, top)``. By default the units are pixels, and y grows downwards.
    """

    def __init__(self, width: int, height: int, world: tuple[float, float, float, float] | None = None):
        from PIL import Image, ImageDraw  # imported only to draw

        self.width, self.height = width, height
        self.left, self.right, self.bottom, self.top = world or (0.0, width, height, 0.0)
        self._image = Image.new("RGB", (width * SUPERSAMPLING, height * SUPERSAMPLING), PAPER)
        self._draw = ImageDraw.Draw(self._image)

    @property
    def unit(self) -> float:
        """Pixels of one unit of the world's x."""
        return self.width / (self.right - self.left)

    def _place(self, point: Point) -> Point:
        x = (float(point[0]) - self.left) / (self.right - self.left) * self.width
        y = (float(point[1]) - self.top) / (self.bottom - self.top) * self.height
        return x * SUPERSAMPLING, y * SUPERSAMPLING

    def line(self, points: Sequence[Point], color: Color = INK, width: float = 2) -> None:
        """A line through ``points``, ``width`` pixels wide, with round ends and corners."""
        placed, thick = [self._place(point) for point in points], max(1, round(width * SUPERSAMPLING))
        self._draw.line(placed, fill=color, width=thick, joint="curve")
        if thick > SUPERSAMPLING:
            for end in (placed[0], placed[-1]):
                self._disc(end, thick / 2, color)

    def polygon(self, points: Sequence[Point], color: Color) -> None:
        """A filled polygon with the corners ``points``."""
        self._draw.polygon([self._place(point) for point in points], fill=color)

    def box(self, lower: Point, upper: Point, color: Color | None, edge: Color | None = None, width: float = 1) -> None:
        """A rectangle between two opposite corners."""
        (x0, y0), (x1, y1) = self._place(lower), self._place(upper)
        corners = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
        self._draw.rectangle(corners, fill=color, outline=edge, width=max(1, round(width * SUPERSAMPLING)))

    def disc(self, center: Point, radius: float, color: Color, edge: Color | None = None) -> None:
        """A disc of ``radius`` pixels."""
        self._disc(self._place(center), radius * SUPERSAMPLING, color, edge)

    def _disc(self, center: Point, radius: float, color: Color, edge: Color | None = None) -> None:
        x, y = center
        self._draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=color, outline=edge, width=2 * SUPERSAMPLING)

    def text(self, place: Point, words: str, size: int = 18, color: Color = INK, anchor: str = "mm") -> None:
        """Text at ``place``, ``size`` pixels high. ``anchor`` is Pillow's: mm centers the text, lm puts its left end at ``place``."""
        self._draw.text(self._place(place), words, fill=color, font=_font(size * SUPERSAMPLING), anchor=anchor)

    def array(self) -> np.ndarray:
        """Return the picture, uint8 [height, width, 3]."""
        return np.array(self._image.reduce(SUPERSAMPLING))


def board(cells: np.ndarray, size: int = 400) -> np.ndarray:
    """Draw a board of about ``size`` pixels from the color of each cell [rows, columns, 3], with thin lines between the cells."""
    rows, columns = cells.shape[:2]
    cell = max(4, size // max(rows, columns)) // 2 * 2
    picture = np.repeat(np.repeat(np.asarray(cells, np.uint8), cell, axis=0), cell, axis=1)
    for axis, count in ((0, rows), (1, columns)):
        lines = np.arange(1, count) * cell
        view = picture if axis == 0 else picture.swapaxes(0, 1)
        view[lines] = view[lines] // 8 * 7
    return picture
