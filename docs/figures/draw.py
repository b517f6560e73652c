"""Draw the figures of the documentation: python docs/figures/draw.py [name …]

Each figure is a PNG in the folder of its script. It contains a hash of the script, so a test detects an outdated figure.
"""

import hashlib
import importlib
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
FOLDER = Path(__file__).parent
STAMP = "Source"


def names() -> list[str]:
    """Names of the figures: all other scripts of this folder."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "draw")


def stamp(name: str) -> str:
    """The hash that the figure of the script ``name`` contains."""
    return hashlib.sha256((FOLDER / f"{name}.py").read_bytes()).hexdigest()


def main(wanted: list[str]) -> None:
    """Draw ``wanted``, or all."""
    sys.path.insert(0, str(FOLDER))
    for name in wanted or names():
        with matplotlib.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
            figure = importlib.import_module(name).draw()
            figure.savefig(FOLDER / f"{name}.png", dpi=130, bbox_inches="tight", metadata={STAMP: stamp(name)})


if __name__ == "__main__":
    main(sys.argv[1:])
