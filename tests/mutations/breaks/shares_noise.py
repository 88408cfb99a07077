"""Noise inside the shares: too little of it, or in the wrong place; rows not clipped, uses not counted."""

from mutations.base import Break

__all__ = ["BREAKS"]

_STEPS = "securevfl/shares/dp_steps.py"
_NETWORK = "securevfl/shares/network.py"
_PRODUCT = "crypto/securevfl_crypto/replicated/product.py"
_SHARING = "securevfl/shares/sharing.py"
_PLANNED = "securevfl/party/planning.py"
_TESTS = "tests/shares/test_dp_steps.py::"
_JOBS = "tests/shares/test_epsilon_of_jobs.py::"
_OVER = "tests/shares/test_epsilon_over_jobs.py::"
_BUDGET = "securevfl/privacy/epsilon_budget.py"
_NONE = "tests/shares/test_no_metrics.py::"

BREAKS = (
    Break(
        name="noise sized for three honest parties",
        file=_STEPS,
        old="_OTHERS = 2\n",
        new="_OTHERS = 3\n",
        tests=(_TESTS + "test_each_party_draws_half_the_variance_and_any_two_reach_sigma",),
    ),
    Break(
        name="noise left out of a step's product",
        file=_PRODUCT,
        old="None if job.add is None else job.add.mine, job.own)",
        new="None if job.add is None else job.add.mine,)",
        tests=(_TESTS + "test_a_party_that_adds_none_leaves_the_noise_of_the_two_others_in_the_weights",),
    ),
    Break(
        name="noise that the rate does not scale",
        file=_NETWORK,
        old=" * np.uint64(step.factor)\n",
        new="\n",
        tests=(_TESTS + "test_a_party_that_adds_none_leaves_the_noise_of_the_two_others_in_the_weights",),
    ),
    Break(
        name="sensitivity of a row that is added",
        file=_SHARING,
        old="2 * gradient_bound(shape, mechanism.clip)",
        new="gradient_bound(shape, mechanism.clip)",
        tests=(_TESTS + "test_every_party_reports_what_the_accountant_says",),
    ),
    Break(
        name="the column of ones left out of a row's norm",
        file=_STEPS,
        old="* math.hypot(clip, 1.0)\n\n\nclass",
        new="* clip\n\n\nclass",
        tests=(_TESTS + "test_the_longest_gradient_is_that_of_a_wrong_row_of_full_norm_and_the_column_of_ones",),
    ),
    Break(
        name="a softmax that is taken to end at one",
        file=_STEPS,
        old="False: 1.42}",
        new="False: 1.41}",
        tests=(_TESTS + "test_what_a_row_puts_into_a_gradient_is_bounded_whatever_its_logits",),
    ),
    Break(
        name="rows clipped before they are rounded up",
        file=_STEPS,
        old="return clip_rows(wide, bound - added)",
        new="return clip_rows(wide, bound)",
        tests=(_TESTS + "test_rows_are_clipped_by_their_owner_also_as_they_are_rounded",),
    ),
    Break(
        name="every party's block clipped to the norm of all",
        file=_STEPS,
        old="clip * math.sqrt(width / max(sum(widths), 1))",
        new="clip",
        tests=(_TESTS + "test_rows_are_clipped_by_their_owner_also_as_they_are_rounded",),
    ),
    Break(
        name="logits that may wrap",
        file=_STEPS,
        old=">= _LARGEST_LOGIT",
        new=">= math.inf",
        tests=(_TESTS + "test_logits_that_could_wrap_within_the_run_are_refused",),
    ),
    Break(
        name="uses of a row not counted",
        file="securevfl/shares/shared_steps.py",
        old="        self.counts.add(rows)\n",
        new="",
        tests=(_TESTS + "test_every_party_reports_what_the_accountant_says",),
    ),
    Break(
        name="noise on networks with hidden layers",
        file=_STEPS,
        old="    if shape.bottom or shape.hidden:\n",
        new="    if shape.bottom:\n",
        tests=(_TESTS + "test_gradients_without_a_small_bound_are_refused",),
    ),
    Break(
        name="noise in the first step alone",
        file=_STEPS,
        old="        self.draws += 1\n        share",
        new="        self.draws += 1\n        if self.draws > 1:\n"
        "            return np.zeros(shape, dtype=np.uint64)\n        share",
        tests=(_TESTS + "test_each_party_draws_half_the_variance_and_any_two_reach_sigma",),
    ),
    Break(
        name="metrics opened where the job says none",
        file="securevfl/shares/protection.py",
        old='        return self.metrics != "none"\n',
        new="        return True\n",
        tests=(_NONE + "test_the_predictions_are_all_that_is_opened",),
    ),
    Break(
        name="a bound on ε that overlooks metrics without noise",
        file=_PLANNED,
        old="    if job.protection.opens_metrics and not job.algorithm.describes:\n",
        new="    if False:\n",
        tests=(_JOBS + "test_a_job_that_the_bound_does_not_cover_is_refused_with_the_cure",),
    ),
    Break(
        name="a bound on ε beside predictions without a bound",
        file="securevfl/privacy/terms.py",
        old="    if terms.predictions and policy.allowed_results is None:\n",
        new="    if False:\n",
        tests=(_JOBS + "test_a_job_that_the_bound_does_not_cover_is_refused_with_the_cure",),
    ),
    Break(
        name="rows that train and are scored",
        file="securevfl/shares/shared_steps.py",
        old="        if self._scored[rows].any():\n",
        new="        if False:\n",
        tests=(_JOBS + "test_rows_that_train_and_are_scored_are_refused",),
    ),
    Break(
        name="uses counted of rows that are asked for, not of those that feed",
        file="securevfl/shares/programs.py",
        old="                self.uses.count_use(fed)\n",
        new="                self.uses.count_use(batches[number])\n",
        tests=(_JOBS + "test_each_row_that_feeds_is_counted",),
    ),
    Break(
        name="ε of earlier jobs left out of the plan",
        file=_BUDGET,
        old="        before = float(self._spent(places).max(initial=0.0))\n",
        new="        before = 0.0\n",
        tests=(_OVER + "test_retraining_on_the_same_rows_adds_up_over_agreements",),
    ),
    Break(
        name="two jobs at once that both have the rest of ε",
        file=_BUDGET,
        old="            self.check_plan(places, GaussianRelease(sigma, times), delta)\n",
        new="",
        tests=(_OVER + "test_of_two_jobs_at_once_the_second_is_refused_when_it_counts",),
    ),
    Break(
        name="ε held by the bound of one agreement over all",
        file="securevfl/run/context_building.py",
        old="(own_policy or job.policies.get(name, Policy())).max_epsilon",
        new="policy.max_epsilon",
        tests=(_OVER + "test_an_agreement_bounds_itself_and_the_policy_all_of_them",),
    ),
    Break(
        name="ε counted after the rows were dealt",
        file="securevfl/privacy/releases.py",
        old="            self._over_jobs.count_releases(release, self._epoch, most, self._delta)\n",
        new="            pass\n",
        tests=(_OVER + "test_nothing_is_dealt_that_is_not_counted",),
    ),
    Break(
        name="ε lost when the book is compacted",
        file="securevfl/privacy/result_book.py",
        old='if asker in old.losses else ""',
        new='if not old else ""',
        tests=(_OVER + "test_a_compacted_book_keeps_what_was_spent",),
    ),
)
