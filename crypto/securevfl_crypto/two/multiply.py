"""Products of shared bits and words between two parties, by one correction a transfer (Gilboa, CRYPTO 1999).

Words are shared additively modulo 2^64. A giver with the word w and pads x0, x1 sends x0 + w − x1; a chooser with the
bit c and x_c adds c times that to its pad, and has x0 + c·w; the giver keeps −x0. So bit times word is shared, for 8
bytes a word beside the transfer, and the message is padded by the pad that the chooser does not have.

Secrets select by multiplication and masks, without branches and look-ups.
"""

from __future__ import annotations

import numpy as np

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.ring.words import check_words
from securevfl_crypto.two.bits import check_bits
from securevfl_crypto.two.transfers import Transfers, choose_and_give
from securevfl_crypto.two.wire import TwoWire

__all__ = ["bits_to_words", "product", "select", "signed", "times_private"]

_PIECE = 1 << 19
"""Words of corrections at a time, 4 MiB."""
_CORRECTIONS = "multiply: corrections"
_ONE, _TWO = np.uint64(1), np.uint64(2)


async def bits_to_words(
    wire: TwoWire,
    transfers: Transfers,
    xor_bits: np.ndarray,
    factors: np.ndarray | None = None,
    *,
    width: int | None = None,
) -> np.ndarray:
    """Additive shares of each bit, or of each bit times words that party 0 alone knows. One transfer a bit, 1 → 0.

    Args:
        wire, transfers: the link, and the source of transfers over it.
        xor_bits: this party's shares of the bits, zeros and ones, uint8 of any shape; (n,) with factors.
        factors: at party 0, uint64 (n, f), or None for the bits themselves. None at party 1.
        width: f, at party 1; party 0 may leave it out. None without factors.

    Returns:
        uint64 of the bits' shape, or (n, f).

    Raises:
        MalformedError: other types or shapes, or factors at party 1.
    """
    bits = check_bits(xor_bits)
    words = 1
    if factors is not None or width is not None:
        words = _check_factors(wire, bits, factors, width)
    flat = bits.reshape(-1)
    shape = bits.shape if factors is None and width is None else (flat.size, words)
    if wire.me == 1:
        return (await _choose_products(wire, transfers, flat, words)).reshape(shape)
    mine = flat.astype(np.uint64)[:, None]
    known = np.ones((flat.size, 1), dtype=np.uint64) if factors is None else factors
    # b = b0 + b1·(1 − 2·b0), times the factor.
    product = known * mine
    own = await _give_products(wire, transfers, known - _TWO * product)
    return np.asarray(product + own).reshape(shape)


async def signed(wire: TwoWire, transfers: Transfers, words: np.ndarray, signs: np.ndarray | None) -> np.ndarray:
    """Additive shares of each value times a sign that party 0 alone knows. One transfer a value, 0 → 1.

    Args:
        wire, transfers: the link, and the source of transfers over it.
        words: this party's summands of the values, uint64 of any shape.
        signs: at party 0, +1 or −1, int8 to int64 of the words' shape; None at party 1.

    Raises:
        MalformedError: other types, shapes or signs, or signs at party 1.
    """
    words = check_words(words)
    flat = words.reshape(-1)
    if wire.me == 1:
        _require_none(signs, "signs")
        # s·v1 = v1 − 2·c·v1, where c is whether the sign is −1.
        own = await _give_products(wire, transfers, (np.uint64(0) - _TWO * flat)[:, None])
        return np.asarray(flat + own[:, 0]).reshape(words.shape)
    if not isinstance(signs, np.ndarray) or signs.dtype.kind != "i" or signs.shape != words.shape:
        raise MalformedError(f"signs are not integers {words.shape}; party 0 gives +1 or −1 for each value")
    if not (np.abs(signs) == 1).all():
        raise MalformedError("a sign is neither +1 nor −1")
    negative = (signs.reshape(-1) < 0).astype(np.uint8)
    own = flat * (_ONE - _TWO * negative.astype(np.uint64))
    return np.asarray(own + (await _choose_products(wire, transfers, negative, 1))[:, 0]).reshape(words.shape)


