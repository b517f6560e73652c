"""Draws boards of colored cells: the pictures of proximo's tasks, and of MinAtar."""

import numpy as np

PAPER = (252, 252, 250)
GRAY = (150, 156, 164)
PALE = (226, 229, 233)
BLUE = (45, 104, 196)
GREEN = (24, 138, 82)
RED = (205, 52, 52)
AMBER = (222, 150, 20)
TINTS = (
    BLUE, AMBER, GREEN, RED, (128, 84, 190), (30, 158, 172), (212, 90, 150), (120, 120, 40), (110, 78, 60), (90, 100, 116),
)  # fmt: skip
"""Distinct colors for several kinds of objects."""
SIZE = 400
"""Pixels of a picture, along its longer side."""


def board(cells: np.ndarray) -> np.ndarray:
    """Draw colors, [rows, columns, 3], as cells with thin lines between them: uint8 [height, width, 3]."""
    size = max(4, SIZE // max(cells.shape)) // 2 * 2
    picture = cells.astype(np.uint8).repeat(size, axis=0).repeat(size, axis=1)
    for lines in (picture[size::size], picture[:, size::size]):
        lines[:] = lines // 8 * 7
    return picture
