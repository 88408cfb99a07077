"""Alignment: the parties find their common rows, agree on an order, and verify that they agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import securevfl_psi as psi

from securevfl.align.driver import drive_scripts
from securevfl.align.options import Align
from securevfl.align.result import RULES, Alignment, normalise_identifiers, shared_order
from securevfl.align.shelf import FolderShelf
from securevfl.errors import InputError, NoCommonRows, PolicyError, ProtocolError
from securevfl.party_context import PartyContext

__all__ = ["align", "protocol_of"]

_WORDS = {
    "dh": "DH-PSI, two parties at a time (2HashDH on X25519, RFC 9380 hash to curve), composed by the active party",
    "ot": "PSI by oblivious transfer, two parties at a time (PaXoS over OT extension), composed by the active party",
    "unbalanced": "unbalanced PSI, two parties at a time (2HashDH on X25519, a Golomb-coded filter of the larger set)",
    "unsafe_salted_hash": "salted hashes, compared by the active party: not private",
}
_GLOBAL = (
    "multi-party PSI (X25519, RFC 9380 hash to curve; zero shares in an oblivious key-value store): the global "
    "intersection only"
)


def protocol_of(passive: int, *, book: bool = False, align: Align | None = None) -> str:
    """Name the protocol that `align` runs with `passive` passive parties, as far as table sizes do not decide it."""
    how = Align() if align is None else align
    if not how.runs_in_pairs(passive, book=book):
        return _GLOBAL
    return "DH-PSI or PSI by oblivious transfer, by sizes" if how.protocol == "auto" else _WORDS[how.protocol]


def _describe_protocol(joint: psi.Joint, how: Align) -> str:
    """Describe which protocol ran, and why."""
    chosen = joint.result.protocols
    if not chosen:
        return _GLOBAL + (", because it shows no party a pairwise intersection" if how.protocol == "auto" else "")
    if how.protocol != "auto":
        kept = f"; filters may be kept for {how.keep_days} days" if how.keep_days else ""
        return _WORDS[how.protocol] + kept
    found = dict.fromkeys(_WORDS[choice.protocol] for choice in chosen.values())
    why = "; ".join(f"{name}: {choice.why}" for name, choice in chosen.items())
    return f"{' and '.join(found)}, as auto chose ({why})"


async def align(
    site: PartyContext,
    ids: Sequence[str],
    *,
    book: Sequence[str] = (),
    held_out: Sequence[int] | np.ndarray = (),
    how: Align | None = None,
    columns: int = 1,
) -> Alignment:
    """Run this party's part of the alignment.

    With one passive party, DH-PSI. With more, the multi-party protocol, which shows no party a pairwise intersection.
    If the active party has a label book, whose rows are labelled for one passive party at a time, the protocol runs
    between two parties at a time; a passive party's policy may refuse this (`Policy.pairwise_intersections`).

    Args:
        site: the party's place.
        ids: its identifiers, one per row, without duplicates.
        book: at the active party, identifiers of rows of which it has only the label.
        held_out: at the active party, its own rows kept for validation and test: their labels are nobody's to train on.
        how: by which protocol, as all parties agreed; `dh` unless given.
        columns: number of columns in an identifier; a peer with another number is refused.

    Raises:
        AlignmentError: no common rows, or the parties do not agree which they are.
        PolicyError: fewer common rows than the party's policy allows, or pairwise intersections that it forbids.
        InputError: identifiers that are empty, null or doubled.
        ProtocolError: a peer sent what the protocol does not allow, or a larger set than the policy accepts.
    """
    how = Align() if how is None else how
    try:
        normal = normalise_identifiers(ids, book)
        if not site.passive:
            return Alignment(
                rows=shared_order(normal, range(len(ids)), site.seed), digest="", verified_by=(), pairwise={}
            )
        joint = _build_joint(site, normal, len(ids), held_out, how, columns)
        await drive_scripts(site, joint)
    except psi.IdentifierError as error:
        raise InputError(f"{site.name!r}: {error}") from error
    except psi.PlanRefusedError as error:
        raise PolicyError(str(error)) from error
    except psi.PSIError as error:
        raise ProtocolError(str(error)) from error
    found, ran = joint.result, _describe_protocol(joint, how)
    site.ledger.record_note("alignment", {"protocol": ran, "with": site.active, "sizes padded to": how.pad_to or 0})
    return Alignment(
        rows=found.rows,
        digest=found.run,
        verified_by=tuple(sorted(joint.terms.peers)),
        pairwise=dict(found.pairwise),
        labelled=found.labelled,
        protocol=ran,
    )


def _told_speed(site: PartyContext, how: Align) -> psi.Speed | Callable[[], psi.Speed]:
    """The figures that peers get about this machine: measured ones for ``auto``, if the policy allows it.

    They are measured only where a pair of parties chooses by them: three without a label book run one protocol.
    """
    if how.protocol != "auto" or not site.policy.tell_speed:
        return psi.UNTOLD
    from securevfl_psi_cli.calibration import load_speed  # here: only `auto` needs it

    return load_speed


def _build_joint(
    site: PartyContext, ids: psi.Identifiers, own: int, held_out: Sequence[int] | np.ndarray, how: Align, columns: int
) -> psi.Joint:
    """The party's scripts, under its policy."""
    terms = psi.JointTerms(
        name=site.name,
        active=site.active,
        passive=site.passive,
        context=site.job,
        rules=replace(RULES, columns=columns),
        max_set_size=site.policy.max_set_size,
        pairwise=site.policy.pairwise_intersections,
        protocol=how.protocol,
        link=how.link,
        speed=_told_speed(site, how),
        pad_to=how.pad_to,
        shelf=FolderShelf(site.filters, how.keep_days) if site.filters and how.keep_days else None,
    )

    def check_count(count: int, found: Mapping[str, int], sizes: Mapping[str, int]) -> None:
        if not count:
            shared = "in common: " + ", ".join(f"{number} with {name}" for name, number in found.items())
            announced = ", ".join(f"{number} at {name}" for name, number in sizes.items())
            raise NoCommonRows(
                f"no row is common to all parties ({len(ids)} rows at {site.name!r}; "
                f"{shared if found else announced}): do all use the same identifiers, written the same way?"
            )
        site.policy.check_intersection(count)

    def order_rows(rows: np.ndarray) -> np.ndarray:
        return shared_order(ids, rows, site.seed)

    return psi.Joint(ids, terms, order=order_rows, allow=check_count, own=own, held_out=held_out)
