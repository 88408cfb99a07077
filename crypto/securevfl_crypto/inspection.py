"""Describes what computes on this machine: the class of its CPU, each group's path, the libraries and their hashes."""

from __future__ import annotations

from securevfl_crypto.bits import bit_loops
from securevfl_crypto.engine import choose_engine
from securevfl_crypto.engine.cpu import compiles_in_memory, forced_path, paths_of_this_cpu
from securevfl_crypto.engine.library import FOLDER, MANIFEST, check_library, read_manifest
from securevfl_crypto.errors import EngineError
from securevfl_crypto.modular import modular_arithmetic
from securevfl_crypto.modular.vector import VectorModulus
from securevfl_crypto.ring.paths import ring_loops

__all__ = ["inspect_engine"]

_MERSENNE = 2**1279 - 1
_LONG = "long numbers"


def inspect_engine() -> list[tuple[str, str]]:
    """Labels and texts, one pair a line: the class, each group's path and self-test, and the libraries.

    All libraries are hashed, also those that this CPU does not use.

    Raises:
        WrongLibraryError: a library is not the one that the manifest describes.
        EngineError: a library that the manifest lists is missing; a path fails its self-test; or the one that
            ``SECUREVFL_ENGINE`` names is unknown or cannot run here.
    """
    manifest = read_manifest(FOLDER)
    libraries = manifest.libraries if manifest else ()
    for library in libraries:
        check_library(FOLDER, library)
    # Each choice runs the self-test of its group. Where that fails, others take a slower path with a warning.
    groups = {
        "Curve25519, SHA-512": choose_engine().name,
        "rows of bits": bit_loops().name,
        "shares": ring_loops().name,
        _LONG: _modular_path(),
    }
    setting = forced_path()
    best = next(iter(paths_of_this_cpu()), None)
    kernels = [group for group in groups if group != _LONG or best is None or best.has_long_numbers]
    if setting is None and best is not None and any(one.cpu_class == best.cpu_class for one in libraries):
        failed = [group for group, name in groups.items() if name != (best.name if group in kernels else "GMP")]
        if failed:
            raise EngineError(
                f"the path {best.name!r} fails the self-test of {' and '.join(failed)} on this machine (the warning "
                "names what is wrong); intersections and training take a slower path: report it"
            )
    chosen = "the fastest that works here" if setting is None else f"set by SECUREVFL_ENGINE, {setting}"
    return [
        ("CPU class", next((path.cpu_class for path in paths_of_this_cpu()), "none that there are kernels for")),
        ("path", chosen + (", compiled in memory" if compiles_in_memory() else "")),
        *((f"  {group}", f"{name}: self-test passed") for group, name in groups.items()),
        *((library.file, library.sha256) for library in libraries),
        (MANIFEST, manifest.sha256 if manifest else "none: no kernels were compiled ahead"),
        ("folder", str(FOLDER)),
        *([("built with", f"llvmlite {manifest.llvmlite}, ziglang {manifest.ziglang}")] if manifest else []),
    ]


def _modular_path() -> str:
    names = []
    for modulus, root in ((_MERSENNE, None), (_MERSENNE**2, _MERSENNE)):
        found = modular_arithmetic(modulus, root=root)
        names.append(found.kernels.path.name if isinstance(found, VectorModulus) else "GMP")
    return names[0] if names[0] == names[1] else f"{names[0]}, modulo squares {names[1]}"
