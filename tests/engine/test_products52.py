"""Products of 52-bit numbers by doubles: exact for every factor, whatever the caller's floating-point mode."""

from __future__ import annotations

import ctypes
import ctypes.util
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import pytest
import torch
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st
from securevfl_crypto.engine import BoundError
from securevfl_crypto.engine.compiled_long import long_text
from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath, paths_of_this_cpu
from securevfl_crypto.engine.doubles import declarations
from securevfl_crypto.engine.emitter import MASK52, Function, Vec
from securevfl_crypto.engine.limbs import FmaLimbs, limbs_for
from securevfl_crypto.engine.parts import LoadedPart, Part, argument_types
from securevfl_crypto.engine.products52 import (
    Doubles,
    bits_of_doubles,
    high_bias,
    low_bias,
    multiply_doubles,
    read_doubles,
    to_doubles,
    with_rounding,
)
from securevfl_crypto.modular import modular_arithmetic
from securevfl_crypto.modular.vector import VectorModulus

BY_DOUBLES = [path for path in VECTOR_PATHS if path.has_long_numbers and limbs_for(path).by_doubles]
PATHS = [path for path in paths_of_this_cpu() if limbs_for(path).by_doubles]
WORD = 1 << 64
SCALE = -77
PARAMETERS = "ptr %out, ptr %a, ptr %b"
EDGES = [0, 1, 2, 3, MASK52, MASK52 - 1, 1 << 51, (1 << 51) - 1, (1 << 51) + 1, 1 << 26, (1 << 26) - 1, (1 << 26) + 1]

# The modes that a caller may have set: C's values of them on x86, and what they are


MODES = {"nearest": 0x000, "down": 0x400, "up": 0x800, "zero": 0xC00}
C = ctypes.CDLL(ctypes.util.find_library("m"))


@contextmanager
def _caller(mode: str, *, flush: bool) -> Iterator[None]:
    """The thread's rounding mode, and whether denormals count as zero, as another library might have left them."""
    before = C.fegetround()
    try:
        torch.set_flush_denormal(flush)
        assert C.fesetround(MODES[mode]) == 0
        yield
        assert C.fegetround() == MODES[mode]  # what ran in between has restored it
        assert _flushes() == flush
    finally:
        C.fesetround(before)
        torch.set_flush_denormal(False)


def _flushes() -> bool:
    """Whether denormals count as zero just now."""
    least = np.frombuffer(np.uint64(1).tobytes(), dtype=np.float64)
    return float((least * np.float64(1.0))[0]) == 0.0


CALLERS = pytest.mark.parametrize(("mode", "flush"), [(mode, flush) for mode in MODES for flush in (False, True)])


def test_the_modes_are_set_and_seen() -> None:
    third = {}
    for mode in MODES:
        with _caller(mode, flush=False):
            third[mode] = (
                float(np.divide(np.float64(1), np.float64(3))),
                float(np.divide(np.float64(-1), np.float64(3))),
            )
    assert third["up"][0] > third["down"][0] == third["zero"][0]
    assert third["zero"][1] == third["up"][1] > third["down"][1]


# One product


def _emit_halves(f: Function) -> None:
    a, b = (f.load(pointer, 0, MASK52) for pointer in ("%a", "%b"))
    high, low, plain = multiply_doubles(f, to_doubles(f, a, SCALE), read_doubles(f, _right(f, b), MASK52))
    assert (high.offset, low.offset, plain.exponent) == (high_bias(SCALE), low_bias(SCALE), SCALE)
    f.store(f.set_offset(high), "%out", 0)
    f.store(f.set_offset(low), "%out", 1)
    again, _, _ = multiply_doubles(f, plain, to_doubles(f, f.constant(1 << 51)))  # the lower half as a factor
    f.store(f.set_offset(again), "%out", 2)


def _right(f: Function, b: Vec) -> Vec:
    return bits_of_doubles(f, to_doubles(f, b))


