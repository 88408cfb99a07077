"""A scorecard of two parties on shares: bins that learn by themselves, tiny bins, bins of another table."""

from mutations.base import Break

__all__ = ["BREAKS"]

_CELLS = "securevfl/shares/two/cells.py"
_PROGRAMS = "securevfl/shares/two/card_programs.py"
_TESTS = "tests/shares/two/test_scorecard.py::"

BREAKS = (
    Break(
        name="between two, each bin learns by itself",
        file=_CELLS,
        old="_SMOOTH * bins / max(rows, 1) * roughness",
        new="0.0 * roughness",
        tests=(_TESTS + "test_it_scores_like_free_bins_or_better_with_few_rows",),
    ),
    Break(
        name="between two, the kernel itself in place of its root",
        file=_CELLS,
        old="(vectors / np.sqrt(values))",
        new="(vectors / values)",
        tests=(_TESTS + "test_cells_are_the_root_of_the_smoothing_kernel",),
    ),
    Break(
        name="between two, a bin of fewer rows than the job says",
        file=_CELLS,
        old="    if fewest < least:",
        new="    if fewest < least - 1:",
        tests=(_TESTS + "test_bins_with_fewer_rows_are_refused",),
    ),
    Break(
        name="between two, cells of a column at another one's places",
        file=_CELLS,
        old="[codes[:, j]] for j in used]",
        new="[codes[:, used[-1]]] for j in used]",
        tests=(_TESTS + "test_rows_hold_the_cells_of_their_bins",),
    ),
    Break(
        name="between two, a checkpoint of another number of rows",
        file=_PROGRAMS,
        old="if as_int(state[_ROWS]) != self._cells.rows:",
        new="if as_int(state[_ROWS]) < self._cells.rows:",
        tests=(_TESTS + "test_checkpoints_of_other_rows_are_refused",),
    ),
    Break(
        name="predictions of two with cells of an empty table",
        file=_PROGRAMS,
        old='cells.rows = as_int(as_dict(as_dict(parts)["shares"])[_ROWS])',
        new="cells.rows = 0",
        tests=(_TESTS + "test_a_model_in_shares_predicts_with_both_parties",),
    ),
)
