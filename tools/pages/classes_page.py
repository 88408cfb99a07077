"""The table of docs/figures.md that has a column for each class of CPUs, from what benchmarks wrote on each.

python tools/pages/classes_page.py    writes it into the page; a test holds that the page has it.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.folders import folder_of_class  # noqa: E402 - benchmarks are not installed

__all__ = ["CLASSES", "PAGE", "ROWS", "Row", "block", "written"]

PAGE = ROOT / "docs" / "figures.md"
CLASSES = {"x86_64_v4_ifma": "ifma", "x86_64_v3": "avx2"}
"""Class of CPUs → the path of its kernels, in the order of the columns."""
NOT_MEASURED = "not measured"

_BLOCK = re.compile(r"(<!-- classes of CPUs -->).*?(<!-- end -->)", flags=re.DOTALL)


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
        words: what it is.
        file: the benchmark's result.
        keys: the way to it; ``{path}`` stands for the path of the class.
        form: how it is written.
        over: the way to what the figure is divided by, if anything.
    """

    words: str
    file: str
    keys: tuple[str, ...]
    form: str
    over: tuple[str, ...] = ()


_ENCRYPTION = ("Paillier", "python-paillier / ours", "encryption, public key, a ciphertext")
_LEAST = ("Paillier", "python-paillier / ours, least of all rounds", "encryption, public key, a ciphertext")
_BY_OWNER = ("Paillier", "python-paillier / ours", "encryption, owner, a ciphertext")
_PRODUCT = ("products modulo 2^64", "512 x 512 x 512", "milliseconds")
_COMPARISON = ("comparison of 4096 values", "all three parties, randomness included", "milliseconds")
ROWS = (
    Row("X25519, over OpenSSL", "psi", ("engine", "ratio to openssl, median of rounds", "{path}"), "{:.1f} ×"),
    Row(
        "X25519, over OpenSSL, best of all rounds",
        "psi",
        ("engine", "ratio to openssl, best of all rounds", "{path}"),
        "{:.1f} ×",
    ),
    Row("X25519, products a second", "psi", ("engine", "scalar products a second", "{path}"), "{:,.0f}"),
    Row("hashes to the curve a second", "psi", ("engine", "hashes to the curve a second", "{path}"), "{:,.0f}"),
    Row("CPU time of `ot`, 2¹⁸ a side, over SPU's RR22", "psi", ("transfers", "2^18", "median, CPU"), "{:.2f}"),
    Row("CPU time of `ot`, 2²⁰ a side, over SPU's RR22", "psi", ("transfers", "2^20", "median, CPU"), "{:.2f}"),
    Row("CPU time of `dh`, 2¹⁶ a side, over SPU's ECDH", "psi", ("curve", "2^16", "median, CPU"), "{:.2f}"),
    Row(
        "product modulo n², 2048 bits, over GMP",
        "crypto",
        ("2048 bits", "product modulo n²", "gmpy2 / ours", "{path}"),
        "{:.1f} ×",
    ),
    Row("encryption, Paillier 2048, over python-paillier", "crypto", ("2048 bits", *_ENCRYPTION), "{:.0f} ×"),
    Row("encryption, Paillier 3072, over python-paillier", "crypto", ("3072 bits", *_ENCRYPTION), "{:.0f} ×"),
    Row("the same, 2048 bits, least of all rounds", "crypto", ("2048 bits", *_LEAST), "{:.0f} ×"),
    Row("the same, 3072 bits, least of all rounds", "crypto", ("3072 bits", *_LEAST), "{:.0f} ×"),
    Row(
        "encryption by its owner, Paillier 2048, over python-paillier", "crypto", ("2048 bits", *_BY_OWNER), "{:.0f} ×"
    ),
    Row(
        "encryption by its owner, Paillier 3072, over python-paillier", "crypto", ("3072 bits", *_BY_OWNER), "{:.0f} ×"
    ),
    Row(
        "512 × 512 × 512 modulo 2⁶⁴, over numpy",
        "ring",
        (*_PRODUCT, "numpy uint64 @"),
        "{:.0f} ×",
        over=(*_PRODUCT, "{path}"),
    ),
    Row(
        "4,096 comparisons on shares, over numpy",
        "ring",
        (*_COMPARISON, "numpy"),
        "{:.0f} ×",
        over=(*_COMPARISON, "{path}"),
    ),
    Row("a step on shares, CPU", "shares_step", ("B=256 d=32 h=16 top=16", "shares", "CPU milliseconds"), "{:.1f} ms"),
    Row(
        "all kernels, first use in a process",
        "engine_start",
        ("CPU-seconds", "ahead", "all groups of kernels"),
        "{:.2f} CPU-s",
    ),
    Row("first `ot` of 2¹² in a process", "engine_start", ("CPU-seconds", "ahead", "first ot at 2^12"), "{:.2f} CPU-s"),
)


def _figure(row: Row, cpu_class: str) -> str:
    file = folder_of_class(cpu_class) / f"{row.file}.json"
    if not file.is_file():
        return NOT_MEASURED
    content = json.loads(file.read_text(encoding="utf-8"))
    found = _find(content, row.keys, cpu_class)
    divisor = _find(content, row.over, cpu_class) if row.over else 1.0
    return NOT_MEASURED if found is None or divisor is None else row.form.format(found / divisor)


def _find(content: Any, keys: tuple[str, ...], cpu_class: str) -> float | None:
    for key in keys:
        content = content.get(key.format(path=CLASSES[cpu_class])) if isinstance(content, dict) else None
    return None if content is None else float(content)


def block() -> str:
    """The table: a line for each figure, a column for each class."""
    lines = [f"| | {' | '.join(f'`{one}`' for one in CLASSES)} |", "|---" * (len(CLASSES) + 1) + "|"]
    lines += [f"| {row.words} | {' | '.join(_figure(row, one) for one in CLASSES)} |" for row in ROWS]
    return "\n".join(lines)


def written(page: str) -> str:
    """The page with its table as it has to be."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n\n{block()}\n\n{found[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