@lru_cache(maxsize=4)
def _halves(path: VectorPath) -> LoadedPart:
    from securevfl_crypto.engine.llvm import compile_in_memory

    f = Function("body", PARAMETERS, path.lanes, "nounwind noinline")
    _emit_halves(f)
    text = "\n".join([*declarations(path.lanes), f.to_text(), with_rounding("halves", PARAMETERS, "body")])
    return compile_in_memory(Part("halves", lambda: text, argument_types({"halves": PARAMETERS})), path)


def _check_halves(path: VectorPath, a: list[int], b: list[int]) -> None:
    halves = _halves(path).functions["halves"]
    for start in range(0, len(a), path.lanes):
        some = [(part[start : start + path.lanes] * path.lanes)[: path.lanes] for part in (a, b)]
        left, right = (np.array(part, dtype=np.uint64) for part in some)
        out = np.zeros((3, path.lanes), dtype=np.uint64)
        halves(out.ctypes.data, left.ctypes.data, right.ctypes.data)
        for x, y, *found in zip(*some, *out.tolist(), strict=True):
            assert found == [x * y >> 52, x * y & MASK52, (x * y & MASK52) >> 1], (x, y)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
@CALLERS
def test_halves_are_exact_at_edges_in_every_mode(path: VectorPath, mode: str, flush: bool) -> None:
    rng = random.Random(7)
    near = [*EDGES, *(rng.getrandbits(52) for _ in range(6))]
    pairs = [(x, y) for x in near for y in near]
    pairs += [(x, -pow(x | 1, -1, 1 << 52) % (1 << 52)) for x in near]  # odd ones: lower halves of ones
    with _caller(mode, flush=flush):
        _check_halves(path, [x for x, _ in pairs], [y for _, y in pairs])


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
@given(st.lists(st.tuples(st.integers(0, MASK52), st.integers(0, MASK52)), min_size=1, max_size=16))
def test_halves_of_any_factors(path: VectorPath, pairs: list[tuple[int, int]]) -> None:
    _check_halves(path, [x for x, _ in pairs], [y for _, y in pairs])


# Kernels


@lru_cache(maxsize=8)
def _known(path: VectorPath, root: bool) -> VectorModulus:
    prime = (mpz(1) << 1279) - 1
    found = modular_arithmetic(prime**2 if root else prime, path.name, root=prime if root else None)
    assert isinstance(found, VectorModulus)
    return found


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
@CALLERS
@pytest.mark.parametrize("root", [False, True], ids=["any", "square"])
def test_kernels_set_their_mode_and_restore_the_callers(path: VectorPath, mode: str, flush: bool, root: bool) -> None:
    """Every kernel that Python calls: were one without the mode, its products would be wrong in three of four."""
    modulus = _known(path, root)
    m = modulus.m
    values = [mpz(3) ** k % m for k in range(1, 1900, 160)] + [mpz(1), m - 1, m >> 1]
    exponents = np.arange(-40, 50, dtype=np.int64).reshape(6, 15) * 977
    digits = np.arange(160, dtype=np.uint8).reshape(20, 8)
    groups = np.arange(45, dtype=np.int64).reshape(15, 3) % 5 - 1

    def words() -> list[list[mpz]]:
        batch = modulus.from_ints(values)
        out = [
            batch,
            modulus.mul(batch, batch),
            modulus.invert(batch),
            modulus.power(batch, 3**50),
            modulus.power_products(batch, exponents),
            modulus.power_products(modulus.take(batch, np.array([0, 1])), exponents[:, :2]),
            *(modulus.fixed_base(values[1], 64, scan=scan).raise_to(digits) for scan in (False, True)),
            modulus.group_products(batch, groups, 4),
            modulus.horner(modulus.take(batch, np.arange(12)), 4, 27),
        ]
        return [modulus.to_ints(part) for part in out]

    right = words()
    assert right[1] == [x * x % m for x in values]
    with _caller(mode, flush=flush):
        found = words()
    assert found == right


