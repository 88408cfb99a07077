"""Loads kernels from the libraries that were compiled ahead: one shared object for each class of CPUs, and a manifest.

The manifest lists each library's SHA-256, and a library with another one is refused. This finds a folder that mixes two
builds, and a damaged file. It is no defence against somebody who can write to the folder: they can write the manifest.

Nothing here makes memory executable: the system maps a library's code from its file, read-only.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from securevfl_crypto.engine.cpu import VectorPath, check_cpu, compiles_in_memory, forced_path, paths_of_this_cpu
from securevfl_crypto.engine.parts import LoadedPart, Part, symbol
from securevfl_crypto.errors import EngineError, WrongLibraryError

__all__ = [
    "FOLDER",
    "MANIFEST",
    "Library",
    "Manifest",
    "MissingLibraryError",
    "check_library",
    "describe_kernels",
    "library_file",
    "load_part",
    "read_manifest",
]

FOLDER = Path(__file__).parent / "ahead"
MANIFEST = "manifest.json"
_INSTALL = "install the wheel of securevfl-crypto for Linux on x86-64 or aarch64, or in a clone run `make kernels`"
_CURE = (
    "install securevfl-crypto again, or in a clone run `make kernels`; "
    "SECUREVFL_ENGINE=cryptography computes without kernels"
)


class MissingLibraryError(EngineError):
    """There is no library of a class, or the system does not load it."""


@dataclass(frozen=True)
class Library:
    """A library, as the manifest describes it.

    Attributes:
        file: its name in the folder.
        sha256: of its bytes.
        cpu_class: the class of CPUs that it is for.
        parts: for each part, the SHA-256 of its LLVM IR.
    """

    file: str
    sha256: str
    cpu_class: str
    parts: Mapping[str, str]


@dataclass(frozen=True)
class Manifest:
    """What was built, and with what.

    Attributes:
        libraries: one for each class.
        llvmlite: the version of the compiler.
        ziglang: the version of the linker.
        sha256: of the manifest's own bytes.
    """

    libraries: tuple[Library, ...]
    llvmlite: str
    ziglang: str
    sha256: str


def library_file(cpu_class: str) -> str:
    """The name of the file with a class's library."""
    return f"svfl_{cpu_class}.so"


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest in a folder; None where there is no file of that name.

    Raises:
        WrongLibraryError: the file is not a manifest.
    """
    path = folder / MANIFEST
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WrongLibraryError(f"{path} cannot be read ({error.strerror}): {_CURE}") from error
    try:
        content = json.loads(raw)
        libraries = tuple(
            Library(str(one["file"]), str(one["sha256"]), str(one["class"]), dict(one["parts"]))
            for one in content["libraries"]
        )
        for one in libraries:
            if one.file != library_file(one.cpu_class):  # code of another class could end the process by SIGILL
                raise ValueError(f"{one.file} is not a library of {one.cpu_class}")
        return Manifest(libraries, str(content["llvmlite"]), str(content["ziglang"]), hashlib.sha256(raw).hexdigest())
    except (ValueError, KeyError, TypeError) as error:
        raise WrongLibraryError(f"{path} is not a manifest of kernels: {_CURE}") from error


def describe_kernels() -> dict[str, str]:
    """The class of CPUs whose kernels compute here and the manifest's SHA-256, for reports. No library is opened.

    The class is this CPU's best, or that of the path that ``SECUREVFL_ENGINE`` names; "none" without kernels.
    """
    try:
        manifest = read_manifest(FOLDER)
        digest = "none" if manifest is None else f"manifest {manifest.sha256}"
    except WrongLibraryError:  # whoever uses a kernel gets the error; a report of something else is still written
        digest = "unreadable manifest"
    forced = forced_path()
    taken = [path for path in paths_of_this_cpu() if forced in (None, path.name)]
    return {"cpu class": taken[0].cpu_class if taken else "none", "kernels": digest}


def load_part(part: Part, path: VectorPath) -> LoadedPart:
    """The kernels of a part on a path: from the library of its class, or compiled in memory where the setting says so.

    Raises:
        MissingLibraryError: there is no library of the class, or the system does not load it.
        WrongLibraryError: the library is not the one that the manifest describes.
        EngineError: the CPU lacks what the path needs; or the setting is ``jit`` and llvmlite is not installed.
    """
    check_cpu(path)
    if compiles_in_memory():
        try:
            from securevfl_crypto.engine.llvm import compile_in_memory
        except ImportError as error:
            raise EngineError(
                "SECUREVFL_ENGINE=jit compiles with llvmlite: pip install 'securevfl-crypto[jit]', or unset it"
            ) from error
        return compile_in_memory(part, path)
    library = _open_library(FOLDER, path.cpu_class)
    functions = {}
    for name, types in part.kernels.items():
        try:
            function = library[symbol(part.name, name)]
        except AttributeError as error:
            raise WrongLibraryError(
                f"{library._name} has no kernel {symbol(part.name, name)}, so it belongs to another version: {_CURE}"
            ) from error
        function.argtypes, function.restype = types, None
        functions[name] = function
    return LoadedPart(functions, library)


def check_library(folder: Path, library: Library) -> None:
    """Check that a file has the bytes that the manifest describes.

    Raises:
        MissingLibraryError: the file cannot be read.
        WrongLibraryError: it has other bytes.
    """
    file = folder / library.file
    try:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise MissingLibraryError(f"{file} cannot be read ({error.strerror}); {_INSTALL}") from error
    if digest != library.sha256:
        raise WrongLibraryError(
            f"{file} is not the library of its manifest: its SHA-256 is {digest}, the manifest lists {library.sha256}; "
            + _CURE
        )


@lru_cache(maxsize=8)
def _open_library(folder: Path, cpu_class: str) -> ctypes.CDLL:
    manifest = read_manifest(folder)
    if manifest is None:
        raise MissingLibraryError(f"there are no compiled kernels in {folder}; {_INSTALL}")
    entry = next((one for one in manifest.libraries if one.cpu_class == cpu_class), None)
    if entry is None:
        raise MissingLibraryError(f"{folder} has no compiled kernels for CPUs of class {cpu_class}; {_INSTALL}")
    check_library(folder, entry)
    try:
        return ctypes.CDLL(str(folder / entry.file))
    except OSError as error:
        raise MissingLibraryError(
            f"the system does not load the compiled kernels ({error}); is their file system mounted noexec?"
        ) from error
