"""Ring elements in SEAL: sampling, transforms, products and modulus switching, through `tenseal.sealapi`.

This package computes the residues that are encrypted, masked and opened. SEAL provides encryptions of zero, transforms,
and the arithmetic between them. The contexts here are of SEAL's BFV type because that type transforms small signed
plaintexts; their plaintext modulus bounds x and nothing else.

SEAL reads and writes objects only through files. These files are in memory (memfd_create), invisible to other
processes; on systems without memfd_create they are in a directory that only this user may read. SEAL's output is
compressed. Its input is not: it is always built here, from checked numbers, so no byte from a peer reaches SEAL's
parser.

Randomness: by default SEAL expands a fresh seed of 512 bits for each sampling by Blake2xb; the seed comes from the
operating system (``/dev/urandom`` behind std::random_device, or its equivalent). sealapi does not release Python's
global lock, so threads gain nothing.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
import threading
import weakref
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from securevfl_crypto.errors import EngineError, MalformedError
from securevfl_crypto.rlwe.parameters import DEGREE, Chain
from securevfl_crypto.rlwe.residues import Basis

__all__ = ["SEED_BYTES", "X_BITS", "SealContext", "seal_context"]

X_BITS = 30
"""Plaintext factors must stay below 2^X_BITS in magnitude; every kept prime is above twice that bound."""
SEED_BYTES = 64
"""Bytes of the seed that replaces the second half of a fresh symmetric encryption."""
_HEADER = struct.Struct("<HBBBBHQ")  # magic, its own size, version, version, compression, reserved, size of it all
_MAGIC, _NONE, _ZLIB, _ZSTD = 0xA15E, 0, 1, 2
_BLAKE2XB = 1


class _MemoryFile:
    """A file that SEAL can open by name, and this process alone: after a fork the child has a file of its own."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._handle, self._path = -1, ""
        self._which: tuple[int, int] | None = None
        self._ensure_open()
        _FILES.add(self)

    @property
    def path(self) -> str:
        """Its name for SEAL."""
        self._ensure_open()
        return self._path

    def _ensure_open(self) -> int:
        """The descriptor; opens a new, empty file where there is none.

        Raises:
            EngineError: the system allows no more open files.
        """
        if self._handle < 0:
            try:
                self._handle, self._path = self._open()
            except OSError as error:
                raise EngineError(
                    f"a file in memory cannot be made ({error.strerror}): raise the limit of open files"
                ) from error
            self._which = _identify_file(self._handle)
        return self._handle

    def _open(self) -> tuple[int, str]:
        if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
            handle = os.memfd_create("seal", os.MFD_CLOEXEC)
            return handle, f"/proc/self/fd/{handle}"
        folder = tempfile.mkdtemp(prefix="securevfl-")
        weakref.finalize(self, _remove_own, folder, os.getpid())
        path = str(Path(folder) / "object")
        return os.open(path, os.O_CREAT | os.O_RDWR, 0o600), path

    def write(self, parts: Sequence[bytes]) -> None:
        if os.pwritev(self._ensure_open(), parts, 0) != sum(len(part) for part in parts):
            raise EngineError("no memory left for a file in memory; free some, or lower the batch size")

    def read(self) -> bytes:
        handle = self._ensure_open()
        return os.pread(handle, os.fstat(handle).st_size, 0)

    def clear(self) -> None:
        os.ftruncate(self._ensure_open(), 0)

    def leave_to_parent(self) -> None:
        """After a fork: let go of the file; the first use opens another. Two processes would read each other's keys, or
        write over them. What fails in this function is ignored by Python, so it opens nothing.
        """
        self.lock = threading.RLock()  # another thread of the parent may have held it
        handle, self._handle = self._handle, -1
        if handle >= 0 and _identify_file(handle) == self._which:  # unless it was closed and is now something else
            os.close(handle)


def _identify_file(handle: int) -> tuple[int, int] | None:
    """Which file a descriptor is; None where it is closed."""
    try:
        found = os.fstat(handle)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _remove_own(folder: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


_FILES: weakref.WeakSet[_MemoryFile] = weakref.WeakSet()


def _leave_files_to_parent() -> None:
    for file in list(_FILES):
        file.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_files_to_parent)


