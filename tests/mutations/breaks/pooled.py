"""Trees of few common rows, methods of the field, gradients, and verdicts on claims that a gain is small."""

from mutations.base import Break

__all__ = ["BREAKS"]

_BEST = "securevfl/algorithms/best_with_trees_roles.py"
_POOLED = ("tests/algorithms/test_best_with_trees.py::test_scores_are_the_pool_of_three_opinions",)
_HYBRID = "securevfl/algorithms/field/hybrid_tree/roles.py"
_HYBRID_TESTS = "tests/algorithms/test_hybrid_tree.py::"
_FALSE = "securevfl/algorithms/field/false_vfl/"
_FALSE_TESTS = "tests/algorithms/test_false_vfl.py::"
_BOUNDS = "benchmarks/claim_bounds.py"
_ONE_SIDED = ("tests/docs/test_claim_bounds.py::test_one_sided_tests_are_those_of_scipy_without_rows_in_common",)
_DEFAULTS = "tests/algorithms/test_boosting_defaults.py::"

BREAKS = (
    Break(
        name="own trees pooled with the partners' corrections in them",
        file=_BEST,
        old="for one in (False, True))",
        new="for one in (False, False))",
        tests=_POOLED,
    ),
    Break(
        name="rows that the partners lack scored with the weights of all parties' rows",
        file=_BEST,
        old="return self._pool_opinions([best, self._own_trees(rows)], _ALONE)",
        new="return self._pool_opinions([self._own_trees(rows), best], _ALONE)",
        tests=("tests/algorithms/test_best_with_trees.py::test_a_scored_row_gets_what_the_run_reported",),
    ),
    Break(
        name="trees of the partners' columns that split by own ones",
        file="securevfl/algorithms/boosting/active.py",
        old="return np.arange(count) >= self.width",
        new="return np.arange(count) >= 0",
        tests=("tests/algorithms/test_best_with_trees.py::test_trees_of_partners_columns_split_by_no_own_column",),
        keywords="plain",
    ),
    Break(
        name="a leaf of fewer than twenty rows",
        file="securevfl/training/tree_terms.py",
        old="(_LEAST_SUM, _count_leaf_rows(rows)) if",
        new="(_LEAST_SUM, 0.0) if",
        tests=(_DEFAULTS + "test_a_leaf_has_twenty_rows_and_on_shares_one_of_classes_a_sum_of_one",),
    ),
    Break(
        name="boosting that forgets how many rows a leaf needs",
        file="securevfl/algorithms/boosting/active.py",
        old="            least_rows=least_rows,\n",
        new="",
        tests=(_DEFAULTS + "test_every_leaf_of_boosting_has_its_rows",),
    ),
    Break(
        name="a split that takes a side's h for its rows",
        file="securevfl/algorithms/boosting/splits.py",
        old="rule.least_rows * float(whole[1]) / max(seen, 1)",
        new="rule.least_rows",
        tests=(_DEFAULTS + "test_a_side_has_the_least_rows_however_certain_the_classes_are",),
    ),
    Break(
        name="values of guests added up",
        file=_HYBRID,
        old="np.mean(found, axis=0)",
        new="np.sum(found, axis=0)",
        tests=(_HYBRID_TESTS + "test_what_a_guest_reads_of_the_others_is_declared",),
    ),
    Break(
        name="guests asked below leaves where no common row stood",
        file=_HYBRID,
        old="taught[grown.leaf[:common]] = True",
        new="taught[:] = True",
        tests=(_HYBRID_TESTS + "test_a_leaf_without_common_rows_keeps_its_own_value",),
    ),
    Break(
        name="a guest that takes leaves of trees that it does not have",
        file=_HYBRID,
        old=" or len(leaves) > len(trees):",
        new=":",
        tests=(_HYBRID_TESTS + "test_a_guest_refuses_leaves_of_other_sizes",),
    ),
    Break(
        name="variances fused in the place of precisions",
        file=_FALSE + "settings.py",
        old="torch.exp(-wide) for _, wide in posteriors",
        new="torch.exp(wide) for _, wide in posteriors",
        tests=(_FALSE_TESTS + "test_posteriors_fuse_by_mean_and_precision",),
    ),
    Break(
        name="pulls of other parties not taken back",
        file=_FALSE + "roles.py",
        old="            torch.autograd.backward(h, pull, retain_graph=True)\n",
        new="",
        tests=(_FALSE_TESTS + "test_gradients_over_links_are_those_of_one_model",),
    ),
    Break(
        name="a batch as large as a peer makes it",
        file=_FALSE + "roles.py",
        old="if count > self.nominal_batch:",
        new="if False:",
        tests=(_FALSE_TESTS + "test_a_peer_sends_no_more_rows_than_a_batch_has",),
    ),
    Break(
        name="a gradient that goes back divided",
        file="securevfl/training/optimizers.py",
        old="torch.autograd.backward((outputs * gradient).sum())",
        new="torch.autograd.backward((outputs * gradient).mean())",
        tests=("tests/cut/test_optimizers.py::test_a_gradient_goes_back_as_torch_takes_it",),
    ),
    Break(
        name="a gradient of another shape, spread over rows",
        file="securevfl/training/optimizers.py",
        old="if gradient.shape != outputs.shape:",
        new="if False:",
        tests=("tests/cut/test_optimizers.py::test_a_gradient_of_another_shape_is_refused",),
    ),
    Break(
        name="the upper of two one-sided tests on its wrong side",
        file=_BOUNDS,
        old="(sample.mean - bound) / error",
        new="(bound - sample.mean) / error",
        tests=_ONE_SIDED,
    ),
    Break(
        name="the lower of two one-sided tests at the upper bound",
        file=_BOUNDS,
        old="-(sample.mean + bound) / error",
        new="-(sample.mean - bound) / error",
        tests=_ONE_SIDED,
    ),
    Break(
        name="a claim to be on par decided by one bound",
        file=_BOUNDS,
        old="elif below and sample.margin >= 0:",
        new="elif below:",
        tests=("tests/docs/test_claim_bounds.py::test_a_claim_to_be_on_par_needs_both_bounds",),
    ),
    Break(
        name="statistics taken for a model",
        file="securevfl/party/eligibility.py",
        old="    if algorithm.describes:\n",
        new="    if False:\n",
        tests=("tests/algorithms/test_statistics_refused.py::test_what_needs_a_model_refuses_statistics",),
    ),
)
