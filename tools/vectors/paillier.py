"""Paillier with a fixed key that is far too small to be safe: encryption with given randomness, packing, products."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpz
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.modular import Modulus, modular_arithmetic
from securevfl_crypto.paillier import PaillierPrivateKey, PaillierPublicKey
from securevfl_crypto.paillier.modulus_proof import derive_base, prove_modulus, verify_modulus
from securevfl_crypto.paillier.packing import Packing

from vectors.forms import Case, Compute, Group, pseudo_random

__all__ = ["COMPUTE", "groups"]

Fields = Mapping[str, Any]
_ALPHA = 32
"""Bytes of the randomness: half of those of n."""


@lru_cache(maxsize=2)
def _find_prime(label: str) -> mpz:
    """The first prime of 256 bits that is 3 modulo 4 and has its two top bits set, from a label on."""
    found = mpz(int.from_bytes(pseudo_random(label, 32), "little")) | (mpz(3) << 254) | 3
    while not gmpy2.is_prime(found, 40):
        found += 4
    return found


def _key_fields() -> Case:
    p, q = _find_prime("paillier p"), _find_prime("paillier q")
    return {"p": f"{p:x}", "q": f"{q:x}", "n": f"{p * q:x}"}


def groups() -> list[Group]:
    """The groups of ``paillier.json``."""
    key = _key_fields()
    n = int(key["n"], 16)
    source = "made for this file; a key of 512 bits"
    plain = [0, 1, -1, n // 2, -(n // 2), 123456789, -(1 << 40)]
    randoms = [1, 2**256 - 1, *(int.from_bytes(pseudo_random(f"alpha {k}", 32), "little") for k in range(5))]
    bases = [f"{int.from_bytes(pseudo_random(f'base {k}', 128), 'little') % (n * n):x}" for k in range(3)]
    exponents = [[1, 0, 0], [-1, 2, 3], [(1 << 40) - 1, -(1 << 40), 7], [0, 0, 0]]
    values = [[1, -1, 127], [-128, 0, 5], [100, -100, 1], [7, 7, 7]]
    layouts = [
        {"slotBits": 16, "columnCount": 3, "roomBits": 480, "rowCount": 4, "width": 2},
        {"slotBits": 16, "columnCount": 3, "roomBits": 40, "rowCount": 4, "width": 1},
        {"slotBits": 70, "columnCount": 3, "roomBits": 300, "rowCount": 4, "width": 1},
    ]
    return [
        Group("PaillierKey", source, [{"comment": "modulus and base", **key}]),
        Group(
            "PaillierEncryption",
            source,
            [
                {"comment": "short randomness", "m": str(m), "alpha": f"{alpha:064x}"}
                for m, alpha in zip(plain, randoms, strict=True)
            ],
            key,
        ),
        Group(
            "PaillierClassical",
            source,
            [{"comment": "randomness r^n", "m": "-7", "r": f"{int.from_bytes(pseudo_random('r', 60), 'little'):x}"}],
            key,
        ),
        Group(
            "PowerProduct",
            source,
            [{"comment": "signed exponents", "bases": bases, "exponents": row} for row in exponents],
            key,
        ),
        Group("Packing", source, [{"comment": "a matrix", **one, "values": values} for one in layouts]),
        Group(
            "PackedProduct",
            source,
            [{"comment": "weights times an encrypted matrix", "values": values, "weights": [3, -2, 0, 1]}],
            {
                **key,
                "alphas": [f"{alpha:064x}" for alpha in randoms[:4]],
                "slotBits": 16,
                "columnCount": 3,
                "roomBits": 480,
            },
        ),
        Group(
            "ModulusProof",
            source,
            [{"comment": "a right proof", "changed": -1}]
            + [
                {"comment": "one bit changed", "flags": ["Invalid"], "changed": place, "result": "invalid"}
                for place in (0, 10 * 64, 138 * 64 - 64)
            ],
            {**key, "proof": prove_modulus(_find_prime("paillier p"), _find_prime("paillier q"))},
        ),
    ]


def _draw_numbers(fields: Fields) -> tuple[mpz, mpz, mpz]:
    return mpz(int(fields["p"], 16)), mpz(int(fields["q"], 16)), mpz(int(fields["n"], 16))


@lru_cache(maxsize=8)
def _read_key(p: mpz, q: mpz) -> PaillierPrivateKey:
    return PaillierPrivateKey(PaillierPublicKey(p * q, derive_base(p * q), unsafe_small_key=True), p, q)


def _private_key(fields: Fields) -> PaillierPrivateKey:
    return _read_key(*_draw_numbers(fields)[:2])


def _make_modulus(path: str, fields: Fields) -> Modulus:
    n = _draw_numbers(fields)[2]
    return modular_arithmetic(n * n, path, root=n)


def _encrypt_number(path: str, fields: Fields, plaintexts: list[int], alphas: list[str]) -> list[mpz]:
    """``(1 + n m) h_s^α mod n²`` on a path, as `PaillierPublicKey.encrypt_batch` computes it."""
    key, modulus = _private_key(fields).public, _make_modulus(path, fields)
    exponents = np.frombuffer(b"".join(bytes.fromhex(one)[::-1] for one in alphas), dtype=np.uint8)
    tables = [modulus.fixed_base(key.hs, 8 * _ALPHA, scan=scan) for scan in (False, True)]
    powers = [table.raise_to(exponents.reshape(-1, _ALPHA)) for table in tables]
    raw = modulus.from_ints([key.encode_plaintext(m) for m in plaintexts])
    found, other = (modulus.to_ints(modulus.mul(power, raw)) for power in powers)
    if found != other:
        raise AssertionError("tables that are read whole give other powers")
    return found


def _make_key(path: str, group: Fields, test: Fields) -> Case:
    return {"n": f"{mpz(int(test['p'], 16)) * mpz(int(test['q'], 16)):x}", "hs": f"{_private_key(test).public.hs:x}"}


def _seal_numbers(path: str, group: Fields, test: Fields) -> Case:
    (c,) = _encrypt_number(path, group, [int(test["m"])], [test["alpha"]])
    return {"ciphertext": f"{c:x}", "decrypted": str(_private_key(group).decrypt(c))}


def _seal_classically(path: str, group: Fields, test: Fields) -> Case:
    modulus, key = _make_modulus(path, group), _private_key(group)
    power = modulus.power(modulus.from_ints([mpz(int(test["r"], 16))]), key.public.n)
    raw = modulus.from_ints([key.public.encode_plaintext(int(test["m"]))])
    (c,) = modulus.to_ints(modulus.mul(power, raw))
    return {"ciphertext": f"{c:x}", "decrypted": str(key.decrypt(c))}


def _power_product(path: str, group: Fields, test: Fields) -> Case:
    modulus = _make_modulus(path, group)
    bases = modulus.from_ints([mpz(int(one, 16)) for one in test["bases"]])
    found = modulus.power_products(bases, np.array([test["exponents"]], dtype=np.int64))
    return {"product": f"{modulus.to_ints(found)[0]:x}"}


def _pack_numbers(path: str, group: Fields, test: Fields) -> Case:
    values = np.array(test["values"], dtype=np.int64)
    packing = Packing.plan(
        test["slotBits"], test["columnCount"], test["roomBits"], "x", rows=test["rowCount"], width=test["width"]
    )
    plain = packing.pack(values)
    if not np.array_equal(packing.unpack(plain, len(values)), values):
        raise AssertionError("unpacking gives other values")
    layout = {"slot": packing.slot, "rowsEach": packing.per, "columnsEach": packing.group}
    return {**layout, "plaintexts": [str(one) for one in plain]}


def _packed_product(path: str, group: Fields, test: Fields) -> Case:
    modulus, key = _make_modulus(path, group), _private_key(group)
    packing = Packing.plan(group["slotBits"], group["columnCount"], group["roomBits"], "x")
    plain = packing.pack(np.array(test["values"], dtype=np.int64))
    ciphertexts = _encrypt_number(path, group, [int(one) for one in plain], group["alphas"])
    weights = np.array([test["weights"]], dtype=np.int64)
    (found,) = modulus.to_ints(modulus.power_products(modulus.from_ints(ciphertexts), weights))
    opened = packing.unpack([key.decrypt(found)], 1)
    return {"ciphertext": f"{found:x}", "product": [int(one) for one in opened[0]]}


def _prove_modulus(path: str, group: Fields, test: Fields) -> Case:
    proof = bytearray(group["proof"] if isinstance(group["proof"], bytes) else bytes.fromhex(group["proof"]))
    if test["changed"] >= 0:
        proof[test["changed"]] ^= 1
    try:
        verify_modulus(_draw_numbers(group)[2], bytes(proof))
    except MalformedError:
        return {"result": "invalid"}
    return {"result": "valid"}


COMPUTE: dict[str, Compute] = {
    "PaillierKey": _make_key,
    "PaillierEncryption": _seal_numbers,
    "PaillierClassical": _seal_classically,
    "PowerProduct": _power_product,
    "Packing": _pack_numbers,
    "PackedProduct": _packed_product,
    "ModulusProof": _prove_modulus,
}
