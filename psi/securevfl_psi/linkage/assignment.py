"""One to one: each record is linked at most once."""

from __future__ import annotations

import numpy as np

from securevfl_psi.linkage.similarity import Candidates

__all__ = ["assign_greedy", "assign_optimal"]

_LARGEST = 300
"""Records on the smaller side of a component that is solved exactly; a larger one is left to the greedy rule."""


def assign_greedy(candidates: Candidates) -> np.ndarray:
    """Take the most similar pair of which neither record is taken, again and again.

    Returns:
        Which candidates are taken, ascending, (k,) int64. Equal scores are taken in the order of rows.
    """
    free_a, free_b = bytearray(b"\1") * candidates.sizes[0], bytearray(b"\1") * candidates.sizes[1]
    taken = []
    for number, (a, b) in enumerate(zip(candidates.rows_a.tolist(), candidates.rows_b.tolist(), strict=True)):
        if free_a[a] and free_b[b]:
            free_a[a] = free_b[b] = 0
            taken.append(number)
    return np.array(taken, dtype=np.int64)


def assign_optimal(candidates: Candidates) -> np.ndarray:
    """The assignment of the greatest sum of ``score - minimum``, component by component.

    Counted is what a pair has above the candidates' minimum, the threshold: with the scores themselves, two doubtful
    pairs would displace a certain one. Components of more than 300 records on both sides are assigned greedily: where
    records hang together in such numbers, the threshold is too low for an assignment to help.

    Returns:
        Which candidates are taken, ascending, (k,) int64.
    """
    taken = [np.empty(0, dtype=np.int64)]
    for members in _components(candidates):
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
            taken.append(_chosen(which, gain))
    return np.sort(np.concatenate(taken))


def _components(candidates: Candidates) -> list[np.ndarray]:
    """Candidates that hang together by common records, each group ascending."""
    parent = np.arange(sum(candidates.sizes))
    ends_a, ends_b = candidates.rows_a, candidates.rows_b + candidates.sizes[0]
    while True:  # hang the larger root of every pair below the smaller one, then shorten all paths, until nothing moves
        root_a, root_b = parent[ends_a], parent[ends_b]
        apart = root_a != root_b
        if not apart.any():
            break
        np.minimum.at(parent, np.maximum(root_a, root_b)[apart], np.minimum(root_a, root_b)[apart])
        while (shorter := parent[parent]).tobytes() != parent.tobytes():
            parent = shorter
    label = parent[ends_a]
    order = np.argsort(label, kind="stable")
    return [part for part in np.split(order, np.flatnonzero(np.diff(label[order])) + 1) if len(part)]


def _chosen(which: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Numbers of the pairs in the assignment of the greatest gain; `which` is -1 where there is no pair."""
    if gain.shape[0] > gain.shape[1]:
        which, gain = which.T, gain.T
    numbers: np.ndarray = which[np.arange(len(gain)), _columns_of_least_cost(-gain)]
    return numbers[numbers >= 0]


def _columns_of_least_cost(cost: np.ndarray) -> np.ndarray:
    """The Hungarian method with shortest augmenting paths (Kuhn 1955; Jonker and Volgenant 1987), for n rows and at
    least as many columns: the column of every row, (n,) int64."""
    rows, columns = cost.shape
    of_row, of_column = np.zeros(rows), np.zeros(columns + 1)  # dual prices; the last column is where a path begins
    row_of = np.full(columns + 1, -1, dtype=np.int64)
    for row in range(rows):
        row_of[columns] = row
        least = np.full(columns, np.inf)
        came_from = np.full(columns, columns, dtype=np.int64)
        done = np.zeros(columns + 1, dtype=bool)
        at = columns
        while row_of[at] >= 0:
            done[at] = True
            reduced = cost[row_of[at]] - of_row[row_of[at]] - of_column[:columns]
            better = ~done[:columns] & (reduced < least)
            least[better], came_from[better] = reduced[better], at
            at_next = int(np.where(done[:columns], np.inf, least).argmin())
            step = least[at_next]
            of_row[row_of[done]] += step
            of_column[done] -= step
            least[~done[:columns]] -= step
            at = at_next
        while at != columns:
            row_of[at], at = row_of[came_from[at]], came_from[at]
    column_of = np.empty(rows, dtype=np.int64)
    owned = np.flatnonzero(row_of[:columns] >= 0)
    column_of[row_of[owned]] = owned
    return column_of
