"""Answers that the asker holds, given again without asking anybody.

A partner answers about a row a few times only (`Policy.max_results`), so the asker stores each answer with the model,
the row and its own columns of the row. The same question is then answered from the file. Another model, or other own
columns, is a new question and costs a number. So does a noisy answer that is drawn again.

The file names nobody: rows appear under a keyed digest whose key never leaves the folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta
from securevfl_net.durable import append_synced, make_folder, write_atomic

from securevfl.errors import InputError

__all__ = ["KeptAnswer", "KeptAnswers"]

_KEY_BYTES = 32
_DIGEST = 16
"""Bytes of a row's digest: no two of a billion rows share one by chance."""
_PLACE = 8
"""Bytes before the numbers of an answer: which tables it was given on."""
_NAMED = 32
"""Hexadecimal digits of a model's digest in the name of its file."""

Key = Annotated[str, Meta(min_length=2 * _DIGEST, max_length=2 * _DIGEST)]


class _Answered(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers that came together: of these rows, with the partners' tables as they were."""

    tables: str
    rows: list[Key]
    answers: list[list[float]]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Answered).decode


class KeptAnswer(NamedTuple):
    """An answer, (classes,), and the digest of the partners' tables that it was given on."""

    values: np.ndarray
    tables: str


class KeptAnswers:
    """Answers of one model, in a private file of the asker's own.

    Args:
        folder: for its files alone; made if it is not there.
        model: digest of the model.
        tables: what identifies each partner's table as it is now.
        synced: whether answers are on the disk, and not only written, when `put` returns: for noisy answers, which
            cannot be asked for again without another release.

    Raises:
        InputError: a damaged file.
    """

    def __init__(self, folder: Path, model: str, tables: Iterable[str] = (), *, synced: bool = True) -> None:
        make_folder(folder, private=True)
        key = folder / "answers.key"
        if not key.exists():
            write_atomic(key, os.urandom(_KEY_BYTES), private=True)
        self._key = key.read_bytes()
        if len(self._key) != _KEY_BYTES:
            raise InputError(f"{key} has {len(self._key)} bytes instead of {_KEY_BYTES}: restore it from a backup")
        self.path = folder / f"kept-{model[:_NAMED]}.jsonl"
        self.tables = hashlib.sha256("\n".join(tables).encode()).hexdigest()[:_NAMED]
        self.synced = synced
        # Numbers and digests as bytes: a million of them cost memory, but no time of the garbage collector.
        self._kept: dict[bytes, bytes] = {}
        self._tables: dict[str, int] = {}
        if self.path.exists():
            self._read_file()

    def row_keys(self, rows: Sequence[str], features: np.ndarray) -> list[str]:
        """Keys of rows; they reveal neither the rows nor the features.

        Args:
            rows: their identifiers, (n,).
            features: the asker's own columns of them, encoded, (n, …).
        """
        own = np.ascontiguousarray(features)
        width = own[:1].nbytes
        content = own.tobytes()
        found = []
        for place, name in enumerate(rows):
            text = name.encode()
            framed = len(text).to_bytes(8, "little") + text + content[place * width : (place + 1) * width]
            found.append(blake2b(framed, key=self._key, digest_size=_DIGEST).hexdigest())
        return found

    def get(self, key: str, *, current: bool = False) -> KeptAnswer | None:
        """The newest answer about a row, or None.

        Args:
            key: of the row.
            current: only one that was given on the partners' tables as they are now.
        """
        found = self._kept.get(bytes.fromhex(key))
        if found is None:
            return None
        tables = self._named_tables(int.from_bytes(found[:_PLACE], "little"))
        if current and tables != self.tables:
            return None
        return KeptAnswer(np.frombuffer(found, np.float64, offset=_PLACE).copy(), tables)

    def put(self, keys: Sequence[str], answers: np.ndarray) -> None:
        """Keep answers (n, classes) that were given on the tables as they are now.

        Raises:
            OSError: they could not be written.
        """
        if not len(keys):
            return
        batch = _Answered(tables=self.tables, rows=list(keys), answers=answers.tolist())
        line = _encode(batch) + b"\n"
        if self.synced:
            append_synced(self.path, line)
        else:
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
            with open(handle, "ab") as file:
                file.write(line)
        self._add_batch(batch)

    def sync(self) -> None:
        """Return once all answers are on the disk.

        Raises:
            OSError: they could not be written.
        """
        if not self.synced and self.path.exists():
            append_synced(self.path, b"")

    def __len__(self) -> int:
        return len(self._kept)

    def _add_batch(self, batch: _Answered) -> None:
        place = self._tables.setdefault(batch.tables, len(self._tables)).to_bytes(_PLACE, "little")
        for key, values in zip(batch.rows, batch.answers, strict=True):
            self._kept[bytes.fromhex(key)] = place + np.array(values, np.float64).tobytes()

    def _named_tables(self, place: int) -> str:
        return list(self._tables)[place]

    def _read_file(self) -> None:
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        for number, raw in enumerate(whole.splitlines(), 1):
            try:
                self._add_batch(_decode(raw))
            except (msgspec.DecodeError, ValueError) as error:
                raise InputError(
                    f"line {number} of {self.path} is damaged ({error}): restore it from a backup, or delete the file: "
                    "its rows must then be asked about again, for a number each"
                ) from None
        if whole != data:  # cut off while being written
            write_atomic(self.path, whole, private=True)
