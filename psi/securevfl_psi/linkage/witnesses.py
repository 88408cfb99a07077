"""Estimates the number of true pairs, and the share that a threshold finds, from pairs that two rules witness.

Each rule names a set of fields that identifies a person; the two sets have no field in common. An example: surname and
birthday, given name and phone. Two records are a *witnessed* pair if they agree exactly in the fields of a rule and no
other record of either file has these values; their other fields do not matter. If errors in the fields of one rule are
independent of errors in those of the other, the number of pairs that both witness gives the number of all true pairs by
capture and recapture (Chapman 1951):

    N = (n1 + 1) (n2 + 1) / (n12 + 1) - 1.

Scores of witnessed pairs are scores of true pairs. A true pair that no rule witnesses has errors in both sets. Errors
in one set flip a share d1 of the bits, errors in the other a share d2. If each flips bits at random, both together flip
a share d with

    1 - 2 d = (1 - 2 d1) (1 - 2 d2) / (1 - 2 d0),

with d0 the share that differs in pairs that both rules witness. This gives the share R(s) of all N pairs with a score
of at least s, independently of the accepted pairs, and with it the precision, N R(s) / accepted(s).

Two things bias the estimate. Errors that occur together: no rule witnesses a person whose every field is wrong, so N is
too small and recall too high. And people whom a rule confuses: twins share a surname and a birthday, a father and a son
may share a name and a phone; then N is too large, recall too low and precision too high. The intervals cover sampling
error only: 95 % of a parametric bootstrap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from securevfl_psi.errors import LinkageError
from securevfl_psi.linkage.blocking import BlockKey, keyed_tokens
from securevfl_psi.linkage.encodings import Encodings
from securevfl_psi.linkage.schema import Schema
from securevfl_psi.linkage.similarity import Candidates, checked_tokens, dice
from securevfl_psi.linkage.threshold import BINS, MatchEstimate, fit_descending

__all__ = ["RULES", "WitnessEstimate", "check_witnesses", "estimate_by_witnesses", "witness_tokens"]

RULES = 2
_FEWEST = 7
"""The least number of pairs that both rules witness, so that N is nearly unbiased (Robson and Regier 1964)."""
_DRAWS = 4000
_BOOTSTRAP = 200


def check_witnesses(rules: Sequence[Mapping[str, BlockKey]]) -> None:
    """Check that there are two rules without a common field.

    Raises:
        LinkageError: there are more or fewer rules, or they share a field.
    """
    shared = set(rules[0]) & set(rules[1]) if len(rules) == RULES else set()
    if len(rules) != RULES or shared or not all(rules):
        raise LinkageError(
            f"{len(rules)} rules for witnesses"
            + (f", which share {', '.join(sorted(shared))}" if shared else "")
            + ": two are needed, of fields that only one of them has, for instance surname and birthday, and given "
            "name and phone"
        )


def witness_tokens(
    table: Mapping[str, Sequence[object]],
    schema: Schema,
    rules: Sequence[Mapping[str, BlockKey]],
    key: bytes,
    *,
    context: str = "",
) -> np.ndarray:
    """Keyed tokens of every record for two rules; as `blocking_tokens`.

    Returns:
        (n, 2) uint64; 0 where a record lacks one of the rule's fields.

    Raises:
        LinkageError: what `blocking_tokens` or `check_witnesses` refuse.
    """
    check_witnesses(rules)
    return keyed_tokens(table, schema, rules, key, context=context, purpose="witness")


@dataclass(frozen=True, eq=False)
class WitnessEstimate(MatchEstimate):
    """An estimate over all true pairs, from the witnessed ones.

    Attributes:
        witnessed: the numbers of pairs that the first rule, the second rule, and both witness.
        common: the estimated number of people in both files.
        common_range: the 95 % interval of `common`.
    """

    witnessed: tuple[int, int, int] = (0, 0, 0)
    common: float = 0.0
    common_range: tuple[float, float] = (0.0, 0.0)
    _draws: tuple[tuple[float, np.ndarray, np.ndarray], ...] = field(default=(), repr=False)

    @property
    def matches(self) -> float:
        """The estimated number of true pairs, including those with low scores."""
        return self.common

    def recall(self, threshold: float) -> float:
        """The share of all true pairs at or above `threshold`."""
        return float(_true_share(*self._draws[0][1:], np.array([threshold]))[0])

    def confidence_ranges(self, threshold: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """95 % intervals of precision and of recall at a threshold."""
        above, at = self._count_above(threshold), np.array([threshold])
        recalls = np.array([_true_share(scores, weights, at)[0] for _, scores, weights in self._draws[1:]])
        true = np.array([common for common, *_ in self._draws[1:]]) * recalls
        low, high = _middle_range(np.minimum(1.0, true / max(above, 1)))
        return (min(low, self.precision(threshold)), high), _middle_range(recalls)


def estimate_by_witnesses(
    candidates: Candidates,
    taken: np.ndarray,
    encodings: tuple[Encodings, Encodings],
    tokens: tuple[np.ndarray, np.ndarray],
) -> WitnessEstimate:
    """Estimate the probability that each assigned pair is true, and the number of true pairs.

    Args:
        candidates: all compared pairs.
        taken: the candidates that `assign_greedy` took.
        encodings: those of a and of b.
        tokens: `witness_tokens` of a and of b.

    Raises:
        LinkageError: there are no pairs, the tokens have other shapes, or both rules witness fewer than 7 pairs.
    """
    of_a, of_b = checked_tokens(*encodings, tokens)
    if not len(taken):
        raise LinkageError(
            "no pair was compared: check that both files have records, and that some share a blocking value"
        )
    if of_a.shape[1] != RULES:
        raise LinkageError(f"the witness tokens are of {of_a.shape[1]} rules; {RULES} are needed")
    first, second = (_find_witnessed(of_a[:, rule], of_b[:, rule], len(of_b)) for rule in range(RULES))
    both = np.intersect1d(first, second)
    counts = len(first), len(second), len(both)
    if counts[2] < _FEWEST:
        raise LinkageError(
            f"the two witness rules find {counts[0]} and {counts[1]} pairs, and {counts[2]} of these are found by "
            f"both; at least {_FEWEST} are needed: use fewer fields or looser keys in a rule, or no witnesses"
        )
    assigned = candidates.rows_a[taken] * len(of_b) + candidates.rows_b[taken]
    groups = [
        _Group.from_pairs(keys, encodings, assigned)
        for keys in (both, np.setdiff1d(first, both), np.setdiff1d(second, both))
    ]
    rng = np.random.default_rng(0)  # not a secret; a fixed seed gives the same figures if a linkage is repeated
    draws = [_draw_sample(groups, counts, rng)]
    total = draws[0][0]
    shares = np.array([len(group.losses) for group in groups] + [max(0.0, total - sum(len(g.losses) for g in groups))])
    for sizes in rng.multinomial(max(1, round(total)), shares / shares.sum(), size=_BOOTSTRAP):
        again = [group.redraw_pairs(int(size), rng) for group, size in zip(groups, sizes, strict=False)]
        n12, n1, n2 = int(sizes[0]), int(sizes[0] + sizes[1]), int(sizes[0] + sizes[2])
        draws.append(_draw_sample(again, (n1, n2, n12), rng))
    scores = candidates.scores[taken]
    probabilities, edges = _estimate_probabilities(scores, draws[0])
    return WitnessEstimate(
        scores=scores,
        probabilities=probabilities,
        edges=edges,
        witnessed=counts,
        common=total,
        common_range=_middle_range(np.array([common for common, *_ in draws[1:]])),
        _draws=tuple(draws),
    )


def _find_witnessed(of_a: np.ndarray, of_b: np.ndarray, width: int) -> np.ndarray:
    """Pairs of rows with one token that occurs once in each file, as ``row of a * width + row of b``, ascending."""
    once = []
    for tokens in (of_a, of_b):
        values, rows, counts = np.unique(tokens, return_index=True, return_counts=True)
        alone = (counts == 1) & (values != 0)
        once.append((values[alone], rows[alone]))
    _, at_a, at_b = np.intersect1d(once[0][0], once[1][0], assume_unique=True, return_indices=True)
    return np.sort(once[0][1][at_a] * width + once[1][1][at_b])


@dataclass(frozen=True)
class _Group:
    """Witnessed pairs of one kind: 1 minus each score, whether each was assigned; and the share of ones in all."""

    losses: np.ndarray
    assigned: np.ndarray
    filled: float

    @classmethod
    def from_pairs(cls, keys: np.ndarray, encodings: tuple[Encodings, Encodings], assigned: np.ndarray) -> _Group:
        rows_a, rows_b = np.divmod(keys, len(encodings[1]))
        filled = sum(int(one.count_ones().sum()) for one in encodings) / sum(len(one) * one.bits for one in encodings)
        return cls(1 - dice(*encodings, rows_a, rows_b), np.isin(keys, assigned), filled)

    def draw_pairs(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Draw 1 - 2 d for `count` pairs with replacement, d being the share of flipped bits."""
        if not len(self.losses):
            return np.ones(count)
        kept: np.ndarray = np.maximum(1 - 4 * self.filled * rng.choice(self.losses, count), 1e-6)
        return kept

    def redraw_pairs(self, size: int, rng: np.random.Generator) -> _Group:
        """Draw `size` of the pairs with replacement."""
        chosen = rng.integers(0, len(self.losses), size) if len(self.losses) else np.zeros(0, dtype=np.int64)
        return _Group(self.losses[chosen], self.assigned[chosen], self.filled)


