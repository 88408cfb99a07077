"""Find and read the raw arrays of public data sets from the user's files.

Nothing is downloaded. The search order is `path`, the folder in the environment variable ``SECUREVFL_DATA``, and
``data/`` in the working directory.

Files are untrusted: sizes in a header are checked against the file's size and a limit before memory is allocated, and
nothing is unpickled.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import math
import os
import struct
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError

import numpy as np
from numpy.lib import format as npy

from securevfl.errors import InputError

__all__ = ["Images", "csv_table", "find_file", "image_set", "read_cifar10", "read_contents", "read_idx", "read_npz"]

Images = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Training images (n, height, width[, 3]) uint8, their classes (n,), test images and their classes."""

_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_LIMIT = 1 << 29
"""Maximum bytes of one file, compressed or not; the largest set here, CIFAR-10, has 184 million."""
_XZ_MEMORY = 1 << 28
_NPY_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_NPY_LONGEST = 10_000
"""Maximum bytes of a header to parse, numpy's limit for untrusted files."""
_NPY_PREFIX = 12
"""Maximum bytes before the header: magic, version and length."""


def find_file(what: str, names: Sequence[str], path: str | Path | None, cure: str) -> Path:
    """Return the first of `names` that exists.

    Args:
        what: the data set, for the message.
        names: names of files or folders, the preferred one first.
        path: a file, or a folder to search before the usual ones.
        cure: where to get the files.

    Raises:
        InputError: none exists, or `path` does not; the message lists the folders searched and the cure.
    """
    folders = []
    if path is not None:
        if not isinstance(path, str | os.PathLike):
            raise InputError(f"path is {path!r}; the name of a file or a folder was expected")
        if os.path.isfile(path):
            return Path(path)
        if not os.path.isdir(path):
            raise InputError(f"{what}: file or folder {str(path)!r} does not exist; correct path=…, or leave it out")
        folders.append(Path(path))
    if os.environ.get("SECUREVFL_DATA"):
        folders.append(Path(os.environ["SECUREVFL_DATA"]))
    folders.append(Path("data"))
    for folder in folders:
        for name in names:
            if os.path.exists(folder / name):
                return folder / name
    looked = ", ".join(str(folder) for folder in folders)
    raise InputError(
        f"{what} is not here: none of {', '.join(names)} in {looked}. {cure} Then name its folder in the "
        "environment variable SECUREVFL_DATA, or give path=…"
    )


def read_contents(file: Path) -> bytes:
    """Read all bytes of a file.

    Raises:
        InputError: it cannot be read, or is larger than 512 MiB.
    """
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > _LIMIT:
                raise InputError(f"{file} has {size:,} bytes; at most {_LIMIT:,} are read: is it the right file?")
            return stream.read(size)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None


