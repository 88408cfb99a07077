"""Approvals: each party's signature over a proposal's bytes; and the agreement, which is a proposal with approvals.

A signature covers a type, its length, the bytes and their length (DSSE's pre-authentication encoding, see
`securevfl.ledger.keys`), so that it is valid for nothing else. It is verified with the key that the proposal itself
names for the party: an approval of another or an older proposal, or by another party, does not verify.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Self

from securevfl_net.durable import write_atomic

from securevfl.agreement.canonical import MOST_BYTES, decode_tree, encode_tree
from securevfl.agreement.proposal import Proposal
from securevfl.config import Config
from securevfl.errors import AuditError, InputError, PeerRefused
from securevfl.ledger import PublicSigningKey
from securevfl.privacy import PrivateKey

__all__ = [
    "SIGNATURE_OF",
    "SIGNED",
    "Agreement",
    "Approval",
    "approval_path",
    "read_agreement",
    "read_bytes",
    "write_approval",
]

SIGNED = "application/vnd.securevfl.agreement+toml;version=1"
"""The type under which a proposal is signed."""

SIGNATURE_OF = "signature of "
"""Begins the name of a party's signature in the ledgers' note of the agreement."""

_HEADER = "# securevfl approval, version 1"
_MOST = 1024
_CODE = "wrong-approval"


class Approval(Config):
    """One party's approval.

    Attributes:
        agreement: SHA-256 of the proposal's bytes, hexadecimal.
        party: who approves.
        signature: over the proposal's bytes, 128 hexadecimal digits.
    """

    agreement: str
    party: str
    signature: str

    @classmethod
    def section_path(cls) -> str:
        return "approval"

    @property
    def file_bytes(self) -> bytes:
        """The form that files and reports have."""
        return encode_tree({"approval": self.describe()}, _HEADER)

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        """Parse an approval; verifies nothing yet, see `Agreement.with_approval`.

        Raises:
            InputError: they are no approval, or not in its one form.
        """
        if len(raw) > _MOST:
            raise InputError(f"an approval has up to {_MOST} bytes; this has {len(raw):,}")
        content = decode_tree(raw, _HEADER, "an approval")
        if set(content) != {"approval"}:
            raise InputError("an approval contains only [approval]: take the file as `securevfl approve` wrote it")
        approval = cls.from_values(content["approval"], "approval")
        if approval.file_bytes != raw:
            raise InputError("the approval was changed by hand: take the file as `securevfl approve` wrote it")
        return approval

    @classmethod
    def sign(cls, proposal: Proposal, party: str, key: PrivateKey) -> Self:
        """A party's approval of a proposal.

        Raises:
            InputError: the proposal does not name the party, or names another key for it.
        """
        named = proposal.card_of(party).public_key
        if key.public_key != named:
            raise InputError(
                f"the agreement names {named.fingerprint} for {party!r}, but your key is "
                f"{key.public_key.fingerprint}: sign with the key of the card, or propose again with a new card"
            )
        return cls(agreement=proposal.digest, party=party, signature=key.sign(SIGNED, proposal.signed_bytes))


@dataclass(frozen=True)
class Agreement:
    """A proposal and the approvals that were verified against it.

    Attributes:
        proposal: what is agreed on.
        approvals: party → its verified approval.
    """

    proposal: Proposal
    approvals: Mapping[str, Approval] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, approval in self.approvals.items():
            if name != approval.party:
                raise AuditError(f"an approval of {approval.party[:40]!a} is listed under {name[:40]!a}")
            self._verify_approval(approval)
        object.__setattr__(self, "approvals", MappingProxyType(dict(sorted(self.approvals.items()))))

    def _verify_approval(self, approval: Approval) -> None:
        party = approval.party
        if party not in self.proposal.party_names:
            raise AuditError(f"an approval of {party[:40]!a}, which is not a party of the agreement")
        if approval.agreement != self.digest:
            raise AuditError(
                f"{party!r} approved agreement {approval.agreement[:16]!a}, this is {self.digest[:16]}: it is an "
                "approval of another one, or of an older version: get the file that was approved from the party that "
                "proposed it, or approve this one"
            )
        try:
            self.proposal.card_of(party).public_key.verify(SIGNED, self.proposal.signed_bytes, approval.signature)
        except AuditError as error:
            raise AuditError(f"the approval of {party!r} does not verify: {error}") from None

    @property
    def digest(self) -> str:
        """SHA-256 of the proposal's bytes, hexadecimal."""
        return self.proposal.digest

    @property
    def missing_parties(self) -> tuple[str, ...]:
        """Parties that have not approved, as far as is known here."""
        return tuple(name for name in self.proposal.party_names if name not in self.approvals)

    @property
    def is_complete(self) -> bool:
        """Whether all parties have approved."""
        return not self.missing_parties

    def public_key(self, party: str) -> PublicSigningKey:
        """A party's public signing key.

        Raises:
            UnknownNameError: no such party.
        """
        return self.proposal.card_of(party).public_key

    def with_approval(self, approval: Approval | bytes) -> Agreement:
        """The agreement with one more approval.

        Args:
            approval: or the bytes of its file.

        Raises:
            InputError: bytes that are no approval.
            AuditError: it does not verify, is of another proposal, or of nobody.
        """
        if isinstance(approval, bytes):
            approval = Approval.decode(approval)
        return Agreement(self.proposal, {**self.approvals, approval.party: approval})

    def with_approval_of(self, peer: str, raw: bytes) -> Agreement:
        """The agreement with the approval that a peer sent.

        Args:
            peer: who sent it.
            raw: its bytes, not to be trusted.

        Raises:
            PeerRefused: it is not an approval, or not the peer's own approval of this proposal.
        """
        try:
            approval = Approval.decode(raw)
            if approval.party != peer:
                raise AuditError(f"it is an approval of {approval.party[:40]!a}; each party sends its own")
            return self.with_approval(approval)
        except (InputError, AuditError) as error:
            raise PeerRefused(_CODE, f"{peer!r} sent an approval that is refused: {error}") from None

    def require_all(self) -> None:
        """Do nothing, unless approvals are missing.

        Raises:
            InputError: some are, and of whom.
        """
        if self.missing_parties:
            raise InputError(
                f"agreement {self.digest[:16]} is not approved by {', '.join(self.missing_parties)}: each runs "
                "`securevfl approve` and sends its .approval file; put it beside the agreement"
            )

    def ledger_note(self) -> dict[str, str]:
        """Facts of the agreement for every ledger: its digest, and each party's signature."""
        return {"agreement": self.digest, "id": self.proposal.id} | {
            f"{SIGNATURE_OF}{name}": approval.signature for name, approval in self.approvals.items()
        }


