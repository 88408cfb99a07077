"""Alignment: the parties find their common rows, agree on an order, and verify that they agree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import securevfl_psi as psi

from securevfl.align import everyone, pairwise
from securevfl.align.agreement import RULES, Alignment, order
from securevfl.errors import InputError, PolicyError, ProtocolError
from securevfl.site import Site
from securevfl.transport import Kind

__all__ = ["align", "protocol_of"]


def protocol_of(passive: int, *, book: bool = False) -> str:
    """The protocol that `align` runs with so many passive parties, in words."""
    return everyone.PROTOCOL if passive > 1 and not book else pairwise.PROTOCOL


async def align(
    site: Site,
    ids: Sequence[str],
    *,
    book: Sequence[str] = (),
    held_out: Sequence[int] | np.ndarray = (),
) -> Alignment:
    """Run this party's part of the alignment.

    With one passive party, DH-PSI. With more, the multi-party protocol, in which nobody learns a pairwise intersection;
    only where the active party has a label book, whose rows are labelled for one passive party at a time, two parties
    at a time, which a passive party's policy may refuse (`Policy.pairwise_intersections`).

    Args:
        site: the party's place.
        ids: its identifiers, one per row, none twice.
        book: at the active party, identifiers of rows of which it knows the label only.
        held_out: at the active party, its own rows kept for validation and test: their labels are nobody's to train on.

    Raises:
        AlignmentError: no common rows, or the parties do not agree which they are.
        PolicyError: fewer common rows than the party's policy allows, or pairwise intersections that it forbids.
        InputError: identifiers that are empty, null or doubled.
        ProtocolError: a peer sent what the protocol does not allow, or a larger set than the policy accepts.
    """
    max_set_size = site.policy.max_set_size
    try:
        normal = psi.normalise_column([*ids, *book], RULES)
        if site.role == "active":
            if not site.passive:
                rows = order(normal, range(len(ids)), site.seed)
                return Alignment(rows=rows, digest="", verified_by=(), pairwise={})
            if len(site.passive) > 1 and not book:
                return await everyone.active(site, normal, max_set_size)
            return await pairwise.active(site, normal, len(ids), {int(row) for row in held_out}, max_set_size)
        hello = await site.links[site.active].receive(Kind.CONTROL, "psi/hello")
        if hello.meta.get("protocol") == "global":
            return await everyone.passive(site, hello, normal, max_set_size)
        if len(site.passive) > 1 and not site.policy.pairwise_intersections:
            raise PolicyError(
                f"{site.active!r} would learn the pairwise intersection with {site.name!r}, which the policy forbids; "
                "align without a label book, or set pairwise_intersections"
            )
        return await pairwise.passive(site, hello, normal, max_set_size)
    except psi.IdentifierError as error:
        raise InputError(f"{site.name!r}: {error}") from error
    except psi.PSIError as error:
        raise ProtocolError(str(error)) from error
