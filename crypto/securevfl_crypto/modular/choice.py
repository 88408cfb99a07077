"""Chooses the implementation of `Modulus`: the fastest path that this machine can run and that passes its self-test."""

from __future__ import annotations

import secrets
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from gmpy2 import mpz

from securevfl_crypto.engine.cpu import PATHS, VECTOR_PATHS, VectorPath, check_cpu, forced_path
from securevfl_crypto.engine.paths import load_fastest
from securevfl_crypto.errors import EngineError, MalformedError
from securevfl_crypto.modular.base import Modulus
from securevfl_crypto.modular.checks import checked_modulus
from securevfl_crypto.modular.gmp import GmpModulus

if TYPE_CHECKING:  # the module imports the emitters
    from securevfl_crypto.engine.compiled_long import LongKernels

__all__ = ["agrees_with_gmp", "modular_arithmetic", "multiplies_right"]


def modular_arithmetic(
    m: int | mpz, path: str | None = None, *, secret: bool = False, root: int | mpz | None = None
) -> Modulus:
    """Arithmetic modulo m.

    Args:
        m: odd, from 1024 to 16384 bits.
        path: one of `engine.PATHS`. None: the path that ``SECUREVFL_ENGINE`` names, or the fastest. Paths without
            kernels, and ``neon``, compute with GMP.
        secret: whether m is secret: then only the caller keeps it. Otherwise equal calls return one object.
        root: the square root of m if the caller knows it; vector paths then compute 1.6 times as fast.

    Raises:
        EngineError: the requested path is unknown, cannot run here, or fails its self-test.
        MalformedError: m is even, too short or too long, or not the square of `root`.
    """
    name = path or forced_path()
    if name is not None and name not in PATHS:
        raise EngineError(f"unknown path {name!r}; expected one of {', '.join(PATHS)}")
    number, known = checked_modulus(m), None if root is None else mpz(root)
    if known is not None and (known < 0 or known**2 != number):
        raise MalformedError(
            f"the square of the root ({known.bit_length()} bits) is not the modulus ({number.bit_length()} bits); "
            "give the positive root, or None"
        )
    return (_make_modulus if secret else _cached_modulus)(number, name, known)


@lru_cache(maxsize=32)
def _cached_modulus(m: mpz, name: str | None, root: mpz | None) -> Modulus:
    return _make_modulus(m, name, root)


def _make_modulus(m: mpz, name: str | None, root: mpz | None) -> Modulus:
    if name is not None:
        vector = next((path for path in VECTOR_PATHS if path.name == name), None)
        return GmpModulus(m) if vector is None else _modulus_on_path(vector, m, root)
    found = load_fastest(lambda path: _modulus_on_path(path, m, root), stacklevel=3)
    return GmpModulus(m) if found is None else found


def _modulus_on_path(path: VectorPath, m: mpz, root: mpz | None) -> Modulus:
    check_cpu(path)
    if not path.has_long_numbers:
        return GmpModulus(m)
    from securevfl_crypto.engine.compiled_long import long_kernels
    from securevfl_crypto.modular.vector import VectorModulus

    kernels = long_kernels(path, squares=root is not None)
    _test_kernels(path, kernels, root is not None)
    found = VectorModulus(m, kernels, root)
    if not multiplies_right(found):
        raise EngineError(
            f"the path {path.name!r} gives wrong products modulo numbers of {m.bit_length()} bits on this machine; set "
            "SECUREVFL_ENGINE=cryptography and report it"
        )
    return found


@lru_cache(maxsize=16)
def _test_kernels(path: VectorPath, kernels: LongKernels, squares: bool) -> None:
    """Run `agrees_with_gmp` once for each set of kernels."""
    from securevfl_crypto.modular.vector import VectorModulus

    prime = (mpz(1) << 1279) - 1  # Mersenne's: all limbs are ones, and residues have inverses
    m, root = (prime**2, prime) if squares else (prime, None)
    if not agrees_with_gmp(VectorModulus(m, kernels, root)):
        raise EngineError(
            f"the path {path.name!r} gives wrong products on this machine; set SECUREVFL_ENGINE=cryptography and "
            "report it"
        )


def multiplies_right(candidate: Modulus) -> bool:
    """Whether products and a power modulo this very number are right, for extreme and random factors.

    `agrees_with_gmp` tries every operation, once for a set of kernels; the kernels' loops depend on the length of the
    modulus, and a mistake may show at some lengths alone.
    """
    m, width = candidate.m, candidate.width
    raw = secrets.token_bytes(4 * width)
    values = [m - 1, m - 2, (mpz(1) << m.bit_length() - 1) - 1, mpz(1)]
    values += [mpz(int.from_bytes(raw[k : k + width], "little")) % m for k in range(0, 4 * width, width)]
    batch, other = candidate.from_ints(values), candidate.from_ints(values[::-1])
    products = candidate.to_ints(candidate.mul(batch, other))
    powers = candidate.to_ints(candidate.power(batch, 5))
    return products == [a * b % m for a, b in zip(values, values[::-1], strict=True)] and powers == [
        pow(a, 5, m) for a in values
    ]


def agrees_with_gmp(candidate: Modulus) -> bool:
    """Whether every operation agrees with GMP on random and extreme numbers modulo a large prime or its square."""
    right = GmpModulus(candidate.m)
    raw = secrets.token_bytes(candidate.width * 13)
    values = [mpz(int.from_bytes(raw[i : i + candidate.width], "little")) for i in range(0, len(raw), candidate.width)]
    values = [*values, mpz(1), candidate.m - 1, mpz(2), candidate.m >> 1]
    exponents = np.frombuffer(secrets.token_bytes(8 * 9 * len(values)), dtype=np.int64).reshape(9, -1) >> 46
    tall = np.frombuffer(secrets.token_bytes(17 * 8), dtype=np.uint8).reshape(17, 8)
    secret = secrets.randbits(160)
    groups = np.frombuffer(secrets.token_bytes(len(values) * 24), dtype=np.int64).reshape(-1, 3) % 5 - 1

    def results(modulus: Modulus) -> list[list[mpz]]:
        batch = modulus.from_ints(values)
        out = [
            batch,
            modulus.mul(batch, batch),
            modulus.mul(batch, modulus.take(batch, np.array([5]))),
            modulus.invert(batch),
            modulus.power(batch, secret),
            modulus.power_products(batch, exponents),
            modulus.power_products(modulus.take(batch, np.array([0, 1])), exponents[:, :2]),
            *(modulus.fixed_base(values[0], 64, scan=scan).raise_to(tall) for scan in (False, True)),
            modulus.group_products(batch, groups, 4),
            modulus.horner(modulus.take(batch, np.arange(12)), 4, 27),
            modulus.load_bytes(modulus.store_bytes(batch)),
        ]
        return [modulus.to_ints(part) for part in out]

    return results(candidate) == results(right)