def read_npz(file: Path, names: Sequence[str]) -> list[np.ndarray]:
    """Read arrays from an ``.npz`` file (also ``.npz.xz``), without pickled objects.

    Raises:
        InputError: it is not such a file, or an array is missing, contains Python objects, or is too large.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(_decompress_xz(file)) if file.suffix == ".xz" else file) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            missing = [name for name in names if name not in members]
            if missing:
                raise InputError(f"{file} has no array {missing[0]!r}; it has {', '.join(sorted(members)) or 'none'}")
            size = sum(members[name].file_size for name in names)
            if size > _LIMIT:
                raise InputError(f"{file} unpacks to {size:,} bytes; at most {_LIMIT:,} are read: is it the right one?")
            return [_read_array(archive, members[name], f"{file}: array {name!r}") for name in names]
    except InputError:
        raise
    except (
        *(OSError, ValueError, TypeError, EOFError, RuntimeError, struct.error),
        *(lzma.LZMAError, zlib.error, zipfile.BadZipFile),
    ) as error:
        raise InputError(f"{file} is not a readable .npz file: {error}") from None


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, what: str) -> np.ndarray:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{what} is compressed with method {info.compress_type}; save it with numpy.savez_compressed")
    with archive.open(info) as member:
        stream = io.BytesIO(member.read(_NPY_PREFIX + _NPY_LONGEST))
    try:
        with warnings.catch_warnings(action="error"):  # numpy repairs headers of Python 2 with a warning
            shape, columnwise, kind = _NPY_HEADERS[npy.read_magic(stream)](stream, max_header_size=_NPY_LONGEST)
    except (KeyError, ValueError, TypeError, SyntaxError, TokenError, UserWarning, RecursionError, MemoryError):
        shape, columnwise, kind = (-1,), False, np.dtype(np.void)
    if kind.hasobject:
        raise InputError(f"{what} contains Python objects, which are never loaded; save it as numbers or texts")
    if min(shape, default=0) < 0 or kind.kind not in "biufcSU":
        raise InputError(f"{what} is not an array of numbers or texts in numpy's format 1.0 or 2.0: save it again")
    start = stream.tell()
    announced, held = math.prod(shape) * kind.itemsize, info.file_size - start
    if announced != held:
        raise InputError(f"{what} announces shape {shape} of {kind}, {announced:,} bytes, but contains {held:,}")
    with archive.open(info) as member:  # again from the start, so that the checksum covers every byte
        member.read(start)
        return np.ndarray(shape, dtype=kind, buffer=member.read(), order="F" if columnwise else "C")


def _decompress_xz(file: Path) -> bytes:
    """Decompress an xz file with one stream, limiting both the content and the decoder's memory."""
    unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
    found = unpacker.decompress(read_contents(file), _LIMIT + 1)
    if len(found) > _LIMIT:
        raise InputError(f"{file} unpacks to more than {_LIMIT:,} bytes, the most that is read: is it the right file?")
    if not unpacker.eof or unpacker.unused_data.strip(b"\0"):
        raise InputError(f"{file} is not one complete xz stream: copy the file again, or compress it again")
    return found


def read_idx(file: Path) -> np.ndarray:
    """Read an array in MNIST's IDX format, also gzipped: magic, sizes, then bytes.

    Raises:
        InputError: the magic number, the sizes or the length do not match.
    """
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            magic = stream.read(4)
            if len(magic) < 4 or magic[:3] != b"\0\0\x08" or not 1 <= magic[3] <= 4:
                raise InputError(
                    f"{file} starts with the bytes {magic.hex() or 'of an empty file'}; an IDX file of 1 to 4 "
                    "dimensions of bytes starts with 000008 and their number"
                )
            header = stream.read(4 * magic[3])
            if len(header) < 4 * magic[3]:
                raise InputError(f"{file} ends within its header: copy the file again")
            shape = struct.unpack(f">{magic[3]}I", header)
            size = math.prod(shape)
            if size > _LIMIT:
                raise InputError(
                    f"{file} announces an array of shape {shape}, {size:,} bytes; at most {_LIMIT:,} are read"
                )
            content = stream.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file} cannot be read: {error}") from None
    if len(content) != size:
        held = "more" if len(content) > size else f"{len(content):,}"
        raise InputError(f"{file} announces an array of shape {shape}, {size:,} bytes, but contains {held}")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def csv_table(file: Path, needed: Sequence[str] = ()) -> tuple[np.ndarray, list[str]]:
    """Read values and header of a CSV file of numbers. The header is the first of the top two lines that contains the
    `needed` names.

    Raises:
        InputError: it is not such a file, a name is missing or repeated, or a line does not match the header.
    """
    try:
        reader = csv.reader(io.StringIO(read_contents(file).decode("utf-8-sig"), newline=""))
        lines = [(reader.line_num, line) for line in reader if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file} is not a CSV table: {error}") from None
    if not lines:
        raise InputError(f"{file} is empty: copy it again")
    heads = [[name.strip() for name in line] for _, line in lines[:2]]
    at = next((i for i, head in enumerate(heads) if set(needed) <= set(head)), None)
    if at is None:
        raise InputError(f"{file} lacks a header with the columns {', '.join(needed)}: is it the right table?")
    header = heads[at]
    if len(set(header)) < len(header):
        raise InputError(f"{file} names column {max(header, key=header.count)!r} twice; rename one")
    rows = []
    for number, line in lines[at + 1 :]:
        if len(line) != len(header):
            raise InputError(f"{file}: line {number} has {len(line)} values; the header names {len(header)}")
        try:
            rows.append([float(value) for value in line])
        except ValueError as error:
            raise InputError(f"{file}: line {number} is not all numbers: {error}") from None
    if not rows:
        raise InputError(f"{file} has no rows below its header")
    return np.array(rows), header


