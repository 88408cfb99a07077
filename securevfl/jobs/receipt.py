"""The protection receipt: what went over each link and how it was protected, counted from the ledgers, not from the
job.

And the check behind it: a protection that was asked for must be seen at work in the ledgers, or the run is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from securevfl.align import EXCHANGES
from securevfl.cut import Sealed
from securevfl.errors import ProtectionInactive
from securevfl.jobs.job import Job
from securevfl.privacy import READABLE_KINDS, Accountant, Entry, Ledger, Spent
from securevfl.report.record import EpsilonRecord, EpsilonTotal, LinkRecord, ReceiptLine
from securevfl.transport import Guard, Kind

__all__ = ["budgets", "check_protection", "links", "receipt", "totals"]

_WORDS = {
    **{exchange.step: exchange.words for exchange in EXCHANGES},
    "cut/setup": "width of the activations",
    "cut/initial weights": "half of the initial weights",
    "cut/public key": "public key",
    "cut/seed": "public key for pairwise masks",
    "cut/weights": "weight share V",
    "cut/forward": "activations at the cut",
    "cut/backward": "gradient at the cut",
    "cut/weight gradient": "weight gradient, masked",
    "cut/reshare": "change of the weight shares",
    "cut/passive key": "public key",
    "cut/passive share": "weight share U",
    "cut/input gradient": "gradient at the activations",
    "cut/measured": "its speed, for protection auto",
    "cut/probe": "zeros, to time the link",
    "cut/choice": "the scheme that was chosen",
    "train/rows": "number of its rows",
    "train/start": "numbers of all rows",
    "fedcvt/setup": "width of the representations",
    "fedcvt/representations": "learned representations",
    "fedcvt/gradient": "gradient at the representations",
    "fedda/aligned": "representations of aligned rows",
    "fedda/generated": "generated representations",
    "fedda/rows": "which rows train",
    "multi/weights": "weights of the label owners' model",
    "multi/change": "change of the weights, masked",
    "multi/change sum": "sum of the changes",
    "multi/key": "public key of the aggregation",
    "multi/mean": "mean change of the weights",
    "multi/shares": "weight shares V, masked",
    "multi/shares sum": "sum of the weight shares V",
    "multi/shares mean": "mean of the weight shares V",
    "risa/rows": "which rows train",
    "train/epoch": "whether to keep, whether to stop",
}
_SCHEMES = frozenset({"paillier", "bfv", "ckks"})
_HARMLESS = frozenset({Kind.CONTROL, Kind.PUBLIC_KEY})


def receipt(ledgers: Mapping[str, Ledger]) -> list[ReceiptLine]:
    """One line for each link, step and protection, in the order in which they first appeared at their sender."""
    lines: dict[tuple[str, str, str, Kind, Guard], list[int]] = {}
    for sender, ledger in sorted(ledgers.items()):
        for entry in _sent(ledger):
            tally = lines.setdefault((sender, entry.peer, entry.what, entry.kind, entry.guard), [0, 0])
            tally[0] += 1
            tally[1] += entry.bytes
    return [
        ReceiptLine(
            sender=sender,
            receiver=peer,
            what=_WORDS.get(what, what),
            kind=kind.value,
            protection=_protection(kind, guard),
            protected=not _readable(kind, guard),
            messages=messages,
            bytes=size,
        )
        for (sender, peer, what, kind, guard), (messages, size) in lines.items()
    ]


def links(ledgers: Mapping[str, Ledger]) -> list[LinkRecord]:
    """Messages and bytes of each direction of each link that was used."""
    tally: dict[tuple[str, str], list[int]] = {}
    for sender, ledger in sorted(ledgers.items()):
        for entry in _sent(ledger):
            pair = tally.setdefault((sender, entry.peer), [0, 0])
            pair[0] += 1
            pair[1] += entry.bytes
    return [LinkRecord(sender=a, receiver=b, messages=n, bytes=size) for (a, b), (n, size) in tally.items()]


def budgets(spent: Mapping[str, Sequence[Spent]]) -> list[EpsilonRecord]:
    """One line for each kind of release of each party.

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
        )
        for name, releases in spent.items()
        for one in releases
    ]


def totals(spent: Mapping[str, Sequence[Spent]]) -> list[EpsilonTotal]:
    """What each party's features and labels cost in all: the composition of its releases.

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
        found += [EpsilonTotal(**asdict(total)) for total in accountant.totals()]
    return found


def check_protection(
    job: Job, ledgers: Mapping[str, Ledger], passive: tuple[str, ...], *, resumed: bool = False
) -> None:
    """Hold the ledgers against the job.

    Args:
        job: what was asked for.
        ledgers: party → its ledger.
        passive: the passive parties' names.
        resumed: whether the run went on from a checkpoint; there may have been nothing left to train.

    Raises:
        ProtectionInactive: a protection was asked for and is not to be seen in what was sent.
    """
    dp = job.protection.dp
    if not passive:
        if dp is not None and not dp.local:
            raise ProtectionInactive(
                "differential privacy was asked for, but a party alone releases nothing: leave it out"
            )
        return
    if not job.algorithm.exchanges:
        return
    for name, ledger in ledgers.items():
        sent = list(_sent(ledger))
        peers = {entry.peer for entry in sent}
        content = [e for e in sent if e.kind in READABLE_KINDS or e.kind is Kind.CIPHERTEXT]
        if not content and not resumed:
            raise ProtectionInactive(f"{name!r} sent nothing to train with ({len(sent)} messages to {sorted(peers)})")
        if isinstance(job.protection, Sealed):
            _check_sealed(name, content, job.protection.name, job.policy(name).min_key_bits)
        asked = dp is not None and (dp.activations if name in passive else dp.gradients)
        kinds = tuple(READABLE_KINDS) if job.protection.name == "plain" else (Kind.CIPHERTEXT,)
        if asked and content and not any(e.noise > 0 for e in content if e.kind in kinds):
            raise ProtectionInactive(f"{name!r} was to add differentially private noise and no message tells of any")


def _check_sealed(name: str, content: list[Entry], scheme: str, bits: int) -> None:
    readable = [entry for entry in content if entry.kind in READABLE_KINDS]
    if readable:
        raise ProtectionInactive(
            f"{name!r} sent {len(readable)} messages that their receiver can read, the first "
            f"{readable[0].what!r}; the job "
            "asked for all to be sealed"
        )
    asked = _SCHEMES if scheme == "auto" else {scheme}
    at_cut = [e for e in content if not e.what.startswith("multi/")]  # aggregation has a scheme of its own
    weak = [e for e in at_cut if e.cipher not in asked or (e.cipher == "paillier" and e.bits < bits)]
    if weak:
        size = f" of {bits} bits" if scheme == "paillier" else ""
        raise ProtectionInactive(
            f"{name!r} sent {weak[0].what!r} under {weak[0].guard.label}; the job asked for {scheme}{size}"
        )


def _sent(ledger: Ledger) -> list[Entry]:
    return [entry for entry in ledger.entries if entry.way == "sent"]


def _readable(kind: Kind, guard: Guard) -> bool:
    return kind in READABLE_KINDS and guard.readable


def _protection(kind: Kind, guard: Guard) -> str:
    if guard.cipher == "none" and kind in _HARMLESS:
        return "not needed"
    if guard.cipher == "none" and kind is Kind.MASKED_SHARE:
        return "not needed: random numbers"
    return guard.label
