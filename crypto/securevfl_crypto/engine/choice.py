"""Chooses the fastest path that this machine can run and that passes its self-test."""

from __future__ import annotations

import hashlib
import secrets
import warnings
from functools import lru_cache
from importlib.util import find_spec

import numpy as np

from securevfl_crypto.engine.base import Engine
from securevfl_crypto.engine.cpu import PATHS, VECTOR_PATHS, check_cpu, forced_path, thread_count
from securevfl_crypto.engine.paths import load_fastest
from securevfl_crypto.engine.scalar import ScalarEngine
from securevfl_crypto.errors import EngineError, WrongLibraryError

__all__ = ["available_paths", "check_engine", "choose_engine"]

# RFC 7748, section 5.2, first vector.
_SECRET = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
_POINT = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
_PRODUCT = bytes.fromhex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552")


def choose_engine(path: str | None = None) -> Engine:
    """The engine of a path.

    Args:
        path: one of `PATHS`. None: the path that ``SECUREVFL_ENGINE`` names, or the fastest that works here.

    Raises:
        EngineError: the requested path is unknown, cannot run here, or fails its self-test; or ``SECUREVFL_THREADS``
            is not a number from 1 to 256.
    """
    thread_count()  # a wrong setting is the user's mistake, not a reason to take another path
    name = path or forced_path()
    if name is None:
        return _fastest_engine()
    if name not in PATHS:
        raise EngineError(f"path {name!r}; one of {', '.join(PATHS)} is possible")
    return _load_engine(name)


def available_paths() -> list[str]:
    """The names of the paths that this machine can run, fastest first.

    Raises:
        WrongLibraryError: a library of compiled kernels is not the one that its manifest describes.
    """
    found = []
    for name in PATHS:
        try:
            _load_engine(name)
        except WrongLibraryError:
            raise
        except EngineError:
            continue
        found.append(name)
    return found


@lru_cache(maxsize=1)
def _fastest_engine() -> Engine:
    found = load_fastest(lambda path: _load_engine(path.name), stacklevel=3)
    if found is not None:
        return found
    if find_spec("nacl") is not None:
        try:
            return _load_engine("libsodium")
        except EngineError as error:
            warnings.warn(f"{error}; taking a slower path", RuntimeWarning, stacklevel=3)
    return _load_engine("cryptography")


@lru_cache(maxsize=len(PATHS))
def _load_engine(name: str) -> Engine:
    vector = next((path for path in VECTOR_PATHS if path.name == name), None)
    if vector is None:
        found: Engine = ScalarEngine(name)
    else:
        check_cpu(vector)
        from securevfl_crypto.engine.compiled import curve_kernels
        from securevfl_crypto.engine.vector import VectorEngine

        found = VectorEngine(curve_kernels(vector))
    check_engine(found)
    return found


def check_engine(candidate: Engine) -> None:
    """Check known answers, and agreement with other implementations on fresh random input.

    Raises:
        EngineError: the path computes a wrong result.
    """
    slow = ScalarEngine("cryptography")
    points = np.frombuffer(secrets.token_bytes(32 * 17), dtype=np.uint8).reshape(-1, 32)
    secret = secrets.token_bytes(32)
    known = np.frombuffer(_POINT, dtype=np.uint8).reshape(1, 32)
    # Lengths with room for the padding's length in the last block, and without.
    rows, longer = (
        np.frombuffer(secrets.token_bytes(length * 17), dtype=np.uint8).reshape(-1, length) for length in (77, 120)
    )
    right = {
        "X25519": candidate.x25519(_SECRET, known).tobytes() == _PRODUCT
        and np.array_equal(candidate.x25519(secret, points), slow.x25519(secret, points)),
        "the hash to the curve": np.array_equal(
            candidate.hash_to_u(rows, b"self-test"), slow.hash_to_u(rows, b"self-test")
        ),
        "SHA-512": all(
            candidate.sha512(some, bytes(128)).tobytes()
            == b"".join(hashlib.sha512(bytes(128) + row.tobytes()).digest() for row in some)
            for some in (rows, longer)
        ),
    }
    wrong = [name for name, fine in right.items() if not fine]
    if wrong:
        raise EngineError(
            f"the path {candidate.name!r} computes {' and '.join(wrong)} wrongly on this machine; "
            "set SECUREVFL_ENGINE=cryptography and report it"
        )
