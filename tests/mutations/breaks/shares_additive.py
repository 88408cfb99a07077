"""An additive model on shares: noise of too few parties or too little, sums opened to others or twice, no bounds;
and numbers in wrong units."""

from mutations.base import Break

__all__ = ["BREAKS"]

_SUMS = "securevfl/shares/additive/sums.py"
_NOISE = "securevfl/shares/additive/noise.py"
_CHANNEL = "securevfl/shares/additive/channel.py"
_COURSE = "securevfl/shares/additive/course.py"
_RANGED = "securevfl/shares/additive/ranged.py"
_BUDGET = "securevfl/privacy/sums_budget.py"
_OPENING = "crypto/securevfl_crypto/replicated/opening.py"
_TRAINING = "tests/shares/additive/test_training.py::"
_NUMBERS = "tests/shares/additive/test_numbers.py::"
_COMPUTED = "tests/shares/additive/test_sums.py::"
_FIXED = (_TRAINING + "test_with_fixed_noise_shapes_are_those_of_the_clear",)

BREAKS = (
    Break(
        name="noise on sums sized for three honest parties",
        file=_BUDGET,
        old="(0.5, 1.5)",
        new="(1 / 3, 1.0)",
        tests=(_TRAINING + "test_any_two_parties_reach_sigma_and_no_party_alone",),
    ),
    Break(
        name="noise on sums of one party only",
        file=_CHANNEL,
        old="            noise = None if self.noise is None else",
        new="            noise = None if self.noise is None or engine.index else",
        tests=_FIXED,
    ),
    Break(
        name="the same noise on sums at all parties",
        file=_NOISE,
        old="draw_discrete_gaussian(shape, self._own, self._entropy)",
        new='draw_discrete_gaussian(shape, self._own, __import__("random").Random(self.draws).randbytes)',
        tests=_FIXED,
    ),
    Break(
        name="noise left out of the sums' product",
        file=_SUMS,
        old="sums, own=own)",
        new="sums, own=None)",
        tests=_FIXED,
    ),
    Break(
        name="noise on sums dropped at a restart",
        file=_COURSE,
        old="if plan.own_sigma and member.computes else None",
        new="if plan.own_sigma and member.computes and saved is None else None",
        tests=(_TRAINING + "test_an_epoch_whose_sums_are_opened_again_gets_new_noise_and_is_counted_again",),
    ),
    Break(
        name="sums declared for the next computing party",
        file=_CHANNEL,
        old="Opening(epochs, (computing.index(name),), values, each=1)",
        new="Opening(epochs, ((computing.index(name) + 1) % 3,), values, each=1)",
        tests=(_TRAINING + "test_each_owner_gets_the_sums_of_its_columns_once_an_epoch",),
    ),
    Break(
        name="sums sent to a data party that does not own them",
        file=_CHANNEL,
        old="member.site.links[name], own.reshape(-1), SUMS",
        new="member.site.links[name], found[: len(own)].reshape(-1), SUMS",
        tests=(_TRAINING + "test_without_a_budget_every_sum_is_that_of_the_plain_run",),
    ),
    Break(
        name="sums of an epoch opened again",
        file=_CHANNEL,
        old="        if epoch <= self._last:\n",
        new="        if epoch < self._last:\n",
        tests=(_TRAINING + "test_sums_of_an_epoch_are_opened_once",),
    ),
    Break(
        name="what is dealt goes unchecked",
        file=_CHANNEL,
        old="            if self.bounded and not await engine.is_zero(\n",
        new="            if engine.rounds < 0 and not await engine.is_zero(\n",
        tests=(_TRAINING + "test_what_lies_outside_its_bounds_ends_the_job_before_sums_are_opened",),
    ),
    Break(
        name="the bits of a party's part unchecked",
        file=_CHANNEL,
        old="                found.bits.append(part)\n",
        new="",
        tests=(_TRAINING + "test_what_lies_outside_its_bounds_ends_the_job_before_sums_are_opened",),
    ),
    Break(
        name="bits checked by a sum without random coefficients",
        file=_SUMS,
        old=" * stream.draw_words(number, words.size).view(np.int64)\n",
        new=" * 1\n",
        tests=(_COMPUTED + "test_words_that_cancel_each_other_are_found",),
    ),
    Break(
        name="numbers beyond the end of their range",
        file=_RANGED,
        old="    return (*(1 << k for k in range(full)), *([rest] if rest else []))\n",
        new="    return (*(1 << k for k in range(full)), *([1 << full] if rest else []))\n",
        tests=(_COMPUTED + "test_bits_give_every_number_of_a_range_and_no_other",),
    ),
    Break(
        name="slack of the caps left out of the noise",
        file=_BUDGET,
        old="return 1.0 + self.slack if",
        new="return 1.0 if",
        tests=(_TRAINING + "test_residuals_are_bounded_by_what_the_noise_is_sized_for",),
    ),
    Break(
        name="a sum that no rows could give is taken",
        file=_CHANNEL,
        old="_DEVIATIONS = 8.0\n",
        new="_DEVIATIONS = 1e9\n",
        tests=(_TRAINING + "test_a_sum_that_no_rows_could_give_is_refused_by_its_owner",),
    ),
    Break(
        name="coins that their sender chooses",
        file=_OPENING,
        old="    if not np.array_equal(missing, again):\n",
        new="    if not np.array_equal(missing, missing):\n",
        tests=("tests/crypto/test_replicated_openings.py::test_no_party_draws_all_of_the_coins",),
    ),
    Break(
        name="a number may be dealt far outside the range that noise is sized by",
        file=_COURSE,
        old="self.sums.finer, bound=1.0)",
        new="self.sums.finer)",
        tests=(_NUMBERS + "test_a_target_one_unit_outside_the_range_ends_the_job_before_anything_is_opened",),
    ),
    Break(
        name="a number may be dealt a unit outside its range",
        file="securevfl/shares/kept_targets.py",
        old="round(rule.bound * ONE)",
        new="round(rule.bound * ONE) + 32",
        tests=("tests/shares/test_kept_targets.py::test_a_number_of_a_range_is_within_it_to_the_last_unit",),
    ),
    Break(
        name="residuals of a number in the units of a class",
        file=_COURSE,
        old="2 * ONE if sizes.classes == 1 else ONE",
        new="ONE",
        tests=(_NUMBERS + "test_every_sum_and_shape_is_that_of_the_plain_run",),
    ),
    Break(
        name="a number's shapes answer on another scale than its targets",
        file="securevfl/shares/additive/scores.py",
        old="return total * 2 - self.engine.constant(np.full(total.shape, ONE, np.uint64))",
        new="return total",
        tests=(_NUMBERS + "test_validation_test_and_predictions_say_what_the_plain_run_says",),
    ),
    Break(
        name="the loss of a number too coarse for its range",
        file=_COURSE,
        old="loss_bits: ClassVar[int] = 5",
        new="loss_bits: ClassVar[int] = 0",
        tests=(_NUMBERS + "test_validation_test_and_predictions_say_what_the_plain_run_says",),
    ),
    Break(
        name="numbers beyond the range are dealt as they are",
        file="securevfl/shares/additive/programs.py",
        old="np.rint(np.clip((targets.detach().cpu().double().numpy() + 1) / 2, 0, 1) * most)",
        new="np.rint((targets.detach().cpu().double().numpy() + 1) / 2 * most)",
        tests=(_NUMBERS + "test_numbers_are_dealt_as_the_integers_that_a_plain_run_trains_on",),
    ),
)
