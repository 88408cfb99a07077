"""What the package promises as a whole: a light import, and a docstring for every public definition."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import securevfl_crypto

ROOT = Path(securevfl_crypto.__file__).parent


def test_importing_loads_no_heavy_library() -> None:
    code = (
        "import sys, securevfl_crypto, securevfl_crypto.aggregation\n"
        "from securevfl_crypto import BFV, CKKS, Paillier\n"
        "BFV(), CKKS(), Paillier()\n"
        "heavy = {'tenseal', 'llvmlite', 'pyarrow', 'scipy', 'torch'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def _undocumented(body: list[ast.stmt], within: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield f"{within}.{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from _undocumented(node.body, f"{within}.{node.name}")


def test_every_module_and_public_definition_has_a_docstring() -> None:
    missing, files = [], sorted(ROOT.rglob("*.py"))
    for file in files:
        tree, name = ast.parse(file.read_text(encoding="utf-8")), file.relative_to(ROOT).as_posix()
        missing += [name] * (not ast.get_docstring(tree)) + list(_undocumented(tree.body, name))
    assert len(files) > 50
    assert not missing
