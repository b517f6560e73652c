"""Run the notebooks and save their outputs: python docs/notebooks/run.py [name.ipynb …]"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

FOLDER = Path(__file__).parent


def run(path: Path) -> nbformat.NotebookNode:
    """Run a notebook in a fresh process. Raises an error if a cell does."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        # On POSIX systems, no network port is opened.
        how = {"AsyncKernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}} if os.name == "posix" else {}
        NotebookClient(notebook, config=Config(how), timeout=300, record_timing=False).execute(cwd=str(FOLDER))
    return notebook


if __name__ == "__main__":
    for path in [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(run(path), path)
