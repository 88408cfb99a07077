"""The ring of shares on integers: residues, streams, comparisons, products modulo 2^64, 2^32 and 2^8, fixed point."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from slow_curve import pseudo_random, require, unhex

__all__ = ["COMPUTE", "mask_message", "reduce_modulo", "split_bits"]

Fields = Mapping[str, Any]
WORD, M = 1 << 64, 67


def reduce_modulo(raw: bytes, modulus: int) -> list[int]:
    limit = 256 - 256 % modulus
    return [octet % modulus for octet in raw if octet < limit]


def _take_residues(group: Fields, test: Fields) -> dict[str, Any]:
    return {"residues": bytes(reduce_modulo(unhex(test["raw"]), test["modulus"])).hex()}


def _draw_stream(group: Fields, test: Fields) -> dict[str, Any]:
    """AES-256 in counter mode from the counter block use · 2^64 on."""
    start = (test["use"] << 64).to_bytes(16, "big")
    keystream = Cipher(algorithms.AES(unhex(group["key"])), modes.CTR(start)).encryptor().update
    count = test["count"]
    if test["modulus"]:
        return {"residues": bytes(reduce_modulo(keystream(bytes(4 * count + 64)), test["modulus"])[:count]).hex()}
    raw = keystream(bytes(8 * count))
    return {"words": [f"{int.from_bytes(raw[8 * k : 8 * k + 8], 'little'):016x}" for k in range(count)]}


def split_bits(number: int) -> list[int]:
    return [number >> j & 1 for j in range(64)]


def mask_message(x: list[int], y: list[int], test: Fields, *, first: bool) -> list[int]:
    """One party's masked row, from its share x of the bits of X, and the bits y of Y, which both know."""
    one = int(first)  # constants are added by the first party only
    x = [*x[:63], 0]  # column 63 is the number that is never zero
    differs = [(one - a if b else a) % M for a, b in zip(x, y, strict=True)]  # x ⊕ y on shares
    coin, turn = test["turn"] >> 6 & 1, test["turn"] & 63
    out = []
    for j in range(64):
        difference = (one * y[j] - x[j]) % M
        e = (-difference if coin else difference) + one + sum(differs[j + 1 :])
        out.append(e * (unhex(test["factors"])[j] + 1) % M)
    turned = [out[(j + turn) % 64] for j in range(64)]
    sign = 1 if first else -1
    return [(value + sign * zero) % M for value, zero in zip(turned, unhex(test["zeros"]), strict=True)]


def _compare_words(group: Fields, test: Fields) -> dict[str, Any]:
    r, c = int(test["mask"], 16), int(test["opened"], 16)
    low_r, low_c = r % (1 << 62), c % (1 << 62)
    x, y = split_bits(2 * low_r), split_bits(2 * low_c + 1)
    y[63] = 0
    first = list(unhex(test["firstBits"]))
    second = [(bit - share) % M for bit, share in zip(x, first, strict=True)]
    sent = [mask_message(share, y, test, first=one) for one, share in ((True, first), (False, second))]
    zeros = sum((a + b) % M == 0 for a, b in zip(*sent, strict=True))
    coin = test["turn"] >> 6 & 1
    greater = int(low_r > low_c)
    require(zeros == greater ^ coin, "the zeros are not the comparison's result")
    z = (c - r - (1 << 62)) % WORD
    z -= WORD if z >> 63 else 0
    nonnegative = c >> 62 & 1 ^ r >> 62 & 1 ^ greater
    require(nonnegative == int(z >= 0), "the comparison is not the sign")
    return {
        "secondBits": bytes(second).hex(),
        "fromFirst": bytes(sent[0]).hex(),
        "fromSecond": bytes(sent[1]).hex(),
        "zeroCount": zeros,
        "isNonNegative": nonnegative,
    }


def _compute_product(a: list[list[int]], b: list[list[int]]) -> list[list[int]]:
    columns = list(zip(*b, strict=True))
    return [[sum(x * y for x, y in zip(row, column, strict=True)) % WORD for column in columns] for row in a]


def _multiply_numbers(group: Fields, test: Fields) -> dict[str, Any]:
    a, b = ([[int(word, 16) for word in row] for row in test[name]] for name in ("a", "b"))
    return {"product": [[f"{word:016x}" for word in row] for row in _compute_product(a, b)]}


def _draw_labelled(label: str, rows: int, columns: int) -> list[list[int]]:
    """Words of a label; every seventh is all ones."""
    raw = pseudo_random(label, 8 * rows * columns)
    words = [
        WORD - 1 if k % 7 == 0 else int.from_bytes(raw[8 * k : 8 * k + 8], "little") for k in range(rows * columns)
    ]
    return [words[k : k + columns] for k in range(0, len(words), columns)]


def _multiply_large(group: Fields, test: Fields) -> dict[str, Any]:
    m, k, n = test["rows"], test["inner"], test["columns"]
    product = _compute_product(_draw_labelled(group["aLabel"], m, k), _draw_labelled(group["bLabel"], k, n))
    raw = b"".join(word.to_bytes(8, "little") for row in product for word in row)
    return {"first": f"{product[0][0]:016x}", "digest": hashlib.sha512(raw).digest()[:32].hex()}


def _draw_small(label: str, rows: int, columns: int) -> list[list[int]]:
    """Words of 32 bits of a label; every seventh is all ones."""
    raw = pseudo_random(label, 4 * rows * columns)
    words = [
        (1 << 32) - 1 if k % 7 == 0 else int.from_bytes(raw[4 * k : 4 * k + 4], "little") for k in range(rows * columns)
    ]
    return [words[k : k + columns] for k in range(0, len(words), columns)]


def _multiply_table(group: Fields, table: list[list[int]], k: int) -> dict[str, Any]:
    sums = _compute_product(table, _draw_small(group["valuesLabel"], len(table[0]), k))
    chosen = _compute_product(_draw_small(group["factorsLabel"], k, len(table)), table)
    raw = b"".join((word % (1 << 32)).to_bytes(4, "little") for row in sums for word in row)
    octets = bytes(word % 256 for row in chosen for word in row)
    return {name: hashlib.sha512(each).digest()[:32].hex() for name, each in (("sums", raw), ("octets", octets))}


def _multiply_narrow(group: Fields, test: Fields) -> dict[str, Any]:
    table = _draw_small(group["tableLabel"], test["cells"], test["rows"])
    return _multiply_table(group, table, test["columns"])


def _sum_by_bin(group: Fields, test: Fields) -> dict[str, Any]:
    bins, rows = test["bins"], test["rows"]
    raw = pseudo_random(group["codesLabel"], len(bins) * rows)
    table = [
        [int(raw[c * rows + r] % size == bin_) for r in range(rows)]
        for c, size in enumerate(bins)
        for bin_ in range(size)
    ]
    return _multiply_table(group, table, test["columns"])


def _fixed_point(group: Fields, test: Fields) -> dict[str, Any]:
    scaled = round(Fraction(float(test["value"])) * (1 << 16))  # ties to even
    return {"word": f"{scaled % WORD:016x}", "decoded": repr(scaled / (1 << 16))}


COMPUTE = {
    "Residues": _take_residues,
    "Stream": _draw_stream,
    "Comparison": _compare_words,
    "MatrixProduct": _multiply_numbers,
    "LargeProduct": _multiply_large,
    "NarrowProduct": _multiply_narrow,
    "BinSums": _sum_by_bin,
    "FixedPoint": _fixed_point,
}