class SealContext:
    """Arithmetic on ring elements modulo the primes of one chain.

    Attributes:
        chain: the sizes of the primes.
        context: SEAL's own context.
        evaluator: SEAL's evaluator.
        keys: the basis of all primes.
        data: the basis of uploads: all primes but the special one.
        kept: the basis of answers: the kept primes.

    Raises:
        EngineError: the installed SEAL lacks the parameters, or writes an unknown file format.
    """

    def __init__(self, chain: Chain) -> None:
        from tenseal import sealapi  # here: loading it takes longer than all the rest of this package

        self._api: Any = sealapi
        parameters = sealapi.EncryptionParameters(sealapi.SCHEME_TYPE.BFV)
        parameters.set_poly_modulus_degree(DEGREE)
        parameters.set_coeff_modulus(sealapi.CoeffModulus.Create(DEGREE, list(chain.sizes)))
        parameters.set_plain_modulus(sealapi.Modulus(2 << X_BITS))
        self.context = sealapi.SEALContext(parameters, True, sealapi.SEC_LEVEL_TYPE.TC128)
        if not self.context.parameters_set():
            raise EngineError(f"SEAL refuses primes of {chain.sizes} bits: {self.context.parameters_error_message()}")
        self.chain = chain
        self._file = _MemoryFile()
        self.evaluator = sealapi.Evaluator(self.context)
        self._first = self.context.first_parms_id()
        primes = tuple(m.value() for m in self.context.key_context_data().parms().coeff_modulus())
        self.keys, self.data, self.kept = Basis(primes), Basis(primes[:-1]), Basis(primes[:-2])
        answers = self.context.first_context_data().next_context_data().parms_id()
        self._levels = {
            len(primes): self.context.key_parms_id(),
            len(primes) - 1: self._first,
            len(primes) - 2: answers,
        }
        self._version = (0, 0)
        self.save_object(sealapi.Plaintext(1), 32 + 16 + _HEADER.size + 8 + 8)  # sets `_version` from SEAL's header

    # Keys

    def new_secret_key(self) -> Any:
        """A fresh ternary secret key, from the operating system's randomness; SEAL's object."""
        return self._api.KeyGenerator(self.context).secret_key()

    def secret_key(self, residues: np.ndarray) -> Any:
        """SEAL's secret key from its transformed residues (all primes, N)."""
        return self._load_object(self._api.SecretKey(), [self._plaintext_head(residues), _little_endian(residues)])

    def make_encryptor(self, secret: Any) -> Any:
        """SEAL's encryptor under a secret key."""
        return self._api.Encryptor(self.context, secret)

    # Ring elements in and out

    def save_object(self, thing: Any, size: int) -> memoryview:
        """Serialise an object by SEAL, and remove header and compression: `size` bytes.

        Raises:
            EngineError: SEAL wrote another format or size.
        """
        with self._file.lock:
            thing.save(self._file.path)
            raw = self._file.read()
        magic, header, major, minor, compression, _, total = _HEADER.unpack_from(raw)
        if magic != _MAGIC or header != _HEADER.size or total != len(raw):
            raise EngineError("SEAL wrote an unknown format; securevfl is tested with tenseal 0.3.18")
        self._version = major, minor
        body = memoryview(raw)[header:]
        try:
            if compression == _ZSTD:
                import pyarrow as pa

                body = memoryview(pa.decompress(body, decompressed_size=size, codec="zstd", asbytes=False)).cast("B")
            elif compression == _ZLIB:
                body = memoryview(zlib.decompress(body))
        except (OSError, ValueError, zlib.error) as error:
            raise EngineError(f"SEAL wrote another size than {size}: {error}") from error
        if len(body) != size:
            raise EngineError(f"SEAL wrote {len(body)} bytes; expected {size}: is it another version?")
        return body

    def _load_object(self, thing: Any, body: Sequence[bytes]) -> Any:
        """Load an object from the parts that follow the header.

        Raises:
            MalformedError: SEAL refuses it.
            EngineError: this machine has no room for it.
        """
        size = _HEADER.size + sum(len(part) for part in body)
        with self._file.lock:
            self._file.write([self._header(size), *body])
            try:
                thing.load(self.context, self._file.path)
            except (RuntimeError, ValueError, IndexError) as error:
                raise MalformedError(f"SEAL refuses a ring element: {error}") from error
        return thing

    def _header(self, size: int) -> bytes:
        major, minor = self._version
        return _HEADER.pack(_MAGIC, _HEADER.size, major, minor, _NONE, 0, size)

    def _array_header(self, words: int) -> bytes:
        """The header that SEAL writes before an array of words."""
        return self._header(_HEADER.size + 8 + 8 * words) + struct.pack("<Q", words)

    def _ciphertext_head(self, primes: int, words: int, *, transformed: bool) -> bytes:
        identity = struct.pack("<4Q", *self._levels[primes])
        sizes = struct.pack("<?QQQdQ", transformed, 2, DEGREE, primes, 1.0, 1)
        return identity + sizes + self._array_header(words)

    def read_ciphertext(self, ciphertext: Any) -> np.ndarray:
        """Read both halves of a ciphertext, (2, primes, N)."""
        primes = ciphertext.coeff_modulus_size()
        words = 2 * primes * DEGREE
        head = self._ciphertext_head(primes, words, transformed=ciphertext.is_ntt_form())
        raw = self.save_object(ciphertext, len(head) + 8 * words)
        if raw[: len(head)] != head:
            raise EngineError("SEAL wrote a ciphertext in an unknown format")
        found = np.frombuffer(raw, dtype="<u8", offset=len(head))
        return found.reshape(2, primes, DEGREE).astype(np.uint64, copy=False)

    def make_ciphertext(self, halves: np.ndarray) -> Any:
        """Make a ciphertext from both halves, (2, primes, N) residues."""
        head = self._ciphertext_head(halves.shape[1], halves.size, transformed=False)
        return self._load_object(self._api.Ciphertext(), [head, _little_endian(halves)])

    def expand_seeded(self, first: np.ndarray, seed: bytes) -> Any:
        """Make a ciphertext from its first half, (primes, N), and the seed of the second."""
        head = self._ciphertext_head(first.shape[0], first.size, transformed=False)
        tail = self._header(_HEADER.size + 1 + SEED_BYTES) + bytes([_BLAKE2XB]) + seed
        return self._load_object(self._api.Ciphertext(), [head, _little_endian(first), tail])

    def shrink_seeded(self, seeded: Any) -> tuple[np.ndarray, bytes]:
        """Reduce a fresh symmetric encryption to its first half and the seed of the second; see `expand_seeded`."""
        primes = len(self.data.primes)
        head = self._ciphertext_head(primes, primes * DEGREE, transformed=False)
        seed_size = _HEADER.size + 1 + SEED_BYTES
        raw = self.save_object(seeded, len(head) + 8 * primes * DEGREE + seed_size)
        if raw[: len(head)] != head or raw[-1 - SEED_BYTES] != _BLAKE2XB:
            raise EngineError("SEAL wrote a seeded ciphertext in an unknown format")
        found = np.frombuffer(raw, dtype="<u8", offset=len(head), count=primes * DEGREE)
        return found.reshape(primes, DEGREE).astype(np.uint64), bytes(raw[-SEED_BYTES:])

    def transformed_plaintext(self, residues: np.ndarray) -> Any:
        """Make a plaintext from transformed residues (primes, N)."""
        return self._load_object(self._api.Plaintext(), [self._plaintext_head(residues), _little_endian(residues)])

    def _plaintext_head(self, residues: np.ndarray) -> bytes:
        identity = struct.pack("<4Q", *self._levels[len(residues)])
        return identity + struct.pack("<Qd", residues.size, 1.0) + self._array_header(residues.size)

    def read_plaintext(self, thing: Any, primes: int) -> np.ndarray:
        """Read the transformed residues (primes, N) of a plaintext or secret key."""
        words = primes * DEGREE
        size = 32 + 16 + _HEADER.size + 8
        raw = self.save_object(thing, size + 8 * words)
        return np.frombuffer(raw, dtype="<u8", offset=size).reshape(primes, DEGREE).astype(np.uint64)

    def clear_exchange_file(self) -> None:
        """Empty the exchange file, after a secret went through it."""
        with self._file.lock:
            self._file.clear()

    # Arithmetic

    def make_plaintext(self, coefficients: np.ndarray) -> Any:
        """Make a transformed plaintext, to multiply uploads, from small signed coefficients (N,)."""
        modulus = 2 << X_BITS
        words = _little_endian(np.where(coefficients < 0, coefficients + modulus, coefficients))
        head = bytes(32) + struct.pack("<Qd", DEGREE, 1.0) + self._array_header(DEGREE)
        plain = self._load_object(self._api.Plaintext(), [head, words])
        self.evaluator.transform_to_ntt_inplace(plain, self._first)
        return plain

    def transform_ciphertext(self, ciphertext: Any) -> Any:
        """Transform a ciphertext in place and return it.

        Raises:
            MalformedError: its second half is zero.
        """
        try:
            self.evaluator.transform_to_ntt_inplace(ciphertext)
        except (RuntimeError, ValueError) as error:
            raise MalformedError(f"SEAL refuses a ciphertext: {error}; it is not an encryption") from error
        return ciphertext

    def sum_products(self, ciphertexts: Sequence[Any], plaintexts: Sequence[Any]) -> Any:
        """Σ ciphertext · plaintext over one or more transformed pairs, back in coefficients.

        Raises:
            MalformedError: the second half of a sum is zero.
        """
        total, term = self._api.Ciphertext(), self._api.Ciphertext()
        try:
            self.evaluator.multiply_plain(ciphertexts[0], plaintexts[0], total)
            for ciphertext, plain in zip(ciphertexts[1:], plaintexts[1:], strict=True):
                self.evaluator.multiply_plain(ciphertext, plain, term)
                self.evaluator.add_inplace(total, term)
            self.evaluator.transform_from_ntt_inplace(total)
        except (RuntimeError, ValueError) as error:
            raise MalformedError(f"SEAL refuses a product: {error}; were all inputs encryptions?") from error
        return total


def _little_endian(array: np.ndarray) -> bytes:
    """As SEAL reads them, little-endian."""
    return array.astype("<u8", copy=False).tobytes()


@lru_cache(maxsize=16)
def seal_context(chain: Chain) -> SealContext:
    """The context of a chain, made at the first call."""
    return SealContext(chain)
