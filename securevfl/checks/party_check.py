"""Find what would fail in one party's own file: its keys, its certificates, its table. Reads nothing of its peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path

from securevfl_net.identity.certificate import Certificate, format_time, read_certificates, utc_now
from securevfl_net.identity.own import Identity

from securevfl.agreement.party_file import PartyFile, read_party_file
from securevfl.checks.label_leaks import CheckedTable, find_leaks
from securevfl.data.overview import TableOverview, table_overview
from securevfl.data.sample import table_mistakes
from securevfl.data.snapshots import snapshot_hint
from securevfl.errors import InputError

__all__ = ["SOON", "CertificateEnd", "PartyFindings", "check_party_file"]

SOON = timedelta(days=14)
"""A certificate is reported this long before its end."""


@dataclass(frozen=True, kw_only=True)
class CertificateEnd:
    """The end of a party's certificate.

    Attributes:
        whose: the party, or the authority.
        file: where it is.
        until: when it ends.
        left: how long that is.
        renew: what to do before.
    """

    whose: str
    file: Path
    until: datetime
    left: timedelta
    renew: str

    @property
    def ends_soon(self) -> bool:
        """Whether it has ended or ends soon."""
        return self.left <= SOON

    def __str__(self) -> str:
        days = ceil(self.left / timedelta(days=1))
        when = f"{days:,} days left" if days > 1 else "its last day" if days == 1 else "which is over"
        told = f"certificate of {self.whose}, {self.file.name}: valid until {format_time(self.until)}, {when}"
        return f"{told}\n  {self.renew}" if self.ends_soon else told


@dataclass(frozen=True, kw_only=True)
class PartyFindings:
    """Result of checking a party file.

    Attributes:
        party: whose it is; empty where the file cannot be read.
        mistakes: problems that the party must correct.
        hints: what would run, and is likely not meant.
        table: content of its table; None if there is none or it cannot be read.
        certificates: its own, and its authority's where it names one.
        peers: names of its peers.
    """

    party: str = ""
    mistakes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    table: TableOverview | None = None
    certificates: tuple[CertificateEnd, ...] = ()
    peers: tuple[str, ...] = ()


def check_party_file(path: Path, *, now: Callable[[], datetime] = utc_now) -> PartyFindings:
    """Check a party file.

    Args:
        path: the file.
        now: this machine's clock.
    """
    try:
        own = read_party_file(path)
    except InputError as error:
        return PartyFindings(mistakes=(str(error),))
    found, certificates = _check_keys(own, now)
    table, hints = None, list[str]()
    if own.data is not None:
        place = own.data.path_from(own.folder)
        found += table_mistakes(place, own.data.column_use, form=own.data.csv_form)
        table = table_overview(own.party, place, own.data.column_use, form=own.data.csv_form)
        hints = snapshot_hint(place, own.data.column_use, form=own.data.csv_form)
        checked = CheckedTable(party=own.party, path=place, use=own.data.column_use, form=own.data.csv_form)
        hints += map(str, find_leaks([checked]))
    return PartyFindings(
        party=own.party,
        mistakes=tuple(found),
        hints=tuple(hints),
        table=table,
        certificates=tuple(certificates),
        peers=tuple(own.peers),
    )


def _check_keys(own: PartyFile, now: Callable[[], datetime]) -> tuple[list[str], list[CertificateEnd]]:
    """Problems with keys and certificates, and the certificates' ends."""
    found, ends = list[str](), list[CertificateEnd]()
    try:
        own.signing_key()
    except InputError as error:
        found.append(f"keys.signing: {error}")
    try:
        shown = Identity.load(
            own.resolve_path(own.keys.certificate), own.resolve_path(own.keys.key), now=now
        ).find_newest(now=now)
    except InputError as error:
        found.append(f"keys.certificate: {error}")
    else:
        if shown.name != own.party:
            found.append(
                f"keys.certificate: {shown.certificate_file} is a certificate of {shown.name!r}, and this is the file "
                f"of {own.party!r}: name its own"
            )
        renew = f"make the next one with: securevfl certs rotate {shown.name}"
        ends.append(_describe_end(shown.name, shown.certificate_file, shown.certificate, renew, now))
    if own.keys.authority is not None:
        file = own.resolve_path(own.keys.authority)
        try:
            (issuer,) = read_certificates(file)
        except InputError as error:
            found.append(f"keys.authority: {error}")
        else:
            end = _describe_end("the authority", file, issuer, "ask it for its next one", now)
            ends.append(end)
            if end.left < timedelta():
                found.append(f"keys.authority: {end}")
    return found, ends


def _describe_end(
    whose: str, file: Path, certificate: Certificate, renew: str, now: Callable[[], datetime]
) -> CertificateEnd:
    left = certificate.not_after - now()
    return CertificateEnd(whose=whose, file=file, until=certificate.not_after, left=left, renew=renew)
