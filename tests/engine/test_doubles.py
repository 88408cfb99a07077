"""Products in doubles: what could be inexact is refused, what is emitted is exact, whatever the caller's rounding."""

from __future__ import annotations

import ctypes
import math
import re
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import binding
from securevfl_crypto.engine import BoundError, field51
from securevfl_crypto.engine.compiled import Kernels, curve_part, curve_text
from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath
from securevfl_crypto.engine.doubles import Doubles, declarations
from securevfl_crypto.engine.emitter import Function, Mask, Vec
from securevfl_crypto.engine.field import Element
from securevfl_crypto.engine.field51 import Field51
from securevfl_crypto.engine.ladder import emit_ladder
from securevfl_crypto.engine.llvm import compile_in_memory, target_machine
from support.engines import runnable

LANES = 4
WORD = 1 << 64
P = 2**255 - 19
BITS = 51
MOST = 1 << 51
"""The most of a factor's size: a product of two such, 2^102, is the last one that is split at 2^51."""
IN_DOUBLES = [path for path in VECTOR_PATHS if path.radix == BITS and path.machine == "x86_64"]


def _function() -> Function:
    return Function("f", "ptr %out, ptr %in", LANES)


def _double(low: int, top: int) -> Vec:
    return Vec("%x", low, top, double=True)


PLAIN, WRAPPED, REAL = Vec("%p", 0, 9), Vec("%w", -9, 9, offset=0), _double(-9, 9)
ROOT = math.isqrt(1 << 103)

REFUSED: dict[str, Callable[[Doubles], object]] = {
    "a product beyond its binade": lambda d: d.product([(_double(-MOST, MOST), _double(-MOST, MOST + 1))], BITS),
    "a product below its binade": lambda d: d.product([(_double(-MOST - 1, MOST), _double(0, MOST))], BITS),
    "an unsigned product beyond it": lambda d: d.product([(_double(0, ROOT + 1), _double(0, ROOT + 1))], BITS),
    "one more than its binade holds": lambda d: d.product([(_double(0, (1 << 103) + 1), _double(0, 1))], BITS),
    "one less than its binade holds": lambda d: d.product([(_double(-(1 << 102) - 1, 0), _double(0, 1))], BITS),
    "a sum of products beyond it": lambda d: d.product(
        [(_double(-MOST, MOST), _double(-MOST, MOST)), (REAL, REAL)], BITS
    ),
    "a third product": lambda d: d.product([(REAL, REAL)] * 3, BITS),
    "low parts of 53 bits": lambda d: d.product([(REAL, REAL)], 53),
    "low parts that the bias does not fit": lambda d: d.product([(REAL, REAL)], 52),
    "a product of integers": lambda d: d.product([(PLAIN, REAL)], BITS),
    "a sum beyond 2^53": lambda d: d.add(_double(0, 1 << 52), _double(0, (1 << 52) + 1)),
    "a difference beyond 2^53": lambda d: d.sub(_double(-(1 << 52), 0), _double(0, (1 << 52) + 1)),
    "a sum of a double and an integer": lambda d: d.add(REAL, PLAIN),
    "a sum of halves": lambda d: d.add(PLAIN, Vec("%h", 0, 9, partial=True)),
    "a double of 53 bits": lambda d: d.double(Vec("%x", 0, (1 << 52) + 1)),
    "a double less 53 bits": lambda d: d.double(PLAIN, (1 << 52) + 1),
    "a double of wrapped lanes": lambda d: d.double(WRAPPED),
    "a constant that is no double": lambda d: d.constant((1 << 53) + 1),
    "a lifted value that is negative": lambda d: d.lift(WRAPPED, 8),
    "a lifted value of 65 bits": lambda d: d.lift(WRAPPED, WORD - 9),
    "a lifted double": lambda d: d.lift(REAL, 9),
    "bits of wrapped lanes": lambda d: d.f.mask(WRAPPED, 3),
    "a shift of wrapped lanes": lambda d: d.f.shift_right(WRAPPED, 1),
    "an unsigned sum of doubles": lambda d: d.f.add(REAL, PLAIN),
    "low bits of a double": lambda d: d.f.low52(REAL),
    "a factor with a sign": lambda d: d.f.madd_low(PLAIN, WRAPPED, PLAIN),
    "wrapped lanes in memory": lambda d: d.f.store(WRAPPED, "%out"),
    "a choice of two kinds": lambda d: d.f.select(Mask("%m"), WRAPPED, PLAIN),
    "a choice of two offsets": lambda d: d.f.select(Mask("%m"), WRAPPED, Vec("%y", -9, 9, offset=1)),
    "wrapped lanes in a loop for plain ones": lambda d: d.f.loop(2, lambda _, c: c, [(WRAPPED, 9)]),
    "doubles in a loop for wrapped lanes": lambda d: d.f.loop(2, lambda _, c: c, [(REAL, WRAPPED)]),
    "a loop that ends lower": lambda d: d.f.loop(2, lambda _, c: [d.sub(c[0], PLAIN)], [(WRAPPED, WRAPPED)]),
}


