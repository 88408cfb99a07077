"""Test files that pytest has rewritten, for several workers that begin at the same time.

Each worker imports every test file, and in a fresh checkout each would rewrite all of them: 18 seconds. Here each one
rewrites a part before it collects, and finds the others' parts then.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

__all__ = ["rewrite_own_part"]


def rewrite_own_part(config: pytest.Config, tests: Path) -> None:
    """Rewrite this worker's part of the test files, where pytest keeps what it rewrites."""
    worker = getattr(config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), int(worker["workercount"])
    state = config.stash[rewrite.assertstate_key]
    for path in sorted(tests.rglob("test_*.py"))[number::count]:
        folder = rewrite.get_cache_dir(path)
        kept = folder / (path.stem + rewrite.PYC_TAIL)
        if rewrite._read_pyc(path, kept) is None and rewrite.try_makedirs(folder):
            digest, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(state, code, digest, kept)
