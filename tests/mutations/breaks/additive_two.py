"""An additive model between two parties: noise of one or too little, masks used twice or not at all, no bounds."""

from mutations.base import Break

__all__ = ["BREAKS"]

_SUMS = "securevfl/algorithms/additive/sealed_sums.py"
_BUDGET = "securevfl/privacy/sums_budget.py"
_HOLDER = "crypto/securevfl_crypto/rlwe/holder.py"
_TESTS = "tests/algorithms/test_additive_two.py::"
_FIXED = (_TESTS + "test_with_fixed_noise_shapes_are_those_of_the_clear",)
_AUDIT = (_TESTS + "test_a_party_without_its_own_noise_sees_a_row_as_well_as_stated_and_no_better",)
_MASKS = (_TESTS + "test_what_a_party_opens_for_the_other_is_uniform_and_masked_anew_in_each_epoch",)

BREAKS = (
    Break(
        name="noise of one of two parties only",
        file=_SUMS,
        old="if self._own_sigma else np.zeros",
        new="if self._own_sigma and self._keys.is_active else np.zeros",
        tests=_AUDIT,
    ),
    Break(
        name="the same noise at both of two parties",
        file=_SUMS,
        old="draw_discrete_gaussian(shape, self._own_sigma)",
        new='draw_discrete_gaussian(shape, self._own_sigma, __import__("random").Random(self._last).randbytes)',
        tests=_FIXED,
    ),
    Break(
        name="noise of two parties that reaches σ only together",
        file=_BUDGET,
        old="(1.0, 2.0)",
        new="(0.5, 1.0)",
        tests=_AUDIT,
    ),
    Break(
        name="no noise on the own sums between two parties",
        file=_SUMS,
        old=" + self.draw_noise(size)",
        new="",
        tests=_FIXED,
    ),
    Break(
        name="a mask on sums between two parties used twice",
        file=_HOLDER,
        old="phi = self._random_integers(block.phi_bits)",
        new='phi = self.__dict__.setdefault("kept", self._random_integers(block.phi_bits))',
        tests=_MASKS,
    ),
    Break(
        name="sums between two parties opened to the other one",
        file=_HOLDER,
        old="phi = self._random_integers(block.phi_bits)",
        new="phi = self._random_integers(block.phi_bits) * 0",
        tests=_MASKS,
    ),
    Break(
        name="contrasts beyond one sealed",
        file=_SUMS,
        old="        if largest > one:",
        new="        if largest > 2 * one:",
        tests=(_TESTS + "test_numbers_beyond_one_are_never_sealed",),
    ),
    Break(
        name="sums between two parties opened twice for one epoch",
        file=_SUMS,
        old="if epoch <= self._last:",
        new="if epoch < self._last:",
        tests=(_TESTS + "test_sums_of_an_epoch_are_opened_once",),
    ),
)
