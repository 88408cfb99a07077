"""Products that stay shares: masks and noise left out, keys and sizes that nobody compares, wrong kernels."""

from mutations.base import Break

__all__ = ["BREAKS"]

_RLWE = "crypto/securevfl_crypto/rlwe/"
_TEST = "tests/crypto/test_held.py::"
_UNIFORM = (_TEST + "test_answers_are_uniform_over_all_of_the_modulus",)
_RIGHT = (_TEST + "test_shares_add_up_to_one_unit",)
_MASK = "mask = self._random.uniform(len(grid.negative))"
_TRANSFORMS = "tests/crypto/test_transforms.py::"

BREAKS = (
    Break(
        name="held answers without a mask",
        file=_RLWE + "held.py",
        old=_MASK,
        new="mask = 0 * self._random.uniform(len(grid.negative))",
        tests=_UNIFORM,
    ),
    Break(
        name="held masks that are words without a rest",
        file=_RLWE + "held.py",
        old=_MASK,
        new="mask = lift_words(BASIS, lower_words(BASIS, self._random.uniform(len(grid.negative))))",
        tests=_UNIFORM,
    ),
    Break(
        name="held masks within one unit of a word",
        file=_RLWE + "held.py",
        old=_MASK,
        new="mask = self._random.uniform(len(grid.negative))[:1].repeat(2, axis=0) >> np.uint64(14)",
        tests=_UNIFORM,
    ),
    Break(
        name="one mask for several entries of a held answer",
        file=_RLWE + "held.py",
        old=_MASK,
        new="mask = np.tile(self._random.uniform(64), (1, len(grid.negative)))[:, : len(grid.negative)]",
        tests=(_TEST + "test_tiles_of_one_answer_have_masks_of_their_own",),
    ),
    Break(
        name="the holder's share m left out",
        file=_RLWE + "held.py",
        old="share = grid.unflatten(-lower_words(BASIS, mask))",
        new="share = grid.unflatten(0 * lower_words(BASIS, mask))",
        tests=_RIGHT,
    ),
    Break(
        name="R that is zero when it is sealed",
        file=_RLWE + "held.py",
        old="lift_words(BASIS, grid.flatten(words))",
        new="lift_words(BASIS, 0 * grid.flatten(words))",
        tests=_RIGHT,
    ),
    Break(
        name="a held answer without a fresh encryption of zero",
        file=_RLWE + "held.py",
        old="blinds = self._ring.forward(self._random.ternary(len(grid.tiles)))",
        new="blinds = self._ring.forward(0 * self._random.ternary(len(grid.tiles)))",
        tests=(_TEST + "test_the_second_half_of_an_answer_is_a_fresh_sample_of_rlwe",),
    ),
    Break(
        name="a held answer without noise in its second half",
        file=_RLWE + "held.py",
        old="totals[:, 1] = self._ring.forward(self._random.binomial(len(grid.tiles)))",
        new="",
        tests=(_TEST + "test_the_second_half_of_an_answer_is_a_fresh_sample_of_rlwe",),
    ),
    Break(
        name="one encryption of zero for all tiles of a held answer",
        file=_RLWE + "held.py",
        old="blinds = self._ring.forward(self._random.ternary(len(grid.tiles)))",
        new="blinds = self._ring.forward(self._random.ternary(1)).repeat(len(grid.tiles), axis=0)",
        tests=(_TEST + "test_tiles_of_one_answer_have_blinds_of_their_own",),
    ),
    Break(
        name="held uploads without noise",
        file=_RLWE + "held.py",
        old="noise = self._random.binomial(len(grid.tiles))",
        new="noise = 0 * self._random.binomial(len(grid.tiles))",
        tests=(_TEST + "test_uploads_and_keys_are_fresh_encryptions",),
    ),
    Break(
        name="a held key without noise",
        file=_RLWE + "held.py",
        old="self._encrypt(self._uniform[None], self._random.binomial(1))",
        new="self._encrypt(self._uniform[None], 0 * self._random.binomial(1))",
        tests=(_TEST + "test_uploads_and_keys_are_fresh_encryptions",),
    ),
    Break(
        name="one seed for all tiles of a held upload",
        file=_RLWE + "held.py",
        old="seeds = [secrets.token_bytes(SEED_BYTES) for _ in grid.tiles]",
        new="seeds = [secrets.token_bytes(SEED_BYTES)] * len(grid.tiles)",
        tests=(_TEST + "test_uploads_of_several_tiles_have_seeds_and_noise_of_their_own",),
    ),
    Break(
        name="the uniform half of a held key is the same in every session",
        file=_RLWE + "held_random.py",
        old='b"securevfl held products: key 1" + session)',
        new='b"securevfl held products: key 1")',
        tests=(_TEST + "test_the_uniform_half_of_a_key_is_hashed_from_the_session",),
    ),
    Break(
        name="held keys of another session",
        file=_RLWE + "held_half.py",
        old="hashlib.sha256(sizes + hashlib.sha256(session).digest()).digest()[:8]",
        new="hashlib.sha256(sizes).digest()[:8]",
        tests=(_TEST + "test_messages_of_another_session_key_or_layout_are_refused",),
    ),
    Break(
        name="held messages under another key",
        file=_RLWE + "held_half.py",
        old="return hashlib.sha256(self._session_tag + bytes(body)).digest()[:8]",
        new="return self._session_tag",
        tests=(_TEST + "test_messages_of_another_session_key_or_layout_are_refused",),
    ),
    Break(
        name="held headers of which four bytes are compared",
        file=_RLWE + "held_layout.py",
        old="if raw[: _HEAD.size] != head:",
        new="if raw[:4] != head[:4]:",
        tests=(_TEST + "test_malformed_messages_are_refused",),
    ),
    Break(
        name="held residues of which one prime is compared",
        file=_RLWE + "held_layout.py",
        old="int(row.max()) >= prime for row, prime in zip(found, BASIS.primes, strict=True)",
        new="int(row.max()) >= prime for row, prime in zip(found[:1], BASIS.primes, strict=False)",
        tests=(_TEST + "test_residues_out_of_range_are_refused",),
    ),
    Break(
        name="held rows of any size",
        file=_RLWE + "held.py",
        old="if largest > LARGEST:",
        new="if largest > 2 * LARGEST:",
        tests=(_TEST + "test_arguments_out_of_range_are_refused",),
    ),
    Break(
        name="held tiles of the batch before",
        file=_RLWE + "held.py",
        old="if not np.array_equal(self._tiles[0], x):",
        new="if self._tiles[0].shape != x.shape:",
        tests=(_TEST + "test_rows_are_not_taken_from_the_batch_before",),
    ),
    Break(
        name="held rows of twice the size that the noise was reckoned for",
        file=_RLWE + "held_layout.py",
        old="LARGEST = 1 << 13",
        new="LARGEST = 1 << 14",
        tests=(_TEST + "test_the_worst_noise_is_below_one_unit",),
    ),
    Break(
        name="held tiles with one row too many",
        file=_RLWE + "held_layout.py",
        old="rows = min(batch, DEGREE // (features * out))",
        new="rows = min(batch, DEGREE // (features * out) + 1)",
        tests=(*_RIGHT, _TEST + "test_the_worst_noise_is_below_one_unit"),
    ),
    Break(
        name="held randomness drawn twice from one place",
        file=_RLWE + "held_random.py",
        old="        self._use += 1\n        return self._stream.draw_words",
        new="        return self._stream.draw_words",
        tests=(_TEST + "test_nothing_of_a_half_is_drawn_twice",),
    ),
    Break(
        name="transforms that never reduce",
        file="crypto/securevfl_crypto/engine/transforms/butterflies.py",
        old="    if m.check(x) + product.top > EXACT:\n        x = m.reduce(x)\n",
        new="",
        tests=(_TRANSFORMS + "test_numbers_that_could_become_inexact_are_no_kernel",),
    ),
    Break(
        name="transforms that leave negative numbers",
        file="crypto/securevfl_crypto/engine/transforms/modular.py",
        old="fcmp olt {self.type} {small.name}, zeroinitializer",
        new="fcmp ogt {self.type} {small.name}, zeroinitializer",
        tests=(_TRANSFORMS + "test_kernels_agree_with_numpy",),
    ),
    Break(
        name="a transform's self-test that passes everything",
        file="crypto/securevfl_crypto/transforms/paths.py",
        old="if not np.array_equal(found, expected):",
        new="if found.shape != expected.shape:",
        tests=(_TRANSFORMS + "test_a_path_that_computes_wrongly_is_refused",),
    ),
)
