"""Transforms modulo X^N + 1: every path gives the numbers of numpy, numpy those of SEAL and of the plainest loops."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.engine import BoundError, cpu, doubles
from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.llvm import compile_in_memory, target_machine
from securevfl_crypto.engine.parts import Part
from securevfl_crypto.engine.transforms import butterflies, modular
from securevfl_crypto.engine.transforms.compiled import (
    KERNEL_DEGREE,
    KERNELS,
    TransformKernels,
    transform_kernels,
    transforms_part,
    transforms_text,
)
from securevfl_crypto.errors import EngineError
from securevfl_crypto.rlwe.parameters import Chain
from securevfl_crypto.rlwe.seal import seal_context
from securevfl_crypto.transforms import TransformRing, paths, transform_loops
from securevfl_crypto.transforms.base import TransformLoops
from securevfl_crypto.transforms.compiled import CompiledTransformLoops
from securevfl_crypto.transforms.portable import PortableTransformLoops
from securevfl_crypto.transforms.roots import roots_of

PRIMES = ((1 << 50) - (1 << 14) + 1, (1 << 50) - 13 * (1 << 14) + 1)
SMALL = (257, 12289, 1152921504606846976 // 1024 - 16383)  # 9, 14 and 50 bits; 1 modulo 128
HERE = cpu.paths_of_this_cpu()
SEED = np.random.default_rng


class _Vector4(cpu.VectorPath):
    """A path of other lanes than its class has, so that this machine runs the code of other machines."""


@cache
def _loops(lanes: int) -> TransformLoops:
    """The kernels for so many lanes, compiled for this CPU: LLVM cuts or joins the vectors."""
    host = HERE[0]
    path = _Vector4(host.name, lanes, host.radix, host.cpu_class, host.llvm_cpu, host.needs, host.machine)
    with pytest.MonkeyPatch.context() as patch:
        if host.machine == "x86_64":
            patch.setattr(doubles, "_ARM_LANES", 0)  # two lanes would set Arm's rounding
        text = transforms_text(lanes)
    part = Part("transforms", lambda: text, transforms_part(host).kernels)
    return CompiledTransformLoops(TransformKernels(path, compile_in_memory(part, path)))


def _values(prime: int, rows: int, seed: int) -> np.ndarray:
    return SEED(seed).integers(0, prime, (rows, KERNEL_DEGREE), dtype=np.uint64)


def _plain_product(x: list[int], y: list[int], prime: int) -> list[int]:
    degree, out = len(x), [0] * len(x)
    for i, a in enumerate(x):
        for j, b in enumerate(y):
            out[(i + j) % degree] += a * b if i + j < degree else -a * b
    return [value % prime for value in out]


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(SMALL), st.integers(0, 2**32))
def test_products_are_those_of_polynomials(prime: int, seed: int) -> None:
    x, y = SEED(seed).integers(0, prime, (2, 64), dtype=np.uint64)
    x[:5] = prime - 1
    ring = TransformRing((prime,), 64, PortableTransformLoops())
    total = np.zeros((1, 64), dtype=np.uint64)
    ring.add_products(total, ring.forward(x[None, None]), ring.forward(y[None, None]))
    assert ring.inverse(total[None])[0, 0].tolist() == _plain_product(x.tolist(), y.tolist(), prime)


@pytest.mark.parametrize("prime", PRIMES)
def test_transformed_values_are_values_at_the_odd_powers_of_the_root(prime: int) -> None:
    roots = roots_of(prime, 64)
    x = SEED(1).integers(-(1 << 50), 1 << 50, (1, 64))
    out = np.empty((1, 64), dtype=np.uint64)
    PortableTransformLoops().forward(out, x, roots)
    root = int(roots.forward[32])  # index 1 in bit-reversed order
    assert pow(root, 64, prime) == prime - 1
    for place in range(64):
        power = pow(root, 2 * int(f"{place:06b}"[::-1], 2) + 1, prime)
        assert int(out[0, place]) == sum(int(c) * pow(power, k, prime) for k, c in enumerate(x[0])) % prime


def test_products_are_those_of_seal() -> None:
    seal = seal_context(Chain((50, 50), 50))
    random = SEED(2)
    halves = np.stack([[random.integers(0, p, 8192, dtype=np.uint64) for p in seal.data.primes] for _ in range(4)])
    plain = random.integers(-(1 << 13), (1 << 13) + 1, (2, 8192))
    ciphertexts = [seal.transform_ciphertext(seal.make_ciphertext(pair)) for pair in (halves[:2], halves[2:])]
    expected = seal.read_ciphertext(seal.sum_products(ciphertexts, [seal.make_plaintext(x) for x in plain]))
    ring = TransformRing(seal.data.primes, 8192)
    transformed, factors = ring.forward(halves), ring.forward(plain)
    for half in (0, 1):
        total = np.zeros(expected[half].shape, dtype=np.uint64)
        ring.add_products(total, factors, transformed[half::2])
        assert np.array_equal(ring.inverse(total[None])[0], expected[half])


@pytest.mark.skipif(not HERE, reason="this CPU runs no kernels")
@pytest.mark.parametrize("lanes", [2, 4, 8])
@pytest.mark.parametrize("prime", [*PRIMES, 40961])
def test_kernels_agree_with_numpy(lanes: int, prime: int) -> None:
    loops, right, roots = _loops(lanes), PortableTransformLoops(), roots_of(prime, KERNEL_DEGREE)
    values = _values(prime, 6, lanes)
    values[1], values[2], values[3, ::2] = prime - 1, 0, 0
    values[4] = prime // 2
    for kernel in ("forward", "inverse"):
        found, expected = np.empty_like(values), np.empty_like(values)
        for path, out in ((loops, found), (right, expected)):
            getattr(path, kernel)(out, values.view(np.int64) if kernel == "forward" else values, roots)
        assert np.array_equal(found, expected), kernel
        assert int(found.max()) < prime
    signed = SEED(3).integers(-(1 << 50), (1 << 50) + 1, (3, KERNEL_DEGREE))
    signed[1], signed[2] = 1 << 50, -(1 << 50)
    for path, out in ((loops, found), (right, expected)):
        path.forward(out[:3], signed, roots)
    assert np.array_equal(found[:3], expected[:3])
    for path, out in ((loops, found), (right, expected)):
        out[0] = prime - 1
        path.add_products(out[0], values, values[::-1], roots)
    assert np.array_equal(found[0], expected[0])


@pytest.mark.skipif(not HERE, reason="this CPU runs no kernels")
@pytest.mark.parametrize("path", HERE, ids=lambda path: path.name)
def test_every_path_here_passes_its_test_and_computes_on_rows_that_lie_apart(path: cpu.VectorPath) -> None:
    loops = transform_loops(path.name)
    assert loops.name == path.name
    ring, right = TransformRing(PRIMES, KERNEL_DEGREE, loops), TransformRing(PRIMES, 4096, PortableTransformLoops())
    values = np.stack([_values(prime, 4, 5) for prime in PRIMES], axis=1)
    assert np.array_equal(ring.forward(values[::2]), right.forward(values[::2]))
    assert np.array_equal(ring.inverse(ring.forward(values)), values)
    small = SEED(6).integers(-21, 22, (3, KERNEL_DEGREE))
    assert np.array_equal(ring.forward(small), right.forward(small))
    before = values[0].copy()
    ring.add_products(before, values[1:2], values[3:])
    assert np.array_equal(before, _python_sum(values[0], values[1], values[3]))


def _python_sum(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    primes = np.array(PRIMES, dtype=object)[:, None]
    return np.array((a.astype(object) + b.astype(object) * c.astype(object)) % primes, dtype=np.uint64)


def test_other_sizes_than_the_kernels_have_are_computed_by_numpy() -> None:
    ring, values = TransformRing(PRIMES, 128), SEED(4).integers(0, PRIMES[1], (2, 2, 128), dtype=np.uint64)
    assert np.array_equal(ring.inverse(ring.forward(values)), values)


@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_numbers_that_could_become_inexact_are_no_kernel(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    emit = (butterflies.emit_forward, butterflies.emit_inverse)
    texts = [_text(partial(one, degree=degree), lanes) for one in emit for degree in (64, 1024, 4096, 8192)]
    assert all("roundeven" in text for text in texts)
    monkeypatch.setattr(modular.Modular, "reduce", lambda _, a: a)
    for one in emit:
        with pytest.raises(BoundError, match="2\\^53"):
            _text(partial(one, degree=4096), lanes)


def _text(emit: partial[None], lanes: int) -> str:
    function = Function("one", butterflies.TRANSFORM, lanes)
    emit(function)
    return function.to_text()


def test_products_of_numbers_that_are_not_reduced_are_no_kernel() -> None:
    function = Function("one", butterflies.ADD_PRODUCTS, 4)
    m = modular.Modular(function, "%table")
    large = m.load("%a", 0, (1 << 50) + 1)
    with pytest.raises(BoundError, match="not reduced"):
        m.product(large, large)
    with pytest.raises(BoundError, match="become doubles"):
        m.load_words("%a", 0, 1 << 51)


@pytest.mark.parametrize("path", cpu.VECTOR_PATHS, ids=lambda path: path.name)
def test_every_class_of_cpus_compiles(path: cpu.VectorPath) -> None:
    from securevfl_crypto.engine.llvm import emit_object

    assert target_machine(path) is not None
    assert len(emit_object(transforms_part(path), path)) > 1000


def test_a_path_that_computes_wrongly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("forward", "inverse", "add_products"):
        wrong = PortableTransformLoops()
        right = getattr(wrong, name)

        def off_by_one(out: np.ndarray, *rest: object, right: object = right) -> None:
            right(out, *rest)  # type: ignore[operator]
            out.reshape(-1)[-1] ^= np.uint64(1)

        monkeypatch.setattr(wrong, name, off_by_one)
        with pytest.raises(EngineError, match="computes transforms wrongly"):
            paths.check_transform_loops(wrong)
    with pytest.raises(EngineError, match="unknown path"):
        transform_loops("other")


def test_primes_and_sizes_that_do_not_suit_are_refused() -> None:
    for prime, degree in ((1 << 51, 64), ((1 << 50) + 1, 64), (PRIMES[0] + 2, 64), (PRIMES[0], 32), (PRIMES[0], 100)):
        with pytest.raises(EngineError):
            roots_of(prime, degree)
    with pytest.raises(EngineError, match="not a prime"):
        roots_of(129 * 257, 64)
    with pytest.raises(EngineError):
        TransformRing((12289,), KERNEL_DEGREE * 2)


@pytest.mark.skipif(not HERE, reason="this CPU runs no kernels")
def test_libraries_have_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECUREVFL_ENGINE", raising=False)
    assert set(KERNELS) == {"forward", "inverse", "add_products"}
    assert transform_kernels(HERE[0])["forward"] is not None
