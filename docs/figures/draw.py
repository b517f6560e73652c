"""Draw the figures of the documentation anew: python docs/figures/draw.py [name …]

Each lies beside its script as PNG, stamped with a hash of the script, so that a test can tell one that was not drawn again.
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
    """The figures: every script here but this one."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "draw")


def stamp(name: str) -> str:
    """What stands in the picture of the script ``name``."""
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
