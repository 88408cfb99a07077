"""Conjunctions of shared bits, and comparisons of shared words, between two parties.

Bits are shared by XOR, uint8 of zeros and ones. The comparison follows CrypTFlow2 (Rathee et al., CCS 2020): whether
the low bits of two summands carry is [a > b] for a number a of party 0 and b of party 1. Each is cut into digits of up
to five bits. For a digit, party 0 makes a table of the answers for all 32 values of b's digit, two bits each ("greater"
and "equal"), masked, and under pads of which party 1 has those of its digit's bits: five transfers. A tree of
conjunctions combines the digits: a pair is greater if its upper digit is, or is equal and the lower one is greater.

One pad of 64 bits holds a table of a digit, so five bits are the widest that need one word. The two conjunctions of a
node have a common factor, so one transfer in each direction suffices for both, of random choices, with no correction
(the giver's factors are the differences of its pads); all of them are made with the transfers of the digits.

Secrets select by masks and shifts, without branches and look-ups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.ring.words import check_words
from securevfl_crypto.two.transfers import Transfers, choose_and_give, random_bits
from securevfl_crypto.two.wire import TwoWire, swap

__all__ = ["and_bits", "check_bits", "compare", "find_above"]

_WIDEST = 5
"""Bits of a digit: 2 · 2^5 bits of a table fill one word."""
_PIECE = 1 << 15
"""Comparisons made at a time: their transfers take 12 MB at 24 bits."""
_GREATER, _EQUAL = np.uint64(0x5555555555555555), np.uint64(0xAAAAAAAAAAAAAAAA)
_TABLES, _OPENINGS, _PRODUCTS = "bits: tables", "bits: openings", "bits: conjunctions"


async def and_bits(wire: TwoWire, transfers: Transfers, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Shares of x ∧ y: one transfer in each direction and two exchanges.

    Args:
        wire, transfers: the link, and the source of transfers over it.
        x, y: this party's shares, zeros and ones, uint8 of one shape.

    Raises:
        MalformedError: other types, shapes or values.
    """
    x, y = check_bits(x, "x"), check_bits(y, "y", x.shape)
    mine, payload = x.reshape(-1), y.reshape(-1)
    chosen, (zeros, ones) = await choose_and_give(transfers, mine, mine.size)
    pad, zero, one = (_low_bits(pads, 1) for pads in (chosen, zeros, ones))
    theirs = await _swap_bits(wire, _PRODUCTS, zero ^ one ^ payload)
    return np.asarray((mine & payload) ^ zero ^ pad ^ (mine & theirs)).reshape(x.shape)


async def compare(wire: TwoWire, transfers: Transfers, words: np.ndarray, bits: int) -> np.ndarray:
    """Shares of [value ≥ 0].

    Takes `bits` − 1 transfers from party 0 to party 1 and, for each digit but one, one in each direction. Messages are
    at most 2 + ⌈log2 digits⌉ deep, for each 32,768 values.

    Args:
        wire, transfers: the link, and the source of transfers over it.
        words: this party's summands of the values modulo 2^`bits`, uint64 of any shape; higher bits do not count.
        bits: of the values, in two's complement, 8 to 64. Fewer are cheaper.

    Returns:
        uint8 of the words' shape.

    Raises:
        MalformedError: other types, or bits out of range.
    """
    return np.asarray((await find_above(wire, transfers, words, [-1], bits))[0])