@pytest.mark.parametrize("build", REFUSED.values(), ids=REFUSED)
def test_what_could_be_inexact_is_refused(build: Callable[[Doubles], object]) -> None:
    with pytest.raises(BoundError):
        build(Doubles(_function()))


def test_what_just_fits_is_taken() -> None:
    d = Doubles(_function())
    high, low = d.product([(_double(-MOST, MOST), _double(-MOST, MOST))], BITS)
    assert (high.low, high.top, low.low, low.top) == (-MOST, MOST, -MOST // 2, MOST // 2)
    assert d.product([(_double(0, ROOT), _double(0, ROOT))], BITS)[0].low == 0
    assert d.fits([(_double(0, 1 << 103), _double(0, 1))], BITS)
    assert d.fits([(_double(-(1 << 102), 1 << 102), _double(0, 1))], BITS)
    half = _double(-MOST, MOST), _double(-MOST // 2, MOST // 2)
    assert d.product([half, half], BITS)[1].top == MOST
    assert d.fits([half, half], BITS)
    assert not d.fits([half, half, half], BITS)
    assert d.add(_double(0, 1 << 52), _double(0, 1 << 52)).top == 1 << 53
    assert d.double(Vec("%x", 0, 1 << 52), 1 << 52).low == -(1 << 52)
    assert d.lift(WRAPPED, 9).top == 18
    assert d.f.select(Mask("%m"), REAL, _double(-10, 0)).low == -10


def test_one_more_than_a_limb_may_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors, and the limbs of products that a loop carries: the ladder needs every one of its bounds."""
    field = Field51(_function())
    field.mul([_double(-MOST, MOST)] * 5, [_double(-MOST, MOST)] * 5)
    with pytest.raises(BoundError, match="not split"):
        field.mul([_double(-MOST, MOST)] * 5, [_double(-MOST, MOST)] * 4 + [_double(-MOST - 1, MOST)])
    least = bisect_left(range(1 << 7), 1, key=lambda over: _emits(monkeypatch, over))
    assert 0 < least < 1 << 7
    assert _emits(monkeypatch, least)
    assert not _emits(monkeypatch, least - 1)


def _emits(monkeypatch: pytest.MonkeyPatch, over: int) -> bool:
    """Whether the ladder is emitted where loops are promised narrow limbs of at most 2^50 + `over` in size."""
    monkeypatch.setattr(field51, "_NARROW", (1 << 50) + over)
    try:
        emit_ladder(Field51(Function("ladder", "", LANES)))
    except BoundError:
        return False
    return True


# Compiled for any CPU: where it lacks FMA, LLVM calls libm's.


def _compiled(*functions: Function) -> tuple[dict[str, Callable[..., None]], object]:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly("\n".join([*declarations(LANES), *(f.to_text() for f in functions)]))
    module.verify()
    compiler = binding.create_mcjit_compiler(module, binding.Target.from_default_triple().create_target_machine(opt=1))
    compiler.finalize_object()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    return {f.name: kind(compiler.get_function_address(f.name)) for f in functions}, compiler


def _signed(f: Function, place: int, most: int) -> Vec:
    """A double within ±`most`, from memory."""
    return Doubles(f).double(f.load("%in", place, 2 * most), most)


@lru_cache(maxsize=1)
def _arithmetic() -> tuple[dict[str, Callable[..., None]], object]:
    one, two, field = (Function(name, "ptr noalias %out, ptr noalias %in", LANES) for name in ("one", "two", "field"))
    for f, most in ((one, MOST), (two, 1 << 50)):
        d = Doubles(f)
        factors = [_signed(f, place, most) for place in range(4)]
        pairs = [(factors[0], factors[1]), (factors[2], factors[3])]
        for place, part in enumerate(d.product(pairs[:1] if f is one else pairs, BITS)):
            f.store(d.lift(part, -part.low), "%out", place)
    by = Field51(field)
    a, b = ([_signed(field, place + k, field51._NARROW) for k in range(5)] for place in (0, 5))
    results: list[Element] = [by.mul(a, b), by.square(a), by.mul_add_small(by.mul(b, b), a, 121665)]
    results.append(by.square(by.narrow(by.sub(by.mul(a, b), by.square(b)))))
    for place, result in enumerate(results):
        for k, word in enumerate(by.pack(by.freeze(result))):
            field.store(word, "%out", 4 * place + k)
    return _compiled(one, two, field)


def _run(name: str, rows: list[list[int]], out: int) -> list[list[int]]:
    source = np.array(rows, dtype=np.uint64)
    target = np.zeros((out, LANES), dtype=np.uint64)
    _arithmetic()[0][name](target.ctypes.data, source.ctypes.data)
    return [[int(word) for word in row] for row in target]


def _within(most: int) -> st.SearchStrategy[int]:
    edges = [s * (most - k) for s in (1, -1) for k in range(3)] + [s * x for s in (1, -1) for x in (0, 1, 2, most // 2)]
    return st.one_of(st.sampled_from(edges), st.integers(-most, most))


def _lanes_within(most: int, rows: int) -> st.SearchStrategy[list[list[int]]]:
    return st.lists(st.lists(_within(most), min_size=LANES, max_size=LANES), min_size=rows, max_size=rows)


@settings(max_examples=100)
@given(_lanes_within(MOST, 4))
def test_a_product_is_exact_up_to_its_bounds(values: list[list[int]]) -> None:
    high, low = _run("one", [[x + MOST for x in row] for row in values], 2)
    for a, b, h, rest in zip(*values[:2], high, low, strict=True):
        assert (h - MOST << BITS) + (rest - MOST // 2) == a * b
        assert 0 <= rest <= MOST


@settings(max_examples=100)
@given(_lanes_within(1 << 50, 4))
def test_a_sum_of_two_products_is_exact_up_to_its_bounds(values: list[list[int]]) -> None:
    high, low = _run("two", [[x + (1 << 50) for x in row] for row in values], 2)
    for a, b, c, d, h, rest in zip(*values, high, low, strict=True):
        assert (h - (1 << 50) << BITS) + (rest - MOST) == a * b + c * d
        assert 0 <= rest <= 2 * MOST


@settings(max_examples=100)
@given(_lanes_within(field51._NARROW, 10))
def test_field_operations_are_right_for_limbs_up_to_their_bounds(values: list[list[int]]) -> None:
    """Narrow limbs of any sign; products of products go through `narrow` with their largest carries."""
    words = _run("field", [[x + field51._NARROW for x in row] for row in values], 16)
    for lane in range(LANES):
        a, b = (sum(values[place + k][lane] << 51 * k for k in range(5)) for place in (0, 5))
        right = [a * b, a * a, b * b + 121665 * a, (a * b - b * b) ** 2]
        found = [sum(words[4 * place + k][lane] << 64 * k for k in range(4)) for place in range(4)]
        assert found == [x % P for x in right]


EDGES = [0, 1, 2, 18, 19, 20, P - 2, P - 1, P, P + 1, 2**255 - 1, 2**254, 2**51 - 1, 2**51, 2**204 - 1, (P - 1) // 2]


@pytest.mark.parametrize("a", EDGES)
def test_field_operations_are_right_at_the_edges_of_the_field(a: int) -> None:
    """Values in limbs of either sign: plain digits less 2^50, which the next one's lowest bit makes up for."""
    for start in range(0, len(EDGES), LANES):
        some = EDGES[start : start + LANES]
        limbs = [_signed_digits(x) for x in ([a] * LANES)], [_signed_digits(x) for x in some]
        rows = [[lane[k] + field51._NARROW for lane in side] for side in limbs for k in range(5)]
        words = _run("field", rows, 16)
        for lane, b in enumerate(some):
            found = [sum(words[4 * place + k][lane] << 64 * k for k in range(4)) for place in range(4)]
            assert found == [x % P for x in (a * b, a * a, b * b + 121665 * a, (a * b - b * b) ** 2)]


def _signed_digits(value: int) -> list[int]:
    """Five digits within ±2^50 of a number modulo p."""
    out = []
    for _ in range(5):
        digit = (value + (1 << 50)) % (1 << 51) - (1 << 50)
        out.append(digit)
        value = value - digit >> 51
    out[0] += 19 * value
    return out


# The caller's rounding

MODES = {
    "down": 0x3F80,
    "up": 0x5F80,
    "to zero": 0x7F80,
    "denormals are zero": 0x9FC0,
    "up, denormals are zero": 0xDFC0,
}
_TRAMPOLINE = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define void @run(ptr %kernel, ptr %mode, ptr %after, i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, i64 %f) nounwind {
  %before = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %before)
  call void @llvm.x86.sse.ldmxcsr(ptr %mode)
  call void %kernel(i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, i64 %f)
  call void @llvm.x86.sse.stmxcsr(ptr %after)
  call void @llvm.x86.sse.ldmxcsr(ptr %before)
  ret void
}
"""


@lru_cache(maxsize=1)
def _trampoline() -> tuple[Callable[..., None], object]:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(opt=1)
    compiler = binding.create_mcjit_compiler(binding.parse_assembly(_TRAMPOLINE), machine)
    compiler.finalize_object()
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 6)
    return kind(compiler.get_function_address("run")), compiler


def _call(mode: int, kernel: Callable[..., None], *arguments: int) -> None:
    """A kernel under a setting of MXCSR, which it must leave as it was."""
    modes = np.array([mode, 0], dtype=np.uint32)
    address = ctypes.cast(kernel, ctypes.c_void_p).value  # type: ignore[arg-type]
    rest = [0] * (6 - len(arguments))
    _trampoline()[0](address, modes.ctypes.data, modes.ctypes.data + 4, *arguments, *rest)
    assert modes[1] == mode


@pytest.mark.parametrize("path", IN_DOUBLES, ids=lambda path: path.name)
def test_the_callers_rounding_neither_matters_nor_changes(path: VectorPath) -> None:
    """Another library may have set it, torch for example that denormals are zero."""
    if path.name not in runnable():
        pytest.skip(f"this machine cannot run {path.name}")
    kernels = Kernels(path, compile_in_memory(curve_part(path), path))
    rng = np.random.default_rng(51)
    blocks, stride = 2, 2 * path.lanes
    planes = rng.integers(0, 1 << 63, (12, stride), dtype=np.uint64)
    swaps = rng.integers(0, 2, 255, dtype=np.uint8)

    def results(mode: int) -> list[bytes]:
        found = []
        for name, more in (("ladder", [swaps.ctypes.data]), ("map_and_add", [])):
            num, den, scratch = (np.zeros((blocks, 5, path.lanes), dtype=np.uint64) for _ in range(3))
            out = np.zeros((4, stride), dtype=np.uint64)
            fraction = num.ctypes.data, den.ctypes.data
            _call(mode, kernels[name], planes.ctypes.data, stride, *more, *fraction, blocks)
            _call(mode, kernels["division"], out.ctypes.data, stride, *fraction, scratch.ctypes.data, blocks)
            found += [num.tobytes(), den.tobytes(), out.tobytes()]
        return found

    right = results(0x1F80)
    for name, mode in MODES.items():
        assert results(mode) == right, name


@pytest.mark.parametrize("path", IN_DOUBLES, ids=lambda path: path.name)
def test_all_arithmetic_of_doubles_lies_between_setting_and_restoring(path: VectorPath) -> None:
    """In the assembly of each kernel that Python calls, with its calls of others. No flag allows other results."""
    text = curve_text(path)
    assert not re.search(r"(call|fadd|fsub) (fast|contract|reassoc|nnan|ninf|nsz|arcp|afn)", text)
    assembly = target_machine(path).emit_assembly(binding.parse_assembly(text))
    for name in ("ladder", "division", "map_and_add"):
        body = assembly.split(f"\n{name}:")[1].split(f"\t.size\t{name}, ")[0]
        operations = re.findall(r"^\t(v\w+|call\w*)\b", body, re.MULTILINE)
        of_doubles = [k for k, one in enumerate(operations) if re.match(r"v(f?n?m?(add|sub|mul)\w*pd)|vf|call", one)]
        first, last = (k for k, one in enumerate(operations) if one == "vldmxcsr")
        assert operations.index("vstmxcsr") < first < min(of_doubles) <= max(of_doubles) < last
    assert len(re.findall(r"\bvf\w*add\w*pd\b", assembly)) > 500
