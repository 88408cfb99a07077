"""Statistics on shares: too little noise, counts that should be withheld, values that pass the result book by."""

from mutations.base import Break

__all__ = ["BREAKS"]

_THREE = "securevfl/shares/crossing/programs.py"
_CELLS = "securevfl/shares/crossing/computing.py"
_TWO = "securevfl/shares/crossing/of_two.py"
_PLAN = "securevfl/training/crossing/plan.py"
_ROLES = "securevfl/algorithms/statistics/roles.py"
_COLUMNS = "securevfl/algorithms/statistics/columns.py"
_SETTINGS = "securevfl/algorithms/statistics/settings.py"
_BUDGET = "securevfl/privacy/statistics_budget.py"
_TESTS = "tests/algorithms/test_statistics.py::"
_NOISE = "tests/algorithms/test_statistics_noise.py::"
_ATTACKS = "tests/algorithms/test_statistics_attacks.py::"
_READING = "tests/algorithms/test_statistics_reading.py::"
_POLICY = ("tests/process/test_statistics_between.py::test_a_policy_bounds_how_often_and_how_exactly",)
_ADDED = (_NOISE + "test_what_is_opened_has_the_noise_of_all_that_do_not_read_it",)
_AT_BOUND = (_ATTACKS + "test_counts_are_released_from_the_least_on",)

