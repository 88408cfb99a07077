"""Run a program under a seccomp filter that lets no memory become executable, from its first instruction on.

The filter is the one that systemd's ``MemoryDenyWriteExecute=yes`` installs: it refuses `mprotect` and `pkey_mprotect`
with PROT_EXEC, `mmap` with both PROT_EXEC and PROT_WRITE, and here `mmap` of anonymous memory with PROT_EXEC, too.
Libraries still load: they are files, mapped as executable and never written to.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

__all__ = ["REFUSES", "run_filtered"]

LAUNCHER = """
import ctypes, os, platform, struct, sys
# The numbers of mmap, mprotect and pkey_mprotect, and of the architecture, in the system calls of x86-64 and ARM64.
KNOWN = {"x86_64": (0xC000003E, 9, 10, 329), "aarch64": (0xC00000B7, 222, 226, 288)}
if platform.machine() not in KNOWN or sys.byteorder != "little":
    print("unsupported: the system calls of this CPU are not known here")
    sys.exit()
arch, mmap, mprotect, pkey = KNOWN[platform.machine()]
LOAD, EQUAL, AND, RETURN, GREATER = 0x20, 0x15, 0x54, 0x06, 0x35
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000  # allowed; EPERM; killed
EXEC, ANONYMOUS, WRITE_EXEC = 4, 0x20, 6
PROT, FLAGS = 16 + 2 * 8, 16 + 3 * 8  # third and fourth argument
code = [
    (LOAD, 0, 0, 4), (EQUAL, 1, 0, arch), (RETURN, 0, 0, KILL),
    (LOAD, 0, 0, 0), (GREATER, 0, 1, 0x40000000), (RETURN, 0, 0, REFUSE),  # x32, another numbering of the same calls
    (EQUAL, 5, 0, mmap), (EQUAL, 1, 0, mprotect), (EQUAL, 0, 10, pkey),
    (LOAD, 0, 0, PROT), (AND, 0, 0, EXEC), (EQUAL, 8, 7, EXEC),
    (LOAD, 0, 0, PROT), (AND, 0, 0, WRITE_EXEC), (EQUAL, 5, 0, WRITE_EXEC), (EQUAL, 0, 3, EXEC),
    (LOAD, 0, 0, FLAGS), (AND, 0, 0, ANONYMOUS), (EQUAL, 1, 0, ANONYMOUS),
    (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE),
]
raw = b"".join(struct.pack("<HBBI", *one) for one in code)
kept = ctypes.create_string_buffer(raw, len(raw))
program = ctypes.create_string_buffer(struct.pack("HP", len(code), ctypes.addressof(kept)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, program, 0, 0) != 0:  # no new privileges; mode: filter
    print("unsupported: the kernel takes no filter:", os.strerror(ctypes.get_errno()))
    sys.exit()
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""

REFUSES = """
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
FAILED = ctypes.c_void_p(-1).value
def refused(call):
    ctypes.set_errno(0)
    return call() in (FAILED, -1) and ctypes.get_errno() == 1
page = libc.mmap(None, 4096, 3, 0x22, -1, 0)
assert page != FAILED, "plain memory"
tries = {
    "anonymous, executable": lambda: libc.mmap(None, 4096, 5, 0x22, -1, 0),
    "anonymous, written and executable": lambda: libc.mmap(None, 4096, 7, 0x22, -1, 0),
    "made executable": lambda: libc.mprotect(page, 4096, 5),
}
print(*(name for name, call in tries.items() if not refused(call)), sep="; ")
"""
"""Prints which ways to executable memory were not refused."""


def run_filtered(arguments: Sequence[str], **options: object) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments under the filter; its output begins with "unsupported" where there is none."""
    command = [sys.executable, "-c", LAUNCHER, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]