def approval_path(agreement: str | Path, party: str) -> Path:
    """Path of a party's approval: beside the agreement, named after it and the party."""
    file = Path(agreement)
    return file.with_name(f"{file.name}.{party}.approval")


def write_approval(agreement: str | Path, approval: Approval) -> Path:
    """Write an approval beside its agreement; the path."""
    path = approval_path(agreement, approval.party)
    write_atomic(path, approval.file_bytes)
    return path


def read_bytes(path: str | Path, what: str, most: int) -> bytes:
    """A file's bytes, of bounded length.

    Raises:
        InputError: it cannot be read, or is longer.
    """
    file = Path(path)
    try:
        with file.open("rb") as stream:
            raw = stream.read(most + 1)
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}): name {what}") from None
    if len(raw) > most:
        raise InputError(f"{file} has more than {most:,} bytes: name {what}")
    return raw


def read_agreement(path: str | Path, *, approvals: Iterable[str | Path] = ()) -> Agreement:
    """Read an agreement file and the approvals beside it.

    Args:
        path: of the file that `securevfl propose` wrote.
        approvals: further files of approvals.

    Raises:
        InputError: a file that cannot be read or is not in its one form.
        AuditError: an approval that does not verify.
    """
    file = Path(path)
    try:
        proposal = Proposal.decode(read_bytes(file, "an agreement of `securevfl propose`", MOST_BYTES))
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    agreement = Agreement(proposal)
    beside = [approval_path(file, name) for name in proposal.party_names]
    for one in [*(found for found in beside if found.exists()), *map(Path, approvals)]:
        try:
            agreement = agreement.with_approval(read_bytes(one, "an approval", _MOST))
        except InputError as error:
            raise InputError(f"{one}: {error}") from None
        except AuditError as error:
            raise AuditError(f"{one}: {error}") from None
    return agreement
