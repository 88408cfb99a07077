"""Read and check an authority's signed list of revoked certificates (RFC 5280, section 5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from securevfl_net.errors import InputError
from securevfl_net.identity.certificate import TOLERANCE, Certificate, format_time
from securevfl_net.identity.files import read_bounded
from securevfl_net.identity.refusal import Refusal, RefusalCode

__all__ = ["RevocationList"]

_MOST = 16 << 20
"""Maximum bytes of a revocation list."""


@dataclass(frozen=True)
class RevocationList:
    """One authority's list of revoked certificates.

    Attributes:
        issuer: the authority.
        made: when it was signed.
        due: when the next list is due (nextUpdate).
        number: the list's number (cRLNumber), -1 if it has none.
    """

    issuer: Certificate
    made: datetime
    due: datetime
    number: int
    _list: x509.CertificateRevocationList = field(repr=False, compare=False)

    @classmethod
    def read(cls, path: str | Path, issuer: Certificate) -> RevocationList:
        """Read a list, PEM or DER.

        Raises:
            InputError: it cannot be read, another authority signed it, or it has no nextUpdate.
        """
        file = Path(path)
        content = read_bounded(file, _MOST, "a revocation list (PEM or DER)")
        try:
            load = x509.load_pem_x509_crl if b"-----BEGIN" in content[:64] else x509.load_der_x509_crl
            found = load(content)
            key = issuer.x509.public_key()
            right = found.issuer == issuer.x509.subject and found.is_signature_valid(key)  # type: ignore[arg-type]
            made, due, number = found.last_update_utc, found.next_update_utc, _list_number(found)
            _ = found.get_revoked_certificate_by_serial_number(1)  # reads the entries
            odd = [one.oid.dotted_string for one in found.extensions if one.critical]
        except Exception:  # the library raises several unrelated kinds
            raise InputError(
                f"{file} is not a revocation list, or is damaged: get it again from the authority"
            ) from None
        if not right:
            raise InputError(f"{file} is not signed by the authority {issuer.fingerprint[:16]}…: get its list")
        if odd:  # a list of changes alone, or of a part of the certificates (RFC 5280, section 5.2)
            raise InputError(
                f"{file} is not a complete list (critical extension {odd[0]}): ask the authority for a complete one"
            )
        if due is None:
            raise InputError(f"{file} has no date for the next list (nextUpdate): ask the authority for one with it")
        return cls(issuer, made, due, number, found)

    def is_not_older(self, older: RevocationList) -> bool:
        """Return True if it is as new as `older`, or newer."""
        return (self.number, self.made) >= (older.number, older.made)

    def check_certificate(self, certificate: Certificate, party: str, now: datetime, grace: timedelta) -> None:
        """Check that a certificate is not revoked and the list is up to date.

        Args:
            certificate: issued by this authority.
            party: the certificate's owner.
            now: this machine's clock.
            grace: how long the list stays valid after nextUpdate; then every certificate is refused.

        Raises:
            Refusal: it is revoked, or the list is out of date.
        """
        if now > self.due + grace + TOLERANCE:
            raise Refusal(
                RefusalCode.CRL_OUT_OF_DATE,
                f"this party's revocation list was due for replacement {format_time(self.due)}, and the grace "
                f"period of {_format_hours(grace)} is over: get the authority's new list",
                party=party,
            )
        if now < self.made - TOLERANCE:
            raise Refusal(
                RefusalCode.CRL_OUT_OF_DATE,
                f"this party's revocation list was made {format_time(self.made)}, but this machine's clock reads "
                f"{format_time(now)}: set the clock",
                party=party,
            )
        entry = self._list.get_revoked_certificate_by_serial_number(certificate.x509.serial_number)
        if entry is not None:
            raise Refusal(
                RefusalCode.REVOKED,
                f"the authority revoked the certificate {certificate.fingerprint[:16]}… "
                f"{format_time(entry.revocation_date_utc)}: its party needs a new one",
                party=party,
            )

    @property
    def revocation_times(self) -> tuple[tuple[int, datetime], ...]:
        """Serial number and revocation time of each revoked certificate."""
        return tuple((entry.serial_number, entry.revocation_date_utc) for entry in self._list)


def _list_number(found: x509.CertificateRevocationList) -> int:
    try:
        return found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound:
        return -1


def _format_hours(time: timedelta) -> str:
    return f"{time.total_seconds() / 3600:g} h"
