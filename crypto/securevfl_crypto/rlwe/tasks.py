"""What workers of a pool do of a sealed cut: the same code as in one process, on parts of messages (`crew`).

A worker keeps the halves that it made. Those of a holder are made from the public key; those of an owner from the key
pair, which then is where the pool is. A pool is its party's own.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from securevfl_crypto.block import Block
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.pools import Argument
from securevfl_crypto.rlwe.base import RlweScheme
from securevfl_crypto.rlwe.bfv import BFV
from securevfl_crypto.rlwe.ckks import CKKS
from securevfl_crypto.rlwe.crew import DONE, LACKING, pack_array, unpack_array
from securevfl_crypto.rlwe.encoding import Encoding
from securevfl_crypto.rlwe.holder import RlweHolder
from securevfl_crypto.rlwe.keys import read_public, read_secret
from securevfl_crypto.rlwe.owner import RlweOwner
from securevfl_crypto.rlwe.plan import Plan

__all__ = ["answer_gradient", "answer_product", "open_gradient", "open_product", "seal_steps", "seal_weights"]

_KEPT_HALVES = 32
_KEPT_TILES = 512
"""Encoded tiles of x that a worker keeps, 200 to 260 KB each: those of a few batches."""
_SCHEMES: dict[str, RlweScheme] = {"bfv": BFV(), "ckks": CKKS()}
H = TypeVar("H")

_tiles: OrderedDict[tuple[object, ...], Any] = OrderedDict()


class _Rows(RlweHolder):
    """A holder's half that keeps the encoded tiles of x: a batch's gradient needs those of its product again."""

    def _encode_tile(self, x: np.ndarray, encoding: Encoding) -> Any | None:
        name = encoding.noise.chain, self._plan.tiling, x.shape, hashlib.sha256(x.tobytes()).digest()
        found = _tiles.pop(name) if name in _tiles else super()._encode_tile(x, encoding)
        _tiles[name] = found
        if len(_tiles) > _KEPT_TILES:
            _tiles.popitem(last=False)
        return found


_halves: OrderedDict[tuple[str, str, str], Any] = OrderedDict()


def _cached_half(
    kind: str, half: str, digest: str, key: bytes, make: Callable[[RlweScheme, bytes, Block], H]
) -> H | None:
    """The half for this key and block; None where neither it nor the key is here."""
    name = kind, half, digest
    found: H | None = _halves.pop(name, None)
    if found is None and key:
        scheme, sizes = json.loads(half)
        if scheme not in _SCHEMES:
            raise MalformedError(f"a scheme {scheme!r}; workers know {', '.join(_SCHEMES)}")
        found = make(_SCHEMES[scheme], key, Block(**sizes))
    if found is not None:
        _halves[name] = found
        if len(_halves) > _KEPT_HALVES:
            _halves.popitem(last=False)
    return found


def _cached_holder(half: str, digest: str, key: bytes) -> RlweHolder | None:
    def make(scheme: RlweScheme, data: bytes, block: Block) -> RlweHolder:
        public = read_public(data, scheme.number, scheme.chains)
        return _Rows(public, Plan(scheme.choose_encodings, public, block), ZeroShares([]))

    return _cached_half("holder", half, digest, key, make)


def _cached_owner(half: str, digest: str, key: bytes) -> RlweOwner | None:
    def make(scheme: RlweScheme, data: bytes, block: Block) -> RlweOwner:
        pair = read_secret(data, scheme.number, scheme.chains)
        return RlweOwner(pair, Plan(scheme.choose_encodings, pair.public, block))

    return _cached_half("owner", half, digest, key, make)


def _answer_with(half: H | None, work: Callable[[H], np.ndarray]) -> bytes:
    return LACKING if half is None else DONE + pack_array(work(half))


def answer_product(half: str, digest: str, key: bytes, *parts: Argument) -> bytes:
    """A holder's answers for some of the rows: see `RlweHolder.product_of`."""
    return _answer_with(_cached_holder(half, digest, key), lambda own: own.product_of(*_array_parts(parts)))


def answer_gradient(half: str, digest: str, key: bytes, *parts: Argument) -> bytes:
    """A holder's answers for some of the columns: see `RlweHolder.gradient_of`."""
    return _answer_with(_cached_holder(half, digest, key), lambda own: own.gradient_of(*_array_parts(parts)))


def seal_weights(half: str, digest: str, key: bytes, *parts: Argument) -> bytes:
    """Encryptions of some rows of V: see `RlweOwner.sealed_weights`."""
    return _answer_with(_cached_owner(half, digest, key), lambda own: own.sealed_weights(*_array_parts(parts)))


def seal_steps(half: str, digest: str, key: bytes, *parts: Argument) -> bytes:
    """Encryptions of some rows of S: see `RlweOwner.sealed_steps`."""
    return _answer_with(_cached_owner(half, digest, key), lambda own: own.sealed_steps(*_array_parts(parts)))


def open_product(half: str, digest: str, key: bytes, rows: int, *parts: Argument) -> bytes:
    """Some rows of a product, from one message of each holder: see `RlweOwner.opened_product`."""
    return _answer_with(_cached_owner(half, digest, key), lambda own: own.opened_product(_array_parts(parts), rows))


def open_gradient(half: str, digest: str, key: bytes, columns: int, *parts: Argument) -> bytes:
    """Some rows of a gradient: see `RlweOwner.opened_gradient`."""
    return _answer_with(
        _cached_owner(half, digest, key), lambda own: own.opened_gradient(_array_parts(parts)[0], columns)
    )


def _array_parts(parts: Sequence[Argument]) -> list[np.ndarray]:
    return [unpack_array(cast(bytes, part)) for part in parts]
