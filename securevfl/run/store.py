"""Store trained models: trees of dicts, lists, numbers, texts and tensors as safetensors files, never as pickles.

A tree becomes tensors and a JSON skeleton in the file's metadata, with a SHA-256 of the whole file: one changed bit is
an error. Reading creates plain values and tensors and executes nothing, so a stranger's file cannot run code.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError
from securevfl_net.durable import make_folder, write_atomic

from securevfl.errors import InputError

__all__ = ["digest_stored_tree", "read_tree", "tree_digest", "write_tree"]

_FORMAT = "securevfl tree v2"
_NO_DIGEST = "0" * 64
_DEPTH = 64
_NUMBERS = {"bool", "float16", "float32", "float64", "complex64"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
"""Types of numbers that arrays and tensors have alike, by name."""


@dataclass(frozen=True)
class _Stored:
    """A tensor of a file whose tree is only compared: nothing computes with it, so torch is not needed."""

    array: np.ndarray = field(repr=False)

    def numpy(self) -> np.ndarray:
        return self.array


def write_tree(path: Path, tree: object) -> None:
    """Write `tree` to `path`, for its owner alone (mode 0600): whole, synced to the disk, or not at all.

    Raises:
        TypeError: the tree contains something other than dicts, lists, tuples, None, truth values, numbers, texts,
            tensors and numpy arrays.
    """
    arrays: dict[str, np.ndarray] = {}
    skeleton = json.dumps(_pack_value(tree, arrays), separators=(",", ":"))
    metadata = {"format": _FORMAT, "tree": skeleton, "sha256": _NO_DIGEST}
    data = _write_digest(safetensors.numpy.save(arrays, metadata=metadata))
    make_folder(path.parent, private=not path.parent.exists())
    write_atomic(path, data, private=True)


def tree_digest(tree: object) -> str:
    """SHA-256 of a tree's content, hexadecimal; equal for the tree that was written and the one that is read.

    Raises:
        TypeError: see `write_tree`.
    """
    arrays: dict[str, np.ndarray] = {}
    found = hashlib.sha256(json.dumps(_pack_value(tree, arrays), separators=(",", ":")).encode())
    for name, array in arrays.items():
        found.update(f"\n{name} torch.{array.dtype.name} {list(array.shape)}\n".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def read_tree(path: Path) -> object:
    """The tree that `write_tree` wrote, to the last bit.

    Raises:
        InputError: no such file, not of this format, or a bit of it changed.
    """
    from safetensors.torch import load

    return _read_with(path, load)


def digest_stored_tree(path: Path) -> str:
    """`tree_digest` of the tree in a file; loads no torch.

    Raises:
        InputError: see `read_tree`.
    """
    return tree_digest(_read_with(path, _load_stored))


def _load_stored(data: bytes) -> dict[str, _Stored]:
    return {name: _Stored(array) for name, array in safetensors.numpy.load(data).items()}


def _read_with(path: Path, load: Callable[[bytes], Mapping[str, Any]]) -> object:
    """The tree of a file, whose tensors `load` makes."""
    try:
        data = path.read_bytes()
        metadata = _read_metadata(data)
        if metadata.get("format") != _FORMAT:
            raise InputError(f"{path} is not a file of this version ({_FORMAT}): was it written by securevfl?")
        digest = metadata["sha256"]
        bare = data.replace(_digest_field(digest), _digest_field(_NO_DIGEST), 1)
        if not hmac.compare_digest(hashlib.sha256(bare).hexdigest(), digest):
            raise ValueError(
                f"its content has SHA-256 {hashlib.sha256(bare).hexdigest()[:16]}…, the file recorded {digest[:16]}…"
            )
        return _unpack_value(json.loads(metadata["tree"]), load(data), 0)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    except (SafetensorError, KeyError, ValueError, TypeError, IndexError, RecursionError, OSError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged, or was not written by securevfl: {error}") from None


def _read_metadata(data: bytes) -> dict[str, str]:
    """The header's texts, see the format of safetensors: its length in 8 bytes, little-endian, and JSON."""
    size = int.from_bytes(data[:8], "little")
    if not 0 < size <= len(data) - 8:
        raise ValueError(f"a header of {size} bytes in a file of {len(data)}")
    found = json.loads(data[8 : 8 + size])["__metadata__"]
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ValueError("its metadata are no texts")
    return found


def _write_digest(data: bytes) -> bytes:
    """Write the SHA-256 of a safetensors file's bytes into its metadata, in place of 64 zeros."""
    digest = hashlib.sha256(data).hexdigest()
    return data.replace(_digest_field(_NO_DIGEST), _digest_field(digest), 1)


def _digest_field(digest: str) -> bytes:
    """The digest's field in the header. Quotes inside other texts are escaped there, and tensors come later, so it is
    unique.
    """
    return f'"sha256":"{digest}"'.encode()


def _pack_value(value: object, arrays: dict[str, np.ndarray]) -> object:  # noqa: PLR0911 - one for each kind
    """JSON that describes the type of `value`: ``{"d": …}`` a dict, ``{"l": …}`` a list, and so on."""
    if value is None or isinstance(value, bool | int | str):
        return {"v": str(value), "i": 1} if isinstance(value, int) and abs(value) > 1 << 53 else {"v": value}
    if isinstance(value, float):
        return {"v": value} if math.isfinite(value) else {"f": str(value)}
    if isinstance(value, Mapping):
        return {"d": [[_pack_value(key, arrays), _pack_value(item, arrays)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return {"l" if isinstance(value, list) else "t": [_pack_value(item, arrays) for item in value]}
    if isinstance(value, np.generic):
        return _pack_value(value.item(), arrays)
    if isinstance(value, np.ndarray) and value.dtype == object:
        return {"b": [hex(int(item)) for item in value.ravel()], "s": list(value.shape)}
    if isinstance(value, np.ndarray) and value.dtype.name in _NUMBERS:
        return {"a": _keep_array(np.array(value), arrays)}
    torch = sys.modules.get("torch")  # where it was not imported, nothing is a tensor
    if torch is not None and isinstance(value, torch.Tensor):
        return {"x": _keep_array(value.detach().cpu().contiguous().clone().numpy(), arrays)}
    if isinstance(value, _Stored):
        return {"x": _keep_array(value.array, arrays)}
    raise TypeError(f"a {type(value).__name__} cannot be stored")


def _keep_array(array: np.ndarray, arrays: dict[str, np.ndarray]) -> str:
    """Add an array to those of a file, and return its name there."""
    name = str(len(arrays))
    arrays[name] = array
    return name


def _unpack_value(value: object, tensors: Mapping[str, Any], depth: int) -> object:  # noqa: PLR0911 - likewise
    if depth > _DEPTH or not isinstance(value, dict) or not value:
        raise ValueError("its skeleton is malformed")
    kind, content = next(iter(value.items()))
    deeper = depth + 1
    if kind == "v":
        return int(content) if "i" in value else content
    if kind == "f":
        return float(content)
    if kind == "d":
        pairs = [(_unpack_value(key, tensors, deeper), _unpack_value(item, tensors, deeper)) for key, item in content]
        return dict(pairs)
    if kind in ("l", "t"):
        items = [_unpack_value(item, tensors, deeper) for item in content]
        return items if kind == "l" else tuple(items)
    if kind == "b":
        array = np.array([int(item, 16) for item in content], dtype=object)
        return array.reshape([int(size) for size in value["s"]])
    if kind == "a":
        return tensors[content].numpy()
    if kind == "x":
        return tensors[content]
    raise ValueError(f"its skeleton has an unknown kind {kind!r}")
