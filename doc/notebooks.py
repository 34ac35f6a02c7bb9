"""Notebooks of `examples/`: run in a fresh kernel, stored with their outputs, and turned into pages of the gallery."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tempfile
from pathlib import Path

# A cell that takes longer is a defect: the whole notebook takes less than a minute.
_SECONDS = 120


def read(path):
    """Content of a notebook file."""
    return json.loads(path.read_text(encoding="utf-8"))


def text_of(part):
    """Source of a cell, or text of an output, as one text."""
    return part if isinstance(part, str) else "".join(part)


def digest(path):
    """Short digest of the sources of a notebook, without its outputs."""
    sources = "\0".join(f"{cell['cell_type']}\1{text_of(cell['source'])}" for cell in read(path)["cells"])
    return hashlib.sha256(sources.encode()).hexdigest()[:16]


def run(path, *, write=True):
    """Run all cells in a new kernel and in a temporary folder; store their outputs.

    Raises
    ------
    ImportError
        nbclient, nbformat or ipykernel is missing (the extra `docs`).
    nbclient.exceptions.CellExecutionError
        A cell raised.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=_SECONDS, resources={"metadata": {"path": folder}})
        client.execute()
    for cell in notebook.cells:  # the times and the progress bars of this run would differ in every run
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = list(_without_bars(cell.outputs))
    for key in set(notebook.metadata) - {"kernelspec"}:
        del notebook.metadata[key]
    if write:
        nbformat.write(notebook, path)


def _without_bars(outputs):
    """Yield outputs without the lines of progress bars, which begin with a carriage return."""
    for output in outputs:
        if output.output_type == "stream" and output.name == "stderr":
            output.text = re.sub(r"\r[^\n]*", "", output.text)
            if not output.text.strip():
                continue
        yield output


def page(path, pictures):
    """Return the page of a notebook with its outputs, in Markdown; its pictures go to the folder `pictures`."""
    lines, shown = [f"<!-- written by doc/run.py from examples/{path.name} {digest(path)} -->"], 0
    for cell in read(path)["cells"]:
        source = text_of(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            lines += [source, ""]
            continue
        lines += [f"```python\n{source}\n```", ""]
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = Path(pictures) / f"{path.stem}{shown or ''}.png"
                picture.write_bytes(base64.b64decode(text_of(data["image/png"])))
                lines += [f"![output of the cell above]({picture.name})", ""]
                shown += 1
                continue
            printed = text_of(output.get("text") or data.get("text/plain", ""))
            printed = re.sub(r"[ \t]+$", "", printed, flags=re.MULTILINE).strip("\n")
            if printed:
                lines += [f"```text\n{printed}\n```", ""]
    return "\n".join(lines).rstrip() + "\n"
