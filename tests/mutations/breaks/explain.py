"""Explained scores: wrong values, reasons in the wrong hands, answers that nobody counts."""

from mutations.base import Break

__all__ = ["BREAKS"]

_SETS = "securevfl/run/explained/coalitions.py"
_EXPLAIN = "securevfl/run/explained/explaining.py"
_WRITTEN = "securevfl/run/explained/explanation.py"
_OWN = "securevfl/run/explained/own_terms.py"
_TERMS = "securevfl/data/column_terms.py"
_SERVED = "securevfl/serving/reasons.py"
_TESTS = "tests/run/test_explaining.py::"
_ORDERS = (_TESTS + "test_values_are_those_of_all_orders_in_which_parties_join",)
_SUMS = (_TESTS + "test_terms_add_up_to_what_is_predicted",)
_FILES = (_TESTS + "test_files_give_the_active_party_totals_and_each_party_its_own",)
_REASONS = "tests/serving/test_reasons.py::"

BREAKS = (
    Break(
        name="Shapley values with the weights of Banzhaf",
        file=_SETS,
        old="share = factorial(size) * factorial(parties - size - 1) / factorial(parties)",
        new="share = 1 / 2 ** (parties - 1)",
        tests=_ORDERS,
    ),
    Break(
        name="mixed rows with the columns of the other person",
        file=_SETS,
        old="own if chosen & bit else other",
        new="other if chosen & bit else own",
        tests=(*_ORDERS, _TESTS + "test_shapley_values_of_a_sum_are_its_terms"),
    ),
    Break(
        name="the price of an explanation without the background's share",
        file=_SETS,
        old="return 1 + present * len(self.background), 1 + absent * len(self.explained)",
        new="return 1 + present * len(self.background), 1",
        tests=(_TESTS + "test_the_price_is_how_often_a_row_takes_part",),
    ),
    Break(
        name="answers to mixed rows that no book counts",
        file=_EXPLAIN,
        old='run="explain", results=books',
        new='run="explain", results=None',
        tests=(_TESTS + "test_answers_to_mixed_rows_count_and_are_refused_beyond_the_bound",),
    ),
    Break(
        name="two passive parties told apart where only their sum is opened",
        file=_EXPLAIN,
        old="joined = len(passive) > 1 and (",
        new="joined = False and (",
        tests=(
            _TESTS + "test_under_a_sealed_cut_only_the_active_party_sees_its_columns",
            _TESTS + "test_on_shares_a_model_that_was_handed_out_explains_its_rounded_answers",
        ),
    ),
    Break(
        name="a peer's own reasons in a party's file",
        file=_WRITTEN,
        old="content = reasons_as_csv(self.reasons(party, most",
        new="content = reasons_as_csv(self.reasons(next(iter(self.own)), most",
        tests=_FILES,
    ),
    Break(
        name="reasons that lower a score given for those that raise it",
        file=_TERMS,
        old='{"down": -1.0, "up": 1.0}',
        new='{"down": 1.0, "up": -1.0}',
        tests=(_TESTS + "test_reasons_are_the_owner_s_and_point_the_way_that_was_asked",),
    ),
    Break(
        name="terms of columns without their means",
        file=_TERMS,
        old="(terms.values - means)[:, source == place]",
        new="terms.values[:, source == place]",
        tests=_SUMS,
    ),
    Break(
        name="served reasons whose others have the baseline, too",
        file=_SERVED,
        old="others=float(whole[row]) - start - sum(added)",
        new="others=float(whole[row]) - sum(added)",
        tests=(_REASONS + "test_an_answer_has_reasons_if_the_agreement_says_so",),
    ),
    Break(
        name="reasons beside answers although nobody agreed to them",
        file="securevfl/serving/scoring.py",
        old="if not (server.place.reasons and answers and server.serving):",
        new="if not (answers and server.serving):",
        tests=(_REASONS + "test_an_answer_has_reasons_if_the_agreement_says_so",),
    ),
    Break(
        name="served reasons of calibrated odds",
        file=_OWN,
        old="correction_of(part, WHOLE).undo_odds(np.log(p[:, 1:] / p[:, :1]))",
        new="np.log(p[:, 1:] / p[:, :1])",
        tests=(_REASONS + "test_calibration_is_undone_before_an_answer_is_split",),
    ),
    Break(
        name="next month's explanation in the report of the run",
        file="securevfl/cli/explaining.py",
        old="    if given:  # the report",
        new="    if not given:  # the report",
        tests=("tests/cli/test_explain.py",),
    ),
)
