"""A party's row of certificates: the first one and those that `securevfl certs rotate` made after it.

A peer that pinned an older certificate refuses a newer one until it has heard the endorsement, and that travels over a
connection made with the older one. So a process shows the certificate that it showed last, and takes up the newest one
when all peers are connected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from securevfl_net.durable import write_whole
from securevfl_net.errors import InputError
from securevfl_net.identity.certificate import Certificate, read_certificates, utc_now
from securevfl_net.identity.files import read_bounded
from securevfl_net.identity.own import Identity, row_files

__all__ = ["Row"]

_NOTE = 4096
_ENDORSEMENT = 32 << 10


class Row:
    """See the module.

    Args:
        certificate, key: the party's first files.
        pinned: certificates by which its peers know it; empty where an authority vouches for it.
        note: file that keeps which certificate is in use, over restarts; none if not given.
        now: this machine's clock.

    Attributes:
        shown: the certificate in use.

    Raises:
        InputError: it cannot be used.
    """

    def __init__(
        self,
        certificate: str | Path,
        key: str | Path,
        pinned: Iterable[Certificate] = (),
        *,
        note: Path | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._first, self._note, self._now = (Path(certificate), Path(key)), note, now
        self._pinned = tuple(pinned)
        self._refused = ""
        self.shown = self._noted() or self._known()

    def next(self) -> tuple[Identity, bytes] | None:
        """The newest certificate and its endorsement, if there is a newer one than that in use; the endorsement is
        empty where an authority vouches.

        Raises:
            InputError: there is a newer one that peers could not know: it cannot be read, or has no endorsement. It is
                raised once for each reason.
        """
        try:
            newest = self.shown.renewed(now=self._now)
            if newest == self.shown:
                return None
            payload = b""
            if self._pinned:
                file = newest.certificate_file.with_suffix(".endorsement")
                payload = read_bounded(file, _ENDORSEMENT, "the endorsement of the certificate that was rotated")
        except InputError as error:
            if str(error) == self._refused:
                return None
            self._refused = str(error)
            raise
        return newest, payload

    def take(self, newest: Identity) -> None:
        """Note that a certificate is in use from now on."""
        if self._note is not None:
            write_whole(self._note, newest.certificate_file.name.encode(), private=True)
        self.shown = newest

    def _noted(self) -> Identity | None:
        if self._note is None or not self._note.exists():
            return None
        name = read_bounded(self._note, _NOTE, "the name of the certificate in use").decode("utf-8", "replace")
        if name != Path(name).name:
            raise InputError(f"{self._note} is damaged: remove it")
        return self._loaded(self._first[0].parent / name)

    def _known(self) -> Identity:
        """The newest that peers know by their agreement; where an authority vouches, the newest."""
        for file in row_files(self._first[0]):
            (found,) = read_certificates(file)
            if not self._pinned or found in self._pinned:
                return self._loaded(file)
        return self._loaded(self._first[0])

    def _loaded(self, file: Path) -> Identity:
        key = self._first[1] if file == self._first[0] else file.with_suffix(".key")
        return Identity.load(file, key, now=self._now)
