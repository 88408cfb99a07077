"""Arithmetic modulo one number on the kernels of `engine.compiled_long`, four or eight numbers side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gmpy2 import mpz

from securevfl_crypto.modular.base import Batch, FixedBase
from securevfl_crypto.modular.buckets import power_products
from securevfl_crypto.modular.checks import checked_exponents, checked_groups, checked_part, checked_power
from securevfl_crypto.modular.groups import group_products
from securevfl_crypto.modular.inverses import modular_inverses
from securevfl_crypto.modular.lanes import LaneBatch, Lanes, allocate_aligned, word_address
from securevfl_crypto.modular.tables import VectorFixedBase

__all__ = ["VectorModulus"]


class VectorModulus(Lanes):
    """Arithmetic modulo m on compiled kernels. See `Modulus` and `Lanes`."""

    def invert(self, batch: Batch) -> LaneBatch:
        """See `Modulus.invert`."""
        if not len(batch):
            return self.make_batch(self.allocate_blocks(0), 0)
        first = allocate_aligned(*self.blocks_of(batch).shape)
        first[:] = self.blocks_of(batch)
        used = len(batch) - (len(first) - 1) * self.lanes
        first[-1, :, used:] = self.one[0, :, used:]
        levels = [first]
        while len(levels[-1]) > 1:
            here = levels[-1]
            half = len(here) // 2
            above = allocate_aligned(len(here) - half, self.step, self.lanes)
            self.multiply_blocks(here[:half], here[half : 2 * half], above[:half])
            above[half:] = here[2 * half :]
            levels.append(above)
        top = self.make_batch(levels.pop(), self.lanes)
        found = self.from_ints(modular_inverses(self.to_ints(top), self.m)).data
        for here in reversed(levels):
            half = len(here) // 2
            below = allocate_aligned(*here.shape)
            self.multiply_blocks(found[:half], here[half : 2 * half], below[:half])
            self.multiply_blocks(found[:half], here[:half], below[half : 2 * half])
            below[2 * half :] = found[half:]
            found = below
        return self.make_batch(found, len(batch))

    def power(self, batch: Batch, exponent: int | mpz) -> LaneBatch:
        """See `Modulus.power`."""
        data, e = self.blocks_of(batch), checked_power(exponent)
        out = allocate_aligned(*data.shape)
        if not e:
            out[:] = self.one
            return self.make_batch(out, len(batch))
        length = e.bit_length()
        window = min(range(2, 7), key=lambda w: (1 << w) + -(-length // w) * (1 + (1 << w) / 64))
        count = -(-length // window)
        mask = (1 << window) - 1
        digits = np.array([int(e >> (window * k)) & mask for k in range(count - 1, -1, -1)], dtype=np.uint64)
        size = self.step * self.lanes

        def arguments(first: int) -> Sequence[int]:
            return (
                word_address(out, first * size),
                word_address(data, first * size),
                word_address(self.one),
                word_address(digits),
                count,
                window,
            )

        self.run_kernel("power", len(data), count * (window + 1), arguments, (1 << window) + 1)
        return self.make_batch(out, len(batch))

    def fixed_base(self, base: int | mpz, bits: int, *, scan: bool = False, window: int | None = None) -> FixedBase:
        """See `Modulus.fixed_base`."""
        return VectorFixedBase.of_base(self, mpz(base) % self.m, bits, scan=scan, window=window)

    def subset_products(self, numbers: Batch, *, window: int | None = None) -> FixedBase:
        """See `Modulus.subset_products`."""
        return VectorFixedBase(self, numbers, window=window)

    def group_products(self, batch: Batch, groups: np.ndarray, count: int) -> LaneBatch:
        """See `Modulus.group_products`."""
        return group_products(self, batch, checked_groups(groups, len(batch), count), count)

    def horner(self, batch: Batch, parts: int, bits: int) -> LaneBatch:
        """See `Modulus.horner`."""
        each, rows = checked_part(len(batch), parts, bits), self.rows_of(batch)
        out = self.from_rows(rows[(parts - 1) * each :])
        for part in range(parts - 2, -1, -1):
            self.square_blocks(out.data, bits)
            out = self.mul(out, self.from_rows(rows[part * each : (part + 1) * each]))
        return out

    def power_products(self, bases: Batch, exponents: np.ndarray) -> Batch:
        """See `Modulus.power_products`."""
        return power_products(self, bases, checked_exponents(exponents, len(bases)))
