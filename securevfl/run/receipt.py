"""The protection receipt: what crossed each link and under which protection, counted from the ledgers rather than from
the job.

And the check behind it: a protection that was asked for must be seen at work in the ledgers, or the run is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from securevfl.errors import ProtectionInactive
from securevfl.party import Job
from securevfl.privacy import READABLE_KINDS, Accountant, Entry, Ledger, Spent
from securevfl.report.record import EpsilonRecord, EpsilonTotal, LinkRecord, ReceiptLine
from securevfl.transport import ACTIVE, PASSIVE, Exchanges, Guard, Kind

__all__ = [
    "check_recorded_protection",
    "epsilon_records",
    "epsilon_totals",
    "link_records",
    "message_summary",
    "worst_epsilon",
]

_HARMLESS = frozenset({Kind.CONTROL, Kind.PUBLIC_KEY})


def message_summary(ledgers: Mapping[str, Ledger], words: Mapping[str, str]) -> list[ReceiptLine]:
    """One line for each link, step and protection, in the order of the sender's ledger, or of the receiver's if the
    sender's is not available.

    Args:
        ledgers: party → its ledger.
        words: step → its description from the job's declarations.
    """
    lines: dict[tuple[str, str, str, Kind, Guard], list[int]] = {}
    for sender, receiver, entry in _iter_messages(ledgers):
        tally = lines.setdefault((sender, receiver, entry.what, entry.kind, entry.guard), [0, 0])
        tally[0] += 1
        tally[1] += entry.bytes
    return [
        ReceiptLine(
            sender=sender,
            receiver=peer,
            what=words.get(what, what),
            kind=kind.value,
            protection=_describe_protection(kind, guard),
            protected=not _is_readable(kind, guard),
            messages=messages,
            bytes=size,
        )
        for (sender, peer, what, kind, guard), (messages, size) in lines.items()
    ]


def link_records(ledgers: Mapping[str, Ledger], *, only: str = "") -> list[LinkRecord]:
    """Messages and bytes in each direction of each used link, as far as these ledgers show.

    Args:
        ledgers: party → its ledger.
        only: how the steps that count begin.
    """
    tally: dict[tuple[str, str], list[int]] = {}
    for sender, receiver, entry in _iter_messages(ledgers):
        if not entry.what.startswith(only):
            continue
        pair = tally.setdefault((sender, receiver), [0, 0])
        pair[0] += 1
        pair[1] += entry.bytes
    return [LinkRecord(sender=a, receiver=b, messages=n, bytes=size) for (a, b), (n, size) in tally.items()]


def epsilon_records(spent: Mapping[str, Sequence[Spent]]) -> list[EpsilonRecord]:
    """One line for each party and kind of release.

    Args:
        spent: party → what its releases cost.
    """
    return [
        EpsilonRecord(
            party=name,
            what=one.what,
            epsilon_rdp=one.epsilon_rdp,
            epsilon_prv=one.epsilon_prv,
            delta=one.delta,
            releases=one.times,
            noise_multiplier=one.noise_multiplier,
            clip=one.clip,
            epsilon_exact=one.epsilon_exact,
        )
        for name, releases in spent.items()
        for one in releases
    ]


def epsilon_totals(spent: Mapping[str, Sequence[Spent]]) -> list[EpsilonTotal]:
    """Total ε of each party's features and labels: the composition of its releases.

    Args:
        spent: party → what its releases cost.
    """
    found = []
    for name, releases in spent.items():
        if not releases:
            continue
        accountant = Accountant(name, max(one.delta for one in releases))
        for one in releases:
            accountant.add(one.release, one.protects)
        exact = all(one.exact for one in releases)
        for total in accountant.compute_totals():
            about = "" if " and " in total.protects else total.protects
            found.append(
                EpsilonTotal(**asdict(total), epsilon_exact=accountant.epsilon_exact(about) if exact else None)
            )
    return found


def worst_epsilon(spent: Mapping[str, Sequence[Spent]]) -> dict[str, float]:
    """``"ε of features"``, ``"ε of labels"`` … → ε by RDP of the party that spent most; see `epsilon_totals`."""
    found: dict[str, float] = {}
    for one in epsilon_totals(spent):
        name = f"ε of {one.protects}"
        found[name] = max(one.epsilon_rdp, found.get(name, 0.0))
    return found


def check_recorded_protection(
    job: Job, ledgers: Mapping[str, Ledger], passive: Sequence[str], *, resumed: bool = False
) -> None:
    """Check the ledgers against the job's declarations.

    Args:
        job: what was asked for.
        ledgers: party → its ledger.
        passive: the passive parties' names.
        resumed: whether the run resumed from a checkpoint, so that no training message may be left to expect.

    Raises:
        ProtectionInactive: a protection was asked for and is not to be seen in what was sent.
    """
    dp = job.protection.dp
    if not passive:
        if dp is not None and dp.model is None:
            raise ProtectionInactive(
                "differential privacy was asked for, but a party alone releases nothing: leave it out"
            )
        return
    training = Exchanges(job.algorithm.exchanges(job.protection, len(passive)))
    if not len(training):
        return
    content_kinds = READABLE_KINDS | {Kind.CIPHERTEXT, Kind.SHARE}
    speaking = {e.sender for e in training if e.kind in content_kinds}
    for name, ledger in ledgers.items():
        sent = _count_sent(ledger)
        peers = {entry.peer for entry, _ in sent}
        content = [one for one in sent if one[0].kind in content_kinds]
        if not content and not resumed and (PASSIVE if name in passive else ACTIVE) in speaking:
            total = sum(count for _, count in sent)
            raise ProtectionInactive(f"{name!r} sent nothing to train with ({total} messages to {sorted(peers)})")
        if job.protection.is_sealed:
            _check_sealed(name, content, training)
        asked = dp is not None and (dp.features if name in passive else dp.gradient_noise) is not None
        row_level = [entry for entry, _ in content if _row_level(entry, training)]
        if asked and content and not any(entry.noise > 0 for entry in row_level):
            raise ProtectionInactive(f"{name!r} was to add differentially private noise, and no message carries any")


def _row_level(entry: Entry, training: Exchanges) -> bool:
    """Whether a message carries row values, readable or encrypted."""
    exchange = training.find(entry.what, entry.kind)
    return entry.kind in READABLE_KINDS or (exchange is not None and bool(exchange.ciphers))


def _check_sealed(name: str, content: list[tuple[Entry, int]], training: Exchanges) -> None:
    """Check that every message crossed under a cipher and a key size that its declaration allows."""
    readable = [one for one in content if one[0].kind in READABLE_KINDS]
    if readable:
        raise ProtectionInactive(
            f"{name!r} sent {sum(count for _, count in readable)} messages that their receiver can read, the first "
            f"{readable[0][0].what!r}; the job asked for all to be sealed"
        )
    for entry, _ in content:
        if entry.kind is Kind.SHARE and entry.cipher == "masked":
            continue
        exchange = training.find(entry.what, entry.kind)
        allowed = frozenset() if exchange is None else exchange.ciphers
        bits = 0 if exchange is None else exchange.key_bits
        if entry.cipher not in allowed or (entry.cipher == "paillier" and entry.bits < bits):
            size = f" of {bits} bits" if bits and allowed == {"paillier"} else ""
            raise ProtectionInactive(
                f"{name!r} sent {entry.what!r} under {entry.guard.description}; the job asked for "
                f"{' or '.join(sorted(allowed)) or 'nothing of the kind'}{size}"
            )


def _iter_messages(ledgers: Mapping[str, Ledger]) -> Iterator[tuple[str, str, Entry]]:
    """Sender, receiver and line of each message: the sender's line, or the receiver's where that is not here."""
    for party, ledger in sorted(ledgers.items()):
        for entry in ledger.iter_entries():
            if entry.way == "sent":
                yield party, entry.peer, entry
            elif entry.peer not in ledgers:
                yield entry.peer, party, entry


def _count_sent(ledger: Ledger) -> list[tuple[Entry, int]]:
    """The first of all messages that a party sent alike, and how many there are: of days of training, a few lines."""
    found: dict[tuple[str, str, Kind, Guard], Entry] = {}
    count: dict[tuple[str, str, Kind, Guard], int] = {}
    for entry in ledger.iter_entries():
        if entry.way == "sent":
            key = entry.peer, entry.what, entry.kind, entry.guard
            found.setdefault(key, entry)
            count[key] = count.get(key, 0) + 1
    return [(entry, count[key]) for key, entry in found.items()]


def _is_readable(kind: Kind, guard: Guard) -> bool:
    return kind in READABLE_KINDS and guard.is_readable


def _describe_protection(kind: Kind, guard: Guard) -> str:
    if guard.cipher == "none" and kind in _HARMLESS:
        return "not needed"
    if guard.cipher == "none" and kind is Kind.MASKED_SHARE:
        return "not needed: random numbers"
    return guard.description