def image_set(name: str, path: str | Path | None) -> Images:
    """Read MNIST or Fashion-MNIST from ``<name>.npz`` (arrays x_train, y_train, x_test, y_test) or from its four IDX
    files.
    """
    names = [f"{name}.npz", f"{name}.npz.xz", *(f"{name}/{_IDX[0]}{end}" for end in ("", ".gz"))]
    names += [] if name != "mnist" else [f"{_IDX[0]}{end}" for end in ("", ".gz")]
    cure = "It is published as four IDX files (train-images-idx3-ubyte and so on), or as one .npz file."
    file = find_file(name, names, path, cure)
    if ".npz" in file.name:
        return _check_images(name, read_npz(file, ("x_train", "y_train", "x_test", "y_test")), (28, 28))
    parts = []
    for part in _IDX:
        candidates = [file.parent / f"{part}{end}" for end in ("", ".gz")]
        found = next((candidate for candidate in candidates if candidate.exists()), None)
        if found is None:
            raise InputError(f"{name}: {candidates[0]} is missing; the set has four IDX files")
        parts.append(read_idx(found))
    return _check_images(name, parts, (28, 28))


def read_cifar10(path: str | Path | None) -> Images:
    """Read CIFAR-10 from its binary version (``cifar-10-batches-bin/``) or ``cifar10.npz``; images (n, 32, 32, 3)."""
    names = ("cifar10.npz", "cifar-10-batches-bin", "data_batch_1.bin")
    file = find_file("cifar10", names, path, "The 'binary version' (cifar-10-batches-bin) is published by its authors.")
    if file.suffix == ".npz":
        return _check_images("cifar10", read_npz(file, ("x_train", "y_train", "x_test", "y_test")), (32, 32, 3))
    folder = file if file.is_dir() else file.parent
    train = [_cifar_batch(folder / f"data_batch_{i}.bin") for i in range(1, 6)]
    test = _cifar_batch(folder / "test_batch.bin")
    x, y = (np.concatenate([batch[i] for batch in train]) for i in (0, 1))
    return _check_images("cifar10", [x, y, *test], (32, 32, 3))


def _cifar_batch(file: Path) -> tuple[np.ndarray, np.ndarray]:
    content = np.frombuffer(read_contents(file), dtype=np.uint8)
    if len(content) == 0 or len(content) % 3073:
        raise InputError(f"{file} has {len(content)} bytes; a multiple of 3073 (a class and 3 x 32 x 32) was expected")
    rows = content.reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]


def _check_images(name: str, arrays: Sequence[np.ndarray], shape: tuple[int, ...]) -> Images:
    x, y, x_test, y_test = arrays
    for images, classes in ((x, y), (x_test, y_test)):
        if (
            (images.dtype != np.uint8 or images.ndim == 0 or images.shape[1:] != shape or not len(images))
            or classes.dtype.kind not in "iu"
            or classes.shape not in ((len(images),), (len(images), 1))
        ):
            raise InputError(
                f"{name}: images are {images.dtype} {images.shape} and their classes {classes.dtype} {classes.shape}; "
                f"uint8 (n, {', '.join(map(str, shape))}) and n whole numbers were expected"
            )
        low, high = int(classes.min()), int(classes.max())
        if low < 0 or high > 9:
            raise InputError(f"{name}: a class is {low if low < 0 else high}; classes run from 0 to 9")
    return x, y.astype(np.int64).ravel(), x_test, y_test.astype(np.int64).ravel()
