"""Decide which peers to accept: by pinned certificate, or by an authority's certificate with the exact name and a
revocation list.

Nothing is trusted by default: a party without an entry is refused, and an authority requires a revocation list. OpenSSL
checks signatures and that the peer has its key. This module checks the rest after the TLS handshake, so that both sides
can get the reason in words: the name, the time with a tolerance (OpenSSL has none), the revocation list with a grace
period, and other connections under the same name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from securevfl_net.durable import write_atomic
from securevfl_net.errors import InputError
from securevfl_net.identity.certificate import TOLERANCE, Certificate, format_time, read_certificates, utc_now
from securevfl_net.identity.endorsement import Endorsement, Verifier
from securevfl_net.identity.files import read_bounded
from securevfl_net.identity.refusal import Refusal, RefusalCode
from securevfl_net.identity.revocation import RevocationList

__all__ = ["GRACE", "Authority", "PeerBook", "Pin"]

GRACE: Final = timedelta(hours=24)
"""Default time that a revocation list stays valid after its nextUpdate."""
_STORED = 4 << 20
"""Maximum bytes of the file of accepted endorsements."""


@dataclass(frozen=True)
class Pin:
    """A peer identified by one of these exact certificates, whoever issued them."""

    certificates: tuple[Certificate, ...]

    @classmethod
    def from_files(cls, files: Iterable[str | Path], fingerprints: Iterable[str] | None = None) -> Pin:
        """Read PEM files.

        Args:
            files: one certificate each.
            fingerprints: SHA-256 fingerprints in the agreement, 64 lower-case hexadecimal digits. Files and
                fingerprints must match one to one, because TLS needs the full certificate.

        Raises:
            InputError: a file cannot be used, or does not match the agreement.
        """
        paths = [Path(file) for file in files]
        found = tuple(read_certificates(path)[0] for path in paths)
        if fingerprints is not None:
            agreed = set(fingerprints)
            for path, certificate in zip(paths, found, strict=True):
                if certificate.fingerprint not in agreed:
                    raise InputError(
                        f"{path} has the fingerprint {certificate.fingerprint}, which is not in the agreement: "
                        f"ask the party for the file with {', '.join(sorted(agreed))}"
                    )
            if missing := agreed - {certificate.fingerprint for certificate in found}:
                raise InputError(
                    f"no file contains the agreed certificate {', '.join(sorted(missing))}: ask its party for it"
                )
        return cls(found)


@dataclass(frozen=True)
class Authority:
    """A peer identified by a certificate that an authority issued directly, naming exactly ``securevfl:party/NAME``.

    Attributes:
        certificate: the authority that signs the parties' certificates. If a company has a root and intermediate
            authorities, name the one that signs, not the root.
        crl: file with its revocation list, PEM or DER; `PeerBook.reload` reads it again.
    """

    certificate: Certificate
    crl: Path

    @classmethod
    def from_files(cls, file: str | Path, crl: str | Path, fingerprint: str | None = None) -> Authority:
        """Read it from files.

        Args:
            file: the authority's certificate, PEM.
            crl: its revocation list.
            fingerprint: SHA-256 fingerprint in the agreement, 64 hexadecimal digits.

        Raises:
            InputError: a file cannot be used, or does not match the agreement.
        """
        (found,) = read_certificates(file)
        if not found.authority:
            raise InputError(
                f"{file} is not an authority's certificate (basicConstraints): give the authority's, or pin this one"
            )
        if fingerprint is not None and found.fingerprint != fingerprint:
            raise InputError(f"{file} has the fingerprint {found.fingerprint}; the agreement names {fingerprint}")
        return cls(found, Path(crl))


class PeerBook:
    """The peers of one party in one job.

    Args:
        me: this party's name.
        peers: how to recognise each peer.
        agreement: SHA-256 of the proposal's bytes, 32 bytes; endorsements are valid only for it. Empty: accept no
            endorsements.
        signers: the parties' signing keys in the agreement.
        grace: how long a revocation list stays valid after its nextUpdate.
        store: file that keeps accepted endorsements across restarts; by default none are kept.
        now: this machine's clock.

    Raises:
        InputError: two parties have the same certificate, this party is among its peers, or a revocation list cannot be
            used.
    """

    def __init__(
        self,
        me: str,
        peers: Mapping[str, Pin | Authority],
        *,
        agreement: bytes = b"",
        signers: Mapping[str, Verifier] | None = None,
        grace: timedelta = GRACE,
        store: Path | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.me = me
        self.peers = dict(peers)
        self.now = now
        self.grace = grace
        self.version = 0
        """Increases when a new certificate is pinned and TLS contexts must be rebuilt."""
        self.clocks: dict[str, timedelta] = {}
        """How far each peer's clock was ahead of this one's at its last connection."""
        self._agreement = agreement
        self._signers = dict(signers or {})
        self._store = store
        self._pinned: dict[str, str] = {}  # fingerprint → party
        self._certificates: dict[str, Certificate] = {}  # by fingerprint, all that were ever pinned
        self._retired: dict[str, str] = {}  # fingerprint → why
        self._lists: dict[Path, RevocationList] = {}
        self._newest: dict[str, tuple[int, bytes, str]] = {}  # party → counter, payload, fingerprint
        if me in self.peers:
            raise InputError(f"{me!r} is this party and also among its peers: two parties have the same name")
        for party, rule in self.peers.items():
            for certificate in rule.certificates if isinstance(rule, Pin) else ():
                self._pin_certificate(party, certificate)
        self.reload()
        if store is not None and store.exists():
            self._restore_endorsements(store)

    def identify_peer(self, der: bytes | None, *, expected: str = "", live: Mapping[str, str] | None = None) -> str:
        """Return the party whose certificate this is, or refuse it. Call it again for live connections: the certificate
        may have been revoked since.

        Args:
            der: the certificate that the peer showed in TLS and has the key of.
            expected: the party that was dialed; empty if any peer may connect.
            live: party → fingerprint of live connections; another certificate under one of these names is a second
                party.

        Returns:
            The party's name.

        Raises:
            Refusal: the peer is not accepted; gives the reason.
        """
        if not der:
            raise Refusal(RefusalCode.NO_CERTIFICATE, "the peer showed no certificate; each party must show its own")
        try:
            found = Certificate.from_der(der)
        except InputError as error:
            raise Refusal(RefusalCode.UNFIT, f"the peer shows {error}") from None
        party = self._find_party(found)
        self._check_time(found, party)
        rule = self.peers[party]
        if found.fingerprint in self._retired:
            raise Refusal(RefusalCode.REVOKED, self._retired[found.fingerprint], party=party)
        if isinstance(rule, Authority):
            self._lists[rule.crl].check_certificate(found, party, self.now(), self.grace)
        if expected and party != expected:
            raise Refusal(
                RefusalCode.OTHER_NAME, f"dialed {expected!r}, but {party!r} answers: check the address", party=party
            )
        other = (live or {}).get(party, found.fingerprint)
        if other != found.fingerprint:
            raise Refusal(
                RefusalCode.TWO_OF_ONE_NAME,
                f"{party!r} is connected with the certificate {other[:16]}…, and another connection shows "
                f"{found.fingerprint[:16]}…: two parties have the same name",
                party=party,
            )
        return party

    def record_use(self, party: str, fingerprint: str) -> None:
        """Record that a peer showed a certificate. Once it is the latest endorsed one, earlier ones are refused."""
        counter, _, newest = self._newest.get(party, (0, b"", ""))
        if fingerprint != newest:
            return
        older = {known for known, whose in self._pinned.items() if whose == party} - {newest, *self._retired}
        if not older:
            return
        for known in older:
            self._retired[known] = (
                f"{party!r} replaced the certificate {known[:16]}… by {newest[:16]}…, endorsed with counter {counter}"
            )
        self._save_endorsements()
        self.version += 1

    def accept_endorsement(self, payload: bytes, *, sender: str = "") -> Endorsement:
        """Pin a new certificate that a peer endorsed with its signing key.

        Earlier certificates stay accepted until the new one is first seen, see `used`.

        Args:
            payload: bytes from `Endorsement.to_signed_bytes`.
            sender: the peer that sent it; empty for a file.

        Raises:
            Refusal: another agreement, party or key, or a counter that is not higher than the last one.
        """
        found = Endorsement.parse_payload(payload)
        party = found.party
        if sender and party != sender:
            raise Refusal(
                RefusalCode.ENDORSEMENT,
                f"{sender!r} sent an endorsement for {party!r}; each sends only its own",
                party=sender,
            )
        if party not in self.peers or party not in self._signers:
            raise Refusal(
                RefusalCode.NOT_IN_AGREEMENT, f"an endorsement for {party!r}, who has no signing key in this job"
            )
        if not isinstance(self.peers[party], Pin):
            raise Refusal(
                RefusalCode.ENDORSEMENT,
                f"{party!r} is identified by an authority, which must issue its new certificates",
                party=party,
            )
        Endorsement.check_payload(payload, self._signers[party])
        if not self._agreement or found.agreement != self._agreement:
            raise Refusal(
                RefusalCode.ENDORSEMENT,
                f"endorsed for agreement {found.agreement.hex()[:16]}…, but this one is {self._agreement.hex()[:16]}…",
                party=party,
            )
        if found.certificate.names != (party,):
            raise Refusal(
                RefusalCode.OTHER_NAME,
                f"{party!r} endorses a certificate that names {found.certificate.names}",
                party=party,
            )
        counter, last, _ = self._newest.get(party, (0, b"", ""))
        if payload == last:
            return found  # said again after a reconnect
        if found.counter <= counter:
            raise Refusal(
                RefusalCode.ENDORSEMENT,
                f"an endorsement with counter {found.counter}; the last counter was {counter}",
                party=party,
            )
        if found.certificate.fingerprint in self._retired or found.certificate.authority:
            raise Refusal(
                RefusalCode.ENDORSEMENT, f"{party!r} endorses a certificate that was replaced before, or an authority's"
            )
        self._check_time(found.certificate, party)
        try:
            self._pin_certificate(party, found.certificate)
        except InputError as error:
            raise Refusal(RefusalCode.TWO_OF_ONE_NAME, str(error), party=party) from None
        self._newest[party] = found.counter, payload, found.certificate.fingerprint
        self._save_endorsements()
        self.version += 1
        return found

    def newest_endorsements(self) -> list[tuple[bytes, str]]:
        """The newest endorsement of each party, with the new certificate's fingerprint if it was seen. For the party's
        gate.
        """
        return [
            (payload, newest if self._is_replaced(party, newest) else "")
            for party, (_, payload, newest) in sorted(self._newest.items())
        ]

    def _is_replaced(self, party: str, newest: str) -> bool:
        return any(
            whose == party and known in self._retired for known, whose in self._pinned.items() if known != newest
        )

    def certificate_ends(self) -> dict[str, datetime]:
        """Peer → when the certificate ends by which it is accepted: the newest endorsed one, or the pinned one that
        lasts longest. Where an authority issues a peer's certificates, when the authority's own ends.
        """
        found = {}
        for party, rule in self.peers.items():
            if isinstance(rule, Authority):
                found[party] = rule.certificate.not_after
                continue
            newest = self._newest.get(party, (0, b"", ""))[2]
            pinned = [known for known, whose in self._pinned.items() if whose == party and known not in self._retired]
            known = [newest] if newest else pinned
            if known:
                found[party] = max(self._certificates[one].not_after for one in known)
        return found

    def list_ends(self) -> dict[str, datetime]:
        """Peer → until when the revocation list of its authority is valid, its grace included."""
        return {
            party: self._lists[rule.crl].due + self.grace
            for party, rule in self.peers.items()
            if isinstance(rule, Authority)
        }

    def reload(self) -> None:
        """Read the revocation lists again. Afterwards, call `identify_peer` again for every live connection.

        Raises:
            InputError: a list cannot be used, or is older than the one in memory, which stays in use.
        """
        for rule in self.peers.values():
            if not isinstance(rule, Authority):
                continue
            found = RevocationList.read(rule.crl, rule.certificate)
            known = self._lists.get(rule.crl)
            if known is not None and not found.is_not_older(known):
                raise InputError(
                    f"{rule.crl} was made {format_time(found.made)}, but a list of {format_time(known.made)} was "
                    "read before: an older list would accept revoked certificates again"
                )
            self._lists[rule.crl] = found

    def trust_anchors(self) -> tuple[bytes, ...]:
        """DER of OpenSSL's trust anchors: pinned certificates and authorities."""
        pinned = [self._certificates[known].der for known in self._pinned if known not in self._retired]
        issuers = [rule.certificate.der for rule in self.peers.values() if isinstance(rule, Authority)]
        return tuple(dict.fromkeys([*pinned, *issuers]))

    def _find_party(self, found: Certificate) -> str:
        if self.me in found.names:
            raise Refusal(
                RefusalCode.TWO_OF_ONE_NAME,
                f"the peer shows a certificate of {self.me!r}, which is this party: two parties have the same name",
                party=self.me,
            )
        pinned = self._pinned.get(found.fingerprint)
        if pinned is not None:
            return pinned
        authorities = [rule for rule in self.peers.values() if isinstance(rule, Authority)]
        issuers = {rule.certificate for rule in authorities if found.issued_by(rule.certificate)}
        if not issuers:
            words = f"{found.fingerprint[:16]}… is neither pinned here nor issued by an authority of this job"
            ask = "compare fingerprints; if the peer has replaced it, get its endorsement"
            raise Refusal(RefusalCode.UNKNOWN_CA, f"{words}: {ask}")
        try:
            name = found.name
        except InputError as error:
            code = RefusalCode.TWO_OF_ONE_NAME if found.names else RefusalCode.OTHER_NAME
            raise Refusal(code, str(error)) from None
        rule = self.peers.get(name)
        if rule is None:
            raise Refusal(
                RefusalCode.NOT_IN_AGREEMENT,
                f"{name!r} is not a party of this job; peers are {', '.join(sorted(self.peers))}",
            )
        if not isinstance(rule, Authority) or rule.certificate not in issuers:
            known = "a pin" if isinstance(rule, Pin) else "another authority"
            words = (
                f"the certificate names {name!r}, who is identified here by {known}: ask the party for the right file"
            )
            raise Refusal(RefusalCode.UNKNOWN_CA, words, party=name)
        return name

    def _check_time(self, found: Certificate, party: str) -> None:
        now = self.now()
        if now < found.not_before - TOLERANCE:
            raise Refusal(
                RefusalCode.NOT_YET_VALID,
                f"{party!r} shows a certificate valid from {format_time(found.not_before)}; this machine's clock "
                f"reads {format_time(now)} (tolerance 5 min)",
                party=party,
            )
        if now > found.not_after + TOLERANCE:
            raise Refusal(
                RefusalCode.EXPIRED,
                f"{party!r} shows a certificate valid until {format_time(found.not_after)}; this machine's clock "
                f"reads {format_time(now)} (tolerance 5 min)",
                party=party,
            )

    def _pin_certificate(self, party: str, certificate: Certificate) -> None:
        if certificate.names not in {(), (party,)}:
            names = ", ".join(certificate.names)
            raise InputError(f"the certificate {certificate.fingerprint[:16]}… pinned for {party!r} names {names}")
        other = self._pinned.setdefault(certificate.fingerprint, party)
        if other != party:
            raise InputError(
                f"{party!r} and {other!r} have the same certificate, {certificate.fingerprint}: each party must "
                "make its own"
            )
        self._certificates[certificate.fingerprint] = certificate

    def _save_endorsements(self) -> None:
        if self._store is None:
            return
        whole = {
            "endorsements": {party: payload.hex() for party, (_, payload, _) in sorted(self._newest.items())},
            "replaced": dict(sorted(self._retired.items())),
        }
        write_atomic(self._store, json.dumps(whole).encode(), private=True)

    def _restore_endorsements(self, store: Path) -> None:
        content = read_bounded(store, _STORED, "the accepted endorsements")
        try:
            whole = json.loads(content)
            payloads = [bytes.fromhex(text) for text in whole["endorsements"].values()]
            retired = {str(known): str(why) for known, why in whole["replaced"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{store} is damaged: delete it and ask the peers for their endorsements again") from None
        for payload in payloads:
            found = Endorsement.parse_payload(payload)
            if found.party not in self.peers or found.agreement != self._agreement or found.party not in self._signers:
                raise InputError(f"{store} contains an endorsement of another job: use a state folder per job")
            Endorsement.check_payload(payload, self._signers[found.party])
            self._pin_certificate(found.party, found.certificate)
            self._newest[found.party] = found.counter, payload, found.certificate.fingerprint
        self._retired = retired