async def select(wire: TwoWire, transfers: Transfers, xor_bits: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Additive shares of each bit times its value: one transfer in each direction, and two exchanges.

    Args:
        wire, transfers: the link, and the source of transfers over it.
        xor_bits: this party's shares of the bits, zeros and ones, uint8.
        words: this party's summands of the values, uint64 of the same shape.

    Raises:
        MalformedError: other types or shapes.
    """
    bits = check_bits(xor_bits)
    values = check_words(words, shape=bits.shape).reshape(-1)
    flat = bits.reshape(-1)
    mine = values * flat.astype(np.uint64)
    # b·v0 = b0·v0 + b1·(v0 − 2·b0·v0), and with the parties exchanged for v1.
    shares = await _exchange_products(wire, transfers, flat, (values - _TWO * mine)[:, None])
    return np.asarray(mine + shares[:, 0]).reshape(bits.shape)


async def times_private(
    wire: TwoWire, transfers: Transfers, words: np.ndarray, factor: np.ndarray | None, bits: int
) -> np.ndarray:
    """Additive shares of each value times a factor that party 0 alone knows: `bits` transfers a factor, 0 → 1.

    Args:
        wire, transfers: the link, and the source of transfers over it.
        words: this party's summands of the values, uint64 (n,), or (n, f) for f values with one factor.
        factor: at party 0, uint64 (n,), each below 2^`bits`; None at party 1.
        bits: of the factors, 1 to 64.

    Raises:
        MalformedError: other types or shapes, a factor out of range, or factors at party 1.
    """
    words = check_words(words)
    if words.ndim not in (1, 2):
        raise MalformedError(f"values are {words.shape}; (n,) or (n, f) was expected")
    _check_width(bits)
    flat = words.reshape(len(words), -1)
    if wire.me == 1:
        _require_none(factor, "factors")
        shares = await _give_shifted(wire, transfers, flat, bits)
    else:
        if factor is None:
            raise MalformedError("party 0 gives the factors; None was given")
        known = check_words(factor, "factors", (len(words),))
        if known.size and int(known.max()) >> bits:
            raise MalformedError(f"a factor has more than {bits} bits: raise bits")  # not its value, which is secret
        shares = flat * known[:, None] + await _choose_shifted(wire, transfers, known, flat.shape[1], bits)
    return np.asarray(shares).reshape(words.shape)


async def product(
    wire: TwoWire, transfers: Transfers, words_a: np.ndarray, words_b: np.ndarray, bits: int = 64
) -> np.ndarray:
    """Additive shares of a·b modulo 2^64: 64 transfers a value in each direction, so for few values.

    Shares of small values are large, so no fewer transfers do, whatever `bits` is.

    Args:
        wire, transfers: the link, and the source of transfers over it.
        words_a, words_b: this party's summands of the values, uint64 of one shape.
        bits: |a| and |b| are below 2^(`bits` − 1). Up to 32, the product of signed values fits into a word.

    Raises:
        MalformedError: other types or shapes, or bits out of range.
    """
    _check_width(bits)
    a = check_words(words_a, "the first values")
    b = check_words(words_b, "the second values", a.shape)
    first, second = a.reshape(-1), b.reshape(-1)
    out = first * second
    for part in _iter_parts(first.size, 64):
        bits_of_a = _split_bits(first[part], 64)
        shares = await _exchange_products(wire, transfers, bits_of_a, _shift_words(second[part, None], 64))
        out[part] += shares.reshape(64, -1).sum(axis=0, dtype=np.uint64)
    return np.asarray(out).reshape(a.shape)


async def _give_shifted(wire: TwoWire, transfers: Transfers, words: np.ndarray, bits: int) -> np.ndarray:
    """The giver's shares of words, (n, f), times the chooser's numbers of `bits` bits."""
    out = np.empty_like(words)
    for part in _iter_parts(len(words), bits * words.shape[1]):
        shares = await _give_products(wire, transfers, _shift_words(words[part], bits))
        out[part] = shares.reshape(bits, -1, words.shape[1]).sum(axis=0, dtype=np.uint64)
    return out


async def _choose_shifted(
    wire: TwoWire, transfers: Transfers, numbers: np.ndarray, width: int, bits: int
) -> np.ndarray:
    """The chooser's shares of its numbers, (n,), times the giver's words, (n, width)."""
    out = np.empty((len(numbers), width), dtype=np.uint64)
    for part in _iter_parts(len(numbers), bits * width):
        shares = await _choose_products(wire, transfers, _split_bits(numbers[part], bits), width)
        out[part] = shares.reshape(bits, -1, width).sum(axis=0, dtype=np.uint64)
    return out


def _iter_parts(count: int, words: int) -> list[slice]:
    """Parts of `count` values whose corrections, `words` each, fit into one message."""
    size = max(1, _PIECE // max(1, words))
    return [slice(start, start + size) for start in range(0, count, size)]


def _split_bits(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Numbers' bits, the lowest of all first: uint8 (bits · n,)."""
    places = np.arange(bits, dtype=np.uint64)[:, None]
    return ((numbers >> places) & _ONE).astype(np.uint8).reshape(-1)


def _shift_words(words: np.ndarray, bits: int) -> np.ndarray:
    """Words, (n, f), times 1, 2, 4, …: (bits · n, f)."""
    places = np.arange(bits, dtype=np.uint64)[:, None, None]
    return (words << places).reshape(-1, words.shape[1])


async def _give_products(wire: TwoWire, transfers: Transfers, payload: np.ndarray) -> np.ndarray:
    """The giver's shares of payload, uint64 (n, f), times the chooser's bits."""
    zeros, ones = await transfers.give(*payload.shape)
    if payload.size:
        await wire.send(_CORRECTIONS, [zeros + payload - ones])
    return np.uint64(0) - zeros


async def _choose_products(wire: TwoWire, transfers: Transfers, choices: np.ndarray, width: int) -> np.ndarray:
    """The chooser's shares of its bits, uint8 (n,), times the giver's payload: uint64 (n, width)."""
    pads = await transfers.choose(choices, width)
    return await _correct_pads(wire, pads, choices)


async def _correct_pads(wire: TwoWire, pads: np.ndarray, choices: np.ndarray) -> np.ndarray:
    if not pads.size:
        return pads
    (corrections,) = await wire.receive(_CORRECTIONS, [(np.uint64, pads.shape)])
    return np.asarray(pads + corrections * choices.astype(np.uint64)[:, None])


async def _exchange_products(
    wire: TwoWire, transfers: Transfers, choices: np.ndarray, payload: np.ndarray
) -> np.ndarray:
    """Shares of own bits times the peer's payload plus the peer's bits times the own payload: uint64 (n, f)."""
    pads, (zeros, ones) = await choose_and_give(transfers, choices, *payload.shape)
    if payload.size:
        await wire.send(_CORRECTIONS, [zeros + payload - ones])
    return np.asarray(await _correct_pads(wire, pads, choices) - zeros)


def _check_factors(wire: TwoWire, bits: np.ndarray, factors: np.ndarray | None, width: int | None) -> int:
    if bits.ndim != 1:
        raise MalformedError(f"bits with factors are {bits.shape}; (n,) was expected")
    if wire.me == 1:
        _require_none(factors, "factors")
        found = width
    else:
        if factors is None:
            raise MalformedError("party 0 gives the factors; None was given")
        check_words(factors, "factors")
        if factors.ndim != 2 or len(factors) != len(bits):
            raise MalformedError(f"factors are {factors.shape}; ({len(bits)}, f) was expected")
        found = factors.shape[1]
        if width not in (None, found):
            raise MalformedError(f"factors are {found} wide; {width} was announced")
    if not isinstance(found, int) or found < 1:
        raise MalformedError(f"{found} factors a bit; at least 1 is needed")
    return found


def _require_none(private: object, what: str) -> None:
    if private is not None:
        raise MalformedError(f"{what} were given at party 1; party 0 alone knows them, and party 1 gives None")


def _check_width(bits: int) -> None:
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 64:
        raise MalformedError(f"{bits!r} bits; 1 to 64 are possible")