_Draw = tuple[float, np.ndarray, np.ndarray]
"""The number of true pairs; their scores, descending; and the share of all true pairs with at least that score."""


def _draw_sample(groups: Sequence[_Group], counts: tuple[int, int, int], rng: np.random.Generator) -> _Draw:
    n1, n2, n12 = counts
    common = (n1 + 1) * (n2 + 1) / (n12 + 1) - 1
    losses, assigned = (np.concatenate([getattr(group, name) for group in groups]) for name in ("losses", "assigned"))
    scores, weights = [1 - losses[assigned]], [np.ones(int(assigned.sum()))]
    both, one, other = groups
    unseen = common - len(losses)
    if unseen > 0 and len(one.losses) and len(other.losses):
        found = _mean_or_one(one.assigned) * _mean_or_one(other.assigned)
        kept = one.draw_pairs(_DRAWS, rng) * other.draw_pairs(_DRAWS, rng) / both.draw_pairs(_DRAWS, rng)
        scores.append(1 - (1 - np.minimum(kept, 1)) / (4 * one.filled))
        weights.append(np.full(_DRAWS, unseen * found / _DRAWS))
    flat = np.concatenate(scores)
    order = np.argsort(-flat, kind="stable")
    total = len(losses) + max(unseen, 0.0)
    return common, flat[order], np.cumsum(np.concatenate(weights)[order]) / max(total, 1e-300)


def _mean_or_one(flags: np.ndarray) -> float:
    return float(flags.mean()) if len(flags) else 1.0


def _true_share(scores: np.ndarray, above: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Share of true pairs at or above each threshold."""
    found: np.ndarray = np.concatenate([[0.0], above])[np.searchsorted(-scores, -thresholds, side="right")]
    return found


def _estimate_probabilities(scores: np.ndarray, draw: _Draw) -> tuple[np.ndarray, np.ndarray]:
    """The probability that each assigned pair is true; and the thresholds to choose from."""
    high, low = float(scores[0]), float(scores[-1])
    width = (high - low) / BINS or 1.0
    edges = high - width * np.arange(1, BINS + 1)
    edges[-1] = low
    edges = np.maximum(edges, low)  # where all scores are the same
    bins = np.clip((high - scores) / width, 0, BINS - 1).astype(np.int64)
    accepted = np.bincount(bins, minlength=BINS).astype(np.float64)
    true = draw[0] * np.diff(_true_share(draw[1], draw[2], edges), prepend=0.0)
    share = np.divide(true, accepted, out=np.zeros(BINS), where=accepted > 0)
    return np.clip(fit_descending(share, accepted), 0, 1)[bins], edges


def _middle_range(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)
