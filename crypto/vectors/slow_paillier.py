"""Paillier on integers: products modulo long numbers, encryption, products of powers, packing, the modulus' proof."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from math import gcd
from typing import Any

from slow_curve import require, unhex

__all__ = ["COMPUTE"]

Fields = Mapping[str, Any]
ROOTS, SQUARES = 10, 128


def _hash_message(n: int, purpose: bytes, number: int) -> int:
    """A number modulo n: SHAKE-256 of the modulus, a purpose and a number."""
    width = -(-n.bit_length() // 8)
    text = b"securevfl paillier modulus v2" + width.to_bytes(4, "little") + n.to_bytes(width, "little")
    digest = hashlib.shake_256(text + purpose + number.to_bytes(4, "big")).digest(width + 16)
    return int.from_bytes(digest, "little") % n


@lru_cache(maxsize=4)
def _find_base(n: int) -> int:
    """h_s = (−x²)^n modulo n², x a hash of n."""
    x = _hash_message(n, b"base", 0)
    return pow(-x * x % n, n, n * n)


def _find_jacobi_symbol(a: int, n: int) -> int:
    """The Jacobi symbol by reciprocity."""
    a, sign = a % n, 1
    while a:
        while a % 2 == 0:
            a //= 2
            sign = -sign if n % 8 in (3, 5) else sign
        a, n = n, a
        sign = -sign if a % 4 == n % 4 == 3 else sign
        a %= n
    return sign if n == 1 else 0


def _read_factors(fields: Fields) -> tuple[int, int, int]:
    p, q = int(fields["p"], 16), int(fields["q"], 16)
    return p, q, p * q


def _decrypt_number(fields: Fields, c: int) -> int:
    """L(c^λ) / λ modulo n with λ = (p − 1)(q − 1), as a signed number (Paillier 1999)."""
    p, q, n = _read_factors(fields)
    phi = (p - 1) * (q - 1)
    m = (pow(c, phi, n * n) - 1) // n * pow(phi, -1, n) % n
    return m - n if m > n // 2 else m


def _encrypt_number(n: int, m: int, alpha: int) -> int:
    return (1 + n * (m % n)) * pow(_find_base(n), alpha, n * n) % (n * n)


def _read_key(group: Fields, test: Fields) -> dict[str, Any]:
    p, q, n = _read_factors(test)
    require(p % 4 == q % 4 == 3, "a factor is not 3 modulo 4")
    require(gcd(n, (p - 1) * (q - 1)) == 1, "the modulus and its totient share a factor")
    return {"n": f"{n:x}", "hs": f"{_find_base(n):x}"}


def _seal_numbers(group: Fields, test: Fields) -> dict[str, Any]:
    n = _read_factors(group)[2]
    c = _encrypt_number(n, int(test["m"]), int(test["alpha"], 16))
    return {"ciphertext": f"{c:x}", "decrypted": str(_decrypt_number(group, c))}


def _seal_classically(group: Fields, test: Fields) -> dict[str, Any]:
    n = _read_factors(group)[2]
    c = (1 + n * (int(test["m"]) % n)) * pow(int(test["r"], 16), n, n * n) % (n * n)
    return {"ciphertext": f"{c:x}", "decrypted": str(_decrypt_number(group, c))}


def _power_product(bases: list[int], exponents: list[int], modulus: int) -> int:
    out = 1
    for base, exponent in zip(bases, exponents, strict=True):
        out = out * pow(base, exponent, modulus) % modulus
    return out


def _compute_product(group: Fields, test: Fields) -> dict[str, Any]:
    n = _read_factors(group)[2]
    return {"product": f"{_power_product([int(b, 16) for b in test['bases']], test['exponents'], n * n):x}"}


def _read_layout(fields: Fields) -> tuple[int, int, int]:
    """Bytes of a slot, rows and columns in one plaintext."""
    slot = -(-fields["slotBits"] // 8)
    room = (fields["roomBits"] - fields["slotBits"]) // (8 * slot) + 1
    columns, rows = fields["columnCount"], fields.get("rowCount", 1)
    most = min(rows, max(1, room // columns))
    each = min(range(1, most + 1), key=lambda k: k * fields.get("width", 1) + 8 * -(-rows // k))
    return slot, each, min(room, columns)


def _pack_numbers(values: list[list[int]], slot: int, each: int, group: int) -> list[int]:
    """Σ_k v_k 2^(8 k slot) over the slots of each plaintext, row by row, group by group."""
    columns = len(values[0])
    full = -(-columns // group) * group
    flat = [value for row in values for value in [*row, *[0] * (full - columns)]]
    flat += [0] * (-len(values) % each * full)
    parts = [flat[k : k + each * group] for k in range(0, len(flat), each * group)]
    return [sum(value << 8 * slot * k for k, value in enumerate(part)) for part in parts]


def _unpack_numbers(plain: int, slot: int, count: int) -> list[int]:
    """The signed numbers in `count` slots: a negative one has borrowed from the next."""
    out = []
    for _ in range(count):
        value = plain % (1 << 8 * slot)
        value -= 1 << 8 * slot if value >> (8 * slot - 1) else 0
        out.append(value)
        plain = (plain - value) >> 8 * slot
    return out


def _check_packing(group: Fields, test: Fields) -> dict[str, Any]:
    slot, each, columns = _read_layout(test)
    plain = _pack_numbers(test["values"], slot, each, columns)
    return {"slot": slot, "rowsEach": each, "columnsEach": columns, "plaintexts": [str(one) for one in plain]}


def _packed_product(group: Fields, test: Fields) -> dict[str, Any]:
    n = _read_factors(group)[2]
    slot, each, columns = _read_layout(group)
    plain = _pack_numbers(test["values"], slot, each, columns)
    sealed = [_encrypt_number(n, m, int(alpha, 16)) for m, alpha in zip(plain, group["alphas"], strict=True)]
    c = _power_product(sealed, test["weights"], n * n)
    product = _unpack_numbers(_decrypt_number(group, c), slot, columns)
    right = [
        sum(w * v for w, v in zip(test["weights"], column, strict=True)) for column in zip(*test["values"], strict=True)
    ]
    require(product == right, "the unpacked numbers are not the products")
    return {"ciphertext": f"{c:x}", "product": product}


def _draw_challenge(n: int, number: int) -> int:
    """The first hash of this number whose Jacobi symbol is 1."""
    attempt = 0
    while _find_jacobi_symbol(found := _hash_message(n, b"square %d" % number, attempt), n) != 1:
        attempt += 1
    return found


def _check_proof(group: Fields, test: Fields) -> dict[str, Any]:
    """Ten roots of degree n of hashes, and 128 square roots of a hash or of its negative."""
    n, proof = _read_factors(group)[2], bytearray(unhex(group["proof"]))
    if test["changed"] >= 0:
        proof[test["changed"]] ^= 1
    width = -(-n.bit_length() // 8)
    roots = [int.from_bytes(proof[k : k + width], "little") for k in range(0, len(proof), width)]
    valid = len(roots) == ROOTS + SQUARES and n % 4 == 1 and all(0 < one < n for one in roots)
    valid = valid and all(pow(one, n, n) == _hash_message(n, b"root", k) for k, one in enumerate(roots[:ROOTS]))
    for number, one in enumerate(roots[ROOTS:]):
        wanted = _draw_challenge(n, number)
        valid = valid and one * one % n in (wanted, n - wanted)
    return {"result": "valid" if valid else "invalid"}


def _multiply(group: Fields, test: Fields) -> dict[str, Any]:
    m = int(group["modulus"], 16) if "modulus" in group else int(group["root"], 16) ** 2
    a, b = int(test["a"], 16), int(test["b"], 16)
    return {"product": f"{a * b % m:x}", "power": f"{pow(a, (1 << 16) + 1, m):x}"}


COMPUTE = {
    "ModularProduct": _multiply,
    "PaillierKey": _read_key,
    "PaillierEncryption": _seal_numbers,
    "PaillierClassical": _seal_classically,
    "PowerProduct": _compute_product,
    "Packing": _check_packing,
    "PackedProduct": _packed_product,
    "ModulusProof": _check_proof,
}
