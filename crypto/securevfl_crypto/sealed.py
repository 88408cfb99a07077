"""The algebra of the sealed cut, without input or output: arrays in, arrays out.

Following BlindFL (Fu et al., SIGMOD 2022, arXiv 2206.07975) for one block of weights W = U + V between the key's
owner (the active party, share V) and the holder of features (a passive party, share U). Ciphertexts travel as uint8
arrays of shape (count, ciphertext_bytes), little-endian. Notation: ``[[m]]`` is an encryption of m under the
owner's key.

What hides what:

- the owner's messages are fresh encryptions;
- `SealedHolder.forward` adds masks that are uniform modulo n (they cancel over the holders), and so does
  `SealedHolder.input_gradient` (it takes them off again); `SealedHolder.weight_gradient` adds integers `sigma` bits
  wider than what they hide;
- all three multiply by a fresh encryption of zero whose exponent drowns what the owner knows of its own randomness: the
  owner knows α_j of each ciphertext it sent, and ``Σ_j α_j x_j`` would confirm a guess of x.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import gmpy2
import numpy as np
from gmpy2 import mpz

from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.integers import pack, uniform_masks, unpack
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.multiexp import many_bases, shared_tables
from securevfl_crypto.paillier import PaillierPrivateKey, PaillierPublicKey
from securevfl_crypto.ranges import SealedRange

__all__ = ["SealedHolder", "SealedOwner", "add_ciphertexts", "from_wire", "to_wire"]


def to_wire(ciphertexts: Sequence[mpz], key: PaillierPublicKey) -> np.ndarray:
    """Ciphertexts as uint8, (count, ciphertext_bytes)."""
    width = key.ciphertext_bytes
    raw = b"".join(int(c).to_bytes(width, "little") for c in ciphertexts)
    return np.frombuffer(raw, dtype=np.uint8).reshape(len(ciphertexts), width)


def from_wire(array: np.ndarray, key: PaillierPublicKey, count: int) -> list[mpz]:
    """The `count` ciphertexts of a uint8 array.

    Raises:
        MalformedError: another type, shape or count; or a number that is no unit modulo n².
    """
    width = key.ciphertext_bytes
    if array.dtype != np.uint8 or array.shape != (count, width):
        raise MalformedError(f"ciphertexts as {array.dtype} {array.shape}; uint8 {(count, width)} was expected")
    raw = array.tobytes()
    values = [mpz(int.from_bytes(raw[i : i + width], "little")) for i in range(0, len(raw), width)]
    product = mpz(1)
    for value in values:
        if not 0 < value < key.n2:
            raise MalformedError(f"a ciphertext of {value.bit_length()} bits is not between 1 and n²")
        product = product * value % key.n
    if gmpy2.gcd(product, key.n) != 1:
        raise MalformedError("a ciphertext shares a factor with the modulus: it is no encryption")
    return values


def add_ciphertexts(arrays: Sequence[np.ndarray], key: PaillierPublicKey, count: int) -> list[mpz]:
    """Ciphertexts of the sums of the plaintexts, one of each array."""
    totals = [mpz(1)] * count
    for array in arrays:
        totals = [total * c % key.n2 for total, c in zip(totals, from_wire(array, key, count), strict=True)]
    return totals


def _shape(array: np.ndarray, shape: tuple[int, ...], what: str) -> None:
    if array.shape != shape:
        raise MalformedError(f"{what} has shape {array.shape}; {shape} was expected")


def _rows(array: np.ndarray, columns: int, most: int, what: str) -> int:
    """How many rows a batch has, once its shape is known to be (1 … most, columns)."""
    if array.ndim != 2 or array.shape[1] != columns:
        raise MalformedError(f"{what} has shape {array.shape}; (rows, {columns}) was expected")
    _count(len(array), most)
    return len(array)


def _count(rows: int, most: int) -> None:
    if not 1 <= rows <= most:
        raise MalformedError(f"a batch of {rows} rows; 1 to {most} were planned")


def _within(array: np.ndarray, bits: int, what: str) -> None:
    largest = max((abs(int(value)) for value in array.flat), default=0)
    if largest >> bits:
        raise OverflowRefused(
            f"{what} reaches {largest.bit_length()} bits; {bits} fit: lower the learning rates or the clip"
        )


class SealedOwner:
    """The key owner's half, for one holder.

    Args:
        key: its private key.
        ranges: what was agreed with the holder.
    """

    def __init__(self, key: PaillierPrivateKey, ranges: SealedRange) -> None:
        self._key = key
        self._public = key.public
        self.ranges = ranges
        bits = key.public.bits
        self._forward, self._backward = ranges.forward(bits), ranges.backward(bits)

    def seal_weights(self, share: np.ndarray) -> np.ndarray:
        """``[[V]]``: each row of V (d, h), packed by groups of columns, at each of the `per` places of a plaintext."""
        layout, (d, h) = self._forward, (self.ranges.width_in, self.ranges.width_out)
        _shape(share, (d, h), "the share V")
        sealed = []
        for place in range(layout.per):
            for row in share:
                for start in range(0, h, layout.group):
                    packed = pack(row[start : start + layout.group], layout.slot)
                    sealed.append(self._key.encrypt(packed << (place * h * layout.slot)))
        return to_wire(sealed, self._public)

    def open_forward(self, arrays: Sequence[np.ndarray], rows: int) -> np.ndarray:
        """z (rows, h), an object array, from one array of each holder: added up first, decrypted once.

        Raises:
            OverflowRefused: |z| reaches a quarter of the range: the weights have grown beyond what was planned.
        """
        layout, h = self._forward, self.ranges.width_out
        if not arrays:
            raise MalformedError("z from no party at all; at least one has to send its part")
        plain = [self._key.decrypt(c) for c in add_ciphertexts(arrays, self._public, layout.plaintexts(rows))]
        z = np.empty((rows, h), dtype=object)
        for block in range(-(-rows // layout.per)):
            first = block * layout.per
            count = min(layout.per, rows - first)
            if layout.groups == 1:
                z[first : first + count] = np.array(unpack(plain[block], layout.slot, count * h), dtype=object).reshape(
                    count, h
                )
                continue
            for group in range(layout.groups):
                start = group * layout.group
                stop = min(start + layout.group, h)
                z[first, start:stop] = unpack(plain[block * layout.groups + group], layout.slot, stop - start)
        _within(z, layout.slot - 3, "z")
        return z

    def seal_gradient(self, step: np.ndarray) -> np.ndarray:
        """``[[S]]``: each row of S (rows, h), packed by groups of columns."""
        layout, h = self._backward, self.ranges.width_out
        _rows(step, h, self.ranges.batch, "the step S")
        _within(step, self.ranges.s_bits, "the step S")
        groups = range(0, h, layout.group)
        packed = [pack(row[i : i + layout.group], layout.slot) for row in step for i in groups]
        return to_wire([self._key.encrypt(m) for m in packed], self._public)

    def open_weight_gradient(self, array: np.ndarray) -> np.ndarray:
        """``xᵀS − Φ`` (d, h), an object array: the owner's part of the gradient."""
        layout, (d, h) = self._backward, (self.ranges.width_in, self.ranges.width_out)
        ciphertexts = from_wire(array, self._public, d * layout.groups)
        rows = np.empty((d, h), dtype=object)
        for i, c in enumerate(ciphertexts):
            row, group = divmod(i, layout.groups)
            start = group * layout.group
            stop = min(start + layout.group, h)
            rows[row, start:stop] = unpack(self._key.decrypt(c), layout.slot, stop - start)
        return rows

    def seal_gradient_by_sample(self, step: np.ndarray) -> np.ndarray:
        """``[[S]]`` packed along the batch: block by block of rows, each column one plaintext."""
        layout = self.ranges.by_sample(self._public.bits)
        rows = _rows(step, self.ranges.width_out, self.ranges.batch, "the step S")
        _within(step, self.ranges.s_bits, "the step S")
        sealed = []
        for start in range(0, rows, layout.group):
            block = step[start : start + layout.group]
            sealed += [self._key.encrypt(pack(block[:, k], layout.slot)) for k in range(self.ranges.width_out)]
        return to_wire(sealed, self._public)

    def open_input_gradient(self, array: np.ndarray, step: np.ndarray, share: np.ndarray) -> np.ndarray:
        """``S Uᵀ + M + S Vᵀ`` modulo n, packed along the batch, for the holder, who knows M.

        Returns:
            uint8, (blocks · d, plaintext_bytes): uniform modulo n to the owner, whatever U is.
        """
        layout, d, h = self.ranges.by_sample(self._public.bits), self.ranges.width_in, self.ranges.width_out
        rows = _rows(step, h, self.ranges.batch, "the step S")
        _shape(share, (d, h), "the share V")
        blocks = -(-rows // layout.group)
        ciphertexts = from_wire(array, self._public, blocks * d)
        width, out = self._public.plaintext_bytes, []
        for block in range(blocks):
            part = step[block * layout.group : (block + 1) * layout.group]
            columns = [pack(part[:, k], layout.slot) for k in range(h)]
            for j in range(d):
                own = sum(column * int(v) for column, v in zip(columns, share[j], strict=True))
                total = (self._key.decrypt(ciphertexts[block * d + j]) + own) % self._public.n
                out.append(int(total).to_bytes(width, "little"))
        return np.frombuffer(b"".join(out), dtype=np.uint8).reshape(blocks * d, width)


class SealedHolder:
    """The feature holder's half.

    Args:
        key: the owner's public key.
        ranges: what was agreed with the owner.
        zero: this holder's shares of zero with the other holders; falsy if there is no other.
    """

    def __init__(self, key: PaillierPublicKey, ranges: SealedRange, zero: ZeroShares) -> None:
        self._key = key
        self.ranges = ranges
        self._zero = zero
        self._forward, self._backward = ranges.forward(key.bits), ranges.backward(key.bits)

    def fresh_share(self) -> np.ndarray:
        """A share (d, h) uniform over ± 2^share_bits, which hides a weight to 2^-sigma."""
        return uniform_masks((self.ranges.width_in, self.ranges.width_out), self.ranges.share_bits)

    def forward(self, sealed: np.ndarray, x: np.ndarray, share: np.ndarray) -> np.ndarray:
        """``[[x (V + U) + Z]]``, re-randomised, for x (rows, d) int64 and U (d, h)."""
        layout, d, h = self._forward, self.ranges.width_in, self.ranges.width_out
        _shape(x, (len(x), d), "the activations")
        _shape(share, (d, h), "the share U")
        _within(x, self.ranges.x_bits, "an activation")
        weights = from_wire(sealed, self._key, layout.per * d * layout.groups)
        own = x.astype(object) @ share
        rows, out = len(x), []
        blocks = -(-rows // layout.per)
        padded = np.zeros((blocks * layout.per, d), dtype=np.int64)
        padded[:rows] = x
        wide = padded.reshape(blocks, layout.per * d)
        products = [
            shared_tables(weights[group :: layout.groups], wide, self._key.n2) for group in range(layout.groups)
        ]
        masks = self._zero.next(blocks * layout.groups, self._key.n)
        extra = _drown(self.ranges.x_bits, layout.per * d, self.ranges.sigma)
        for block in range(blocks):
            mine = own[block * layout.per : (block + 1) * layout.per]
            for group in range(layout.groups):
                start = group * layout.group
                plain = pack(mine[:, start : start + layout.group].ravel(), layout.slot)
                plain += masks[block * layout.groups + group]
                out.append(self._blinded(products[group][block], plain, extra))
        return to_wire(out, self._key)

    def weight_gradient(self, sealed: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(``[[xᵀS − Φ]]`` re-randomised, Φ): Φ (d, h) is the holder's part of the gradient."""
        layout, d, h = self._backward, self.ranges.width_in, self.ranges.width_out
        _rows(x, d, self.ranges.batch, "the activations")
        _within(x, self.ranges.x_bits, "an activation")  # Φ and the blinding are as wide as this bound demands
        steps = from_wire(sealed, self._key, len(x) * layout.groups)
        phi = uniform_masks((d, h), self.ranges.phi_bits)
        extra = _drown(self.ranges.x_bits, len(x), self.ranges.sigma)
        out = [mpz(0)] * (d * layout.groups)
        for group in range(layout.groups):
            start = group * layout.group
            products = many_bases(steps[group :: layout.groups], np.ascontiguousarray(x.T), self._key.n2)
            for row, product in enumerate(products):
                plain = -pack(phi[row, start : start + layout.group], layout.slot)
                out[row * layout.groups + group] = self._blinded(product, plain, extra)
        return to_wire(out, self._key), phi

    def input_gradient(self, sealed: np.ndarray, share: np.ndarray, rows: int) -> tuple[np.ndarray, list[mpz]]:
        """(``[[S Uᵀ + M]]`` re-randomised, M): M, uniform modulo n, is for `unmask_input_gradient`, once."""
        layout, d, h = self.ranges.by_sample(self._key.bits), self.ranges.width_in, self.ranges.width_out
        _count(rows, self.ranges.batch)
        _shape(share, (d, h), "the share U")
        _within(share, self.ranges.share_bits + 1, "the share U")  # the blinding is as wide as it demands
        blocks = -(-rows // layout.group)
        steps = from_wire(sealed, self._key, blocks * h)
        masks = [mpz(secrets.randbelow(int(self._key.n))) for _ in range(blocks * d)]
        extra = _drown(self.ranges.share_bits + 1, h, self.ranges.sigma)
        out = []
        for block in range(blocks):
            products = shared_tables(steps[block * h : (block + 1) * h], share, self._key.n2)
            part = masks[block * d : (block + 1) * d]
            out += [self._blinded(product, mask, extra) for product, mask in zip(products, part, strict=True)]
        return to_wire(out, self._key), masks

    def unmask_input_gradient(self, masked: np.ndarray, masks: list[mpz], rows: int) -> np.ndarray:
        """``S Wᵀ`` (rows, d), an object array, from what the owner returned.

        Raises:
            MalformedError: another type or shape, or a number that is not below n.
            OverflowRefused: a value reaches a quarter of its range: the weights have grown beyond what was planned.
        """
        layout, d, n = self.ranges.by_sample(self._key.bits), self.ranges.width_in, self._key.n
        _count(rows, self.ranges.batch)
        width, blocks = self._key.plaintext_bytes, -(-rows // layout.group)
        _shape(masked, (blocks * d, width), "the masked gradient")
        if masked.dtype != np.uint8 or len(masks) != blocks * d:
            raise MalformedError(f"a masked gradient of {masked.dtype} for {len(masks)} masks; uint8 was expected")
        raw, result = masked.tobytes(), np.empty((rows, d), dtype=object)
        for i, mask in enumerate(masks):
            value = mpz(int.from_bytes(raw[i * width : (i + 1) * width], "little"))
            if value >= n:
                raise MalformedError(f"a masked gradient of {value.bit_length()} bits is not below the modulus n")
            plain = (value - mask) % n
            block, column = divmod(i, d)
            first = block * layout.group
            count = min(layout.group, rows - first)
            slots = unpack(plain - n if plain > n // 2 else plain, layout.slot, count)
            result[first : first + count, column] = slots
        _within(result, layout.slot - 2, "the gradient at the activations")
        return result

    def _blinded(self, product: mpz, plain: mpz, extra_bits: int) -> mpz:
        """A product of ciphertexts plus a plaintext, times a fresh encryption of zero that drowns the product's
        randomness."""
        key = self._key
        return product * key.raw(plain) % key.n2 * key.blinding(extra_bits) % key.n2


def _drown(bits: int, terms: int, sigma: int) -> int:
    """Bits that the blinding exponent needs beyond the owner's own: log₂ of the sum of magnitudes, and sigma."""
    return bits + terms.bit_length() + sigma
