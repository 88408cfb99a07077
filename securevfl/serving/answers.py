"""Store noisy answers and repeat them: a row whose answer carries noise is released only once.

If noise were drawn for each score, repeated requests would average it out, and each score would cost its ε. So the
active party stores the answer for a model, customer and features on its own disk, and asks no peer again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from securevfl_net.durable import append_synced, make_folder, write_atomic

from securevfl.errors import InputError

__all__ = ["Answers"]

_KEY_BYTES = 32


class Answers:
    """Answers of one model, in a file of the active party's own.

    Args:
        folder: for its files alone; made if it is not there.
        model: digest of the model.

    Raises:
        InputError: a damaged file.
    """

    def __init__(self, folder: Path, model: str) -> None:
        make_folder(folder, private=True)
        key = folder / "answers.key"
        if not key.exists():
            write_atomic(key, os.urandom(_KEY_BYTES), private=True)
        self._key = key.read_bytes()
        self._file = folder / f"answers-{model[:32]}.jsonl"
        self._kept: dict[str, np.ndarray] = {}
        if self._file.exists():
            self._read_file()

    def answer_key(self, customer: str, features: np.ndarray, tables: Sequence[str]) -> str:
        """The key of a stored answer; it reveals neither the customer nor the features.

        Args:
            customer: the identifier.
            features: the active party's own, encoded.
            tables: tags of the passive parties' tables, which change with them.
        """
        parts = [customer.encode(), np.ascontiguousarray(features).tobytes(), *(tag.encode() for tag in tables)]
        framed = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
        return hmac.new(self._key, framed, hashlib.sha256).hexdigest()

    def get(self, name: str) -> np.ndarray | None:
        """The answer, (classes,), or None."""
        return self._kept.get(name)

    def put(self, names: Sequence[str], answers: np.ndarray) -> None:
        """Keep answers (n, classes); they are on the disk when this returns."""
        new = [(name, answer) for name, answer in zip(names, answers, strict=True) if name not in self._kept]
        lines = [json.dumps([name, answer.tolist()], separators=(",", ":")) for name, answer in new]
        if lines:
            append_synced(self._file, ("\n".join(lines) + "\n").encode())
        self._kept.update(new)

    def __len__(self) -> int:
        return len(self._kept)

    def _read_file(self) -> None:
        data = self._file.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        for number, raw in enumerate(whole.splitlines(), 1):
            try:
                name, values = json.loads(raw)
                answer = np.array(values, np.float64)
                if not isinstance(name, str) or answer.ndim != 1:
                    raise ValueError("expected a name and a list of numbers")
            except (ValueError, TypeError) as error:
                raise InputError(
                    f"line {number} of {self._file} is damaged ({error}): delete the file; customers then get newly "
                    "drawn answers"
                ) from None
            self._kept[name] = answer
        if whole != data:
            write_atomic(self._file, whole, private=True)
