"""The arithmetic of `avx512` and `ifma` on every CPU with AVX2: their intrinsics in plain IR, compiled for AVX2."""

from __future__ import annotations

import dataclasses
import re

import pytest
from gmpy2 import mpz
from securevfl_crypto.engine.compiled import Kernels, curve_part
from securevfl_crypto.engine.compiled_long import LongKernels, long_part
from securevfl_crypto.engine.compiled_ring import RingKernels, ring_part
from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath, paths_of_this_cpu
from securevfl_crypto.engine.llvm import compile_in_memory
from securevfl_crypto.engine.parts import LoadedPart, Part
from securevfl_crypto.engine.scalar import ScalarEngine
from securevfl_crypto.engine.vector import VectorEngine
from securevfl_crypto.modular.gmp import GmpModulus
from securevfl_crypto.modular.vector import VectorModulus
from securevfl_crypto.ring.compiled import CompiledRingLoops
from securevfl_crypto.ring.portable import PortableRingLoops
from support.kernel_words import agree, curve_words, long_words, ring_words
from support.plain_ir import DEFINITIONS, in_plain_ir

AVX2 = next(path for path in VECTOR_PATHS if path.name == "avx2")
LONGER = [path for path in VECTOR_PATHS if path.lanes == 8]
PRIME = (mpz(1) << 1279) - 1
pytestmark = pytest.mark.skipif(AVX2 not in paths_of_this_cpu(), reason="this CPU has no AVX2 to compile for")


def _load(part: Part) -> LoadedPart:
    """Without LLVM's optimisations, which take three times as long and are not what is tested."""
    return compile_in_memory(dataclasses.replace(part, text=lambda: in_plain_ir(part.text())), AVX2, level=0)


@pytest.mark.parametrize("path", LONGER, ids=lambda path: path.name)
def test_the_curve_of_longer_vectors(path: VectorPath) -> None:
    engine = VectorEngine(Kernels(path, _load(curve_part(path))))
    assert agree(curve_words(engine), curve_words(ScalarEngine("cryptography")))


@pytest.mark.parametrize("path", LONGER, ids=lambda path: path.name)
def test_the_ring_of_longer_vectors(path: VectorPath) -> None:
    loops = CompiledRingLoops(RingKernels(path, _load(ring_part(path))))
    assert agree(ring_words(loops), ring_words(PortableRingLoops()))


@pytest.mark.parametrize(("path", "root"), list(zip(LONGER, (PRIME, None), strict=True)), ids=["ifma, pairs", "avx512"])
def test_long_numbers_of_longer_vectors(path: VectorPath, root: mpz | None) -> None:
    m = PRIME if root is None else PRIME**2
    kernels = LongKernels(path, _load(long_part(path, squares=root is not None)))
    assert long_words(VectorModulus(m, kernels, root)) == long_words(GmpModulus(m))


def test_an_intrinsic_without_a_definition_is_named() -> None:
    with pytest.raises(ValueError, match=r"not defined in plain IR: llvm.x86.avx512.gf2p8"):
        in_plain_ir("declare void @llvm.x86.avx512.gf2p8()")


def test_every_definition_is_used() -> None:
    ifma, avx512 = LONGER
    parts = curve_part(ifma), ring_part(ifma), long_part(avx512)
    called = {name for part in parts for name in re.findall(r" call .*@([\w.]+)\(", part.text())}
    assert set(DEFINITIONS) <= called
