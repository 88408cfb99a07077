"""The comparison behind a mask: right for all numbers, hiding, and the same bytes on every path."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto import MalformedError
from securevfl_crypto.ring import COLUMNS, MODULUS, Stream, deal_bits, extract_coins, find_zeros, mask_comparison
from support.ring_paths import NAMES, taken


@pytest.fixture(scope="module", params=NAMES, autouse=True)
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every test of this file runs on every path of this machine."""
    with taken(request.param):
        yield request.param


RARE = 160
"""χ² of 62 to 66 degrees of freedom that is exceeded once in 10⁹ tries."""
EDGES = [0, 1, -1, 2**16, -(2**16), 2**62 - 1, -(2**62), -(2**62) + 1, 2**61, -(2**61), 2**40 + 1]


class Run:
    """P0, P1 and P2 in one place: `seen` is what P2 adds up, `bit` what z ≥ 0 comes to."""

    def __init__(self, z: np.ndarray, r: np.ndarray, constants: tuple[int, ...] = (0,)) -> None:
        n, m = len(z), len(z) * len(constants)
        dealt, common = Stream.with_fresh_key(), Stream.with_fresh_key()
        b0 = dealt.draw_residues(0, n * COLUMNS, MODULUS).reshape(n, COLUMNS)
        self.b1 = deal_bits(r, b0)
        self.b0 = b0
        opened = z.view(np.uint64) + np.uint64(1 << 62) + r
        c = np.concatenate([opened + np.uint64(t % 2**64) for t in constants])
        self.c = c
        self.factors = common.draw_residues(0, m * COLUMNS, MODULUS - 1).reshape(m, COLUMNS)
        self.zeros = common.draw_residues(1, m * COLUMNS, MODULUS).reshape(m, COLUMNS)
        self.turns = common.draw_octets(2, m)
        self.m0 = mask_comparison(c, b0, self.factors, self.zeros, self.turns, first=True)
        self.m1 = mask_comparison(c, self.b1, self.factors, self.zeros, self.turns, first=False)
        self.seen = (self.m0 + self.m1) % np.uint8(MODULUS)
        self.hit = find_zeros(self.m0, self.m1)
        one = np.uint64(1)
        u = ((c >> np.uint64(62)) & one) ^ extract_coins(self.turns)
        v = np.tile((r >> np.uint64(62)) & one, len(constants)) ^ self.hit
        self.bit = (u ^ v).reshape(len(constants), n)


def _slow(run: Run, row: int, *, first: bool) -> list[int]:
    """One masked row as the module's description says, in Python's integers."""
    one, n = int(first), len(run.b0)
    y = (2 * int(run.c[row]) + 1) % 2**63
    x = [int(v) for v in (run.b0 if first else run.b1)[row % n][:63]] + [0]
    bit = [y >> j & 1 for j in range(64)]
    differs = [x[j] + bit[j] * (one - 2 * x[j]) for j in range(64)]
    sign = -1 if run.turns[row] & 64 else 1
    e = [sign * (bit[j] * one - x[j]) + one + sum(differs[j + 1 :]) for j in range(64)]
    scaled = [e[j] * (int(run.factors[row, j]) + 1) for j in range(64)]
    turned = [scaled[(j + int(run.turns[row])) % 64] for j in range(64)]
    return [(turned[j] + (1 if first else -1) * int(run.zeros[row, j])) % MODULUS for j in range(64)]


def _uniform(n: int) -> np.ndarray:
    return Stream.with_fresh_key().draw_words(0, n)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(-(2**62), 2**62 - 1), st.sampled_from(EDGES)),
            st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**62, 2**62 - 1, 2**63, 2**64 - 1])),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_the_sign_is_right(pairs: list[tuple[int, int]]) -> None:
    z = np.array([pair[0] for pair in pairs], dtype=np.int64)
    r = np.array([pair[1] for pair in pairs], dtype=np.uint64)
    assert Run(z, r).bit[0].tolist() == [int(v >= 0) for v in z.tolist()]


def test_rows_are_those_of_the_description() -> None:
    run = Run(np.array([0, -1, 2**62 - 1, -(2**62), 77, -78] * 3, dtype=np.int64), _uniform(18), (0, -40))
    for row in range(36):
        assert run.m0[row].tolist() == _slow(run, row, first=True)
        assert run.m1[row].tolist() == _slow(run, row, first=False)
    bits = (run.b0.astype(int) + run.b1) % MODULUS
    assert set(bits.reshape(-1).tolist()) == {0, 1}
    assert not bits[:, [0, 63]].any()


def test_many_signs_are_right() -> None:
    z = np.concatenate([np.tile(np.array(EDGES, dtype=np.int64), 50), (_uniform(2000) >> np.uint64(2)).view(np.int64)])
    z[-1000:] *= -1
    assert (Run(z, _uniform(len(z))).bit[0] == (z >= 0)).all()


def test_several_constants_behind_one_mask() -> None:
    z = np.array([-70, -1, 0, 5, 40, 99], dtype=np.int64)
    found = Run(z, _uniform(len(z)), (0, -5, 70)).bit
    assert found.tolist() == [[int(v + t >= 0) for v in z.tolist()] for t in (0, -5, 70)]


