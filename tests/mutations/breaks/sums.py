"""Sealed sums and scorecards: answers that are blinded too little, checks that are left out, orders that show."""

from mutations.base import Break

__all__ = ["BREAKS"]

_SUMS = "tests/crypto/test_sums.py"
_CARD = "tests/algorithms/test_scorecard.py"

BREAKS = (
    Break(
        name="sealed sums blinded by powers of h_s",
        file="crypto/securevfl_crypto/sums/holder.py",
        old="key.make_answer_blindings(packs)",
        new="key.make_blindings(packs, key.bits)",
        tests=("tests/crypto/test_paillier_chosen_keys.py",),
    ),
    Break(
        name="sealed sums not blinded",
        file="crypto/securevfl_crypto/sums/holder.py",
        old="key.store_ciphertexts(modulus.mul(value, key.make_answer_blindings(packs)))",
        new="key.store_ciphertexts(value)",
        tests=(_SUMS,),
    ),
    Break(
        name="symbols of rows not checked",
        file="crypto/securevfl_crypto/sums/holder.py",
        old="        check_symbols(self._key, message)\n",
        new="",
        tests=(_SUMS,),
    ),
    Break(
        name="slots of sums one bit short",
        file="crypto/securevfl_crypto/sums/plan.py",
        old="(self.rows * bound).bit_length() + 1 for",
        new="(self.rows * bound).bit_length() for",
        tests=(_SUMS,),
    ),
    Break(
        name="bounds of rows not checked",
        file="crypto/securevfl_crypto/sums/owner.py",
        old="            if max(-least, most) > bound:",
        new="            if False:",
        tests=(_SUMS,),
    ),
    Break(
        name="blindings made ahead given out twice",
        file="crypto/securevfl_crypto/sums/owner.py",
        old="self._kept.appendleft(modulus.take(first, np.arange(used, len(first))))",
        new="self._kept.appendleft(modulus.take(first, np.arange(len(first) - used)))",
        tests=(_SUMS,),
    ),
    Break(
        name="a scorecard tells of bins of any size",
        file="securevfl/algorithms/scorecard/counting.py",
        old="        if (count[~alone] < least).any():",
        new="        if False:",
        tests=(_CARD,),
    ),
    Break(
        name="a scorecard's bins are asked for in their own order",
        file="securevfl/algorithms/scorecard/counting.py",
        old="    bins = [order.permutation(sizes[j]) for j in columns]",
        new="    bins = [np.arange(sizes[j]) for j in columns]",
        tests=(_CARD,),
    ),
    Break(
        name="a scorecard counts on a table's labels in the clear",
        file="securevfl/algorithms/scorecard/counting.py",
        old="await link.send(Kind.CIPHERTEXT, LABELS, guard=guard, labels=sealed)",
        new="await link.send(Kind.STATISTIC, LABELS, labels=labels)",
        tests=(_CARD,),
    ),
    Break(
        name="a scorecard's points leave out the bias",
        file="securevfl/algorithms/scorecard/binned_roles.py",
        old="return factor, 0.0 if bias is None else offset - factor * bias",
        new="return factor, 0.0 if bias is None else offset",
        tests=(_CARD,),
    ),
    Break(
        name="symbols of rows looked at in 4 subsets",
        file="crypto/securevfl_crypto/sums/hiding.py",
        old="_SUBSETS = 40\n",
        new="_SUBSETS = 4\n",
        tests=(_SUMS + "::test_forty_random_subsets_have_to_have_the_right_symbol",),
    ),
)
