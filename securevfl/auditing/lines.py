"""Add up what left and reached each party by the ledgers, and whether the run declared it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from securevfl.ledger import Flaw
from securevfl.privacy import READABLE_KINDS, SCHEMES, Entry, LedgerChain
from securevfl.transport import Guard, Kind, Scalar

__all__ = ["AuditLine", "find_undeclared", "sum_up_chain"]

_MASKED = "it has the key, and opens numbers under the sender's mask, or a sum of such over parties"
_ALL = "it has the key: all that was encrypted"


@dataclass(frozen=True, slots=True)
class AuditLine:
    """Traffic between one party and one peer in one direction, step, protection and run.

    Attributes:
        run: name of the run in the ledgers.
        party: the owner of the ledger.
        way: ``"sent"`` or ``"received"``.
        peer: to or from whom.
        kind: of the messages.
        what: the step of the protocol that they belong to.
        guard: how they were protected.
        opens: whether the receiver has the key.
        messages: how many.
        bytes: how many, as the wire codec writes them.
        words: the step, in words, as the run declared it.
        declared: what the receiver learns by the run's declarations, empty for nothing; None if the ledger contains no
            declarations (version 0.1).
    """

    run: str
    party: str
    way: str
    peer: str
    kind: Kind
    what: str
    guard: Guard
    opens: bool
    messages: int
    bytes: int
    words: str
    declared: str | None

    @property
    def protection(self) -> str:
        """The protection, as text."""
        if self.guard.cipher == "none" and not self.guard.noise and self.kind not in READABLE_KINDS:
            return "none needed" if self.kind in (Kind.CONTROL, Kind.PUBLIC_KEY, Kind.MASKED_SHARE) else "none"
        return self.guard.description

    @property
    def reveals(self) -> str:
        """What the receiver can compute from it."""
        if self.guard.cipher in SCHEMES:
            text = Kind.CIPHERTEXT.disclosure
            if self.opens:
                text = (
                    _ALL if self.declared is None else f"it has the key: {self.declared}" if self.declared else _MASKED
                )
        elif self.declared:
            text = self.declared
        elif self.guard.cipher == "masked":
            text = Kind.MASKED_SHARE.disclosure
        else:
            text = self.kind.disclosure
        return f"{text}, up to the noise" if self.guard.noise and (self.opens or self.is_readable) else text

    @property
    def is_readable(self) -> bool:
        """Whether the receiver reads row-level content itself, with or without noise."""
        return self.kind in READABLE_KINDS and self.guard.cipher == "none"


def sum_up_chain(chain: LedgerChain) -> list[AuditLine]:
    """Sum up one chain: one line for each peer, step and protection, sent messages first."""
    owners, declared = _key_owners(chain), _read_declarations(chain)
    tally: dict[tuple[str, str, Kind, str, Guard], list[int]] = {}
    for entry in chain.entries:
        pair = tally.setdefault((entry.way, entry.peer, entry.kind, entry.what, entry.guard), [0, 0])
        pair[0] += 1
        pair[1] += entry.bytes
    return [
        AuditLine(
            run=chain.run,
            party=chain.party,
            way=way,
            peer=peer,
            kind=kind,
            what=what,
            guard=guard,
            opens=owners.get(guard.key) == (peer if way == "sent" else chain.party),
            messages=messages,
            bytes=size,
            words=str(declared.get((what, kind.value), {}).get("words", what)),
            declared=str(declared[what, kind.value].get("reveals", "")) if declared else None,
        )
        for (way, peer, kind, what, guard), (messages, size) in sorted(
            tally.items(), key=lambda item: item[0][0] != "sent"
        )
    ]


def _read_declarations(chain: LedgerChain) -> dict[tuple[str, str], Mapping[str, Scalar]]:
    """The run's declarations in the ledger, by step and kind."""
    return {
        (str(n.values.get("step")), str(n.values.get("kind"))): n.values for n in chain.notes if n.note == "exchange"
    }


def find_undeclared(chain: LedgerChain) -> Iterator[Flaw]:
    """Messages that the run did not declare: of this step and kind, from a party in this role to one in that role."""
    allowed = {
        tuple(str(note.values.get(name)) for name in ("step", "kind", "sender", "receiver"))
        for note in chain.notes
        if note.note == "exchange"
    }
    if not allowed:
        return
    steps = {found[:2] for found in allowed}
    told = set()
    for at, entry in zip(chain.at, chain.entries, strict=True):
        what = entry.what, entry.kind.value
        ends = _entry_roles(chain, entry)
        if what in steps and (ends is None or (*what, *ends) in allowed):
            continue
        if (what, ends) in told:
            continue
        told.add((what, ends))
        way = "" if ends is None else f" from {ends[0]} to {ends[1]} party"
        yield Flaw(
            chain.file, at, chain.party, f"{entry.kind.value} {entry.what!r}{way}, which the run did not declare"
        )


def _entry_roles(chain: LedgerChain, entry: Entry) -> tuple[str, str] | None:
    """The roles of sender and receiver; None if the ledger lacks them, before the parties have met."""
    peer = chain.peers.get(entry.peer)
    if peer is None:
        return None
    mine = chain.opening.role
    return (mine, peer.role) if entry.way == "sent" else (peer.role, mine)


def _key_owners(chain: LedgerChain) -> dict[str, str]:
    """Key → owner of the secret key: the first sender under it, because the owner begins each protocol here."""
    owners: dict[str, str] = {}
    for entry in chain.entries:
        if entry.cipher in SCHEMES:
            owners.setdefault(entry.key, chain.party if entry.way == "sent" else entry.peer)
    return owners
