"""The customers of a relay: a file with a name and a token's digest per line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from securevfl_net.errors import InputError
from securevfl_net.identity.files import read_private
from securevfl_net.relay.introduction import name_of

__all__ = ["Tokens"]

_MOST = 1 << 20


class Tokens:
    """The customers of a relay.

    Args:
        keys: customer → key, see `key_of`; 32 bytes each.

    Raises:
        InputError: `keys` is empty.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        if not keys:
            raise InputError("a relay without tokens admits nobody: make one with `securevfl relay --new-token NAME`")
        self._by_name = {name_of(key): (customer, key) for customer, key in keys.items()}

    def find_key(self, name: bytes) -> tuple[str, bytes] | None:
        """Return customer and key for a key's name, or None."""
        return self._by_name.get(name)

    @classmethod
    def read(cls, path: str | Path) -> Tokens:
        """Read a private file with a customer's name and 64 hexadecimal digits per line; ``#`` begins a comment.

        Raises:
            InputError: other users can read the file, or a line is malformed.
        """
        keys: dict[str, bytes] = {}
        content = read_private(Path(path), _MOST, "the relay's tokens").decode("utf-8", "replace")
        for number, line in enumerate(content.splitlines(), 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            try:
                customer, digits = words
                key = bytes.fromhex(digits)
                if len(key) != 32 or customer in keys:
                    raise ValueError
            except ValueError:
                raise InputError(
                    f"{path}, line {number}: expected a customer's name, used once, and 64 hexadecimal digits"
                ) from None
            keys[customer] = key
        return cls(keys)
