"""Shared by all ways to align: the rules for identifiers, the common order, and the result."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import securevfl_psi as psi

from securevfl.data import Names
from securevfl.errors import AlignmentError
from securevfl.party_context import PartyContext

__all__ = ["RULES", "Alignment", "normalise_identifiers", "shared_order"]

RULES = psi.IdRules()

_PART = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """One party's result of an alignment.

    Attributes:
        rows: the party's own row numbers of the common rows, in the order that all agreed on, (n,) int64.
        digest: identifies the run, hexadecimal: a digest of what all parties agreed on (names, nonces, rules, job) and
            of the number of common rows, the same at all of them. It does not depend on identifiers, so it verifies
            nothing; see `verified_by`. Empty if no protocol ran.
        verified_by: names of the peers with which these rows were verified: between two parties, each row was proved by
            each to the other; among more, each two compared their ordered identifiers as well, in a way that
            cannot be searched (`securevfl_psi.cpace`).
        pairwise: passive party → size of its intersection with the active party; empty at a passive party.
        labelled: rows that the active party and one passive party share, but not all parties: passive party → the
            active party's numbers of them (its table's rows first, its label book's after; none that it keeps for
            validation or test), in an order that both share and verified; at a passive party its own row numbers, under
            its own name. Empty unless the active party has a label book.
        protocol: how the common rows were found, and why so, in words; empty where no protocol ran.
        weights: at the active party, if records were linked and count by it: the probability that the links of each row
            of its table are true, (rows,) float64; None otherwise.
    """

    rows: np.ndarray = field(repr=False)
    digest: str
    verified_by: tuple[str, ...]
    pairwise: dict[str, int]
    labelled: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)
    protocol: str = ""
    weights: np.ndarray | None = field(default=None, repr=False)

    def require_verified(self, site: PartyContext) -> None:
        """Refuse rows that were not verified with every peer of `site`.

        Raises:
            AlignmentError: with whom they were not.
        """
        missing = sorted(set(site.links) - set(self.verified_by))
        if missing:
            raise AlignmentError(
                f"the common rows were not verified with {', '.join(missing)}; align again before training"
            )


def normalise_identifiers(ids: Sequence[str], book: Sequence[str] = ()) -> psi.Identifiers:
    """Identifiers of a table and after them those of its label book, normalised.

    Raises:
        securevfl_psi.IdentifierError: some that are empty, null or doubled.
    """
    if isinstance(ids, Names) and not len(book):
        return psi.normalise_column(psi.Identifiers(*ids.buffers()), RULES)
    return psi.normalise_column([*ids, *book], RULES)


def shared_order(ids: Sequence[str], rows: Iterable[int] | np.ndarray, seed: int) -> np.ndarray:
    """A common order that does not show how any party sorts its table: by a hash of seed and identifier.

    The hashes stay at their party: the job's seed is public, so with it anybody could test guessed identifiers.
    """
    prefix = f"securevfl order {seed} ".encode()
    numbers = rows if isinstance(rows, np.ndarray) else np.fromiter(rows, dtype=np.int64)
    column = ids if isinstance(ids, psi.Identifiers) else psi.Identifiers.of_texts(ids)
    first = np.empty(len(numbers), dtype=np.uint64)
    for start in range(0, len(numbers), _PART):
        for places, matrix in column.iter_matrices(numbers[start : start + _PART]):
            raw, length = matrix.tobytes(), matrix.shape[1]
            hashed = b"".join(
                hashlib.sha256(prefix + raw[at : at + length]).digest()[:8] for at in range(0, len(raw), length)
            )
            first[start + places] = np.frombuffer(hashed, dtype=">u8")
    found = np.argsort(first, kind="stable")
    ordered = first[found]
    if (ordered[1:] == ordered[:-1]).any():  # 64 bits alike: by all 256
        whole = [hashlib.sha256(prefix + column[row].encode()).digest() for row in numbers.tolist()]
        found = np.array(sorted(range(len(numbers)), key=lambda i: (whole[i], int(numbers[i]))), dtype=np.int64)
    return np.asarray(numbers[found], dtype=np.int64).reshape(-1)
