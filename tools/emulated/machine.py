"""A process that holds a library of kernels and runs them on arrays that it is sent: native, under qemu or valgrind.

What runs is the library's own bytes, those that the manifest has the SHA-256 of, mapped by a small program,
`driver.c`. ziglang compiles and links it, as it is pinned for the build: no libc and no compiler of the system is used.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

import numpy as np

__all__ = ["BASE", "EMULATORS", "Image", "KernelProcess", "build_driver", "missing_tool"]

BASE = 0x1000000000
"""Where the driver maps the library."""
EMULATORS = {"x86_64": ("qemu-x86_64", "-cpu", "max"), "aarch64": ("qemu-aarch64", "-cpu", "cortex-a53")}
"""What runs the driver for an architecture: with all that qemu knows of x86-64, and as one of the first 64-bit Arms."""
_NUMBER, _ARRAY, _SECRET = range(3)
_END = 1 << 63
_LEFT_ITS_ARRAY = 3
_LOAD, _DYNSYM, _RELOCATIONS = 1, 11, (4, 9, 19)
_TARGETS = {"x86_64": "x86_64-linux-none", "aarch64": "aarch64-linux-none"}


def missing_tool(*names: str) -> str | None:
    """Why programs cannot be run: the name of the first that is not installed; None where all are."""
    missing = [name for name in names if shutil.which(name) is None]
    return f"{missing[0]} is not installed" if missing else None


class Image:
    """A library as the loader would map it.

    Attributes:
        content: the bytes from the base on.
        symbols: where each kernel begins.

    Raises:
        ValueError: the library asks a loader for more than to be mapped.
    """

    def __init__(self, library: bytes) -> None:
        (program, section), counts = struct.unpack_from("<QQ", library, 32), struct.unpack_from("<HHHH", library, 54)
        content = bytearray()
        for k in range(counts[1]):
            segment = struct.unpack_from("<IIQQQQQQ", library, program + k * counts[0])
            kind, _, offset, address, _, size, room, _ = segment
            if kind == _LOAD:
                content.extend(bytes(max(0, address + room - len(content))))
                content[address : address + size] = library[offset : offset + size]
        sections = [struct.unpack_from("<IIQQQQIIQQ", library, section + k * counts[2]) for k in range(counts[3])]
        if any(kind in _RELOCATIONS and size for _, kind, _, _, _, size, *_ in sections):
            raise ValueError("the library has relocations; kernels need none")
        self.content, self.symbols = bytes(content), dict[str, int]()
        for table in (one for one in sections if one[1] == _DYNSYM):
            names = sections[table[6]][4]
            for at in range(table[4] + 24, table[4] + table[5], 24):
                name, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", library, at)
                self.symbols[library[names + name : library.index(b"\0", names + name)].decode("ascii")] = value


def build_driver(machine: str, folder: Path) -> Path:
    """Compile and link the driver for an architecture; returns the file.

    Raises:
        RuntimeError: ziglang failed, or is not installed.
    """
    zig = [sys.executable, "-m", "ziglang"]
    options = ["-c", "-O2", "-g0", "-ffreestanding", "-fno-builtin", "-fno-stack-protector", "-fPIC"]
    source, made = Path(__file__).with_name("driver.c"), folder / f"driver_{machine}"
    with tempfile.TemporaryDirectory(prefix="zig-") as cache:
        for command in (
            ["cc", "-target", _TARGETS[machine], *options, "-o", f"{made}.o", str(source)],
            ["ld.lld", "-static", "--build-id=none", "-o", str(made), f"{made}.o"],
        ):
            done = subprocess.run(
                [*zig, *command],
                env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"the driver could not be built: {(done.stderr or done.stdout).strip()}")
    return made


class KernelProcess:
    """A process with one library.

    Args:
        library: the bytes of a shared object.
        command: what runs, the driver last: ``["qemu-aarch64", driver]``.
        secrets: the names of arrays that valgrind's memcheck shall take for undefined.

    Attributes:
        calls: how often each kernel ran.
    """

    def __init__(self, library: bytes, command: Sequence[str | Path], secrets: Sequence[str] = ()) -> None:
        self.image, self._secrets, self.calls = Image(library), frozenset(secrets), Counter[str]()
        self._process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._pipe_in, self._pipe_out = cast(BinaryIO, self._process.stdin), cast(BinaryIO, self._process.stdout)
        self._send(struct.pack("<QQ", BASE, len(self.image.content)) + self.image.content)

    def __enter__(self) -> KernelProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, kernel: str, arguments: Mapping[str, int | np.ndarray]) -> None:
        """Run a kernel; arrays among the arguments are read and written.

        Args:
            kernel: its symbol.
            arguments: in the kernel's order, by name.

        Raises:
            RuntimeError: the process ended: the kernel left its arrays, or an instruction is not one of the machine.
        """
        arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
        words = [self.image.symbols[kernel], len(arguments)]
        for name, value in arguments.items():
            kind = _NUMBER if name not in arrays else _SECRET if name in self._secrets else _ARRAY
            words += [kind, arrays[name].nbytes if name in arrays else int(value) % (1 << 64)]
        try:
            self._send(struct.pack(f"<{len(words)}Q", *words) + b"".join(one.tobytes() for one in arrays.values()))
            for array in arrays.values():
                array.reshape(-1).view(np.uint8)[:] = np.frombuffer(self._receive(array.nbytes), dtype=np.uint8)
        except (BrokenPipeError, EOFError):
            status = self._process.wait()
            what = "wrote before an array" if status == _LEFT_ITS_ARRAY else f"ended the process with status {status}"
            raise RuntimeError(f"{kernel} {what}") from None
        self.calls[kernel] += 1

    def close(self) -> int:
        """End the process; returns its status."""
        if self._process.poll() is None:
            self._send(struct.pack("<QQ", 0, _END))
        self._process.communicate()
        return self._process.returncode

    def _send(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            view = view[self._pipe_in.write(view) or 0 :]

    def _receive(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            part = self._pipe_out.read(size - len(found))
            if not part:
                raise EOFError
            found += part
        return bytes(found)
