"""The running numbers of other parties' result books that a party holds, each signed by the book's owner.

A result book that was restored from an older copy is intact, and answers rows again that it answered before. The
parties that it answered hold its running number, so that they notice. See `securevfl.party.running_numbers`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from securevfl_net.durable import lock_file, make_folder, write_atomic

from securevfl.errors import InputError

__all__ = ["HeldNumber", "HeldNumbers"]


class HeldNumber(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A running number.

    Attributes:
        number: numbers that the book's owner has counted for one asker.
        signature: the owner's, of that.
    """

    number: int
    signature: str


_decode = msgspec.json.Decoder(dict[str, HeldNumber]).decode


class HeldNumbers:
    """A party's running numbers of its peers' books, the highest of each pair of owner and asker.

    Args:
        path: of the file. Without it nothing is held.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path

    def find(self, owner: str, asker: str) -> HeldNumber | None:
        """The highest number of a book for an asker; None if none is held.

        Args:
            owner: public signing key of the book's owner, hexadecimal.
            asker: of the active party; likewise.

        Raises:
            InputError: the file is damaged.
        """
        return self._read().get(_name_pair(owner, asker))

    def hold(self, owner: str, asker: str, found: HeldNumber) -> None:
        """Hold a number unless a higher one is held. It is on disk when this returns.

        Raises:
            InputError: the file is damaged.
            OSError: it could not be written.
        """
        if self.path is None:
            return
        make_folder(self.path.parent)
        with lock_file(self.path.with_name(f"{self.path.name}.lock")):
            held, pair = self._read(), _name_pair(owner, asker)
            if pair not in held or held[pair].number < found.number:
                write_atomic(self.path, msgspec.json.encode(held | {pair: found}), private=True)

    def _read(self) -> dict[str, HeldNumber]:
        if self.path is None or not self.path.exists():
            return {}
        try:
            return _decode(self.path.read_bytes())
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{self.path} is damaged ({error}): it holds the running numbers of the peers' result books; restore "
                "it, or delete it to trust what the peers' books say today"
            ) from None


def _name_pair(owner: str, asker: str) -> str:
    return f"{owner} {asker}"
