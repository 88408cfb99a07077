"""Compiles the kernels ahead of time: a shared object for each class of CPUs, and the manifest that lists them.

    python -m securevfl_crypto.engine.build            # into the package's own folder, where it is not up to date
    python -m securevfl_crypto.engine.build --to OUT   # somewhere else, for example to compare hashes
    python -m securevfl_crypto.engine.build --for aarch64 --to OUT   # for machines of another architecture

LLVM (llvmlite) compiles what the emitters emit, and lld (ziglang) links it. Both are needed for building only, and no
compiler or library of the system is used. Equal sources and equal versions of the two give equal bytes.

Zig's own compiler is not asked to compile the IR: its optimiser would undo the order of instructions that the emitters
chose, and X25519 would take 1.4 to 1.8 times as long.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from securevfl_crypto.engine.compiled import curve_part
from securevfl_crypto.engine.compiled_bits import bits_part
from securevfl_crypto.engine.compiled_long import long_part
from securevfl_crypto.engine.compiled_ring import ring_part
from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath
from securevfl_crypto.engine.elf import read_shared_object
from securevfl_crypto.engine.library import FOLDER, MANIFEST, library_file, read_manifest
from securevfl_crypto.engine.parts import Part, symbol
from securevfl_crypto.engine.transforms.compiled import transforms_part
from securevfl_crypto.errors import EngineError

__all__ = [
    "MACHINES",
    "build",
    "build_library",
    "check_shared_object",
    "is_current",
    "list_parts",
    "main",
    "paths_for",
    "reason_not_to_build",
]

_TOOLS = ("llvmlite", "ziglang")
MACHINES = tuple(dict.fromkeys(path.machine for path in VECTOR_PATHS))
"""The architectures that there are kernels for; each has a wheel of its own."""


def list_parts(path: VectorPath) -> list[Part]:
    """All parts of a path's library, in the order in which they are linked."""
    long = [long_part(path, squares=squares) for squares in (False, True) if path.has_long_numbers]
    return [curve_part(path), ring_part(path), transforms_part(path), bits_part(), *long]


def paths_for(machine: str) -> tuple[VectorPath, ...]:
    """The paths of an architecture: what is built for it."""
    return tuple(path for path in VECTOR_PATHS if path.machine == machine)