def test_what_the_third_party_sees_says_nothing() -> None:
    """P2's view for a fixed number, over fresh randomness: a zero in half of the rows, at a place that is uniform, and
    other entries uniform from 1 to 66. The same for very different numbers."""
    n = 3000
    for value in (0, -1, 2**62 - 1, -(2**62), 12345):
        run = Run(np.full(n, value, dtype=np.int64), _uniform(n))
        hits = run.hit.astype(bool)
        assert abs(hits.mean() - 0.5) < 6.5 * 0.5 / n**0.5
        places = np.bincount((run.seen[hits] == 0).argmax(axis=1), minlength=COLUMNS)
        assert ((places - places.mean()) ** 2 / places.mean()).sum() < RARE
        others = np.bincount(run.seen[run.seen > 0], minlength=MODULUS)[1:]
        assert ((others - others.mean()) ** 2 / others.mean()).sum() < RARE
        for column in (0, 17, 62, 63):  # also each place on its own
            counts = np.bincount(run.seen[:, column][run.seen[:, column] > 0], minlength=MODULUS)[1:]
            assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < RARE


def test_each_message_and_share_alone_is_uniform() -> None:
    """P1's share of the bits and each masked row, of a fixed mask and number: uniform from 0 to 66."""
    n = 3000
    run = Run(np.full(n, -7, dtype=np.int64), np.full(n, 2**62 - 3, dtype=np.uint64))
    for rows in (run.b1, run.m0, run.m1):
        for part in (rows, rows[:, 0], rows[:, 40], rows[:, 63]):
            counts = np.bincount(part.reshape(-1), minlength=MODULUS)
            assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < RARE


def test_masks_that_are_not_uniform_would_show() -> None:
    """Without a coin P2 reads R > C; without rotation it reads where; without factors it reads how many bits differ."""
    n = 500
    z, r = np.full(n, 5, dtype=np.int64), np.full(n, 2**61, dtype=np.uint64)
    run = Run(z, r)

    def seen(factors: np.ndarray, turns: np.ndarray) -> np.ndarray:
        rows = [
            mask_comparison(run.c, bits, factors, run.zeros, turns, first=first)
            for bits, first in ((run.b0, True), (run.b1, False))
        ]
        return np.asarray((rows[0] + rows[1]) % np.uint8(MODULUS))

    still = seen(np.zeros_like(run.factors), np.zeros_like(run.turns))
    assert (still == still[0]).all()
    assert (find_zeros(run.m0, run.m1) != find_zeros(run.m0, run.m1)[0]).any()
    assert not (seen(run.factors, run.turns & np.uint8(63)) == 0).any(axis=1).any()  # R < C, always
    assert (seen(run.factors, np.full_like(run.turns, 64)) == 0).argmax(axis=1).std() == 0


def test_senders_that_disagree_are_told() -> None:
    n = 200
    run = Run(np.arange(n, dtype=np.int64), _uniform(n))
    other = mask_comparison(run.c, run.b1, run.factors, run.zeros[::-1].copy(), run.turns, first=False)
    with pytest.raises(MalformedError, match="several zeros"):
        find_zeros(run.m0, other)


def test_bad_input_is_refused() -> None:
    n = 6
    run = Run(np.arange(n, dtype=np.int64), _uniform(n))
    rows, turns = run.factors, run.turns
    large = run.m0.copy()
    large[3, 5] = MODULUS
    with pytest.raises(MalformedError, match="masked rows contain 67"):
        find_zeros(large, run.m1)
    with pytest.raises(MalformedError, match=r"uint8 \(6, 64\) was expected"):
        find_zeros(run.m0, run.m1[:-1])
    with pytest.raises(MalformedError, match="int64"):
        deal_bits(np.zeros(n, np.int64), rows)
    with pytest.raises(MalformedError, match="one dimension"):
        deal_bits(np.zeros((n, 1), np.uint64), rows)
    with pytest.raises(MalformedError, match=r"uint8 \(6, 63\)"):
        deal_bits(np.zeros(n, np.uint64), rows[:, :63])
    with pytest.raises(MalformedError, match="6 comparisons with 4 masks"):
        mask_comparison(run.c, run.b0[:4], rows, rows, turns, first=True)
    with pytest.raises(MalformedError, match="6 comparisons with 0 masks"):
        mask_comparison(run.c, run.b0[:0], rows, rows, turns, first=True)
    with pytest.raises(MalformedError, match="turns are uint8"):
        mask_comparison(run.c, run.b0, rows, rows, turns[:-1], first=True)
    with pytest.raises(MalformedError, match="factors are uint8"):
        mask_comparison(run.c, run.b0, rows[:-1], rows, turns, first=True)
    with pytest.raises(MalformedError, match="shares of zero are int8"):
        mask_comparison(run.c, run.b0, rows, rows.astype(np.int8), turns, first=True)
    with pytest.raises(MalformedError, match="opened words are"):
        mask_comparison(run.c[:, None], run.b0, rows, rows, turns, first=True)


def test_nothing_to_compare() -> None:
    none = np.empty((0, COLUMNS), np.uint8)
    words = np.empty(0, np.uint64)
    assert deal_bits(words, none).shape == (0, COLUMNS)
    assert mask_comparison(words, none, none, none, np.empty(0, np.uint8), first=True).shape == (0, COLUMNS)
    assert find_zeros(none, none).shape == (0,)
