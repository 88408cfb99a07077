"""Kernels that get secrets, with small input: what they are called with, and which of it is secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from securevfl_crypto.engine.compiled_long import long_part
from securevfl_crypto.engine.cpu import VectorPath
from securevfl_crypto.engine.limbs import limbs_for
from securevfl_crypto.engine.parts import symbol
from securevfl_crypto.engine.transforms.compiled import KERNEL_DEGREE

from emulated.contracts import array_sizes

__all__ = ["Job", "list_jobs"]

_MODULUS = 67
_WORD, _LIMB = (np.uint64, 1 << 64), (np.uint64, 1 << 20)
"""How secrets are drawn: their type, and a number that they are below."""
_OCTET, _FLAG, _RESIDUE, _FACTOR = ((np.uint8, below) for below in (256, 2, _MODULUS, _MODULUS - 1))
_Range = tuple[type, int]


@dataclass(frozen=True)
class Job:
    """One kernel.

    Attributes:
        part: the name of its part.
        kernel: its name in the part.
        sizes: of each array, by its parameter's name, the bytes.
        numbers: the other parameters.
        secrets: the arrays that are secret, and how they are drawn.
        public: arrays that are drawn, and equal in all runs; those that are neither are zeros.
        dropped: whether every fifth octet of the secrets is one that residues drop.
        claimed: whether neither branches nor addresses may depend on the secrets. The other jobs show what a report is.
    """

    part: str
    kernel: str
    sizes: Mapping[str, int]
    numbers: Mapping[str, int]
    secrets: Mapping[str, _Range]
    public: Mapping[str, _Range] = field(default_factory=dict)
    dropped: bool = False
    claimed: bool = True

    @property
    def symbol(self) -> str:
        """Its name in a library."""
        return symbol(self.part, self.kernel)

    def arguments(self, names: list[str], seed: int) -> dict[str, int | np.ndarray]:
        """What the kernel is called with.

        Args:
            names: its parameters in order.
            seed: of the secrets; 0: they are the least that they can be.
        """
        made: dict[str, int | np.ndarray] = {}
        for place, name in enumerate(names):
            if name in self.numbers:
                made[name] = self.numbers[name]
                continue
            kind, below = {**self.public, **self.secrets}.get(name, (np.uint8, 1))
            count, own = self.sizes[name] // np.dtype(kind).itemsize, seed if name in self.secrets else 1
            # denominators are not 0: all that is drawn is at least 1 but for flags, residues and the like
            least = 1 if (kind, below) == _LIMB else 0
            array = np.random.default_rng([own, place]).integers(least, below, count, dtype=kind) if own else None
            made[name] = np.full(count, least, dtype=kind) if array is None else array
            if self.dropped and name in self.secrets:
                made[name][::5] = 255
        return made


def _jobs_of_parts(path: VectorPath) -> list[Job]:
    stride, n = 2 * path.lanes, 4
    curve = {"stride": stride, "blocks": 2}

    def job(part: str, kernel: str, numbers: dict[str, int], secrets: dict[str, _Range], **more: object) -> Job:
        return Job(part, kernel, array_sizes(path, kernel, numbers), numbers, secrets, **more)

    compared = {"bits": _RESIDUE, "factors": _FACTOR, "zeros": _RESIDUE, "turns": _OCTET}
    product = {"blocks": 1, "rest": 2, "k": 5, "row": 5, "column": 1, "panels": 1}
    hashed = {"stride": 64, "apart": 16, "n": 1, "length": 64, "number": 1}
    found = [
        job("curve", "ladder", curve, {"in": _WORD, "swaps": _FLAG}),
        job("curve", "division", curve, {"num": _LIMB, "den": _LIMB}),
        job("curve", "map_and_add", curve, {"in": _WORD}),
        job("curve", "compression", curve, {"state": _WORD, "words": _WORD}, public={"constants": _WORD}),
        job("ring", "deal_bits", {"n": n}, {"words": _WORD, "first": _RESIDUE}),
        job("ring", "count_zeros", {"n": n}, {"one": _RESIDUE, "other": _RESIDUE}),
        job("bits", "transposed", {"stride": 64, "blocks": 1}, {"in": _OCTET}),
        job("bits", "hashed", hashed, {"in": _OCTET, "salts": _OCTET}),
        job("bits", "encoded", {"stride": 10, "n": n}, {"bytes": _OCTET}, claimed=False),
    ]
    for k in (0, 1):
        given = {"n": n, "times": 2}
        found.append(job("ring", f"masked_comparison_{k}", given, compared, public={"c": _WORD}))
    for k in (1, 2):
        width = {"width": k * path.lanes}
        found.append(job("ring", f"product_{k}", product | width, {"a": _WORD, "b": _WORD}))
    sums = {"blocks": 1, "rest": 1, "pairs": 1, "single": 1, "vectors": 2, "stride": 64}
    found.append(job("ring", "word_sums", sums, {"z": _OCTET, "v": _OCTET}))
    octets = {"groups": 2, "cells": 3, "count": 1, "width": 64}
    found.append(job("ring", "octet_product", octets, {"factors": _OCTET, "panels": _OCTET}))
    rows, residues = {"count": 1, "out_row": KERNEL_DEGREE, "row": KERNEL_DEGREE}, (np.uint64, 1 << 50)
    found += [job("transforms", name, rows, {"values": residues}) for name in ("forward", "inverse")]
    sums = {"count": 2, "a_row": 2 * path.lanes, "b_row": 2 * path.lanes, "vectors": 2}
    found.append(job("transforms", "add_products", sums, dict.fromkeys(("total", "a", "b"), residues)))
    # Whoever adds up by bin knows the bins, which are addresses; the values are shares.
    binned = {"columns": 1, "stride": 8, "n": 8, "chunks": 2}
    sizes = {"out": 4 * 32, "codes": 8, "starts": 8, "values": 8 * 32}
    values, bins = {"values": _OCTET}, {"codes": (np.uint8, 4)}
    found.append(Job("ring", "bin_sums_32", sizes, binned, values, public=bins))
    found.append(Job("ring", "bin_sums_64", sizes, binned, bins, public=values, claimed=False))
    # The address where the next octets go tells which were dropped; nothing else may depend on the octets.
    for tail in ("", "_pext") if path.has_pext else ("",):
        for modulus in (66, 67):
            raw = {"raw": (np.uint8, 3 * modulus)}
            found.append(job("ring", f"residues_{modulus}{tail}", {"n": n}, raw, dropped=True, claimed=False))
    return found


def _jobs_of_long_numbers(path: VectorPath, *, squares: bool) -> list[Job]:
    """Arrays are as large as the largest must be: guarded pages are not what these look for."""
    limbs, v = limbs_for(path), path.lanes
    part, context = long_part(path, squares=squares).name, {"inverse": 12345, "tiles": 4, "blocks": 1}
    arrays = ("out", "a", "b", "one", "digits", "scratch", "tables", "rows", "index", "m", "t")
    sizes = dict.fromkeys(arrays, 8 * 9 * 8 * limbs.tile * context["tiles"] * v)
    known = {"m": _LIMB, "one": _LIMB}
    power, products = {"count": 3, "window": 3, **context}, {"factors": 2, **context}
    entries = {"levels": 1, "squarings": 1, **products}
    return [
        Job(part, "products", sizes, {"step": 0, **context}, {"a": _LIMB, "b": _LIMB}, known),
        Job(part, "power", sizes, power, {"a": _LIMB, "digits": (np.uint64, 8)}, known),
        Job(part, "scanned_products", sizes, products, {"tables": _LIMB, "digits": (np.uint64, 64)}, known),
        Job(part, "entry_products", sizes, entries, {"index": (np.uint64, v)}, {**known, "rows": _LIMB}, claimed=False),
    ]


def list_jobs(path: VectorPath) -> list[Job]:
    """The kernels of a path that get secrets, and a few whose addresses depend on their input by design."""
    found = _jobs_of_parts(path)
    for squares in (False, True) if path.has_long_numbers else ():
        found += _jobs_of_long_numbers(path, squares=squares)
    return found
