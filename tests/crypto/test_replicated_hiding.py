"""What each party receives is uniform and does not depend on the inputs; each deliberate break is seen by these checks.

The factors are public powers of two, so that whatever goes out without its mask has zeros in its low bits. All
randomness comes from fixed seeds: a check either always passes or always fails.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from securevfl_crypto.replicated import (
    Computing,
    MemoryWire,
    Product,
    Share,
    deal_shares,
    memory_wires,
    take_turns,
)
from securevfl_crypto.replicated.keys import Streams
from securevfl_crypto.ring import Stream

N = 3000
P = 67
Breaker = Callable[[pytest.MonkeyPatch], None]
SECRETS = {
    "zero": np.zeros(N, np.int64),
    "one": np.full(N, 1 << 16),
    "large": np.full(N, -(1 << 45)),
    "mixed": np.random.default_rng(0).integers(-(2**40), 2**40, N),
}


def shared(values: np.ndarray, seed: int) -> list[Share]:
    """A fresh sharing from a seed, one share for each party."""
    words = values.view(np.uint64)
    first, second = np.random.default_rng(seed).integers(0, 2**64, (2, *words.shape), dtype=np.uint64)
    x = (first, second, words - first - second)
    return [Share(x[i], x[(i + 1) % 3]) for i in range(3)]


@dataclass
class View:
    """What the three received, by wire, the shares that they ended with, and the words drawn under each key."""

    wires: tuple[MemoryWire, MemoryWire, MemoryWire]
    shares: list[list[Share]]
    draws: dict[tuple[int | None, int], np.ndarray]


def stream(text: str) -> Stream:
    return Stream(hashlib.sha256(text.encode()).digest())


def run(secret: np.ndarray, between_0_and_1: str = "") -> View:
    """Every protocol once, on one secret: truncation, gate, two thresholds, plain products, refreshing.

    Keys are fixed; that of parties 0 and 1 depends on the argument too.
    """
    x = shared(secret, 1)
    gate = shared((secret > 0).astype(np.int64), 2)
    keys = ("key 0", "key 1" + between_0_and_1, "key 2")
    wires = memory_wires(record=True)
    draws: dict[tuple[int | None, int], np.ndarray] = {}

    async def program(index: int) -> list[Share]:
        streams = Streams(index, stream(keys[index]), stream(keys[(index + 1) % 3]), stream(f"own {index}"))
        drawn = streams.draw_words

        def recorded(key: int | None, shape: tuple[int, ...]) -> np.ndarray:
            number = streams._drawn.get(key, 0)
            draws[key, number] = drawn(key, shape)
            return draws[key, number]

        streams.draw_words = recorded  # type: ignore[method-assign]
        party = Computing(index, wires[index], streams)
        mine, bits = x[index], gate[index]
        big = party.constant(np.full(1, 1 << 16, np.uint64))
        first = await party.compute_products(
            [Product(mine, big, "times", 16), Product(mine, big, "times", 16, gate=bits)]
        )
        pair, plain = await party.compute_products(
            [Product(mine, big, "times", 16, then="relu6"), Product(mine, big, "times")]
        )
        fresh = await party.refresh(party.constant(np.full(N, 1 << 16, np.uint64)))
        return [*first, *pair, plain, *fresh]

    return View(wires, take_turns([program(index) for index in range(3)], wires[0].links), draws)


def deviation(values: np.ndarray, kinds: int) -> float:
    """Of counts from uniform ones: χ² in standard deviations above its mean; −∞ for too few values."""
    counts = np.bincount(values.ravel(), minlength=kinds)
    expected = counts.sum() / kinds
    chi = ((counts - expected) ** 2).sum() / expected
    return float((chi - (kinds - 1)) / np.sqrt(2 * (kinds - 1)))


def octets(words: np.ndarray) -> Iterator[np.ndarray]:
    """The eight octets of words, the lowest first, each place for itself."""
    pieces = np.ascontiguousarray(words).view(np.uint8).reshape(-1, 8)
    yield from pieces.T


def check_words(words: np.ndarray) -> None:
    for place in octets(words):
        assert deviation(place, 256) < 6


def messages(found: View, party: int, label: str, source: int | None = None) -> list[list[np.ndarray]]:
    return [
        arrays[1:]  # the header
        for sender, text, arrays in found.wires[party].received
        if text == label and source in {None, sender}
    ]


def check_hidden(secret: np.ndarray) -> None:
    found = run(secret)
    kinds = set()
    for wire in found.wires:
        for _, label, arrays in wire.received:
            for array in arrays[1:]:
                kinds.add((label, array.dtype))
                if array.dtype == np.uint64:
                    check_words(array)
                else:
                    assert deviation(array, P) < 6
    assert {label for label, _ in kinds} == {"opening", "rows", "answers", "result", "reshare"}
    for shares in found.shares:
        for share in shares:
            check_words(share.mine)
    check_pairs(found)
    check_reshared(found)
    check_opened(found, secret)
    check_rows(found, secret)


def check_pairs(found: View) -> None:
    """No two blocks that a party receives have a mask in common: all their differences are uniform."""
    for wire in found.wires:
        blocks = [
            block
            for _, _, arrays in wire.received
            for array in arrays[1:]
            if array.dtype == np.uint64
            for block in array.reshape(-1, N)
        ]
        for one, other in itertools.combinations(blocks, 2):
            low, *_, high = octets(one - other)
            assert deviation(low, 256) < 6
            assert deviation(high, 256) < 6


def check_reshared(found: View) -> None:
    """A summand that party i sends to the one before is uniform without the mask that both of them know."""
    known = {0: (1, 4), 1: (0, 4), 2: (1, 3)}  # the draws under key i that went into it
    for sender, numbers in known.items():
        for (summand,), number in zip(messages(found, (sender - 1) % 3, "reshare"), numbers, strict=True):
            check_words(summand - found.draws[sender, number])


def check_opened(found: View, secret: np.ndarray) -> None:
    """What parties 0 and 1 can open: uniform, for positive and negative secrets."""
    for (first,), (second,), (masked,) in zip(
        messages(found, 1, "opening", 0),
        messages(found, 0, "opening", 1),
        messages(found, 0, "opening", 2),
        strict=True,
    ):
        c = (first + second + masked).reshape(-1, N)
        for sign in (secret >= 0, secret < 0):
            if sign.any():
                check_words(c[:, sign])


def check_rows(found: View, secret: np.ndarray) -> None:
    """What party 2 sees of a comparison: a zero in half of the rows, at any place, among uniform numbers."""
    ((first,),), ((second,),) = messages(found, 2, "rows", 0), messages(found, 2, "rows", 1)
    total = (first.astype(int) + second) % P
    rows = total.reshape(2, N, 64)  # by threshold
    for sign in (secret >= 0, secret < 0):
        for part in rows[:, sign] if sign.any() else ():
            hit = (part == 0).any(-1)
            assert abs(hit.mean() - 0.5) < 6 * 0.5 / len(part) ** 0.5
            assert (part == 0).sum(-1).max() == 1
            assert deviation(np.argmax(part[hit] == 0, -1), 64) < 6
            assert deviation(part[part > 0] - 1, P - 1) < 6
    # the questions of two thresholds are turned by coins of their own, and rotated by distances of their own
    hits = (rows == 0).any(-1)
    assert abs((hits[0] == hits[1]).mean() - 0.5) < 6 * 0.5 / N**0.5
    both = hits.all(0)
    distance = (np.argmax(rows[0][both] == 0, -1) - np.argmax(rows[1][both] == 0, -1)) % 64
    assert deviation(distance, 64) < 6


@pytest.mark.parametrize("name", SECRETS)
def test_each_partys_view_is_uniform(name: str) -> None:
    check_hidden(SECRETS[name])


def zeros_by_row(view: View) -> np.ndarray:
    (((rows,),),) = (messages(view, 2, "rows", 0),)
    return (rows == 0).sum(-1)


def check_single_rows() -> None:
    """Party 2 knows party 0's shares of the bits, so party 0's message alone must be masked afresh."""
    one, other = (zeros_by_row(run(SECRETS["mixed"], text)) for text in ("", "other"))
    assert one.std() > 0.5
    assert abs(np.corrcoef(one, other)[0, 1]) < 6 / len(one) ** 0.5


def test_a_single_message_to_party_2_is_masked() -> None:
    check_single_rows()


def test_without_shares_of_zero_between_the_rows_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    residues_of(P, np.zeros_like)(monkeypatch)
    with pytest.raises(AssertionError):
        check_single_rows()


def residues_of(modulus: int, change: Callable[[np.ndarray], np.ndarray]) -> Breaker:
    """Draws of parties 0 and 1 modulo a number are changed."""

    def break_it(patch: pytest.MonkeyPatch) -> None:
        real = Streams.draw_residues

        def draw(self: Streams, key: int, count: int, wanted: int) -> np.ndarray:
            found = real(self, key, count, wanted)
            return change(found) if key == 1 and wanted == modulus else found

        patch.setattr(Streams, "draw_residues", draw)

    return break_it


def check_dealings() -> None:
    """What two dealings of different values give to a party differs by something uniform."""
    one, other = (deal_shares(np.full(N, value, np.uint64)) for value in (5, 9))
    for mine, theirs in zip(one, other, strict=True):
        check_words(mine.share().mine - theirs.share().mine)
        check_words(mine.share().next - theirs.share().next)


def test_dealings_are_unrelated() -> None:
    check_dealings()


def test_no_dealing_uses_a_seed_of_another() -> None:
    seeds = [part.tobytes() for _ in range(60) for part in deal_shares(np.zeros(1, np.uint64))[0].parts]
    assert len(set(seeds)) == 120


def test_a_reused_share_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.urandom", lambda count: b"7" * count)
    with pytest.raises(AssertionError):
        check_dealings()


# Breaks. Each keeps every result right, so that no test of results would notice it.


def zeroed(key: int, operation: int, part: int) -> Breaker:
    """A part of what an operation draws at once gives zeros, at both holders."""

    def break_it(patch: pytest.MonkeyPatch) -> None:
        real = Streams.draw_split
        calls: Counter[tuple[int, int]] = Counter()

        def split(self: Streams, which: int, sizes: Sequence[int]) -> list[np.ndarray]:
            parts = real(self, which, sizes)
            if which == key:
                calls[self.index, which] += 1
                if calls[self.index, which] == operation:
                    parts[part] = np.zeros_like(parts[part])
            return parts

        patch.setattr(Streams, "draw_split", split)

    return break_it


def summands_zeroed(patch: pytest.MonkeyPatch) -> None:
    """The shares of zero that parties 0 and 1 draw when they reshare."""
    real = Streams.draw_words

    def draw(self: Streams, key: int | None, shape: tuple[int, ...]) -> np.ndarray:
        words = real(self, key, shape)
        return np.zeros_like(words) if key == 1 else words

    patch.setattr(Streams, "draw_words", draw)


def changed(method: str, key: int | None, change: Callable[[np.ndarray], np.ndarray]) -> Breaker:
    """Every draw of a stream is changed, at both holders."""

    def break_it(patch: pytest.MonkeyPatch) -> None:
        real = getattr(Streams, method)

        def draw(self: Streams, which: int | None, *rest: object) -> np.ndarray:
            words: np.ndarray = real(self, which, *rest)
            return change(words) if which == key else words

        patch.setattr(Streams, method, draw)

    return break_it


def repeated(patch: pytest.MonkeyPatch) -> None:
    """Each operation draws from the first places again, and the stream does not mind."""
    real = Streams.draw_words
    memory: dict[tuple[int, int | None], np.ndarray] = {}

    def draw(self: Streams, key: int | None, shape: tuple[int, ...]) -> np.ndarray:
        words = real(self, key, shape)
        if key is None:
            return words
        if (self.index, key) not in memory:
            memory[self.index, key] = np.tile(words, 9)  # longer than any draw
        return memory[self.index, key][: words.size].reshape(shape).copy()

    patch.setattr(Streams, "draw_words", draw)


BREAKS: dict[str, Breaker] = {
    "places of a stream repeated": repeated,
    "shares of zero of parties 0 and 2 dropped": zeroed(0, 1, 0),
    "shares of zero of parties 1 and 2 dropped": zeroed(2, 1, 0),
    "resharing without the shares of zero of parties 0 and 1": summands_zeroed,
    "a truncation pair opened": zeroed(0, 1, 1),
    "answers without a mask": zeroed(0, 2, 2),
    "party 0's results without a mask": zeroed(0, 1, 3),
    "party 1's results without a mask": zeroed(2, 1, 1),
    "a mask of 63 bits": changed("draw_words", None, lambda words: words >> np.uint64(1)),
    "a mask whose last bit is even": changed("draw_words", None, lambda words: words & ~np.uint64(1)),
    "bits of the mask shared without a mask": changed("draw_residues", 0, np.zeros_like),
    "no rotation": changed("draw_octets", 1, lambda turns: turns & np.uint8(64)),
    "no coin": changed("draw_octets", 1, lambda turns: turns & np.uint8(63)),
    "one coin for all": changed("draw_octets", 1, lambda turns: turns | np.uint8(64)),
    "no factors": residues_of(P - 1, np.zeros_like),
}


@pytest.mark.parametrize("name", BREAKS)
def test_each_break_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BREAKS[name](monkeypatch)
    with pytest.raises(AssertionError):
        check_hidden(SECRETS["mixed"])
