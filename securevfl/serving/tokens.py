"""Bearer tokens of clients: 256 random bits each; the file contains only their SHA-256 digests.

```toml
[[token]]
client = "branches"
scopes = ["score"]
sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
expires = 2027-03-31
```

A plain digest is enough here: nobody guesses 256 random bits, so a slow hash would protect nothing more. The file is
read again when it changes: a token that is taken out stops to work at the next request.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal

from securevfl_net.durable import make_folder, write_atomic

from securevfl.config import Config, Mistaken
from securevfl.errors import InputError
from securevfl.jobfile.toml_text import raise_all, read_toml

__all__ = ["SCOPES", "Scope", "TokenClient", "TokenFile", "make_token"]

Scope = Literal["score", "status", "admin"]
SCOPES: tuple[Scope, ...] = ("score", "status", "admin")
"""What a client may do: request scores; read the status; activate models and refresh the index."""

_CLIENT = re.compile("[a-z][a-z0-9_-]{0,31}")
_DIGEST = re.compile("[0-9a-f]{64}")
_PREFIX = "svfl_"
_TOKEN_BYTES = 32
_LONGEST = 256


class TokenEntry(Config):
    """``[[token]]``: one client's token.

    Attributes:
        client: who uses it, for limits and metrics; several tokens may have one.
        scopes: what the client may do.
        sha256: of the token, or of the client's certificate (DER), hexadecimal.
        kind: which of the two.
        expires: the last day on which it works, UTC; None for no end.
    """

    client: str
    scopes: tuple[Scope, ...] = ("score",)
    sha256: str
    kind: Literal["token", "certificate"] = "token"
    expires: date | None = None

    @classmethod
    def section_path(cls) -> str:
        return "token"

    def problems(self) -> list[str]:
        found = super().problems()
        if _CLIENT.fullmatch(self.client) is None:
            found.append(f"client is {self.client[:40]!a}; give a lower-case word of up to 32 letters, digits, - and _")
        if _DIGEST.fullmatch(self.sha256) is None:
            found.append("sha256 is not 64 hexadecimal digits: make the token with `securevfl serve token`")
        if not self.scopes:
            found.append(f"scopes is empty; give at least one of {', '.join(SCOPES)}")
        return found


class TokenSections(Config):
    """All of a token file."""

    token: tuple[TokenEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenClient:
    """An authenticated client and its scopes."""

    name: str
    scopes: frozenset[Scope]


class TokenFile:
    """The tokens of a file, which is read again when it changes.

    Args:
        path: of the file.
        today: the day, UTC.

    Raises:
        InputError: no such file, mistakes in it, or one that others may write.
    """

    def __init__(self, path: str | Path, *, today: Callable[[], date] = lambda: datetime.now(UTC).date()) -> None:
        self._path = Path(path)
        self._today = today
        self._entries: tuple[tuple[bytes, TokenEntry], ...] = ()
        self._stamp: tuple[int, int, int] | None = None
        self._read_tokens()

    def find_client(self, token: str) -> TokenClient | None:
        """The client of this token; None if the token is unknown or expired.

        The token is compared with every digest of the file in constant time, so that the duration does not reveal a
        near match.
        """
        given = token.encode("utf-8", "replace")
        return self._find_client("token", given) if len(given) <= _LONGEST else None

    def find_certificate_client(self, der: bytes) -> TokenClient | None:
        """The client of this certificate, by the same rules as `find_client`."""
        return self._find_client("certificate", der)

    def _find_client(self, kind: str, secret: bytes) -> TokenClient | None:
        self._read_tokens()
        given = hashlib.sha256(secret).digest()
        found: TokenEntry | None = None
        for digest, entry in self._entries:
            if hmac.compare_digest(digest, given) and entry.kind == kind:
                found = entry
        if found is None or (found.expires is not None and self._today() > found.expires):
            return None
        return TokenClient(found.client, frozenset(found.scopes))

    def __len__(self) -> int:
        return len(self._entries)

    def _read_tokens(self) -> None:
        try:
            state = self._path.stat()
        except OSError:
            raise InputError(f"{self._path} does not exist: make a token with `securevfl serve token`") from None
        stamp = (state.st_mtime_ns, state.st_size, state.st_ino)
        if stamp == self._stamp:
            return
        if sys.platform != "win32" and state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise InputError(f"{self._path} can be written by others, who could add a token: chmod 600 {self._path}")
        self._entries = tuple((bytes.fromhex(entry.sha256), entry) for entry in _read_entries(self._path).token)
        self._stamp = stamp


def make_token(
    path: str | Path,
    client: str,
    scopes: tuple[Scope, ...] = ("score",),
    *,
    expires: date | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
) -> str:
    """Add a client's new token to a file, which is made if it is not there.

    Args:
        path: of the file.
        client: who will use it.
        scopes: what the client may do.
        expires: the last day on which it works, UTC.
        entropy: source of random bytes.

    Returns:
        The token. It is nowhere else.

    Raises:
        InputError: a client or scopes that cannot be, or a file with mistakes.
    """
    file = Path(path)
    token = _PREFIX + base64.urlsafe_b64encode(entropy(_TOKEN_BYTES)).rstrip(b"=").decode()
    entry = TokenEntry(client=client, scopes=scopes, sha256=hashlib.sha256(token.encode()).hexdigest(), expires=expires)
    before = ""
    if file.exists():
        _read_entries(file)
        before = file.read_text(encoding="utf-8").rstrip("\n") + "\n\n"
    make_folder(file.parent)
    write_atomic(file, (before + _format_entry(entry)).encode(), private=True)
    return token


def _format_entry(entry: TokenEntry) -> str:
    lines = ["[[token]]", f'client = "{entry.client}"']
    lines.append("scopes = [" + ", ".join(f'"{scope}"' for scope in entry.scopes) + "]")
    lines.append(f'sha256 = "{entry.sha256}"')
    if entry.expires is not None:
        lines.append(f"expires = {entry.expires.isoformat()}")
    return "\n".join(lines) + "\n"


def _read_entries(file: Path) -> TokenSections:
    content = read_toml(file, "token", 'the page "Serve predictions"')
    try:
        return TokenSections.from_values(content, "")
    except Mistaken as error:
        raise_all(file, error.at_path(""))
        raise
