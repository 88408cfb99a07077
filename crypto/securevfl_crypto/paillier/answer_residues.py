"""Uniform n-th residues from few of them: what a holder blinds its answers to the owner of a key with.

An owner knows the factors of n, and chooses them. If p − 1 and q − 1 have small prime factors only, it computes
logarithms of n-th residues, and n passes every check of a key; it can also try moduli until h = −x² is an r-th power
modulo p. An answer is a product of the owner's ciphertexts with the holder's secret integers as exponents. Blinded by a
power of h_s, it shows those integers modulo r in the second case, and in the first case the exponent of h_s: all of
them, if the owner's own exponents are longer than the holder's. Blinded by a *uniform* n-th residue it shows its
plaintext and nothing else, whatever the owner sent.

rⁿ for a uniform unit r is uniform, and costs a power with as many bits as n. A holder therefore computes `BASES`
residues ``g_j = r_jⁿ`` once for each key, and blinds with ``Π_j g_j^{e_j}`` for fresh exponents that together have
`SLACK` bits more than n.

Why these are uniform (leftover hash lemma; Impagliazzo, Levin, Luby, STOC 1989). R, the group of n-th residues, has
fewer than 2^|n| elements, and is a product of two cyclic groups because n has two prime factors (`modulus_proof`).
Let e and e' be two independent draws, and d the largest common divisor of all ``e_j − e'_j``. If they differ, then
``Π_j g_j^(e_j − e'_j)`` is uniform among the d-th powers in R, at most d² times fewer than R has. So the chance that
both draws give the same residue is at most ``2^−(|n| + SLACK) + (1 + Σ_d d² Pr[d divides all])/|R|``; d = 2 divides all
with probability 2^−BASES, others less often still. By the lemma the residue of one draw has a statistical distance from
uniform of at most ``½ √(2^−SLACK + 5 · 2^−BASES)`` < 2⁻⁶⁴, on average over the g_j, even for who knows them.
"""

from __future__ import annotations

import numpy as np
from gmpy2 import mpz

from securevfl_crypto.errors import MalformedError
from securevfl_crypto.modular import Batch, FixedBase, Modulus

__all__ = ["BASES", "SLACK", "residue_products"]

BASES = 132
"""Residues g_j; half as many as bits of 2^−64, and two for the factor d² at d = 2."""
SLACK = 128
"""Bits of all exponents together, beyond those of n."""


def residue_products(modulus: Modulus, n: mpz, units: list[mpz]) -> FixedBase:
    """Prepare products of powers of the n-th powers of these units.

    Bit i of an exponent belongs to residue i modulo their number, and to its power 2^(i div their number).

    Args:
        modulus: arithmetic modulo n².
        n: the public key's modulus.
        units: `BASES` uniform units modulo n.

    Raises:
        MalformedError: fewer units, whose products are not uniform.
    """
    if len(units) < BASES:
        raise MalformedError(f"{len(units)} units for blindings; {BASES} are needed")
    bits = -(-(n.bit_length() + SLACK) // 8) * 8
    level = modulus.power(modulus.from_ints(units), n)
    levels: list[Batch] = [level]
    while sum(map(len, levels)) < bits:
        level = modulus.mul(level, level)
        levels.append(level)
    numbers = modulus.concat(levels)
    return modulus.subset_products(modulus.take(numbers, np.arange(bits)))
