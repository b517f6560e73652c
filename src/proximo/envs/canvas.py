"""Pictures of states: shapes and words in the coordinates of a world, drawn by Pillow at twice the size and made smaller, which
smooths every edge. A picture of 400x400 takes a millisecond or two; no window, no figure."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

Colour = tuple[int, int, int]
Point = tuple[float, float]

INK: Colour = (38, 43, 51)
PAPER: Colour = (252, 252, 250)
GRAY: Colour = (150, 156, 164)
PALE: Colour = (226, 229, 233)
BLUE: Colour = (45, 104, 196)
GREEN: Colour = (24, 138, 82)
RED: Colour = (205, 52, 52)
AMBER: Colour = (222, 150, 20)
TINTS: tuple[Colour, ...] = (
    BLUE, AMBER, GREEN, RED, (128, 84, 190), (30, 158, 172), (212, 90, 150), (120, 120, 40), (110, 78, 60), (90, 100, 116),
)  # fmt: skip
"""Colours that are told apart, for things of several kinds."""
FINER = 2


@functools.cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


class Canvas:
    """``width`` x ``height`` pixels that show the world from ``left`` to ``right`` and from ``bottom`` to ``top``; without a world
    its units are pixels, and y grows downwards."""

    def __init__(self, width: int, height: int, world: tuple[float, float, float, float] | None = None, paper: Colour = PAPER):
        from PIL import Image, ImageDraw  # only where something is drawn

        self.width, self.height = width, height
        self.left, self.right, self.bottom, self.top = world or (0.0, width, height, 0.0)
        self._image = Image.new("RGB", (width * FINER, height * FINER), paper)
        self._draw = ImageDraw.Draw(self._image)

    @property
    def unit(self) -> float:
        """Pixels of one unit of the world's x."""
        return self.width / (self.right - self.left)

    def _place(self, point: Point) -> Point:
        x = (float(point[0]) - self.left) / (self.right - self.left) * self.width
        y = (float(point[1]) - self.top) / (self.bottom - self.top) * self.height
        return x * FINER, y * FINER

    def line(self, points: Sequence[Point], colour: Colour = INK, width: float = 2) -> None:
        """A line through ``points``, ``width`` pixels wide, with round ends and corners."""
        placed, thick = [self._place(point) for point in points], max(1, round(width * FINER))
        self._draw.line(placed, fill=colour, width=thick, joint="curve")
        if thick > FINER:
            for end in (placed[0], placed[-1]):
                self._disc(end, thick / 2, colour)

    def polygon(self, points: Sequence[Point], colour: Colour) -> None:
        """What ``points`` go around."""
        self._draw.polygon([self._place(point) for point in points], fill=colour)

    def box(self, lower: Point, upper: Point, colour: Colour | None, edge: Colour | None = None, width: float = 1) -> None:
        """A rectangle between two opposite corners."""
        (x0, y0), (x1, y1) = self._place(lower), self._place(upper)
        corners = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
        self._draw.rectangle(corners, fill=colour, outline=edge, width=max(1, round(width * FINER)))

    def disc(self, centre: Point, radius: float, colour: Colour, edge: Colour | None = None) -> None:
        """A disc of ``radius`` pixels."""
        self._disc(self._place(centre), radius * FINER, colour, edge)

    def _disc(self, centre: Point, radius: float, colour: Colour, edge: Colour | None = None) -> None:
        x, y = centre
        self._draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour, outline=edge, width=2 * FINER)

    def text(self, place: Point, words: str, size: int = 18, colour: Colour = INK, anchor: str = "mm") -> None:
        """``words`` at ``place``, ``size`` pixels high; ``anchor`` is Pillow's: mm in the middle, lm with the left end there."""
        self._draw.text(self._place(place), words, fill=colour, font=_font(size * FINER), anchor=anchor)

    def array(self) -> np.ndarray:
        """uint8 [height, width, 3]."""
        return np.array(self._image.reduce(FINER))


def board(cells: np.ndarray, size: int = 400) -> np.ndarray:
    """A picture of about ``size`` pixels of colours [rows, columns, 3], one for each cell of a board, with thin lines between."""
    rows, columns = cells.shape[:2]
    cell = max(4, size // max(rows, columns)) // 2 * 2
    picture = np.repeat(np.repeat(np.asarray(cells, np.uint8), cell, axis=0), cell, axis=1)
    for axis, count in ((0, rows), (1, columns)):
        lines = np.arange(1, count) * cell
        view = picture if axis == 0 else picture.swapaxes(0, 1)
        view[lines] = view[lines] // 8 * 7
    return picture
