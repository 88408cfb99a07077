"""`ot` on integers: the linear code, hashes of rows, a table's positions, the extension, outputs and tokens.

A row of 512 bits is one integer; bit i of the row is bit i % 8 of byte i // 8, so bytes are little-endian.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from slow_curve import pseudo_random, require, session_tag, unhex

__all__ = ["COMPUTE"]

Fields = Mapping[str, Any]
DENSE, EXTRA, COLUMNS, SUMS = 40, 80, 512, 40


# The code: polynomials over GF(2) are integers


def _multiply_elements(a: int, b: int) -> int:
    out = 0
    while b:
        if b & 1:
            out ^= a
        a, b = a << 1, b >> 1
    return out


def _in_field(a: int, b: int) -> int:
    """The product in GF(2^9), modulo x⁹ + x⁴ + 1."""
    product = _multiply_elements(a, b)
    for bit in range(16, 8, -1):
        if product >> bit & 1:
            product ^= 0b1000010001 << (bit - 9)
    return product


def _evaluate_at(polynomial: int, element: int) -> int:
    value = 0
    for place in range(polynomial.bit_length() - 1, -1, -1):
        value = _in_field(value, element) ^ (polynomial >> place & 1)
    return value


def _minimal_polynomial(element: int) -> int:
    """The product of x − e over the conjugates e, e², e⁴, … of an element of GF(2^9)."""
    conjugates = [element]
    while (square := _in_field(conjugates[-1], conjugates[-1])) != element:
        conjugates.append(square)
    coefficients = [1]
    for one in conjugates:
        shifted = [0, *coefficients]
        for place, coefficient in enumerate(coefficients):
            shifted[place] ^= _in_field(coefficient, one)
        coefficients = shifted
    require(set(coefficients) <= {0, 1}, "a coefficient of the generator is not a bit")
    return sum(bit << place for place, bit in enumerate(coefficients))


def _find_generator() -> int:
    """The least polynomial with the zeros α, α², …, α^126: the product of their different minimal polynomials."""
    found, element = 1, 1
    for _ in range(126):
        element = _in_field(element, 2)
        if _evaluate_at(found, element):
            found = _multiply_elements(found, _minimal_polynomial(element))
    return found


GENERATOR = _find_generator()
_ROWS = []
for _shift in range(80):
    _row = GENERATOR << _shift
    _ROWS.append(_row | (_row.bit_count() & 1) << 511)


def encode(word: int) -> int:
    """The code word of 80 bits: a sum of shifts of the generator, each with its parity in bit 511."""
    out = 0
    for bit, row in enumerate(_ROWS):
        if word >> bit & 1:
            out ^= row
    return out


# Hashes and positions


def _hash_identifier(identifier: bytes, tag: bytes) -> tuple[bytes, int]:
    salt = hashlib.sha512(b"securevfl-psi identifiers" + tag).digest()[:16]
    digest = hashlib.blake2s(identifier, salt=salt[:8], person=salt[8:], node_offset=2).digest()
    return digest[:16], int.from_bytes(digest[16:26], "little")


def _compute_output(row: int, key: bytes) -> bytes:
    raw = row.to_bytes(64, "little")
    parts = [hashlib.blake2s(raw, salt=key[:8], person=key[8:], node_offset=number).digest() for number in (0, 1)]
    return b"".join(parts)[:48]


def _segment_length(count: int) -> int:
    return -(-13 * count // 30) + 16


def _count_slots(count: int) -> int:
    return 3 * _segment_length(count) + DENSE


def _encrypt_block(key: bytes, block: bytes) -> bytes:
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)  # noqa: S305 - one block is AES itself


def _find_positions(key: bytes, seed: bytes, count: int) -> tuple[list[int], int]:
    """Three slots, one in each segment, and 40 dense bits."""
    low, high = _encrypt_block(seed[:16], key), _encrypt_block(seed[16:], key)
    w = _segment_length(count)
    words = (low[:8], low[8:], high[:8])
    places = [j * w + ((int.from_bytes(word, "little") >> 24) * w >> 40) for j, word in enumerate(words)]
    return places, int.from_bytes(high[8:13], "little")


def _decode_value(slots: list[int], seed: bytes, key: bytes, count: int) -> int:
    places, dense = _find_positions(key, seed, count)
    value = 0
    for place in places:
        value ^= slots[place]
    for bit in range(DENSE):
        if dense >> bit & 1:
            value ^= slots[_count_slots(count) - DENSE + bit]
    return value


def _token_bytes(client: int, server: int, shards: int = 1) -> int:
    count = max(2, client + server)
    bits = 40 + (count * (count - 1) // 2 * shards - 1).bit_length()
    return min(16, max(8, -(-bits // 8)))


# The extension


def _draw_stream(key: bytes, rows: int, start: bytes = bytes(16)) -> bytes:
    return Cipher(algorithms.AES(key), modes.CTR(start)).encryptor().update(bytes(rows))


def _transpose_columns(columns: list[bytes], rows: int) -> list[int]:
    numbers = [int.from_bytes(column, "little") for column in columns]
    return [sum((number >> j & 1) << i for i, number in enumerate(numbers)) for j in range(rows)]


def _add_rows(rows: list[int], challenge: bytes) -> list[int]:
    coefficients = _draw_stream(challenge[:16], 5 * len(rows), challenge[16:])
    totals = [0] * SUMS
    for number, row in enumerate(rows):
        bits = int.from_bytes(coefficients[5 * number : 5 * number + 5], "little")
        for place in range(SUMS):
            if bits >> place & 1:
                totals[place] ^= row
    return totals


def _run_transfer(group: Fields, test: Fields) -> dict[str, Any]:
    tag, seed = session_tag(group["session"]), unhex(group["seed"])
    slots = [unhex(row) for row in group["slots"]]
    own = [_hash_identifier(unhex(text), tag) for text in test["client"]]
    peer = [_hash_identifier(unhex(text), tag) for text in test["server"]]
    extra = pseudo_random(test["extraLabel"], EXTRA * len(slots[0]))
    width = len(slots[0])
    full = [*slots, *(extra[k : k + width] for k in range(0, len(extra), width))]
    words = [int.from_bytes(row[:10], "little") for row in full]
    for key, word in own:  # the table gives each identifier of the client its word
        value = _decode_value([int.from_bytes(row, "little") for row in slots], seed, key, len(own))
        require(value & (1 << 80) - 1 == word, "a key of the table gives another word")
    count, blocks = len(words), -(-len(words) // 8)
    columns = [
        [_draw_stream(pseudo_random(f"{test['columnLabel']}/{i}/{bit}", 16), blocks) for i in range(COLUMNS)]
        for bit in (0, 1)
    ]
    t, other = (_transpose_columns(part, count) for part in columns)
    s = int.from_bytes(unhex(test["secret"]), "little")
    u = [a ^ b ^ encode(word) for a, b, word in zip(t, other, words, strict=True)]
    chosen = _transpose_columns([columns[s >> i & 1][i] for i in range(COLUMNS)], count)
    q = [mine ^ (row & s) for mine, row in zip(chosen, u, strict=True)]
    require(
        q == [row ^ (encode(word) & s) for row, word in zip(t, words, strict=True)],
        "the rows do not have the correlation",
    )
    challenge = unhex(test["challenge"])
    of_words, of_rows = _add_rows(words, challenge), _add_rows(t, challenge)
    answer = b"".join(word.to_bytes(10, "little") for word in of_words)
    answer += b"".join(row.to_bytes(64, "little") for row in of_rows)
    for mine, row, word in zip(_add_rows(q, challenge), of_rows, of_words, strict=True):
        require(mine == row ^ (encode(word) & s), "the sums do not fit codewords")
    client = [_compute_output(_decode_value(t, seed, key, len(own)), key) for key, _ in own]
    server = [_compute_output(_decode_value(q, seed, key, len(own)) ^ (encode(word) & s), key) for key, word in peer]
    size = _token_bytes(len(own), len(peer))
    raw = [row.to_bytes(64, "little") for row in u]
    return {
        "rows": count,
        "firstRow": raw[0].hex(),
        "lastRow": raw[-1].hex(),
        "rowsDigest": hashlib.sha512(b"".join(raw)).hexdigest(),
        "sumsDigest": hashlib.sha512(answer).hexdigest(),
        "clientOutputs": [output.hex() for output in client],
        "serverOutputs": [output.hex() for output in server],
        "tokens": [output[:size].hex() for output in server],
    }


def _of_generator(group: Fields, test: Fields) -> dict[str, Any]:
    return {"polynomial": f"{GENERATOR:b}"[::-1]}


def _of_code(group: Fields, test: Fields) -> dict[str, Any]:
    return {"codeword": encode(int.from_bytes(unhex(test["word"]), "little")).to_bytes(64, "little").hex()}


def _of_identifier(group: Fields, test: Fields) -> dict[str, Any]:
    key, word = _hash_identifier(unhex(test["identifier"]), unhex(group["tag"]))
    return {"key": key.hex(), "word": word.to_bytes(10, "little").hex()}


def _of_row(group: Fields, test: Fields) -> dict[str, Any]:
    return {"output": _compute_output(int.from_bytes(unhex(test["row"]), "little"), unhex(test["key"])).hex()}


def _of_count(group: Fields, test: Fields) -> dict[str, Any]:
    return {"slots": _count_slots(test["count"])}


def _of_positions(group: Fields, test: Fields) -> dict[str, Any]:
    places, dense = _find_positions(unhex(test["key"]), unhex(group["seed"]), group["count"])
    return {"positions": places, "dense": dense.to_bytes(5, "little").hex()}


def _of_table(group: Fields, test: Fields) -> dict[str, Any]:
    slots = [int.from_bytes(unhex(row), "little") for row in group["slots"]]
    value = _decode_value(slots, unhex(group["seed"]), unhex(test["key"]), group["count"])
    return {"value": value.to_bytes(len(group["slots"][0]) // 2, "little").hex()}


def _of_stored_values(group: Fields, test: Fields) -> dict[str, Any]:
    return {"values": pseudo_random(group["valueLabel"], 16 * test["count"]).hex()}


def _of_sizes(group: Fields, test: Fields) -> dict[str, Any]:
    return {"bytes": _token_bytes(test["client"], test["server"], test["shards"])}


def _of_base_transfer(group: Fields, test: Fields) -> dict[str, Any]:
    text = b"securevfl-psi base transfer" + unhex(group["tag"]) + unhex(group["first"])
    text += pseudo_random(group["answerLabel"], 512 * 32) + test["number"].to_bytes(4, "big")
    return {"key": hashlib.sha512(text + bytes([test["choice"]]) + unhex(test["point"])).digest()[:16].hex()}


COMPUTE = {
    "CodeGenerator": _of_generator,
    "LinearCode": _of_code,
    "IdentifierHash": _of_identifier,
    "RowHash": _of_row,
    "SlotCount": _of_count,
    "SlotPositions": _of_positions,
    "TableDecoding": _of_table,
    "TableEncoding": _of_stored_values,
    "TokenBytes": _of_sizes,
    "BaseTransferKey": _of_base_transfer,
    "Transfer": _run_transfer,
}
