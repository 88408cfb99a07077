"""Models of two computing parties: pads left out or used twice that no result shows, and checks that are not made."""

from mutations.base import Break

__all__ = ["BREAKS"]

_TWO = "crypto/securevfl_crypto/two/"
_SHARES = "securevfl/shares/two/"
_ONLINE = "tests/crypto/two/test_two_pads.py::"
_DEALING = "tests/crypto/two/test_two_dealing.py::"
_COURSE = "tests/shares/two/test_course.py::"
_JUDGING = "tests/shares/two/test_judging.py::"
_OPENED = "tests/shares/two/test_opened.py::"
_EXTENSION = "tests/crypto/two/test_transfer_extension.py::"

BREAKS = (
    Break(
        name="the pads of weights are zero",
        file=_TWO + "pair.py",
        old='"pad": _draw_words((task.other, width)),',
        new='"pad": _draw_words((task.other, width)) * np.uint64(0),',
        tests=(_ONLINE + "test_weights_are_hidden_by_a_pad_of_their_sender",),
    ),
    Break(
        name="the pads of errors are zero",
        file=_TWO + "pair.py",
        old='"pad_back": _draw_words((rows, width)),',
        new='"pad_back": _draw_words((rows, width)) * np.uint64(0),',
        tests=(_ONLINE + "test_errors_are_hidden_from_whoever_has_the_other_summand",),
    ),
    Break(
        name="angles of 20 bits between two",
        file=_TWO + "pair.py",
        old="% np.uint64(ANGLES)).astype(np.int64)",
        new="% np.uint64(ANGLES // 2)).astype(np.int64)",
        tests=(_ONLINE + "test_angles_are_hidden_by_all_of_their_bits",),
    ),
    Break(
        name="angles of 20 bits from a helper",
        file=_TWO + "dealing.py",
        old="% np.uint64(ANGLES)).astype(np.int64)",
        new="% np.uint64(ANGLES // 2)).astype(np.int64)",
        tests=(_ONLINE + "test_angles_are_hidden_by_all_of_their_bits",),
    ),
    Break(
        name="one angle for all rows between two",
        file=_TWO + "pair.py",
        old="        angles = (_draw_words((count,)) % np.uint64(ANGLES)).astype(np.int64)\n",
        new="        angles = np.repeat((_draw_words((1,)) % np.uint64(ANGLES)).astype(np.int64), count)\n",
        tests=(_ONLINE + "test_angles_are_hidden_by_all_of_their_bits",),
    ),
    Break(
        name="one angle for all rows from a helper",
        file=_TWO + "dealing.py",
        old="        return (self.draw_words(count) % np.uint64(ANGLES)).astype(np.int64)\n",
        new="        return np.repeat(self.draw_words(count)[:1] % np.uint64(ANGLES), count).astype(np.int64)\n",
        tests=(_ONLINE + "test_angles_are_hidden_by_all_of_their_bits",),
    ),
    Break(
        name="a masked angle without its mask",
        file=_TWO + "online.py",
        old=".astype(np.int64) + wave.angles) & (ANGLES - 1)",
        new=".astype(np.int64)) & (ANGLES - 1)",
        tests=(_ONLINE + "test_angles_are_hidden_by_all_of_their_bits",),
    ),
    Break(
        name="m left out of a share of logits",
        file=_TWO + "online.py",
        old="        z = use.mask + use.share\n",
        new="        z = use.share.copy()\n",
        tests=(_ONLINE + "test_steps_are_those_of_floats",),
    ),
    Break(
        name="the rows of a helper's jobs are sent without a mask",
        file=_TWO + "dealing.py",
        old="        return Stream(derived).draw_words(0, (rows, columns))\n",
        new="        return Stream(derived).draw_words(0, (rows, columns)) * np.uint64(0)\n",
        tests=(_ONLINE + "test_summands_of_products_are_uniform",),
    ),
    Break(
        name="all uses of a batch are its first columns",
        file=_TWO + "pair.py",
        old="            return np.asarray(uses[name][number])\n",
        new="            return np.array(uses[name][0])\n",
        tests=(_ONLINE + "test_no_pad_serves_twice",),
    ),
    Break(
        name="all dealt uses of a batch are its first columns",
        file=_TWO + "dealt.py",
        old="part[:, i * k : (i + 1) * k]",
        new="part[:, :k]",
        tests=(_ONLINE + "test_no_pad_serves_twice",),
    ),
    Break(
        name="a use of a batch is taken again in the next epoch",
        file=_SHARES + "course.py",
        old="await self.model.linear.begin_epoch([self._uses[key].popleft() for key in keys])",
        new="await self.model.linear.begin_epoch([self._uses[key][0] for key in keys])",
        tests=(_COURSE + "test_no_pad_serves_twice_in_a_job",),
    ),
    Break(
        name="an epoch begins within another",
        file=_TWO + "online.py",
        old="        if self._ahead:\n",
        new="        if False:\n",
        tests=(_ONLINE + "test_an_epoch_does_not_begin_within_another",),
    ),
    Break(
        name="columns of transfers all under one key",
        file=_TWO.replace("two/", "transfer/") + "extension.py",
        old="modes.CTR(bytes(16))).encryptor() for key in keys]",
        new="modes.CTR(bytes(16))).encryptor() for key in keys[:1] * len(keys)]",
        tests=(_EXTENSION + "test_a_batch_is_what_the_protocol_defines",),
    ),
    Break(
        name="names of sharings are not compared",
        file=_TWO + "online.py",
        old="        if not np.array_equal(tag, other):\n",
        new="        if False:\n",
        tests=(_ONLINE + "test_summands_of_other_attempts_are_refused",),
    ),
    Break(
        name="each of two parties adds half of the variance",
        file=_SHARES + "noise.py",
        old="_PARTIES = 1\n",
        new="_PARTIES = 2\n",
        tests=("tests/shares/two/test_noise.py::test_each_party_draws_all_of_the_noise",),
    ),
    Break(
        name="the range bit of two parties is ignored",
        file=_SHARES + "course.py",
        old='        if await self.party.open_bit("range", await count_outside(self.party, logits)):\n',
        new='        if await self.party.open_bit("range", await count_outside(self.party, logits)) and False:\n',
        tests=(_COURSE + "test_logits_out_of_range_end_the_job",),
    ),
    Break(
        name="metrics of two parties are not counted",
        file=_SHARES + "course.py",
        old="        self._count_metrics()\n",
        new="",
        tests=(_COURSE + "test_openings_are_counted_before_they_happen",),
    ),
    Break(
        name="values of two parties are opened with all of their bits",
        file=_SHARES + "parties.py",
        old="        kept = (words >> down) & mask\n",
        new="        kept = words >> down\n",
        tests=(_OPENED + "test_values_are_opened_rounded_and_signed",),
    ),
    Break(
        name="outputs far outside are not clipped",
        file=_SHARES + "judging.py",
        old="    return met[0] ^ one, met[1]\n",
        new="    return low, high\n",
        tests=(_JUDGING + "test_answers_far_outside_are_clipped",),
    ),
    Break(
        name="errors of a helper's top bits cancel",
        file=_TWO + "dealt.py",
        old="    factors = Stream(seed.tobytes()).draw_words(0, (len(each),))\n",
        new="    factors = Stream(seed.tobytes()).draw_words(0, (len(each),)) | np.uint64(1)\n",
        tests=(_DEALING + "test_errors_of_top_bits_do_not_cancel_in_every_combination",),
    ),
    Break(
        name="a helper's numbers are checked by rows",
        file=_TWO + "dealt.py",
        old="        hider = self._drawer.mask_rows(task.key, *task.rows.shape)\n",
        new="        hider = task.rows.astype(np.int64).view(np.uint64)\n",
        tests=(_DEALING + "test_what_is_dealt_is_products",),
    ),
    Break(
        name="a helper's products are not checked",
        file=_TWO + "dealt.py",
        old="        if not all(right):\n",
        new="        if False:\n",
        tests=(_DEALING + "test_one_wrong_product_is_found",),
    ),
    Break(
        name="one mask for two batches of rows",
        file=_TWO + "dealt.py",
        old="        if self._forgotten.holds(task.key) or",
        new="        if False and",
        tests=(_DEALING + "test_a_key_never_means_other_rows",),
    ),
    Break(
        name="spent angles are used",
        file=_TWO + "dealt.py",
        old="        kept[spent] = False\n",
        new="        kept[:spare] = False\n",
        tests=(_DEALING + "test_opened_angles_are_not_used",),
    ),
)
