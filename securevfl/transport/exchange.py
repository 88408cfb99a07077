"""Declared exchanges: the messages of a protocol, declared before it sends any.

An algorithm, a protection and the alignment each declare their messages here. The link refuses undeclared messages at
both ends. Receipts, refusals, findings, the threat model's tables and the ledger's checks read the same declarations,
so that none of them keeps a separate list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from securevfl.errors import ProtocolError
from securevfl.transport.kinds import Kind

__all__ = ["ACTIVE", "COORDINATOR", "PASSIVE", "Exchange", "Exchanges", "PartyRole", "Severity", "Sight"]

PartyRole = Literal["active", "passive", "coordinator"]
ACTIVE: PartyRole = "active"
PASSIVE: PartyRole = "passive"
COORDINATOR: PartyRole = "coordinator"

Severity = Literal["ok", "note", "leak"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sight:
    """One thing that a message discloses about somebody's data: a declaration's text in structured form, for a table.

    Attributes:
        of: the data disclosed: ``"features"``, ``"labels"``, or ``"rows"``: which of them train, or are known.
        severity: of that.
        through: the source of the disclosure, in a few words.
        view: what ``measured.json`` calls it, where attacks on it were measured; empty otherwise.
        epsilon: planned ε of it over all releases; None without noise, infinite if the plan sets no limit.
        auc: largest AUC with which anybody can rank one bit of a row at that ε; None without noise.
        budget: what else bounds it, with the figure, in a few words; empty where nothing does.
        result: whether it is what the job is for: its receiver is given it under every protection.
        numbers: of a result: the most numbers of each row that its receiver is ever given; None where nothing bounds
            them.
    """

    of: Literal["features", "labels", "rows"]
    severity: Severity
    through: str
    view: str = ""
    epsilon: float | None = None
    auc: float | None = None
    budget: str = ""
    result: bool = False
    numbers: int | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """One declared message: a step of a protocol, in one direction.

    Attributes:
        step: the message's name, for example ``"cut/forward"``.
        kind: what sort of information it carries.
        sender: role of the party that sends it.
        receiver: role of the party that receives it.
        words: its description, for receipts.
        reveals: what its receiver learns about its sender, for findings; empty if it learns nothing beyond sizes and
            timing.
        severity: of what it reveals: ``"ok"`` harmless by design, ``"note"`` a known, limited leak, ``"leak"`` readable
            data.
        of_others: what its receiver learns about each other party of the receiver's role whose values went into it;
            empty if no such values did.
        others_severity: of that.
        sights: the parts of what it reveals, for the table of parties and data; without them a reader applies the
            severity to everything that the sender has.
        others_sights: likewise for `of_others`.
        ciphers: the ciphers under which it may cross; empty where it crosses in the clear or masked.
        key_bits: smallest Paillier modulus under which it may cross.
        opened: what the owner of the key reads when it decrypts the message; None if it opens nothing per row.
        noised: whether it must carry differentially private noise.
        optional: whether a run may do without it: where it depends on sizes, or on what parties agree on as they begin.
    """

    step: str
    kind: Kind
    sender: PartyRole
    receiver: PartyRole
    words: str
    reveals: str = ""
    severity: Severity = "ok"
    of_others: str = ""
    others_severity: Severity = "ok"
    ciphers: frozenset[str] = frozenset()
    key_bits: int = 0
    opened: Kind | None = None
    noised: bool = False
    optional: bool = False
    sights: tuple[Sight, ...] = ()
    others_sights: tuple[Sight, ...] = ()


class Exchanges:
    """Everything that a run may send, by step and direction.

    Args:
        declared: the declarations of the alignment, the protection, the algorithm and the party's program.

    Raises:
        ProtocolError: two declarations of one step and kind contradict each other.
    """

    def __init__(self, declared: Iterable[Exchange]) -> None:
        self._by: dict[tuple[str, Kind, PartyRole, PartyRole], Exchange] = {}
        self._words: dict[str, str] = {}
        for exchange in declared:
            key = (exchange.step, exchange.kind, exchange.sender, exchange.receiver)
            if self._by.setdefault(key, exchange) != exchange:
                raise ProtocolError(f"{exchange.step!r} is declared twice, and differently: declare each message once")
            self._words.setdefault(exchange.step, exchange.words)

    def __iter__(self) -> Iterator[Exchange]:
        return iter(self._by.values())

    def __len__(self) -> int:
        return len(self._by)

    @property
    def descriptions(self) -> Mapping[str, str]:
        """Step → its description, for receipts."""
        return self._words

    def declared_between(self, sender: PartyRole, receiver: PartyRole) -> Mapping[tuple[str, Kind], Exchange]:
        """Messages that a party in one role may send to a party in another, by step and kind."""
        return {
            (step, kind): exchange
            for (step, kind, from_, to), exchange in self._by.items()
            if (from_, to) == (sender, receiver)
        }

    def find(self, step: str, kind: Kind) -> Exchange | None:
        """The first declaration of a step and kind, in any direction."""
        return next((e for e in self._by.values() if (e.step, e.kind) == (step, kind)), None)
