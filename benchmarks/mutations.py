"""Deliberate breaks of the code: which test notices each; see `tests/mutations`.

    python -m benchmarks.mutations [--only TEXT …] [--list] [--again] [--quick]

Exit status 1 where a break survives. Each break runs the tests that must notice it on a copy of the code; all of them
take an hour. Outcomes are kept as they come. A later run goes on where an earlier one stopped, and tries a break again
when its file or its tests have changed. ``SECUREVFL_ENGINE`` forces the path of the kernels that the tests use; each
class of CPUs has its own result.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks import common

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from mutations import breaks
from mutations.base import ROOT, Break, attempt
from mutations.breaks import BREAKS

__all__ = ["choose_breaks", "digest_of", "main"]

_PARTS: dict[str, Sequence[Break]] = {
    name: module.BREAKS for name, module in vars(breaks).items() if isinstance(module, ModuleType)
}
"""Part of the code, as its file of breaks is called → its breaks."""


def digest_of(one: Break) -> str:
    """SHA-256 of a break, the file that it breaks and the tests that must notice it."""
    digest = hashlib.sha256(repr(one).encode("utf-8"))
    for file in sorted({ROOT / one.file, *_test_files(one)}):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _test_files(one: Break) -> Iterator[Path]:
    for name in one.tests:
        path = ROOT / name.partition("::")[0]
        yield from path.rglob("*.py") if path.is_dir() else [path]


def choose_breaks(texts: Sequence[str]) -> list[Break]:
    """The breaks whose name, file or part of the code contains one of these texts."""
    part = {one: name for name, kept in _PARTS.items() for one in kept}
    return [one for one in BREAKS if any(text in f"{one.name}\n{one.file}\n{part.get(one, '')}" for text in texts)]


def main() -> int:
    """Try the breaks that were asked for, a line each, and write the figures after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        nargs="*",
        default=[""],
        metavar="TEXT",
        help="breaks whose name, file or part of the code (of tests/mutations/breaks) contains one of these",
    )
    parser.add_argument("--list", action="store_true", help="print the chosen breaks, and try none")
    parser.add_argument("--again", action="store_true", help="also those whose outcome is known")
    parser.add_argument("--quick", action="store_true", help="every twelfth break")
    given = parser.parse_args()
    chosen = choose_breaks(given.only)[:: 12 if given.quick else 1]
    if given.list:
        for one in chosen:
            print(f"{one.name} ({one.file}): {', '.join(one.tests)}")
        return 0 if chosen else 1
    known: Any = common.before("mutations").get("breaks", [])
    found: dict[str, dict[str, Any]] = {entry["digest"]: entry for entry in known}
    now = {digest_of(one) for one in BREAKS}
    failed = tried = 0
    with tempfile.TemporaryDirectory() as folder:
        for one in chosen:
            digest = digest_of(one)
            if digest not in found or given.again:
                outcome = attempt(one, Path(folder))
                tried += 1
                print(
                    f"{'caught  ' if outcome.caught else 'SURVIVES'} {one.name} ({one.file}): {outcome.by}", flush=True
                )
                found[digest] = {"break": one.name, "file": one.file, "digest": digest, **asdict(outcome)}
                _write([entry for key, entry in found.items() if key in now])
            failed += not found[digest]["caught"]
    print(f"{len(chosen) - failed} of {len(chosen)} breaks are caught; {tried} tried now, the others before")
    return 1 if failed or not chosen else 0


def _write(entries: list[dict[str, Any]]) -> None:
    survivors = [entry["break"] for entry in entries if not entry["caught"]]
    common.write(
        "mutations", {"kept": len(BREAKS), "tried": len(entries), "survivors": survivors, "breaks": entries}, show=False
    )


if __name__ == "__main__":
    sys.exit(main())
