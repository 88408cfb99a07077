"""The ring modulo 2^64: randomness given twice, biased or common to incarnations, and masks that are left out."""

from mutations.base import Break

__all__ = ["BREAKS"]

_RING = "crypto/securevfl_crypto/ring/"
_STREAMS = "tests/crypto/test_ring_streams.py::"
_KERNELS = "tests/crypto/test_ring_kernels.py::"
_PATHS = "tests/crypto/test_ring_paths.py::"

BREAKS = (
    Break(
        name="a place of a stream given twice",
        file=_RING + "streams.py",
        old="if use < self._below or use in self._beyond:",
        new="if use in self._beyond:",
        tests=(_STREAMS + "test_a_place_serves_once",),
    ),
    Break(
        name="a stream that goes on in a forked process",
        file=_RING + "streams.py",
        old="if self._forks != _forks:",
        new="if self._forks > _forks:",
        tests=(_STREAMS + "test_a_fork_does_not_repeat_the_parents_stream",),
    ),
    Break(
        name="a stream that can be copied",
        file=_RING + "streams.py",
        old='raise ReusedError("a stream cannot be copied or stored: the copy would give the same words again")',
        new="return Stream, (b'0' * 32,)",
        tests=(_STREAMS + "test_streams_are_not_copied",),
    ),
    Break(
        name="a key exchange that lasts over incarnations",
        file=_RING + "streams.py",
        old="self._key = X25519PrivateKey.generate()",
        new="self._key = X25519PrivateKey.from_private_bytes(name.encode().ljust(32, b'0'))",
        tests=(_STREAMS + "test_incarnations_names_and_labels_have_streams_of_their_own",),
    ),
    Break(
        name="stream keys without the label",
        file=_RING + "streams.py",
        old="parts = (_PURPOSE, *low, *high, label.encode())",
        new="parts = (_PURPOSE, *low, *high)",
        tests=(_STREAMS + "test_incarnations_names_and_labels_have_streams_of_their_own",),
    ),
    Break(
        name="one stream derived twice",
        file=_RING + "streams.py",
        old="if (public_key, label) in self._given:",
        new="if (label, public_key) in self._given:",
        tests=(_STREAMS + "test_a_stream_is_derived_once",),
    ),
    Break(
        name="residues of all octets, biased",
        file=_RING + "portable.py",
        old="limit = 256 - 256 % modulus",
        new="limit = 256",
        tests=(_STREAMS + "test_residues_are_uniform",),
    ),
    Break(
        name="residues biased in the kernel",
        file="crypto/securevfl_crypto/engine/comparison.py",
        old="kept = rows.bits_below(raw, 3 * modulus)",
        new="kept = rows.bits_below(raw, 3 * modulus + 1)",
        tests=(_PATHS + "test_residues_agree_with_numpy",),
    ),
    Break(
        name="no coin in the comparison",
        file=_RING + "portable.py",
        old="coin = (turns >> np.uint8(6)) & np.uint8(1)",
        new="coin = turns & np.uint8(0)",
        tests=(_KERNELS + "test_what_the_third_party_sees_says_nothing",),
        keywords="numpy",
    ),
    Break(
        name="no rotation in the comparison",
        file="crypto/securevfl_crypto/engine/comparison.py",
        old="turned = rows.rotate(rows.multiply_modular(e, factors), turn)",
        new="turned = rows.multiply_modular(e, factors)",
        tests=(_KERNELS + "test_what_the_third_party_sees_says_nothing",),
    ),
    Break(
        name="shares of zero left out of the masked rows",
        file=_RING + "portable.py",
        old="return _reduce_once(product + (zeros if first else _MODULUS - zeros))",
        new="return product",
        tests=(
            _KERNELS + "test_each_message_and_share_alone_is_uniform",
            _KERNELS + "test_rows_are_those_of_the_description",
        ),
        keywords="numpy",
    ),
    Break(
        name="factors that are not used",
        file=_RING + "portable.py",
        old="product = _multiply_modular(_reduce_once(sign + before + one), factors + np.uint8(1))",
        new="product = _reduce_once(sign + before + one)",
        tests=(_KERNELS + "test_what_the_third_party_sees_says_nothing",),
        keywords="numpy",
    ),
    Break(
        name="senders that disagree go unnoticed",
        file=_RING + "kernels.py",
        old="if counts.size and int(counts.max()) > 1:",
        new="if counts.size and int(counts.max()) > COLUMNS:",
        tests=(_KERNELS + "test_senders_that_disagree_are_told",),
    ),
    Break(
        name="limb products added beyond 53 bits",
        file=_RING + "limbs.py",
        old="INNER = 1 << (53 - 2 * WIDTH)",
        new="INNER = 1 << (56 - 2 * WIDTH)",
        tests=("tests/crypto/test_ring_words.py::test_the_worst_case_is_exact",),
    ),
    Break(
        name="one bit of 64 lost in large products",
        file="crypto/securevfl_crypto/engine/ring_products52.py",
        old="_LOW = 0xFFF",
        new="_LOW = 0x7FF",
        tests=(  # the second one sees it on a CPU without AVX-512
            _PATHS + "test_large_products_agree_with_numpys_integers",
            "tests/engine/test_plain_ir.py::test_the_ring_of_longer_vectors",
        ),
    ),
    Break(
        name="an accelerator taken without a check",
        file=_RING + "paths.py",
        old="if not np.array_equal(product(a, b.T), right.product(a, b.T)):",
        new="if product(a, b.T) is None:",
        tests=("tests/shares/test_torch_product.py::test_an_inexact_device_is_refused",),
    ),
    Break(
        name="words of 63 bits",
        file=_RING + "streams.py",
        old="return out.astype(np.uint64, copy=False)",
        new="return out.astype(np.uint64, copy=False) >> np.uint64(1)",
        tests=(_STREAMS + "test_a_place_is_the_keystream_from_its_counter_on",),
    ),
    Break(
        name="stream keys without the names",
        file=_RING + "streams.py",
        old="parts = (_PURPOSE, *low, *high, label.encode())",
        new="parts = (_PURPOSE, low[1], high[1], label.encode())",
        tests=(_STREAMS + "test_parties_that_know_each_other_by_other_names_share_no_stream",),
    ),
    Break(
        name="words of one draw cut from its end, at all parties",
        file="crypto/securevfl_crypto/replicated/keys.py",
        old="words[end - size : end] for size",
        new="words[words.size - end : words.size - end + size] for size",
        tests=("tests/crypto/test_vectors.py",),
        keywords="masked",
    ),
)
