"""What every way to align has: the rules for identifiers, the order that all share, the result."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import securevfl_psi as psi

from securevfl.errors import AlignmentError
from securevfl.site import Site

__all__ = ["RULES", "Alignment", "order"]

RULES = psi.IdRules()


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """What one party knows after alignment.

    Attributes:
        rows: the party's own row numbers of the common rows, in the order that all agreed on, (n,) int64.
        digest: names the run, hexadecimal: a digest of what all parties agreed on (names, nonces, rules, job) and of
            the number of common rows, the same at all of them. It says nothing about identifiers, so it verifies
            nothing; see `verified_by`. Empty where no protocol ran.
        verified_by: names of the peers with which these rows were verified: between two parties, each row was proved by
            each to the other; among more, each two compared their ordered identifiers as well, in a way that
            cannot be searched (`securevfl_psi.cpace`).
        pairwise: passive party → size of its intersection with the active party; empty at a passive party.
        labelled: rows that one passive party and the active party know of, and not all parties: passive party → the
            active party's numbers of them (its table's rows first, its label book's after; none that it keeps for
            validation or test), in an order that both share and verified; at a passive party its own row numbers, under
            its own name. Empty unless the active party has a label book.
    """

    rows: np.ndarray = field(repr=False)
    digest: str
    verified_by: tuple[str, ...]
    pairwise: dict[str, int]
    labelled: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)

    def require_verified(self, site: Site) -> None:
        """Refuse rows that were not verified with every peer of `site`.

        Raises:
            AlignmentError: with whom they were not.
        """
        missing = sorted(set(site.links) - set(self.verified_by))
        if missing:
            raise AlignmentError(
                f"the common rows were not verified with {', '.join(missing)}; align again before training"
            )


def order(ids: Sequence[str], rows: Iterable[int], seed: int) -> np.ndarray:
    """A common order that does not show how any party sorts its table: by a hash of seed and identifier.

    The hashes stay at their party: with the job's seed, which all know, they could be tried on guessed identifiers.
    """
    prefix = f"securevfl order {seed} ".encode()
    numbers = [int(row) for row in rows]
    keys = [hashlib.sha256(prefix + ids[row].encode()).digest() for row in numbers]
    return np.array([row for _, row in sorted(zip(keys, numbers, strict=True))], dtype=np.int64).reshape(-1)
