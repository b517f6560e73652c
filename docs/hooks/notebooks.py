"""Notebooks as pages, with their saved outputs: text and pictures."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, and its pictures."""
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            notebook = json.loads(Path(file.abs_src_path or "").read_text(encoding="utf-8"))
            name = file.src_uri.removesuffix(".ipynb")
            text, pictures = page(notebook, Path(name).name)
            files.append(File.generated(config, f"{name}.md", content=text))
            for picture, data in pictures.items():
                files.append(File.generated(config, f"{Path(name).parent.as_posix()}/{picture}", content=data))
    return files


def page(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """(Markdown, pictures by file name) of a notebook."""
    parts, pictures = [], {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{name}-{len(pictures)}.png"
                pictures[picture] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![output of the cell]({picture})")
            elif text := "".join(output.get("text", data.get("text/plain", ""))).rstrip():
                parts.append(f"```text\n{text}\n```")
    parts.insert(1, f'<a href="{name}.ipynb">Download the notebook</a>')
    return "\n\n".join(parts) + "\n", pictures
