"""A party's series of certificates: the first one and its successors from `securevfl certs rotate`.

A peer that pinned an older certificate refuses a newer one until it has received the endorsement, over a connection
made with the older certificate. So a process starts with the certificate that it showed last and switches to the newest
one when all peers are connected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from securevfl_net.durable import write_atomic
from securevfl_net.errors import InputError
from securevfl_net.identity.certificate import Certificate, read_certificates, utc_now
from securevfl_net.identity.files import read_bounded
from securevfl_net.identity.own import Identity, series_files

__all__ = ["CertificateSeries"]

_NOTE = 4096
_ENDORSEMENT = 32 << 10


class CertificateSeries:
    """A party's series of certificates and the one in use.

    Args:
        certificate, key: the party's first files.
        pinned: certificates that its peers have pinned; empty if an authority issued its certificate.
        note: file that records the certificate in use across restarts; by default it is not recorded.
        now: this machine's clock.

    Attributes:
        shown: the certificate in use.

    Raises:
        InputError: a certificate or key cannot be used.
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
        self.shown = self._load_noted() or self._find_agreed()

    def find_next(self) -> tuple[Identity, bytes] | None:
        """Return a certificate newer than the one in use, with its endorsement, or None. The endorsement is empty if an
        authority issued the certificate.

        Raises:
            InputError: a newer certificate cannot be used: it is unreadable or has no endorsement. Raised once per
                reason.
        """
        try:
            newest = self.shown.find_newest(now=self._now)
            if newest == self.shown:
                return None
            payload = b""
            if self._pinned:
                file = newest.certificate_file.with_suffix(".endorsement")
                payload = read_bounded(file, _ENDORSEMENT, "the endorsement of the rotated certificate")
        except InputError as error:
            if str(error) == self._refused:
                return None
            self._refused = str(error)
            raise
        return newest, payload

    def record_use(self, newest: Identity) -> None:
        """Record that a certificate is now in use."""
        if self._note is not None:
            write_atomic(self._note, newest.certificate_file.name.encode(), private=True)
        self.shown = newest

    def _load_noted(self) -> Identity | None:
        if self._note is None or not self._note.exists():
            return None
        name = read_bounded(self._note, _NOTE, "the name of the certificate in use").decode("utf-8", "replace")
        if name != Path(name).name:
            raise InputError(f"{self._note} is damaged: delete it")
        return self._load_identity(self._first[0].parent / name)

    def _find_agreed(self) -> Identity:
        """Return the newest certificate that the agreement names; the newest of all if an authority issued it."""
        for file in series_files(self._first[0]):
            (found,) = read_certificates(file)
            if not self._pinned or found in self._pinned:
                return self._load_identity(file)
        return self._load_identity(self._first[0])

    def _load_identity(self, file: Path) -> Identity:
        key = self._first[1] if file == self._first[0] else file.with_suffix(".key")
        return Identity.load(file, key, now=self._now)
