"""A party's series of certificates: the first one and its successors from `securevfl certs rotate`.

A peer that pinned an older certificate refuses a newer one until it has received the endorsement, over a connection
made with the older certificate. So a process starts with the certificate that it showed last and switches to the newest
one when all peers are connected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from securevfl_net.durable import write_atomic
from securevfl_net.errors import InputError
from securevfl_net.identity.certificate import Certificate, read_certificates, utc_now
from securevfl_net.identity.endorsement import read_endorsement
from securevfl_net.identity.files import read_bounded
from securevfl_net.identity.own import Identity, rotation_number, series_files

__all__ = ["CertificateSeries"]

_NOTE = 4096


class CertificateSeries:
    """A party's series of certificates and the one in use.

    Args:
        certificate, key: the party's first files.
        pinned: certificates that its peers have pinned; empty if an authority issued its certificate.
        agreement: SHA-256 of the proposal, 32 bytes, for which peers that pin need an endorsement.
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
        agreement: bytes = b"",
        note: Path | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._first, self._note, self._now = (Path(certificate), Path(key)), note, now
        self._pinned, self._agreement = tuple(pinned), agreement
        self._refused = ""
        try:
            self.shown = self._load_noted() or self._find_agreed()
        except InputError:  # expired, say: peers that were given the endorsement of a newer one accept that
            endorsed = self._find_endorsed()
            if endorsed is None:
                raise
            self.shown = endorsed

    def find_next(self) -> tuple[Identity, bytes] | None:
        """Return the newest certificate that can replace the one in use, with its endorsement, or None. The endorsement
        is empty if an authority issued the certificate.

        Raises:
            InputError: a newer certificate cannot be used: it is unreadable or has no endorsement. Raised once per
                reason.
        """
        why: InputError | None = None
        for file in series_files(self.shown.certificate_file):
            if rotation_number(file) <= self.shown.renewals:
                break
            try:
                newer = self._load_identity(file)
                if newer.name != self.shown.name:
                    raise InputError(f"{file} names {newer.name!r}, and the party is {self.shown.name!r}")
                return newer, read_endorsement(file, self._agreement) if self._pinned else b""
            except InputError as error:  # an older one may be endorsed for this agreement
                why = why or error
        if why is None or str(why) == self._refused:
            return None
        self._refused = str(why)
        raise why

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

    def _find_endorsed(self) -> Identity | None:
        """Return the newest certificate that can be used and is endorsed for the agreement."""
        for file in series_files(self._first[0]) if self._pinned else ():
            with suppress(InputError):
                read_endorsement(file, self._agreement)
                return self._load_identity(file)
        return None

    def _load_identity(self, file: Path) -> Identity:
        key = self._first[1] if file == self._first[0] else file.with_suffix(".key")
        return Identity.load(file, key, now=self._now)
