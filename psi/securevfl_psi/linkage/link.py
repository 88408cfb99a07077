"""The linker's work in one call, and what it gives back to each party."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from securevfl_psi.errors import LinkageError
from securevfl_psi.linkage.assignment import assign_greedy
from securevfl_psi.linkage.encodings import Encodings
from securevfl_psi.linkage.similarity import Candidates, similar_pairs
from securevfl_psi.linkage.threshold import estimate

__all__ = ["CommonIds", "Linked", "link"]


@dataclass(frozen=True, eq=False)
class CommonIds:
    """For one party: fresh identifiers of its rows, equal to the other party's for linked ones.

    Attributes:
        rows: the party's own row numbers, ascending, (n,) int64.
        ids: 32 random hexadecimal digits for each of them.
    """

    rows: np.ndarray
    ids: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Linked:
    """Which records belong together, for the linker and its report; parties get `common_ids` only.

    Attributes:
        rows_a: rows at a, most similar pair first, (m,) int64.
        rows_b: rows at b, (m,) int64.
        scores: Dice coefficients, (m,) float64.
        probabilities: estimated, of each pair to be true, (m,) float64.
        threshold: least score of a linked pair.
        precision: estimated share of the pairs that are true.
        recall: estimated share of the true pairs that were found, of those that the scores show.
        sizes: records at a and at b.
        compared: how many pairs were compared.
        duplicates: rows at a and at b that were left out because another row is the same person; `link_tables` only.
    """

    rows_a: np.ndarray
    rows_b: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray
    threshold: float
    precision: float
    recall: float
    sizes: tuple[int, int]
    compared: int
    duplicates: tuple[int, int] = (0, 0)

    def __len__(self) -> int:
        return len(self.scores)

    def describe(self) -> str:
        """One line for reports."""
        left_out = (
            f"; {self.duplicates[0]} and {self.duplicates[1]} duplicates left out" if any(self.duplicates) else ""
        )
        return (
            f"{len(self)} pairs of {self.sizes[0]} and {self.sizes[1]} records at similarity {self.threshold:.3f} or "
            f"more; estimated precision {self.precision:.4f}, recall {self.recall:.4f}; {self.compared} pairs compared"
            f"{left_out}"
        )

    def common_ids(self, *, unlinked: bool = False) -> tuple[CommonIds, CommonIds]:
        """Fresh random identifiers for the parties' rows, so that alignment, its verification and training go on as
        with a common identifier.

        Args:
            unlinked: give rows that were not linked an identifier of their own as well, for algorithms that use them;
                a party then learns which of its rows are linked from the alignment, not from here.

        Returns:
            What a gets, and what b gets. Neither shows how the other's rows are ordered, nor a score.
        """
        pairs = [secrets.token_hex(16) for _ in range(len(self))]
        return (
            _ids(self.rows_a, pairs, self.sizes[0] if unlinked else 0),
            _ids(self.rows_b, pairs, self.sizes[1] if unlinked else 0),
        )


def _ids(linked: np.ndarray, ids: list[str], rows: int) -> CommonIds:
    of_row = dict(zip(linked.tolist(), ids, strict=True))
    for row in range(rows):
        if row not in of_row:
            of_row[row] = secrets.token_hex(16)
    order = sorted(of_row)
    return CommonIds(np.array(order, dtype=np.int64), tuple(of_row[row] for row in order))


def link(
    a: Encodings,
    b: Encodings,
    *,
    blocks: tuple[np.ndarray, np.ndarray] | None = None,
    threshold: float | None = None,
    precision: float | None = None,
    limit: int | None = None,
    assign: Callable[[Candidates], np.ndarray] = assign_greedy,
) -> Linked:
    """Compare, choose a threshold, assign one to one.

    Args:
        a: one party's encodings; within a file each person occurs once.
        b: the other's, by the same schema, key and context.
        blocks: tokens of both, so that not all pairs are compared: see `similar_pairs`.
        threshold: least similarity; default: the one of the best estimated F1, see `estimate`.
        precision: instead, the lowest threshold of at least this estimated precision.
        limit: most pairs that are kept at a time: see `similar_pairs`.
        assign: `assign_greedy` or `assign_optimal`.

    Raises:
        LinkageError: encodings that cannot be compared, scores that do not show a threshold, or both a threshold and a
            precision.
    """
    if threshold is not None and (precision is not None or not 0 <= threshold <= 1):
        raise LinkageError(f"threshold {threshold!r} with precision {precision!r}; give one of them, from 0 to 1")
    candidates = similar_pairs(a, b, limit=limit, blocks=blocks)
    scores = estimate(candidates, assign_greedy(candidates), (a, b))
    chosen = scores.threshold(precision=precision) if threshold is None else threshold
    if chosen < candidates.minimum:
        raise LinkageError(
            f"a threshold of {chosen} is below {candidates.minimum:.4f}, the least similarity of the "
            f"{len(candidates)} pairs that were kept: raise limit, or the threshold"
        )
    above = candidates.at_least(chosen)
    taken = assign(above)
    return Linked(
        rows_a=above.rows_a[taken],
        rows_b=above.rows_b[taken],
        scores=above.scores[taken],
        probabilities=scores.probability(above.scores[taken]),
        threshold=chosen,
        precision=scores.precision(chosen),
        recall=scores.recall(chosen),
        sizes=candidates.sizes,
        compared=candidates.compared,
    )
