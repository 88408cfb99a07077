"""Noise on an additive model's sums: discrete draws, the accounting of Gaussian releases, noisy bins, shapes."""

from mutations.base import Break

__all__ = ["BREAKS"]

_GDP = "securevfl/privacy/gaussian_dp.py"
_DISCRETE = "securevfl/privacy/discrete_gaussian.py"
_BUDGET = "securevfl/privacy/sums_budget.py"
_MODEL = "securevfl/algorithms/additive/"
_TESTS = "tests/privacy/test_sums_budget.py"
_SHAPES = "tests/algorithms/test_additive.py"

BREAKS = (
    Break(
        name="δ without the second term's ε",
        file=_GDP,
        old="epsilon + _log_phi(-mu / 2 - epsilon / mu)",
        new="_log_phi(-mu / 2 - epsilon / mu)",
        tests=(_TESTS,),
    ),
    Break(
        name="the larger of two μ",
        file=_GDP,
        old="    return -_bisect(-high, -low, lambda minus: delta_at(epsilon, -minus) <= delta)\n",
        new="    return _bisect(low, high, lambda mu: delta_at(epsilon, mu) > delta)\n",
        tests=(_TESTS,),
    ),
    Break(
        name="discrete noise of a smaller σ",
        file=_DISCRETE,
        old="gap * gap, 2 * square * scale * scale, source",
        new="gap * gap, square * scale * scale, source",
        tests=(_TESTS,),
    ),
    Break(
        name="zero drawn twice as often",
        file=_DISCRETE,
        old="        if negative and not found:\n            continue\n",
        new="",
        tests=(_TESTS,),
    ),
    Break(
        name="uniform integers modulo their bound",
        file=_DISCRETE,
        old="            if found < bound:\n                return found\n",
        new="            return found % bound\n",
        tests=(_TESTS,),
    ),
    Break(
        name="bytes of a pool that are used again",
        file=_DISCRETE,
        old="        self._at += count\n",
        new="",
        tests=(_TESTS,),
    ),
    Break(
        name="a draw beyond the tail",
        file=_DISCRETE,
        old=" and abs(found) <= most:\n",
        new=":\n",
        tests=(_TESTS + "::test_a_draw_beyond_the_tail_is_drawn_again",),
    ),
    Break(
        name="a replaced row counted as one left out",
        file=_BUDGET,
        old="        return 2 * self.residual * math.sqrt(self.columns)\n",
        new="        return self.residual * math.sqrt(self.columns)\n",
        tests=(_TESTS, _SHAPES),
    ),
    Break(
        name="ε of one epoch stated for all",
        file=_BUDGET,
        old="math.hypot(early, each * math.sqrt(self.epochs), self.repeated_mu(repeated))",
        new="math.hypot(early, each, self.repeated_mu(repeated))",
        tests=(_TESTS,),
    ),
    Break(
        name="ε that forgets interrupted attempts",
        file=_BUDGET,
        old="each * math.sqrt(self.epochs), self.repeated_mu(repeated))",
        new="each * math.sqrt(self.epochs))",
        tests=(_TESTS,),
    ),
    Break(
        name="counts of a tree with the noise of one level",
        file=_MODEL + "edges.py",
        old="_TREE_SENSITIVITY = math.sqrt(2 * LEVELS)\n",
        new="_TREE_SENSITIVITY = math.sqrt(2)\n",
        tests=(_TESTS, _SHAPES),
    ),
    Break(
        name="noisy counts with all bits of their floats",
        file=_MODEL + "edges.py",
        old="np.rint((sums + draw(sums.shape)) * _FINE) / _FINE",
        new="sums + draw(sums.shape)",
        tests=(_TESTS, _SHAPES),
    ),
    Break(
        name="missing values counted without noise",
        file=_MODEL + "edges.py",
        old="(int(missing.sum()) + float(draw_gaussian((1,), sd, entropy)[0])) * _FINE",
        new="int(missing.sum()) * _FINE",
        tests=(_TESTS, _SHAPES),
    ),
    Break(
        name="a category's exact counts as its masses",
        file=_MODEL + "own_columns.py",
        old="column = noisy_category(column, values, source.mu)",
        new="column = column.with_masses(count_bins(column, values))",
        tests=(_SHAPES + "::test_what_a_budget_bins_by_has_noise",),
    ),
    Break(
        name="quantiles of the rows as edges where a budget is spent",
        file=_MODEL + "own_columns.py",
        old="column = noisy_column(name, values, source.bins, *ranges[name], source.mu)",
        new="column = common_column(name, values, source.bins)",
        tests=(_SHAPES + "::test_what_a_budget_bins_by_has_noise",),
    ),
    Break(
        name="the exact mean of the targets as the start",
        file=_MODEL + "roles.py",
        old="            sums = sums + draw_discrete_gaussian(",
        new="            sums = sums + 0 * draw_discrete_gaussian(",
        tests=(_SHAPES + "::test_a_budget_makes_start_and_masses_noisy",),
    ),
    Break(
        name="the best epoch by exact metrics where a budget is spent",
        file=_MODEL + "settings.py",
        old="        if protection.on_shares and protection.opens_metrics:\n",
        new="        if protection.on_shares and not protection.opens_metrics:\n",
        tests=(_SHAPES + "::test_what_a_budget_excludes_is_refused",),
    ),
    Break(
        name="a part without a cap at one party",
        file=_MODEL + "shapes.py",
        old="self.plan.cap_of(self.party), self.plan.slack)",
        new="self.plan.cap_of(self.party) << (4 if self.party == self.plan.parties[-1] else 0), self.plan.slack)",
        tests=(_TESTS + "::test_crafted_shapes_reach_the_stated_loss_and_never_exceed_it",),
    ),
    Break(
        name="residuals of several classes bounded by one",
        file=_BUDGET,
        old="        return 1.0 + self.slack if self.outputs == 1 else math.sqrt(2.0)\n",
        new="        return 1.0 + self.slack\n",
        tests=(_TESTS + "::test_crafted_shapes_reach_the_stated_loss_and_never_exceed_it",),
    ),
    Break(
        name="noise sized for the sums of one party's columns",
        file=_MODEL + "settings.py",
        old="outputs=outputs, columns=sum(columns), parties",
        new="outputs=outputs, columns=columns[0], parties",
        tests=("tests/shares/additive/test_training.py::test_residuals_are_bounded_by_what_the_noise_is_sized_for",),
    ),
    Break(
        name="contrasts that rounding takes beyond one",
        file=_MODEL + "contrasts.py",
        old="np.where(side, CONTRAST_ONE, -round(",
        new="np.where(side, CONTRAST_ONE + 1, -round(",
        tests=(_SHAPES + "::test_contrasts_stay_within_one_after_rounding_and_come_from_the_seed",),
    ),
    Break(
        name="steps that forget the noise",
        file=_MODEL + "shapes.py",
        old=" + rule.damping * plan.noise\n",
        new="\n",
        tests=(_SHAPES,),
    ),
    Break(
        name="steps of the own columns alone",
        file=_MODEL + "shapes.py",
        old="step_rate(rule.lr, plan.total_columns)",
        new="step_rate(rule.lr, len(self.columns))",
        tests=(_SHAPES,),
    ),
    Break(
        name="shapes that rise where they should fall",
        file=_MODEL + "shapes.py",
        old="increasing=column.direction > 0",
        new="increasing=column.direction < 0",
        tests=(_SHAPES + "::test_monotone_shapes_only_rise_or_fall",),
    ),
)