@pytest.mark.parametrize(
    "path",
    BY_DOUBLES,
    ids=lambda p: p.name,
)
@pytest.mark.parametrize("squares", [False, True])
def test_the_mode_is_set_around_kernels_and_arithmetic_is_within(path: VectorPath, squares: bool) -> None:
    """In machine code: functions that set MXCSR compute nothing, and those that compute do not set it."""
    from llvmlite import binding
    from securevfl_crypto.engine.llvm import target_machine

    module = binding.parse_assembly(long_text(limbs_for(path), path.lanes, squares=squares))
    assembly = target_machine(path).emit_assembly(module)
    functions = re.split(r"^(\w+):\s*(?:#.*)?$", assembly, flags=re.MULTILINE)
    setting = 0
    for name, body in zip(functions[1::2], functions[2::2], strict=True):
        arithmetic = re.findall(r"^\s+v?(?:fn?m|add|sub|mul|div|round|cvt)\w*[ps]d\s", body, re.MULTILINE)
        if "mxcsr" in body:
            setting += 1
            assert not arithmetic
            steps = re.findall(r"^\s+(?:v?(stmxcsr|ldmxcsr)|callq\s+(\w+))", body, re.MULTILINE)
            assert ["".join(step) for step in steps] == ["stmxcsr", "ldmxcsr", f"{name}_rounded", "ldmxcsr"]
        else:
            assert name.endswith("_rounded") or name in {"multiply", "square", "reduction", "powers", "select"} | {
                "scan",
                "gather",
            }
    assert setting == 11


# What the emitter refuses


def _function() -> Function:
    return Function("f", PARAMETERS, 4)


def _vec(top: int, bias: int = 0) -> Vec:
    return Vec("%x", 0, top, offset=bias or None)


LARGE, FITTING, BIASED = Doubles("%d", MASK52 + 1, 0), Doubles("%d", MASK52, 0), _vec(5, 1 << 52)
REFUSED: dict[str, Callable[[Function], object]] = {
    "a limb of 53 bits": lambda f: to_doubles(f, _vec(MASK52 + 1)),
    "a left factor of 53 bits": lambda f: multiply_doubles(f, LARGE, FITTING),
    "a right factor of 53 bits": lambda f: multiply_doubles(f, FITTING, LARGE),
    "a limb with a bias": lambda f: to_doubles(f, BIASED),
    "a half of which 52 bits count": lambda f: to_doubles(f, f.low52(_vec(WORD - 1))),
    "a stored bias": lambda f: f.store(BIASED, "%out"),
    "a shifted bias": lambda f: f.shift_right(BIASED, 1),
    "a difference with a bias": lambda f: f.sub(_vec(WORD - 1), BIASED),
    "a factor with a bias": lambda f: f.madd_low(_vec(1), BIASED, _vec(1)),
    "52 bits with a bias": lambda f: f.low52(BIASED),
    "53 bits with a bias": lambda f: f.mask(BIASED, 53),
    "a loop's start with a bias": lambda f: f.loop(2, lambda _, c: [_vec(1)], [(BIASED, 9)]),
    "a loop's result with a bias": lambda f: f.loop(2, lambda _, c: [BIASED], [(_vec(1), 9)]),
    "a sum that wraps beside its bias": lambda f: f.add(_vec(WORD - 1, 1 << 52), _vec(1, 1 << 53)),
}


@pytest.mark.parametrize("build", REFUSED.values(), ids=REFUSED)
def test_what_is_no_factor_and_what_has_a_bias_is_refused(build: Callable[[Function], object]) -> None:
    with pytest.raises(BoundError):
        build(_function())


def test_biases_add_up_and_are_taken_off() -> None:
    f = _function()
    total = f.add(_vec(5, WORD - (1 << 60)), _vec(7, 3 << 60))
    assert (total.top, total.offset) == (12, 2 << 60)
    assert f.set_offset(total, 2 << 60) is total
    plain = f.set_offset(total)
    assert (plain.top, plain.offset) == (12, None)
    f.store(plain, "%out")
    assert f.mask(_vec(MASK52, 3 << 52), 52).offset is None


def test_a_column_that_took_a_whole_tile_has_no_bias() -> None:
    """That is why tiles are even, and left factors scaled as they are."""
    limbs = FmaLimbs()
    whole = limbs.tile * (low_bias(SCALE) + high_bias(SCALE)) % WORD
    assert whole == 0
    assert limbs.column_bias(limbs.tile - 1) == high_bias(SCALE)