async def find_above(
    wire: TwoWire, transfers: Transfers, words: np.ndarray, edges: Sequence[int], bits: int
) -> np.ndarray:
    """Shares of [value > edge] for each edge. Edges share the transfers of the values' digits.

    Args:
        wire, transfers: the link, and the source of transfers over it.
        words: as for `compare`, of any shape.
        edges: public, the same at both parties. value − edge − 1 must lie within ±2^(`bits` − 1), or the answer wraps.
        bits: of the values, 8 to 64.

    Returns:
        uint8, one entry for each edge of the words' shape.

    Raises:
        MalformedError: other types, or bits or an edge out of range.
    """
    flat = check_words(words).reshape(-1)
    if isinstance(bits, bool) or not isinstance(bits, int) or not 8 <= bits <= 64:
        raise MalformedError(f"values of {bits!r} bits; 8 to 64 are possible")
    steps = [int(edge) + 1 for edge in edges]
    if not all(-(1 << bits - 1) < step <= 1 << bits - 1 for step in steps):
        raise MalformedError(f"edges lie within ±2^{bits - 1} for values of {bits} bits; {list(edges)} were given")
    out = np.empty((len(steps), flat.size), dtype=np.uint8)
    if out.size:
        piece = max(1, _PIECE // len(steps))
        offsets = np.array([step % (1 << 64) for step in steps], dtype=np.uint64)[:, None]
        for start in range(0, flat.size, piece):
            part = slice(start, start + piece)
            out[:, part] = await _compare_piece(wire, transfers, flat[None, part], offsets, bits - 1)
    return out.reshape(len(steps), *words.shape)


async def _compare_piece(
    wire: TwoWire, transfers: Transfers, words: np.ndarray, offsets: np.ndarray, low: int
) -> np.ndarray:
    """[value ≥ offset]: words uint64 (1, n), offsets uint64 (e, 1); uint8 (e, n). Bit `low` is the sign."""
    mask, place = np.uint64((1 << low) - 1), np.uint64(low)
    mine = words - offsets if wire.me == 0 else words
    sign = (mine >> place).astype(np.uint8) & np.uint8(1)
    # The low bits carry if low0 + low1 > mask, that is low0 > mask − low1.
    own = mine & mask if wire.me == 0 else mask - (mine & mask)
    carry = await _find_greater(wire, transfers, own, len(offsets), low)
    return np.asarray(carry ^ sign ^ np.uint8(1 - wire.me))


async def _find_greater(wire: TwoWire, transfers: Transfers, own: np.ndarray, edges: int, low: int) -> np.ndarray:
    """Shares of [a > b], `low` bits: own is a, uint64 (e, n), at party 0, and b, (1, n), at party 1; uint8 (e, n)."""
    widths = _cut_digits(low)
    count, nodes = own.shape[1], (len(widths) - 1) * edges * own.shape[1]
    coins = random_bits(nodes)
    digits = low * count
    places = np.arange(low, dtype=np.uint64)[:, None]
    given, taken = digits + nodes, nodes
    await transfers.reserve(*((given, taken) if wire.me == 0 else (taken, given)))
    if wire.me == 0:
        chosen = await transfers.choose(coins)
        zeros, ones, given_nodes = await _give_both(transfers, digits, nodes, edges)
        shares, tables = _make_tables(own, zeros, ones, widths)
        await wire.send(_TABLES, tables)
    else:
        choices = ((own >> places) & np.uint64(1)).astype(np.uint8).reshape(-1)
        pads, chosen = await _choose_both(transfers, choices, coins, edges)
        given_nodes = await transfers.give(nodes)
        expect = [(_TABLES_BY_WIDTH[width], (edges, widths.count(width), count)) for width in sorted(set(widths))]
        shares = _read_tables(own, pads, widths, await wire.receive(_TABLES, expect))
    triples = _make_triples(coins, chosen, *given_nodes)
    return (await _combine_digits(wire, shares.reshape(len(widths), -1), triples)).reshape(edges, count)


async def _give_both(
    transfers: Transfers, digits: int, nodes: int, edges: int
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Give the transfers of digits and of nodes; in one batch if their pads are of one length."""
    if edges == 1:
        zeros, ones = await transfers.give(digits + nodes)
        return zeros[:digits], ones[:digits], (zeros[digits:], ones[digits:])
    zeros, ones = await transfers.give(digits, edges)
    return zeros, ones, await transfers.give(nodes)


async def _choose_both(
    transfers: Transfers, choices: np.ndarray, coins: np.ndarray, edges: int
) -> tuple[np.ndarray, np.ndarray]:
    """The other end of `_give_both`."""
    if edges == 1:
        pads = await transfers.choose(np.concatenate([choices, coins]))
        return pads[: choices.size], pads[choices.size :]
    pads = await transfers.choose(choices, edges)
    return pads, await transfers.choose(coins)


def _cut_digits(low: int) -> list[int]:
    """Widths of the digits of a number of `low` bits, the lowest first; they differ by at most one."""
    count = -(-low // _WIDEST)
    return [low // count + (number < low % count) for number in range(count)]


_TABLES_BY_WIDTH: dict[int, type[np.generic]] = {3: np.uint16, 4: np.uint32, 5: np.uint64}
"""Types that two bits for each value of a digit fill. Of 7 bits or more, no digit is narrower."""


def _address_mask(bit: int) -> np.uint64:
    """The entries of a table, two bits each, whose number has this bit set."""
    return np.uint64(sum(3 << 2 * value for value in range(32) if value >> bit & 1))


def _iter_digits(widths: list[int]) -> list[tuple[int, int, int, int]]:
    """Of each digit: its number, its width, its lowest bit, and its number among those of its width."""
    found, at = [], 0
    for number, width in enumerate(widths):
        found.append((number, width, at, widths[:number].count(width)))
        at += width
    return found


def _spread_pads(pads: np.ndarray, low: int) -> np.ndarray:
    """Pads of transfers, (low · n, e), by bit and edge: (low, e, n)."""
    edges = pads.shape[1]
    return pads.reshape(low, -1, edges).transpose(0, 2, 1)


def _make_tables(
    own: np.ndarray, zeros: np.ndarray, ones: np.ndarray, widths: list[int]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Party 0's shares, two bits of each digit, uint8 (digits, e, n); and the tables to send, by width."""
    low = sum(widths)
    edges, count = own.shape
    shares = random_bits(2 * len(widths) * own.size).reshape(2, len(widths), edges, count)
    packed = shares[0] | shares[1] << np.uint8(1)
    zero, one = _spread_pads(zeros, low), _spread_pads(ones, low)
    sent = {
        width: np.empty((edges, widths.count(width), count), dtype=_TABLES_BY_WIDTH[width])
        for width in sorted(set(widths))
    }
    for number, width, at, place in _iter_digits(widths):
        table = _spread_masks(packed[number])
        for bit in range(width):
            table ^= zero[at + bit]
            table ^= (zero[at + bit] ^ one[at + bit]) & _address_mask(bit)
        twice = (own >> np.uint64(at) & np.uint64((1 << width) - 1)) << np.uint64(1)
        entry = np.uint64(1) << twice
        table ^= (entry - np.uint64(1)) & _GREATER  # greater than all entries below
        table ^= entry << np.uint64(1)
        sent[width][:, place] = table.astype(_TABLES_BY_WIDTH[width])
    return packed, list(sent.values())


def _spread_masks(packed: np.ndarray) -> np.ndarray:
    """The two bits of a share, in all entries of a table."""
    wide = packed.astype(np.uint64)
    return np.asarray(
        ((np.uint64(0) - (wide & np.uint64(1))) & _GREATER) ^ ((np.uint64(0) - (wide >> np.uint64(1))) & _EQUAL)
    )


def _read_tables(own: np.ndarray, pads: np.ndarray, widths: list[int], tables: list[np.ndarray]) -> np.ndarray:
    """Party 1's shares, two bits of each digit, uint8 (digits, e, n)."""
    known = _spread_pads(pads, sum(widths))
    found = dict(zip(sorted(set(widths)), tables, strict=True))
    out = np.empty((len(widths), known.shape[1], own.shape[1]), dtype=np.uint8)
    for number, width, at, place in _iter_digits(widths):
        table = found[width][:, place].astype(np.uint64)
        for bit in range(width):
            table ^= known[at + bit]
        twice = (own >> np.uint64(at) & np.uint64((1 << width) - 1)) << np.uint64(1)
        out[number] = (table >> twice & np.uint64(3)).astype(np.uint8)
    return out


def _make_triples(
    coins: np.ndarray, chosen: np.ndarray, zeros: np.ndarray, ones: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shares of random a, of two random bits b, and of a · b: uint8 (n,) each, a as a mask of both bits."""
    pad, zero, one = (_low_bits(pads, 2) for pads in (chosen, zeros, ones))
    factor = zero ^ one
    both = (np.uint8(0) - coins) & np.uint8(3)
    # The peer's a times these factors is shared as `zero` here and as its chosen pad there.
    return both, factor, (both & factor) ^ zero ^ pad


async def _combine_digits(
    wire: TwoWire, shares: np.ndarray, triples: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> np.ndarray:
    """Combine digits, uint8 (digits, n), bit 0 "greater" and bit 1 "equal", the lowest first; "greater", uint8 (n,)."""
    at = 0
    while len(shares) > 1:
        pairs = len(shares) // 2
        lower, upper = shares[0 : 2 * pairs : 2], shares[1 : 2 * pairs : 2]
        part = slice(at, at + lower.size)
        at += lower.size
        a, b, product = (array[part].reshape(lower.shape) for array in triples)
        equal = (np.uint8(0) - (upper >> np.uint8(1))) & np.uint8(3)  # as a mask of both bits
        first, second = equal ^ a, lower ^ b
        # Nobody asks whether the lowest digits are equal, so that bit of the first pair stays closed.
        opened = [first & np.uint8(1), second & np.uint8(1), second[1:] >> np.uint8(1)]
        theirs = await _swap_bits(wire, _OPENINGS, np.concatenate(opened).reshape(-1))
        planes = theirs.reshape(-1, lower.shape[1])
        first = first ^ ((np.uint8(0) - planes[:pairs]) & np.uint8(3))
        second = second ^ planes[pairs : 2 * pairs]
        second[1:] ^= planes[2 * pairs :] << np.uint8(1)
        product = product ^ (first & b) ^ (second & a)
        if wire.me == 0:
            product ^= first & second
        product[0] &= np.uint8(1)
        merged = (upper & np.uint8(1)) ^ product
        shares = np.concatenate([merged, shares[2 * pairs :]])
    return np.asarray(shares[0] & np.uint8(1))


def _low_bits(pads: np.ndarray, bits: int) -> np.ndarray:
    return pads[:, 0].astype(np.uint8) & np.uint8((1 << bits) - 1)


async def _swap_bits(wire: TwoWire, label: str, bits: np.ndarray) -> np.ndarray:
    """Send bits, uint8 (n,), eight to an octet, and receive as many."""
    if bits.size == 0:
        return bits
    (packed,) = await swap(wire, label, [np.packbits(bits, bitorder="little")])
    return np.unpackbits(packed, count=bits.size, bitorder="little")


def check_bits(bits: np.ndarray, what: str = "bits", shape: tuple[int, ...] | None = None) -> np.ndarray:
    """The bits, C-contiguous.

    Raises:
        MalformedError: they are not uint8, contain other numbers than 0 and 1, or have another shape.
    """
    if not isinstance(bits, np.ndarray) or bits.dtype != np.uint8:
        kind = bits.dtype if isinstance(bits, np.ndarray) else type(bits).__name__
        raise MalformedError(f"{what} are {kind}; zeros and ones, uint8, were expected")
    if shape is not None and bits.shape != shape:
        raise MalformedError(f"{what} are {bits.shape}; {shape} was expected")
    if bits.size and bits.max() > 1:
        raise MalformedError(f"{what} contain {bits.max()}; 0 and 1 are possible")
    return np.ascontiguousarray(bits).reshape(bits.shape)
