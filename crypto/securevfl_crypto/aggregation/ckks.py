"""Exact sums of vectors under CKKS, with integers in the coefficients of ring elements.

Cheon, Kim, Kim and Song, "Homomorphic encryption for arithmetic of approximate numbers" (Asiacrypt 2017), section 3: a
ciphertext (c0, c1) of m has c0 + c1 s = Δ m + e modulo q. Nothing is multiplied here, so values stay integers, one for
each coefficient, and need no floating-point slots. Δ is four times the largest noise of all parties' encryptions
together, so rounding removes the noise completely. The opened values therefore reveal nothing about it, unlike
ordinary CKKS decryptions, which leak it to anyone who has the ciphertext (Li and Micciancio, Eurocrypt 2021).

Masks are uniform modulo q and added to c0. They sum to zero modulo q and cost no precision. Of c0 only the
coefficients that carry values are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import gmpy2
import numpy as np

from securevfl_crypto.aggregation.base import Addends, Aggregation, Aggregator
from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.rlwe.keys import RlwePublicKey, RlweSecretKey, generate_keys, read_public
from securevfl_crypto.rlwe.parameters import DEGREE, Chain
from securevfl_crypto.rlwe.residues import read_residues, write_residues
from securevfl_crypto.rlwe.sampling import sample_binomial, sample_ternary
from securevfl_crypto.rlwe.seal import seal_context
from securevfl_crypto.scheme import PublicKey, SecretKey

__all__ = ["CkksAggregation", "CkksAggregator"]

_NUMBER = 0xA0
"""The scheme number in keys of this aggregation."""
_CHAIN = Chain(kept=(60, 60), dropped=20)
_NOISE_BITS = 13
"""One encryption's noise is below 2^13: at most N/2 + 1 from rounding as the small prime is divided out (c1 is off by
up to ½, times a ternary secret), and at most 1 of what was there before, 2 N · 22 by the worst case (`rlwe.noise`)."""


@dataclass(frozen=True)
class CkksAggregation(Aggregation):
    """Aggregation under CKKS, in a ring of degree 8192 with 128 bits of security."""

    name: ClassVar[str] = "ckks"

    def generate_key(self) -> RlweSecretKey:
        """A fresh key pair."""
        return generate_keys(_NUMBER, (_CHAIN,))

    def read_public(self, data: bytes) -> RlwePublicKey:
        """See `KeyScheme.read_public`."""
        return read_public(data, _NUMBER, (_CHAIN,))

    def create_aggregator(self, key: PublicKey, addends: Addends) -> CkksAggregator:
        """See `Aggregation.create_aggregator`."""
        if not isinstance(key, RlwePublicKey) or (key.scheme, key.chains) != (_NUMBER, (_CHAIN,)):
            raise MalformedError(f"the key is a {type(key).__name__}; expected one of this aggregation under CKKS")
        return CkksAggregator(key, addends)


class CkksAggregator(Aggregator):
    """See `Aggregator` and the module."""

    key: RlwePublicKey

    def __init__(self, key: RlwePublicKey, addends: Addends) -> None:
        super().__init__(key, addends)
        self._context = seal_context(_CHAIN)
        self._basis = self._context.kept
        self._widths = _CHAIN.widths[: len(_CHAIN.kept)]
        self._shift = _NOISE_BITS + 2 + (addends.parties - 1).bit_length()  # log₂ Δ
        need, room = addends.sum_bits + 1 + self._shift, self._basis.modulus.bit_length() - 1
        if need > room:
            raise OverflowRefused(
                f"a sum of vectors needs {need} bits, room for the noise included, and q has {room}: use fewer parties "
                "or bits, or Paillier"
            )

    @property
    def _counts(self) -> list[int]:
        """The number of values in each ciphertext of a message."""
        count = self.addends.count
        return [min(DEGREE, count - start) for start in range(0, count, DEGREE)]

    @property
    def body_bytes(self) -> int:
        """Bytes of a message without its header: c0 where it carries values, and all of c1."""
        return sum(count + DEGREE for count in self._counts) * sum(self._widths)

    def _seal(self, values: np.ndarray, zero: ZeroShares) -> bytes:
        masks = zero.draw_shares(len(values), gmpy2.mpz(self._basis.modulus))
        carried = (values.astype(object) << self._shift) + np.array([int(mask) for mask in masks], dtype=object)
        parts, start = [], 0
        for count in self._counts:
            c0, c1 = self._encrypt_zero()
            c0 = self._basis.add(c0[:, :count], self._basis.to_residues(carried[start : start + count]))
            parts += [write_residues(c0, self._widths), write_residues(c1, self._widths)]
            start += count
        return b"".join(parts)

    def _encrypt_zero(self) -> np.ndarray:
        """A fresh encryption of zero under the public key, modulo q, residues (2, primes, N).

        Lyubashevsky, Peikert and Regev (Eurocrypt 2010): the public key times a fresh ternary polynomial, plus fresh
        noise on both halves; then the small prime is divided out.
        """
        own = self._context
        fresh = own.sum_products([self.key.blinders[0]], [own.make_plaintext(sample_ternary())])
        noise = np.stack([own.data.to_residues(sample_binomial()), own.data.to_residues(sample_binomial())])
        own.evaluator.add_inplace(fresh, own.make_ciphertext(noise))
        own.evaluator.mod_switch_to_next_inplace(fresh)
        return own.read_ciphertext(fresh)

    def _add(self, bodies: Sequence[memoryview]) -> bytes:
        totals = self._load_ciphertexts(bodies[0])
        for body in bodies[1:]:
            totals = [self._basis.add(a, b) for a, b in zip(totals, self._load_ciphertexts(body), strict=True)]
        return b"".join(write_residues(total, self._widths) for total in totals)

    def _open(self, body: memoryview, key: SecretKey) -> np.ndarray:
        return self._round_phases(self._phases(body, key))

    def _phases(self, body: memoryview, key: SecretKey) -> np.ndarray:
        """c0 + c1 s modulo q, an object array: Δ m + e, plus the masks unless they cancel."""
        if not isinstance(key, RlweSecretKey):
            raise MalformedError(f"the key is a {type(key).__name__}; expected an RlweSecretKey")
        own, loaded, found = self._context, self._load_ciphertexts(body), []
        for c0, c1 in zip(loaded[::2], loaded[1::2], strict=True):
            lifted = own.make_ciphertext(np.stack([c1, c1]))
            own.evaluator.transform_to_ntt_inplace(lifted)
            product = own.sum_products([lifted], [key.openers[0]])
            found.append(
                self._basis.to_integers(self._basis.add(c0, own.read_ciphertext(product)[0][:, : c0.shape[1]]))
            )
        return np.concatenate(found)

    def _round_phases(self, carried: np.ndarray) -> np.ndarray:
        """m from Δ m + e, given modulo q.

        Raises:
            OverflowRefused: the noise is larger than this many encryptions can have.
        """
        modulus, half = self._basis.modulus, 1 << (self._shift - 1)
        signed = np.where(carried > modulus // 2, carried - modulus, carried)
        values = (signed + half) >> self._shift
        noise = signed - (values << self._shift)
        largest = max(abs(int(noise.max())), abs(int(noise.min())))
        if largest >= self.addends.parties << _NOISE_BITS:
            raise OverflowRefused(
                f"the noise is {largest}; {self.addends.parties} encryptions have less than "
                f"{self.addends.parties << _NOISE_BITS}: a party's masks do not cancel; all must seal equally often"
            )
        return np.asarray(values)

    def _load_ciphertexts(self, body: memoryview) -> list[np.ndarray]:
        """Read c0 and c1 of each ciphertext, residues (primes, …).

        Raises:
            MalformedError: a residue is out of range, or a c1 is zero, so that c0 is the plaintext.
        """
        found, start, size = [], 0, sum(self._widths)
        for count in self._counts:
            for width in (count, DEGREE):
                stop = start + width * size
                found.append(read_residues(body[start:stop], self._basis.primes, self._widths, width))
                start = stop
            if not found[-1].any():
                raise MalformedError("the second half of a ciphertext is zero: its content is in the clear")
        return found
