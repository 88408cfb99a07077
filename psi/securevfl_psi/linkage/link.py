"""Links two sets of encoded records in one call, and makes the identifiers that each party receives."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl_psi.errors import LinkageError
from securevfl_psi.linkage.assignment import assign_greedy
from securevfl_psi.linkage.encodings import Encodings
from securevfl_psi.linkage.similarity import Candidates, similar_pairs
from securevfl_psi.linkage.threshold import MatchEstimate, estimate_matches
from securevfl_psi.linkage.witnesses import WitnessEstimate, estimate_by_witnesses

__all__ = ["CommonIds", "Linked", "link_records"]


@dataclass(frozen=True, eq=False)
class CommonIds:
    """Fresh identifiers for one party's rows. Linked rows have the same identifier at both parties.

    Attributes:
        rows: the party's row numbers, ascending, (n,) int64.
        ids: 32 random hexadecimal digits for each row.
    """

    rows: np.ndarray
    ids: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Linked:
    """The linked pairs of records, for the linker and its report. Parties receive only `common_ids`.

    Attributes:
        rows_a: rows at a, most similar pair first, (m,) int64.
        rows_b: rows at b, (m,) int64.
        scores: Dice coefficients, (m,) float64.
        probabilities: the estimated probability that each pair is true, (m,) float64.
        threshold: the least score of a linked pair.
        precision: the estimated share of linked pairs that are true.
        recall: the estimated share of true pairs that were linked. With witnesses, of all true pairs; without, only of
            those that the scores show, so it is too high.
        recall_between: bounds of the share of all true pairs that were linked: a 95 % interval with witnesses; without,
            bounds that aim to be right in nine of ten cases.
        sizes: the numbers of records at a and at b.
        compared: the number of compared pairs.
        duplicates: the numbers of rows at a and at b that were left out because another row is the same person;
            `link_tables` only.
        witnessed: the numbers of pairs that the first rule, the second, and both witness; None without witnesses.
        common: the estimated number of people in both files; None without witnesses.
        ranges: 95 % intervals of precision, recall and `common`, for sampling error only; None without witnesses.
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
    recall_between: tuple[float, float] = (0.0, 1.0)
    witnessed: tuple[int, int, int] | None = None
    common: float | None = None
    ranges: tuple[tuple[float, float], tuple[float, float], tuple[float, float]] | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def describe(self) -> str:
        """One line for reports."""
        left_out = (
            f"; {self.duplicates[0]} and {self.duplicates[1]} duplicates left out" if any(self.duplicates) else ""
        )
        begin = (
            f"{len(self)} pairs of {self.sizes[0]} and {self.sizes[1]} records at similarity {self.threshold:.3f} or "
        )
        end = f"; {self.compared} pairs compared{left_out}"
        if self.ranges is None or self.witnessed is None or self.common is None:
            return (
                f"{begin}more; estimated precision {self.precision:.3f}, recall between {self.recall_between[0]:.2f} "
                f"and {self.recall_between[1]:.2f}{end}"
            )
        precision, recall, common = self.ranges
        return (
            f"{begin}more; estimated precision {self.precision:.3f} ({precision[0]:.3f} to {precision[1]:.3f}), recall "
            f"{self.recall:.3f} ({recall[0]:.3f} to {recall[1]:.3f}) of about {self.common:.0f} people in both files "
            f"({common[0]:.0f} to {common[1]:.0f}), from {self.witnessed[0]} and {self.witnessed[1]} witnessed pairs, "
            f"{self.witnessed[2]} of them twice{end}"
        )

    def common_ids(self, *, unlinked: bool = False) -> tuple[CommonIds, CommonIds]:
        """Draw fresh random identifiers for the parties' rows. Alignment and training then work as with common ids.

        Args:
            unlinked: whether rows that were not linked also get identifiers, for algorithms that use such rows. A party
                then learns only from the alignment which of its rows are linked.

        Returns:
            The identifiers for a, and for b. Neither reveals the order of the other's rows, or a score.
        """
        pairs = [secrets.token_hex(16) for _ in range(len(self))]
        return (
            _assign_ids(self.rows_a, pairs, self.sizes[0] if unlinked else 0),
            _assign_ids(self.rows_b, pairs, self.sizes[1] if unlinked else 0),
        )


def _assign_ids(linked: np.ndarray, ids: list[str], rows: int) -> CommonIds:
    of_row = dict(zip(linked.tolist(), ids, strict=True))
    for row in range(rows):
        if row not in of_row:
            of_row[row] = secrets.token_hex(16)
    order = sorted(of_row)
    return CommonIds(np.array(order, dtype=np.int64), tuple(of_row[row] for row in order))


def link_records(
    a: Encodings,
    b: Encodings,
    *,
    blocks: tuple[np.ndarray, np.ndarray] | None = None,
    witnesses: tuple[np.ndarray, np.ndarray] | None = None,
    threshold: float | None = None,
    precision: float | None = None,
    limit: int | None = None,
    assign: Callable[[Candidates], np.ndarray] = assign_greedy,
) -> Linked:
    """Compare the records, choose a threshold, and assign pairs one to one.

    Args:
        a: one party's encodings; each person must occur once in a file.
        b: the other party's encodings, with the same schema, key and context.
        blocks: the blocking tokens of both, which limit the compared pairs: see `similar_pairs`.
        witnesses: `witness_tokens` of both, to estimate recall over all true pairs, and the threshold with it. Default:
            estimates from the scores alone, see `estimate_matches`.
        threshold: the least similarity. Default: the one with the best estimated F1.
        precision: instead, choose the lowest threshold with at least this estimated precision.
        limit: the largest number of pairs kept at a time: see `similar_pairs`.
        assign: `assign_greedy` or `assign_optimal`.

    Raises:
        LinkageError: the encodings cannot be compared, the scores show no threshold, or both a threshold and a
            precision are given.
    """
    if threshold is not None and (precision is not None or not 0 <= threshold <= 1):
        raise LinkageError(f"threshold {threshold!r} with precision {precision!r}; give one of them, from 0 to 1")
    candidates = similar_pairs(a, b, limit=limit, blocks=blocks)
    first = assign_greedy(candidates)
    if witnesses is None:
        scores = estimate_matches(candidates, first, (a, b), blocks)
    else:
        scores = estimate_by_witnesses(candidates, first, (a, b), witnesses)
    chosen = scores.choose_threshold(precision=precision) if threshold is None else threshold
    if chosen < candidates.minimum:
        raise LinkageError(
            f"the threshold {chosen} is below {candidates.minimum:.4f}, the least similarity of the "
            f"{len(candidates)} kept pairs: raise limit, or the threshold"
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
        **_quality_fields(scores, chosen),
    )


def _quality_fields(scores: MatchEstimate, threshold: float) -> dict[str, Any]:
    if not isinstance(scores, WitnessEstimate):
        return {"recall_between": scores.recall_between(threshold)}
    ranges = (*scores.confidence_ranges(threshold), scores.common_range)
    return {"witnessed": scores.witnessed, "common": scores.common, "ranges": ranges} | {"recall_between": ranges[1]}
