"""Run the notebooks of the documentation, and write the pages that show them.

    python tools/notebook.py            run docs/notebooks/*.ipynb, and write a page and its pictures for each
    python tools/notebook.py --pages    write the pages again from what the notebooks hold, without running them

A notebook is kept with what its cells showed. Times, versions of Python and the like are taken out, so that running it
again changes only what cells show.
"""

from __future__ import annotations

import argparse
import base64
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
MOST_OUTPUT = 200_000
"""Bytes of what one cell shows."""
MOST = 400_000
"""Bytes of a notebook."""
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_PROGRESS = re.compile(r"[^\n]*\r")


def execute(path: Path) -> Any:
    """The notebook, run from its first cell to its last in an empty folder's kernel."""
    import tempfile

    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    return cleaned(notebook)


def cleaned(notebook: Any) -> Any:
    """Without what differs from run to run and says nothing: times of cells, the progress line, versions."""
    notebook.metadata = nbformat.from_dict(_METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(_cleaned, cell.outputs) if output is not None]
    return notebook


def _cleaned(output: Any) -> Any | None:
    if output.output_type == "stream":
        if output.name == "stderr":
            return None
        output.text = _PROGRESS.sub("", output.text)
    elif "metadata" in output:
        output.metadata = nbformat.from_dict({})
    return output


def problems(notebook: Any, size: int) -> list[str]:
    """What a notebook of the documentation must not be."""
    found = [f"{size} bytes; {MOST} at most"] if size > MOST else []
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    if counts != list(range(1, len(counts) + 1)):
        found.append(f"cells were not run once each, in their order: {counts}")
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if len(nbformat.writes(nbformat.v4.new_notebook(cells=[cell]))) > MOST_OUTPUT:
                found.append(f"cell {number} shows more than {MOST_OUTPUT} bytes")
            if output.output_type == "error":
                found.append(f"cell {number} ended with {output.ename}")
    return found


def page(notebook: Any, name: str) -> tuple[str, dict[str, bytes]]:
    """A Markdown page, and the pictures that it shows, by file name."""
    parts, pictures = [], {}
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source.strip())
            continue
        parts.append(f"```python\n{cell.source.strip()}\n```")
        for at, (kind, body) in enumerate(_shown(cell)):
            if kind == "picture":
                file = f"{name}-{number}-{at}.png"
                pictures[file] = base64.b64decode(body)
                parts.append(f"![what the cell shows]({file})")
            else:
                parts.append(body if kind == "html" else f"```text\n{body}\n```")
    link = f"[Download the notebook]({name}.ipynb). It was run by `python tools/notebook.py`."
    head, *rest = parts
    return "\n\n".join([head, link, *rest]) + "\n", pictures


def _shown(cell: Any) -> Iterator[tuple[str, str]]:
    for output in cell.outputs:
        if output.output_type == "stream":
            if output.text.strip():
                yield "text", output.text.rstrip()
            continue
        data = output.get("data", {})
        if "image/png" in data:
            yield "picture", data["image/png"]
        elif "text/html" in data:
            yield "html", _html(data["text/html"])
        elif data.get("text/plain", "").strip():
            yield "text", data["text/plain"].rstrip()


def _html(text: str) -> str:
    """HTML that Markdown leaves alone: no empty lines, nothing indented; and without style sheets."""
    without = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    without = without.replace(' border="1" class="dataframe"', "")  # pandas' table, in the page's own style
    lines = [line.strip() for line in without.splitlines() if line.strip()]
    return "<div>\n" + "\n".join(lines) + "\n</div>"


def write(path: Path, notebook: Any) -> None:
    """The page and its pictures, beside the notebook; pictures of before are deleted."""
    text, pictures = page(notebook, path.stem)
    for old in path.parent.glob(f"{path.stem}-*.png"):
        if old.name not in pictures:
            old.unlink()
    for name, data in pictures.items():
        (path.parent / name).write_bytes(data)
    path.with_suffix(".md").write_text(text, encoding="utf-8")


def main() -> int:
    """Run and write; 1 where a notebook is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", action="store_true", help="only the pages")
    given = parser.parse_args()
    bad = 0
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4) if given.pages else execute(path)
        if not given.pages:
            nbformat.write(notebook, path)
        for problem in problems(notebook, path.stat().st_size):
            print(f"{path.name}: {problem}", file=sys.stderr)
            bad = 1
        write(path, notebook)
        print(path.name, f"{path.stat().st_size / 1000:.0f} kB")
    return bad


if __name__ == "__main__":
    raise SystemExit(main())