BREAKS = (
    Break(
        name="noise on statistics by one of two parties that owe it",
        file=_CELLS,
        old='Product(factor, wanted, "times", own=noise)',
        new='Product(factor, wanted, "times", own=noise if engine.index == 1 else None)',
        tests=_ADDED,
    ),
    Break(
        name="noise on statistics of three by the party that reads them",
        file=_THREE,
        old="None if site.name == site.active else draw_noise(plan, 0.5)",
        new="None if site.name == site.passive[0] else draw_noise(plan, 0.5)",
        tests=_ADDED,
    ),
    Break(
        name="noise on statistics of two by the party that reads them",
        file=_TWO,
        old="None if party.is_active else draw_noise(plan, 1.0)",
        new="draw_noise(plan, 1.0) if party.is_active else None",
        tests=_ADDED,
    ),
    Break(
        name="noise of a half where one party adds all of it",
        file=_TWO,
        old="draw_noise(plan, 1.0)",
        new="draw_noise(plan, 0.5)",
        tests=_ADDED,
    ),
    Break(
        name="noise on statistics of half the size",
        file=_CELLS,
        old="np.ceil(sigma * np.sqrt(share))",
        new="np.ceil(sigma * np.sqrt(share) / 2)",
        tests=(_TESTS + "test_each_party_adds_its_part_of_the_noise",),
    ),
    Break(
        name="noise on counts for one column of several",
        file=_BUDGET,
        old="math.sqrt(2.0 * max(columns, 1)) / self",
        new="math.sqrt(2.0) / self",
        tests=(_NOISE + "test_all_releases_together_cost_the_budget",),
    ),
    Break(
        name="every party's own correlations with the whole share",
        file=_BUDGET,
        old="self._compute_mu(_OWN) / math.sqrt(self.passive)",
        new="self._compute_mu(_OWN)",
        tests=(_NOISE + "test_all_releases_together_cost_the_budget",),
    ),
    Break(
        name="rows of statistics not clipped",
        file=_COLUMNS,
        old="return None if budget is None or not scores else clip_norm(scores)",
        new="return None",
        tests=(_NOISE + "test_rows_are_clipped_at_every_party",),
    ),
    Break(
        name="own correlations told without their noise",
        file=_ROLES,
        old="            found = found + np.triu(noise) + np.triu(noise, 1).T\n",
        new="",
        tests=(_NOISE + "test_own_correlations_are_told_with_their_noise",),
    ),
    Break(
        name="a column's range found without noise",
        file="securevfl/algorithms/statistics/noisy_columns.py",
        old="counts + draw_gaussian((_CELLS,), sd).numpy()",
        new="counts",
        tests=(_NOISE + "test_ranges_are_found_in_noisy_counts",),
    ),
    Break(
        name="ε of statistics left out of the book of all jobs",
        file=_ROLES,
        old="        self.releases.compose_over_jobs(self.spending, self.rows, self.features.find_places(self.rows))\n",
        new="",
        tests=_POLICY,
    ),
    Break(
        name="rows of statistics not counted as used",
        file=_ROLES,
        old="            self.uses.count_epoch(self.rows)\n",
        new="            pass\n",
        tests=_POLICY,
    ),
    Break(
        name="a release of statistics that always counts as one number",
        file=_ROLES,
        old="count_opening(self.features.find_places(self.rows), self.numbers)",
        new="count_opening(self.features.find_places(self.rows), 1)",
        tests=(_ATTACKS + "test_the_result_book_counts_all_numbers_of_a_release",),
    ),
    Break(
        name="numbers of statistics not held against the policy",
        file=_ROLES,
        old="            self._check_numbers()\n",
        new="            pass\n",
        tests=(_ATTACKS + "test_the_result_book_refuses_what_opens_more_than_it_allows",),
    ),
    Break(
        name="as many columns offered as there are rows",
        file=_SETTINGS,
        old="if columns * self.least > rows:",
        new="if columns > rows:",
        tests=(_ATTACKS + "test_many_columns_cannot_be_solved_for_the_values_of_rows",),
    ),
    Break(
        name="counts of the least withheld, by three",
        file=_CELLS,
        old="cells[release.guards], plan.least)",
        new="cells[release.guards], plan.least + 1)",
        tests=_AT_BOUND,
    ),
    Break(
        name="counts below the least released, by three",
        file=_CELLS,
        old="cells[release.guards], plan.least)",
        new="cells[release.guards], plan.least - 1)",
        tests=_AT_BOUND,
    ),
    Break(
        name="counts below the least released, by two",
        file=_TWO,
        old="first * np.uint64(plan.least)",
        new="first * np.uint64(plan.least - 1)",
        tests=_AT_BOUND,
    ),
    Break(
        name="counts guarded in one class alone",
        file=_PLAN,
        old="self._add_guards(guarded, level)",
        new="self._add_guards(guarded[: count], level)",
        tests=(_TESTS + "test_one_level_is_released_and_none_with_a_small_count",),
    ),
    Break(
        name="the two values of a column guarded in one class alone",
        file=_PLAN,
        old="for row in classes for one in (0, 1)",
        new="for row in classes[:1] for one in (0, 1)",
        tests=(_ATTACKS + "test_withheld_counts_do_not_follow_from_means_and_the_label",),
    ),
    Break(
        name="values and missing values guarded together",
        file=_PLAN,
        old="[fine for fine in merge if fine != gone] or merge",
        new="merge",
        tests=(_ATTACKS + "test_counts_of_a_bin_do_not_follow_from_those_of_missing_values",),
    ),
    Break(
        name="two sets of a column's bins opened by three",
        file=_CELLS,
        old="passes - _map_share(passes, release.earlier_passes)",
        new="passes",
        tests=(_TESTS + "test_of_each_column_one_set_of_bins_is_opened",),
    ),
    Break(
        name="two sets of a column's bins opened by two",
        file=_TWO,
        old="passes - release.earlier_passes(passes) - first",
        new="passes - first",
        tests=(_TESTS + "test_of_each_column_one_set_of_bins_is_opened",),
    ),
    Break(
        name="means opened that are withheld",
        file=_PLAN,
        old="(3, plan.classes), parts, level=level, kind=1)",
        new="(3, plan.classes), parts, level=-1, kind=1)",
        tests=(_TESTS + "test_what_singles_out_rows_is_withheld",),
    ),
    Break(
        name="columns that cross to the other party unmasked",
        file=_TWO,
        old="own[part, columns].view(np.uint64) - _require_pad(use)",
        new="own[part, columns].view(np.uint64)",
        tests=(_TESTS + "test_shares_open_what_a_run_in_the_clear_shows",),
    ),
    Break(
        name="a passive party that believes any number of classes",
        file=_ROLES,
        old="layouts[place] != own or told != agreed",
        new="layouts[place] != own or told[0] != agreed[0]",
        tests=(_READING + "test_a_passive_party_refuses_other_sizes_than_were_agreed",),
    ),
    Break(
        name="a set of as many numbers as a peer's bin is high",
        file=_PLAN,
        old="sorted(set(level)) != list(range(len(set(level))))",
        new="len(set(level)) > len(level)",
        tests=(_READING + "test_layouts_and_names_that_contradict_each_other_are_refused",),
    ),
    Break(
        name="products allocated, however many a peer tells",
        file=_SETTINGS,
        old="if products > _MOST_PRODUCTS or terms > _MOST_TERMS:",
        new="if False:",
        tests=(_READING + "test_more_products_than_a_party_should_allocate_are_refused",),
    ),
)
