"""What a kernel does with secrets, as two tools see it: the blocks that qemu runs, and what memcheck reports.

- `block_trace` counts and hashes the sequence of blocks of machine code that run. Secrets that lead to other branches
  lead to another hash, if they are among those tried. Addresses of data are not in it.
- `count_reports` marks secrets as undefined. Memcheck then reports each branch and each address that depends on them,
  whatever their values are, in the code that runs.

`plant` puts such mistakes into a kernel's IR, to see that both are found.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emulated.machine import BASE, EMULATORS, Image, KernelProcess

__all__ = ["PLANTS", "Reports", "block_trace", "count_reports", "plant"]

Arguments = Mapping[str, int | np.ndarray]
_REPORTS = "Conditional jump or move depends on uninitialised value", "Use of uninitialised value of size"
_BLOCK = re.compile(rb"^Trace \d+: 0x[0-9a-f]+ \[[0-9a-f]+/([0-9a-f]+)/", re.MULTILINE)


@dataclass(frozen=True)
class Reports:
    """How many places in a kernel memcheck reports.

    Attributes:
        branches: where a branch depends on a secret.
        addresses: where an address does.
    """

    branches: int
    addresses: int


def block_trace(machine: str, driver: Path, library: bytes, kernel: str, arguments: Arguments) -> tuple[int, str]:
    """How many blocks of the library run, and the SHA-256 of their sequence."""
    size = len(Image(library).content)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        options = ["-d", "exec,nochain", "-dfilter", f"{BASE:#x}+{size:#x}", "-D", log]
        with KernelProcess(library, [*EMULATORS[machine], *options, driver]) as process:
            process.call(kernel, arguments)
        places = _BLOCK.findall(log.read_bytes())
    return len(places), hashlib.sha256(b"\n".join(places)).hexdigest()


def count_reports(driver: Path, library: bytes, kernel: str, arguments: Arguments, secrets: Sequence[str]) -> Reports:
    """What memcheck reports where these arrays are secret.

    Raises:
        RuntimeError: it reports something else, such as an instruction that it does not know.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        options = ["--tool=memcheck", "--error-limit=no", f"--log-file={log}"]
        with KernelProcess(library, ["valgrind", *options, driver], secrets) as process:
            process.call(kernel, arguments)
        text = log.read_text(encoding="utf-8", errors="replace")
    places = [re.findall(rf"{what}.*\n==\d+==    at (0x\w+)", text) for what in _REPORTS]
    summary = re.search(r"ERROR SUMMARY: \d+ errors from (\d+) contexts", text)
    if summary is None or int(summary[1]) != sum(map(len, places)):
        raise RuntimeError(f"memcheck says of {kernel}:\n{text}")
    branches, addresses = (len(set(one)) for one in places)
    return Reports(branches, addresses)


_HEAD = "define i8 @planted(i8 %x) noinline nounwind {\n"
_BRANCH = """  %a = alloca i8
  br i1 %c, label %one, label %other
one:
  store volatile i8 %x, ptr %a
  ret i8 %x
other:
  ret i8 %x
}
"""
PLANTS = {
    "a branch": f"{_HEAD}  %c = trunc i8 %x to i1\n{_BRANCH}",
    "a branch that no tried secret takes": f"{_HEAD}  %c = icmp eq i8 %x, 77\n{_BRANCH}",
    "a look-up": (
        f"@places = internal constant [65 x i8] [{', '.join(f'i8 {k // 64}' for k in range(65))}]\n{_HEAD}"
        "  %w = zext i8 %x to i64\n  %d = mul i64 %w, 64\n"
        "  %p = getelementptr i8, ptr @places, i64 %d\n  %y = load i8, ptr %p\n  ret i8 %y\n}\n"
    ),
}
"""A mistake → a function from an octet to itself that makes it, depending on a secret."""


def plant(text: str, what: str) -> str:
    """A module in which each octet that becomes a flag (`Function.load_flag`) goes through a function of `PLANTS`."""
    flags = re.compile(r"(%\w+ = load i8, ptr %\w+\n  %\w+ = trunc i8 )(%\w+) to i1")
    named = flags.sub(r"\1\2_planted to i1", text)
    found = re.sub(
        r"((%\w+) = load i8, ptr %\w+\n)(  %\w+ = trunc i8 \2_planted)",
        r"\1  \2_planted = call i8 @planted(i8 \2)\n\3",
        named,
    )
    if "@planted(" not in found:
        raise ValueError("the module has no flag to plant a mistake at")
    return found + PLANTS[what]
