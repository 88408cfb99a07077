"""The disclosure book: how many values of z a party opened for each of its rows, over all jobs and predictions.

Each batch is written and synced before its values leave, so a process that dies at any moment has counted at least what
left. People appear as keyed digests; the key is in a file beside the book, and without it the book names nobody. The
folder's owner can delete the book: it guards against forgetting, not against its owner.

Several processes of a party may share a book: each reads what the others wrote before it counts. If two count the same
row at the same instant, each can exceed the bound by one batch.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from securevfl_net.durable import append_synced, make_folder, write_atomic

from securevfl.errors import InputError

__all__ = ["DisclosureBook"]

_KEY_BYTES = 32
_DIGEST = 12
"""Bytes of a person's digest: 96 bits."""
_MOST = 1 << 28


class _People(msgspec.Struct, frozen=True, kw_only=True, tag="people", tag_field="line", forbid_unknown_fields=True):
    """The rows of one run, in its order: digests of their identifiers."""

    run: str
    people: str


class _Opened(msgspec.Struct, frozen=True, kw_only=True, tag="looked", tag_field="line", forbid_unknown_fields=True):
    """`values` values leave for each of these rows of a run: positions among its people; one that appears twice counts
    twice.
    """

    run: str
    rows: str
    values: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_People | _Opened).decode


class DisclosureBook:
    """One party's book. Without a path nothing is kept, and each run counts separately.

    Args:
        path: of the file; it and the key beside it are created when the first row is counted.

    Raises:
        InputError: the file is damaged, so that what was opened is unknown.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._key: bytes | None = None
        self._end = 0
        self._counts: dict[bytes, int] = {}
        self._runs: dict[str, list[bytes]] = {}
        self.refresh()

    def refresh(self) -> bool:
        """Read what other processes wrote since the last call; return True if there was anything.

        Raises:
            InputError: it is damaged.
        """
        if self.path is None or not self.path.exists() or self.path.stat().st_size == self._end:
            return False
        self._read_file(self.path)
        return True

    def count_opened(self, names: Sequence[str]) -> np.ndarray:
        """How many values of each of these rows were opened so far, (n,) int64."""
        if not self._counts:
            return np.zeros(len(names), np.int64)
        return np.array([self._counts.get(self._digest_name(name), 0) for name in names], np.int64)

    def begin_run(self, names: Sequence[str]) -> str:
        """Record the people of a run, whose rows `add` then counts by position.

        Returns:
            The run's identifier, for `add`.
        """
        run = os.urandom(8).hex()
        if self.path is not None:
            people = [self._digest_name(name) for name in names]
            self._append_line(_People(run=run, people=_pack(b"".join(people))))
            self._runs[run] = people
        return run

    def add(self, run: str, places: np.ndarray, values: int) -> None:
        """Count `values` for each of these rows (n,), given by position. The line is on disk when this returns.

        Raises:
            OSError: the line could not be written; nothing may leave then.
        """
        if self.path is None or not len(places):
            return
        self._append_line(_Opened(run=run, rows=_pack(np.asarray(places, "<u4").tobytes()), values=values))
        self._count_opened(run, places, values)

    def _count_opened(self, run: str, places: np.ndarray, values: int) -> None:
        people = self._runs[run]
        for place in places.tolist():
            who = people[place]
            self._counts[who] = self._counts.get(who, 0) + values

    def _append_line(self, line: _People | _Opened) -> None:
        if self.path is None:
            return
        make_folder(self.path.parent)
        raw = _encode(line) + b"\n"
        append_synced(self.path, raw)
        self._end += len(raw)

    def _digest_name(self, name: str) -> bytes:
        if self._key is None:
            self._key = self._read_key()
        return hmac.new(self._key, name.encode(), hashlib.sha256).digest()[:_DIGEST]

    def _read_key(self) -> bytes:
        if self.path is None:
            return bytes(_KEY_BYTES)
        path = self.path.with_suffix(".key")
        if not path.exists():
            if self._counts:
                raise InputError(
                    f"{path} is missing: without this key {self.path} cannot be matched to rows; restore it"
                )
            make_folder(path.parent)
            write_atomic(path, os.urandom(_KEY_BYTES), private=True)
        key = path.read_bytes()
        if len(key) != _KEY_BYTES:
            raise InputError(f"{path} has {len(key)} bytes instead of {_KEY_BYTES}: restore it")
        return key

    def _read_file(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._end)
            data = file.read()
        first, begun = self._end == 0, self._end
        whole = data[: data.rfind(b"\n") + 1]
        for number, raw in enumerate(whole.splitlines(), 1):
            try:
                line = _decode(raw)
                if isinstance(line, _People):
                    people = _unpack(line.people)
                    if len(people) % _DIGEST:
                        raise ValueError("half a digest")
                    self._runs[line.run] = [people[i : i + _DIGEST] for i in range(0, len(people), _DIGEST)]
                else:
                    if not 0 <= line.values <= _MOST:
                        raise ValueError(f"{line.values} values of a row")
                    self._count_opened(line.run, np.frombuffer(_unpack(line.rows), "<u4"), line.values)
            except (msgspec.DecodeError, ValueError, KeyError, IndexError, zlib.error) as error:
                where = f"line {number} of {path}" if first else f"line {number} after byte {begun} of {path}"
                raise InputError(
                    f"{where} is damaged ({error}): what was opened of which row is unknown; restore the file"
                ) from None
        self._end = begun + len(whole)
        if first and whole != data:  # cut off while being written: the values it announces did not leave
            write_atomic(path, whole, private=True)


def _pack(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw, 1)).decode()


def _unpack(text: str) -> bytes:
    inflate = zlib.decompressobj()
    # Bounded, so that a damaged or hostile line cannot fill memory.
    raw = inflate.decompress(base64.b64decode(text, validate=True), _MOST)
    if inflate.unconsumed_tail or not inflate.eof:
        raise ValueError("unpacks to more data than allowed")
    return raw
