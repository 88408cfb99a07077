"""Two computing parties: transfers without their check or masks, numbers that serve twice, openings under no mask."""

from mutations.base import Break

__all__ = ["BREAKS"]

_TRANSFER = "crypto/securevfl_crypto/transfer/"
_TWO = "crypto/securevfl_crypto/two/"
_EXTENSION = "tests/crypto/two/test_transfer_extension.py::"
_TRANSFERS = "tests/crypto/two/test_two_transfers.py::"
_HIDING = "tests/crypto/two/test_two_hiding.py::"

BREAKS = (
    Break(
        name="columns of a batch are not checked",
        file=_TRANSFER + "extension.py",
        old="        if not hmac.compare_digest(check.hash_columns(own).tobytes(), expected.tobytes()):\n",
        new="        if False:\n",
        tests=(_EXTENSION + "test_a_chooser_whose_columns_use_two_choice_vectors_is_caught",),
    ),
    Break(
        name="a deviating chooser may guess again",
        file=_TRANSFER + "extension.py",
        old='            self._streams = None\n            raise MalformedError("choices differ',
        new='            raise MalformedError("choices differ',
        tests=(_EXTENSION + "test_wrong_hashes_are_caught_and_nothing_is_taken_afterwards",),
    ),
    Break(
        name="nothing hides the hash of the choices",
        file=_TRANSFER + "extension.py",
        old="bytearray(secrets.token_bytes(size))",
        new="bytearray(size)",
        tests=(_EXTENSION + "test_the_hash_of_choices_shows_no_guess",),
    ),
    Break(
        name="the key of a check is known before the columns are sent",
        file=_TRANSFER + "extension.py",
        old="        digest.update(columns.data)\n",
        new="",
        tests=(_EXTENSION + "test_keys_of_a_batch_depend_on_all_that_it_consists_of",),
    ),
    Break(
        name="a secret of 64 random bits of the giver of transfers",
        file=_TRANSFER + "extension.py",
        old="secrets.token_bytes(COLUMNS // 8)",
        new="secrets.token_bytes(8) * 2",
        tests=(_EXTENSION + "test_all_128_bits_of_a_givers_secret_are_drawn",),
    ),
    Break(
        name="the hash of rows without its inner permutation",
        file=_TRANSFER + "row_hash.py",
        old="        inner = self._permute(rows, self._inner)\n",
        new="        inner = rows.copy()\n",
        tests=(_EXTENSION + "test_a_batch_is_what_the_protocol_defines",),
    ),
    Break(
        name="the hash of rows without their numbers",
        file=_TRANSFER + "row_hash.py",
        old="np.arange(first, first + size, dtype=np.uint64)",
        new="np.uint64(0)",
        tests=(_EXTENSION + "test_a_batch_is_what_the_protocol_defines",),
    ),
    Break(
        name="transfers go on in a fork",
        file=_TRANSFER + "unique.py",
        old="        if self._made_after != _forks:\n",
        new="        if False:\n",
        tests=(_EXTENSION + "test_a_fork_is_refused", _TRANSFERS + "test_dealt_transfers_refuse_a_fork"),
    ),
    Break(
        name="base transfers of both directions under one tag",
        file=_TWO + "transfers.py",
        old="return bytes([chooser]) + self._tag",
        new="return self._tag",
        tests=(_TRANSFERS + "test_a_peer_that_sends_everything_back_gets_nothing",),
    ),
    Break(
        name="used transfers stay in memory",
        file=_TWO + "transfers.py",
        old="            array[rows] = 0\n",
        new="            pass\n",
        tests=(_TRANSFERS + "test_dealt_transfers_are_used_in_order_and_wiped",),
    ),
    Break(
        name="dealt transfers serve twice",
        file=_TWO + "transfers.py",
        old="        self._used += count\n",
        new="",
        tests=(_TRANSFERS + "test_choosers_get_the_pads_of_their_choices",),
    ),
    Break(
        name="dealt choices are zero",
        file=_TWO + "transfers.py",
        old="    choices = random_bits(count)\n",
        new="    choices = random_bits(count) * np.uint8(0)\n",
        tests=(_TRANSFERS + "test_what_a_chooser_of_dealt_transfers_sends_is_uniform",),
    ),
    Break(
        name="entries of a comparison's tables are not masked",
        file=_TWO + "bits.py",
        old="    packed = shares[0] | shares[1] << np.uint8(1)\n",
        new="    packed = (shares[0] | shares[1] << np.uint8(1)) & np.uint8(2)\n",
        tests=(_HIDING + "test_comparisons",),
    ),
    Break(
        name="the common factors of conjunctions are zero",
        file=_TWO + "bits.py",
        old="    coins = random_bits(nodes)\n",
        new="    coins = random_bits(nodes) * np.uint8(0)\n",
        tests=(_HIDING + "test_comparisons",),
    ),
    Break(
        name="conjunctions of all levels of a comparison use the same factors",
        file=_TWO + "bits.py",
        old="        at += lower.size\n",
        new="",
        tests=(_HIDING + "test_comparisons",),
    ),
    Break(
        name="one mask for the entries of all digits",
        file=_TWO + "bits.py",
        old="    packed = shares[0] | shares[1] << np.uint8(1)\n",
        new="    packed = shares[0] | shares[1] << np.uint8(1)\n    packed[:] = packed[0]\n",
        tests=(_HIDING + "test_comparisons",),
    ),
    Break(
        name="tables of all edges under one pad",
        file=_TWO + "bits.py",
        old="    return pads.reshape(low, -1, edges)",
        new="    return np.repeat(pads[:, :1], edges, axis=1).reshape(low, -1, edges)",
        tests=(_HIDING + "test_tables_of_several_edges_are_under_pads_of_their_own",),
    ),
    Break(
        name="an error shows a secret factor",
        file=_TWO + "multiply.py",
        old='f"a factor has more than {bits} bits: raise bits"',
        new='f"a factor {known.max()} has more than {bits} bits: raise bits"',
        tests=("tests/crypto/two/test_two_multiply.py::test_an_error_does_not_show_the_factor",),
    ),
    Break(
        name="the angles of a lot's first step for all of its steps",
        file=_TWO + "online.py",
        old="                part = slice(int(start), int(end))",
        new="                part = slice(0, int(end) - int(start))",
        tests=("tests/crypto/two/test_two_online.py::test_words_are_those_of_a_twin_in_whole_numbers",),
    ),
    Break(
        name="messages that make angles in every step",
        file=_TWO + "online.py",
        old="_WAVES_AT_ONCE = 4096",
        new="_WAVES_AT_ONCE = 1",
        tests=("tests/crypto/two/test_two_steps.py::test_a_step_takes_exactly_two_exchanges",),
    ),
    Break(
        name="a pair's sines with a bias of one unit",
        file=_TWO + "pair.py",
        old="np.uint64((1 << own) - 1)",
        new="np.uint64(1 << own)",
        tests=("tests/crypto/two/test_two_steps.py::test_sines_of_a_pair_are_as_near_as_their_bits",),
    ),
)
