"""The tutorial runs from its first cell to its last, and prints what the notebook shows.

python tests/test_tutorial.py        # writes what it prints now into the notebook
"""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "examples" / "tutorial.ipynb"


def printed(cells: list[dict[str, Any]]) -> list[str]:
    """What each code cell prints, in one session."""
    names: dict[str, Any] = {}
    said = []
    for cell in cells:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), names)
        said.append(out.getvalue())
    return said


def code(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_tutorial_prints_what_it_shows() -> None:
    cells = code(json.loads(NOTEBOOK.read_text()))
    assert len(cells) > 5
    assert printed(cells) == ["".join(output["text"] for output in cell["outputs"]) for cell in cells]


def main() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    for number, (cell, said) in enumerate(zip(code(notebook), printed(code(notebook)), strict=True), 1):
        cell["execution_count"] = number
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": said}] if said else []
    NOTEBOOK.write_text(json.dumps(notebook, indent=1) + "\n")


if __name__ == "__main__":
    main()