def reason_not_to_build() -> str | None:
    """Why nothing can be built here; None where it can."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        return f"kernels exist for Linux on x86-64 and aarch64, not for {platform.system()} on {platform.machine()}"
    missing = [name for name in _TOOLS if _version(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def is_current(folder: Path, paths: Sequence[VectorPath] | None = None) -> bool:
    """Whether a folder has what `build` would write there: newer than all sources, and made by the installed tools."""
    paths = paths_for(platform.machine()) if paths is None else paths
    try:
        manifest = read_manifest(folder)
        if manifest is None:
            return False
        digests = {one.file: hashlib.sha256((folder / one.file).read_bytes()).hexdigest() for one in manifest.libraries}
    except (EngineError, OSError):
        return False
    newest = max(source.stat().st_mtime for source in Path(__file__).parent.rglob("*.py"))
    return (
        (folder / MANIFEST).stat().st_mtime > newest
        and (manifest.llvmlite, manifest.ziglang) == tuple(_version(name) for name in _TOOLS)
        and [one.cpu_class for one in manifest.libraries] == [path.cpu_class for path in paths]
        and all(digests[one.file] == one.sha256 for one in manifest.libraries)
    )


def build(folder: Path, paths: Sequence[VectorPath] | None = None) -> None:
    """Write the libraries of some paths into a folder, and their manifest last.

    Raises:
        EngineError: the linker failed, or made a library that is not as it must be.
    """
    paths = paths_for(platform.machine()) if paths is None else paths
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)  # what is interrupted leaves no manifest of other libraries
    libraries = []
    for path in paths:
        parts = list_parts(path)
        data = build_library(path, parts)
        file = library_file(path.cpu_class)
        _replace(folder / file, data)
        libraries.append(
            {
                "class": path.cpu_class,
                "file": file,
                "sha256": hashlib.sha256(data).hexdigest(),
                "parts": {part.name: hashlib.sha256(part.text().encode("ascii")).hexdigest() for part in parts},
            }
        )
    content = {"libraries": libraries, **{name: _version(name) for name in _TOOLS}}
    _replace(folder / MANIFEST, (json.dumps(content, indent=1) + "\n").encode("ascii"))


def build_library(path: VectorPath, parts: Sequence[Part]) -> bytes:
    """The shared object of some parts for the class of a path.

    Raises:
        EngineError: the linker failed, or made a library that is not as it must be.
    """
    from securevfl_crypto.engine.llvm import emit_object

    with tempfile.TemporaryDirectory(prefix="kernels-") as name:
        work = Path(name)
        objects = []
        for part in parts:
            objects.append(f"{part.name}.o")
            (work / objects[-1]).write_bytes(emit_object(part, path))
        file = library_file(path.cpu_class)
        _link(work, file, objects)
        data = (work / file).read_bytes()
    check_shared_object(data, {symbol(part.name, kernel) for part in parts for kernel in part.kernels})
    return data


def _link(work: Path, file: str, objects: Sequence[str]) -> None:
    # lld itself, not `ziglang cc`: with no library to link, the compiler's driver adds nothing but 6 CPU-seconds and a
    # cache in the builder's home.
    command = [sys.executable, "-m", "ziglang", "ld.lld", "-shared", "--strip-all", "--build-id=none"]
    command += ["-z", "relro", "-z", "now", "-z", "noexecstack", "-z", "defs", "-soname", file, "-o", file, *objects]
    done = subprocess.run(  # noqa: S603 - the command is made of constants
        command, cwd=work, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise EngineError(f"the linker failed: {(done.stderr or done.stdout).strip()}")


def check_shared_object(data: bytes, kernels: set[str]) -> None:
    """Check that a library offers the called kernels and nothing else, and asks nothing of the system.

    Raises:
        EngineError: it does not.
    """
    found = read_shared_object(data)
    wrong = {
        f"it has other symbols than the kernels: {sorted(found.defined ^ kernels)}": found.defined != kernels,
        f"it needs symbols of others: {sorted(found.undefined)}": bool(found.undefined),
        "it needs other libraries": found.needed > 0,
        "it runs code when it is loaded": found.runs_at_load,
        "the loader must write into its code": found.writes_code,
        "it asks for a stack that is executable": found.stack_executable,
        "it has symbols for debuggers": not found.stripped,
    }
    problems = [what for what, there in wrong.items() if there]
    if problems:
        raise EngineError(f"the linker made a library that must not be used: {'; '.join(problems)}")


def _replace(file: Path, data: bytes) -> None:
    """Write a file beside the old one and rename it: a process that has mapped the old one keeps it."""
    new = file.with_name(file.name + ".new")
    new.write_bytes(data)
    new.replace(file)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main(arguments: Sequence[str] | None = None) -> None:
    """Build where the folder is not up to date, and print what is there."""
    parser = argparse.ArgumentParser(description="Compile the kernels ahead of time.")
    parser.add_argument("--to", type=Path, default=FOLDER, help="the folder; the default is where the engine looks")
    parser.add_argument(
        "--for", dest="machine", choices=MACHINES, help="the architecture; the default is this machine's"
    )
    given = parser.parse_args(arguments)
    folder, machine = given.to, given.machine or platform.machine()
    reason = reason_not_to_build()
    if reason is not None:
        print(f"No kernels are compiled ({reason}). Everything works without them, slower.", file=sys.stderr)
        return
    if machine != platform.machine() and folder == FOLDER:
        parser.error(f"the engine of this {platform.machine()} machine looks in {folder}: name another folder by --to")
    paths = paths_for(machine)
    if not is_current(folder, paths):
        build(folder, paths)
    manifest = read_manifest(folder)
    for library in manifest.libraries if manifest else ():
        print(f"{library.sha256}  {folder / library.file}")


if __name__ == "__main__":
    main()
