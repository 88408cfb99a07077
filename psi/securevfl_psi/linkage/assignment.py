"""One-to-one assignment: each record is linked at most once.

`assign_optimal` needs scipy and imports it at its first call: install ``securevfl-psi[assignment]``, or securevfl,
which depends on scipy.
"""

from __future__ import annotations

import numpy as np

from securevfl_psi.linkage.similarity import Candidates

__all__ = ["assign_greedy", "assign_optimal"]

_LARGEST = 300
"""The most records on the smaller side of a component that is solved exactly; larger ones are assigned greedily."""


def assign_greedy(candidates: Candidates) -> np.ndarray:
    """Repeatedly take the most similar pair whose two records are both free.

    Returns:
        The numbers of the candidates taken, ascending, (k,) int64. Lower rows win ties.
    """
    free_a, free_b = bytearray(b"\1") * candidates.sizes[0], bytearray(b"\1") * candidates.sizes[1]
    taken = []
    for number, (a, b) in enumerate(zip(candidates.rows_a.tolist(), candidates.rows_b.tolist(), strict=True)):
        if free_a[a] and free_b[b]:
            free_a[a] = free_b[b] = 0
            taken.append(number)
    return np.array(taken, dtype=np.int64)


def assign_optimal(candidates: Candidates) -> np.ndarray:
    """The one-to-one assignment with the greatest sum of ``score - minimum``.

    Each connected component of candidates is solved separately. Scores count from the candidates' minimum, the
    threshold; otherwise two doubtful pairs would displace a certain one. A component with more than 300 records on
    both sides is assigned greedily: if that many records are connected, the threshold is too low for an assignment to
    help.

    Returns:
        The numbers of the candidates taken, ascending, (k,) int64. Which of several best assignments is taken is not
        specified.

    Raises:
        ModuleNotFoundError: scipy is not installed.
    """
    taken = [np.empty(0, dtype=np.int64)]
    for members in _split_components(candidates):
        rows_a, at_a = np.unique(candidates.rows_a[members], return_inverse=True)
        rows_b, at_b = np.unique(candidates.rows_b[members], return_inverse=True)
        if len(members) == 1:
            taken.append(members)
        elif min(len(rows_a), len(rows_b)) > _LARGEST:
            part = Candidates(
                at_a, at_b, candidates.scores[members], (len(rows_a), len(rows_b)), candidates.minimum, len(members)
            )
            taken.append(members[assign_greedy(part)])
        else:
            which = np.full((len(rows_a), len(rows_b)), -1, dtype=np.int64)
            which[at_a, at_b] = members
            # A pair exactly at the minimum is still better than none.
            gain = np.where(which >= 0, candidates.scores[which] - candidates.minimum + 1e-9, 0.0)
            taken.append(_choose_pairs(which, gain))
    return np.sort(np.concatenate(taken))


def _split_components(candidates: Candidates) -> list[np.ndarray]:
    """The candidates of each connected component of the graph of records, ascending within a component, int64."""
    if not len(candidates.rows_a):
        return []
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends_a, ends_b = candidates.rows_a, candidates.rows_b + candidates.sizes[0]
    records, edges = sum(candidates.sizes), np.ones(len(ends_a), dtype=np.int8)
    _, label_of = connected_components(coo_array((edges, (ends_a, ends_b)), shape=(records, records)), directed=False)
    label = label_of[ends_a]
    order = np.argsort(label, kind="stable")
    return [part for part in np.split(order, np.flatnonzero(np.diff(label[order])) + 1) if len(part)]


def _choose_pairs(which: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """The numbers of the pairs whose gains have the greatest sum.

    Args:
        which: (rows, columns) int64, the number of each pair, -1 where there is none.
        gain: (rows, columns) float64, 0 where there is no pair.
    """
    from scipy.optimize import linear_sum_assignment

    numbers: np.ndarray = which[linear_sum_assignment(gain, maximize=True)]
    return numbers[numbers >= 0]
