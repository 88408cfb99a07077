"""The emitter's proofs: what could overflow is refused, and what is emitted stays within the bounds that it states."""

from __future__ import annotations

import contextlib
import ctypes
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import binding
from securevfl_crypto.engine import BoundError
from securevfl_crypto.engine.emitter import MASK52, Function, Mask, Vec

LANES = 4
WORD = 1 << 64


def _function() -> Function:
    return Function("f", "ptr %in, ptr %out, i64 %n", LANES)


def _vec(top: int, low: int = 0, *, partial: bool = False) -> Vec:
    return Vec("%x", low, top, partial)


ONE, BIG, HALF = _vec(1), _vec(WORD - 1), _vec(5 << 60, partial=False)
PARTIAL = _vec(MASK52, partial=True)

REFUSED: dict[str, Callable[[Function], object]] = {
    "a sum that wraps": lambda f: f.add(BIG, ONE),
    "a sum of halves that wraps": lambda f: f.add(_vec(1 << 63), _vec(1 << 63)),
    "a difference below zero": lambda f: f.sub(_vec(9, 4), _vec(5)),
    "a difference below zero by one": lambda f: f.sub(f.constant(4), _vec(5, 5)),
    "a shift to the left that wraps": lambda f: f.shift_left(_vec(1 << 60), 4),
    "a shift to the right by the whole width": lambda f: f.shift_right(ONE, 64),
    "a shift to the left by the whole width": lambda f: f.shift_left(_vec(0), 64),
    "a wrapping shift by the whole width": lambda f: f.shift_left_wrapping(ONE, 64),
    "a shift backwards": lambda f: f.shift_right(ONE, -1),
    "a first factor of 33 bits": lambda f: f.mul32(_vec(1 << 32), ONE),
    "a second factor of 33 bits": lambda f: f.mul32(ONE, _vec(1 << 32)),
    "a first factor of 53 bits": lambda f: f.madd_low(ONE, _vec(MASK52 + 1), ONE),
    "a second factor of 53 bits": lambda f: f.madd_high(ONE, ONE, _vec(MASK52 + 1)),
    "an accumulator that wraps": lambda f: f.madd_low(_vec(WORD - MASK52), _vec(MASK52), _vec(MASK52)),
    "an upper half that wraps": lambda f: f.madd_high(_vec(WORD - 1), _vec(1 << 51), _vec(2)),
    "a small product of 53 bits": lambda f: f.madd_small(ONE, _vec(1 << 40), _vec(1 << 12)),
    "a constant of 65 bits": lambda f: f.constant(WORD),
    "a negative constant": lambda f: f.constant(-1),
    "a load of 65 bits": lambda f: f.load("%in", 0, WORD),
    "53 bits of 52": lambda f: f.mask(PARTIAL, 53),
}
PARTIAL_REFUSED: dict[str, Callable[[Function], object]] = {
    "add": lambda f: f.add(ONE, PARTIAL),
    "add, first": lambda f: f.add(PARTIAL, ONE),
    "add_wrapping": lambda f: f.add_wrapping(PARTIAL, ONE),
    "sub": lambda f: f.sub(f.constant(1 << 53), PARTIAL),
    "sub, first": lambda f: f.sub(PARTIAL, f.constant(0)),
    "shift_right": lambda f: f.shift_right(PARTIAL, 1),
    "shift_left": lambda f: f.shift_left(PARTIAL, 1),
    "shift_left_wrapping": lambda f: f.shift_left_wrapping(PARTIAL, 1),
    "bitwise": lambda f: f.bitwise("or", ONE, PARTIAL),
    "rotate_right": lambda f: f.rotate_right(PARTIAL, 1),
    "mul32": lambda f: f.mul32(_vec(5, partial=True), ONE),
    "an accumulator": lambda f: f.madd_low(PARTIAL, ONE, ONE),
    "madd_small": lambda f: f.madd_small(ONE, _vec(5, partial=True), ONE),
    "equals": lambda f: f.equals(PARTIAL, 0),
    "store": lambda f: f.store(PARTIAL, "%out"),
    "a choice": lambda f: f.store(f.select(Mask("%m"), ONE, PARTIAL), "%out"),
    "the other choice": lambda f: f.store(f.select(Mask("%m"), PARTIAL, ONE), "%out"),
    "a loop's start": lambda f: f.loop(2, lambda _, c: [ONE], [(PARTIAL, MASK52)]),
    "a loop's result": lambda f: f.loop(2, lambda _, c: [PARTIAL], [(ONE, MASK52)]),
}


@pytest.mark.parametrize("build", REFUSED.values(), ids=REFUSED)
def test_what_could_overflow_is_refused(build: Callable[[Function], object]) -> None:
    with pytest.raises(BoundError):
        build(_function())


@pytest.mark.parametrize("build", PARTIAL_REFUSED.values(), ids=PARTIAL_REFUSED)
def test_half_carried_values_are_refused_as_whole_ones(build: Callable[[Function], object]) -> None:
    with pytest.raises(BoundError, match="mask it first"):
        build(_function())


def test_what_just_fits_is_taken() -> None:
    f = _function()
    assert f.add(_vec(WORD - 2), ONE).top == WORD - 1
    assert f.sub(_vec(9, 5), _vec(5)).low == 0
    assert f.shift_left(_vec((1 << 60) - 1), 4).top == WORD - 16
    assert f.mul32(_vec(2**32 - 1), _vec(2**32 - 1)).top == (2**32 - 1) ** 2
    assert f.madd_low(_vec(WORD - 1 - MASK52), _vec(MASK52), _vec(MASK52)).top == WORD - 1
    assert f.madd_small(_vec(0), _vec(1 << 26), _vec((1 << 26) - 1)).top < 1 << 52
    assert f.mask(PARTIAL, 52).top == MASK52
    assert not f.mask(PARTIAL, 52).partial


def test_a_loop_must_keep_its_bound() -> None:
    f = _function()
    assert f.loop(3, lambda _, c: [f.mask(f.add(c[0], _vec(7)), 3)], [(ONE, 7)])[0].top == 7
    with pytest.raises(BoundError, match="in a loop"):  # it grows
        f.loop(3, lambda _, c: [f.add(c[0], ONE)], [(ONE, 7)])
    with pytest.raises(BoundError, match="in a loop"):  # it starts too high
        f.loop(3, lambda _, c: [f.mask(c[0], 3)], [(_vec(8), 7)])
    with pytest.raises(BoundError, match="add gives"):  # the bound is what the body has to live with
        f.loop(3, lambda _, c: [f.mask(f.add(c[0], ONE), 3)], [(ONE, WORD - 1)])
    with pytest.raises(ValueError, match="zip"):
        f.loop(3, lambda _, c: [], [(ONE, 7)])


# Programs of a few operations, run on integers: an interpreter of the few instructions that the emitter writes


def _evaluate(text: str, inputs: list[list[int]]) -> dict[str, list[int]]:
    """Lanes of every value of a function without loops, as LLVM's language reference and Intel's manual define them."""
    values: dict[str, list[int]] = {}
    loads = iter(inputs)

    def lanes(operand: str) -> list[int]:
        if operand.startswith("<"):
            return [int(number) % WORD for number in re.findall(r"i64 (-?\d+)", operand)]
        return values[operand]

    operand = r"(%\w+|<i64 [^>]*>)"
    binary: dict[str, Callable[[int, int], int]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "shl": lambda a, b: a << b,
        "lshr": lambda a, b: a >> b,
    }
    ternary: dict[str, Callable[[int, int, int], int]] = {
        "fshr": lambda a, b, c: (a << 64 | b) >> c % 64,
        "vpmadd52l": lambda acc, a, b: acc + ((a & MASK52) * (b & MASK52) & MASK52),
        "vpmadd52h": lambda acc, a, b: acc + ((a & MASK52) * (b & MASK52) >> 52),
    }
    for line in text.splitlines():
        name, _, right = line.strip().partition(" = ")
        if right.startswith("load <"):
            values[name] = next(loads)
        elif found := re.fullmatch(rf"(\w+) <{LANES} x i64> {operand}, {operand}", right):
            operation = binary[found[1]]
            values[name] = [operation(a, b) % WORD for a, b in zip(lanes(found[2]), lanes(found[3]), strict=True)]
        elif found := re.fullmatch(rf"icmp eq <{LANES} x i64> {operand}, {operand}", right):
            values[name] = [int(a == b) for a, b in zip(lanes(found[1]), lanes(found[2]), strict=True)]
        elif found := re.fullmatch(rf"xor <{LANES} x i1> {operand}, {operand}", right):
            values[name] = [a ^ b for a, b in zip(lanes(found[1]), lanes(found[2]), strict=True)]
        elif found := re.match(rf"select <{LANES} x i1> {operand}, <{LANES} x i64> {operand}, .*> {operand}$", right):
            picked = zip(lanes(found[1]), lanes(found[2]), lanes(found[3]), strict=True)
            values[name] = [a if mask else b for mask, a, b in picked]
        elif found := re.match(r"call .*@llvm\.(?:x86\.avx512\.)?(fshr|vpmadd52[lh])", right):
            of = [lanes(x) for x in re.findall(rf"<{LANES} x i64> {operand}(?=[,)])", right)]
            values[name] = [ternary[found[1]](*three) % WORD for three in zip(*of, strict=True)]
        else:
            assert not name.startswith(("%v", "%m")), line
    return values


@dataclass
class _Made:
    """A value with what it should be: exact integers, of which only 52 bits count where it is partial."""

    vec: Vec
    exact: list[int]


def _each(operation: Callable[..., int], *of: _Made) -> list[int]:
    return [operation(*lanes) for lanes in zip(*(one.exact for one in of), strict=True)]


_Operation = Callable[[Function, int, _Made, _Made, _Made], _Made]


def _lift(f: Function, _: int, a: _Made, b: _Made, __: _Made) -> _Made:
    """What `Field.sub` does."""
    difference = f.sub(f.add(a.vec, f.constant(b.vec.top)), b.vec)
    return _Made(difference, _each(lambda x, y: x + b.vec.top - y, a, b))


def _choice(f: Function, bits: int, a: _Made, b: _Made, c: _Made) -> _Made:
    value = [a.vec.low, a.vec.top, a.exact[0]][bits % 3]
    chosen = f.select(f.equals(a.vec, value), b.vec, c.vec)
    return _Made(chosen, _each(lambda x, y, z: y if x == value else z, a, b, c))


OPERATIONS: dict[str, _Operation] = {
    "add": lambda f, _, a, b, c: _Made(f.add(a.vec, b.vec), _each(lambda x, y: x + y, a, b)),
    "sub": lambda f, _, a, b, c: _Made(f.sub(a.vec, b.vec), _each(lambda x, y: x - y, a, b)),
    "lift": _lift,
    "mask": lambda f, n, a, b, c: _Made(f.mask(a.vec, n), _each(lambda x: x & (1 << n) - 1, a)),
    "right": lambda f, n, a, b, c: _Made(f.shift_right(a.vec, n), _each(lambda x: x >> n, a)),
    "left": lambda f, n, a, b, c: _Made(f.shift_left(a.vec, n % 12), _each(lambda x: x << n % 12, a)),
    "and": lambda f, _, a, b, c: _Made(f.bitwise("and", a.vec, b.vec), _each(lambda x, y: x & y, a, b)),
    "or": lambda f, _, a, b, c: _Made(f.bitwise("or", a.vec, b.vec), _each(lambda x, y: x | y, a, b)),
    "xor": lambda f, _, a, b, c: _Made(f.bitwise("xor", a.vec, b.vec), _each(lambda x, y: x ^ y, a, b)),
    "add_wrapping": lambda f, _, a, b, c: _Made(f.add_wrapping(a.vec, b.vec), _each(lambda x, y: (x + y) % WORD, a, b)),
    "shift_left_wrapping": lambda f, n, a, b, c: _Made(
        f.shift_left_wrapping(a.vec, n), _each(lambda x: (x << n) % WORD, a)
    ),
    "rotate": lambda f, n, a, b, c: _Made(f.rotate_right(a.vec, n), _each(lambda x: (x >> n | x << 64 - n) % WORD, a)),
    "low52": lambda f, _, a, b, c: _Made(f.low52(a.vec), _each(lambda x: x & MASK52, a)),
    "mul32": lambda f, _, a, b, c: _Made(f.mul32(a.vec, b.vec), _each(lambda x, y: x * y, a, b)),
    "madd_low": lambda f, _, a, b, c: _Made(
        f.madd_low(a.vec, b.vec, c.vec), _each(lambda x, y, z: x + ((y & MASK52) * (z & MASK52) & MASK52), a, b, c)
    ),
    "madd_high": lambda f, _, a, b, c: _Made(
        f.madd_high(a.vec, b.vec, c.vec), _each(lambda x, y, z: x + ((y & MASK52) * (z & MASK52) >> 52), a, b, c)
    ),
    "madd_small": lambda f, _, a, b, c: _Made(
        f.madd_small(a.vec, b.vec, c.vec), _each(lambda x, y, z: x + y * z, a, b, c)
    ),
    "choice": _choice,
}


@settings(max_examples=150)
@given(st.integers(0, 2**63), st.integers(1, 40))
def test_programs_stay_within_their_bounds_and_are_exact(seed: int, steps: int) -> None:
    """Inputs at the ends of their intervals and within; nothing that is emitted wraps, whatever the operations."""
    rng = random.Random(seed)
    f = _function()
    made, inputs = [], []
    for k in range(4):
        top = rng.choice([rng.getrandbits(rng.randint(1, 64)), (1 << rng.choice([26, 32, 52, 64])) - 1])
        inputs.append([rng.choice([0, top, rng.randint(0, top)]) for _ in range(LANES)])
        made.append(_Made(f.load("%in", k, top), inputs[-1]))
    number = rng.getrandbits(rng.randint(1, 64))
    made.append(_Made(f.constant(number), [number] * LANES))
    for _ in range(steps):
        operation = OPERATIONS[rng.choice(list(OPERATIONS))]
        operands = rng.choices(made, k=3)
        with contextlib.suppress(BoundError):  # refused: the program goes on without it
            made.append(operation(f, rng.randint(0, 63), *operands))
    values = _evaluate(f.to_text(), inputs)
    for one in made:
        if not one.vec.name.startswith("%"):
            continue
        for got, exact in zip(values[one.vec.name], one.exact, strict=True):
            meant, wanted = (got & MASK52, exact & MASK52) if one.vec.partial else (got, exact)
            assert meant == wanted
            assert one.vec.low <= meant <= one.vec.top


def _compiled(f: Function) -> tuple[Callable[..., None], object]:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(f.to_text())
    module.verify()
    machine = binding.Target.from_default_triple().create_target_machine(opt=1)
    compiler = binding.create_mcjit_compiler(module, machine)
    compiler.finalize_object()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    return kind(compiler.get_function_address("f")), compiler


def test_nested_loops_masks_and_interleaved_work_run_as_written() -> None:
    """On any CPU: sums in a loop within a loop, a choice by a flag, two streams in turns, and a frame's scratch."""
    f = _function()
    bound = (1 << 32) - 1

    def outer(i: str, carried: list[Vec]) -> list[Vec]:
        def inner(j: str, state: list[Vec]) -> list[Vec]:
            return [f.mask(f.add(state[0], f.load("%in", j, 1000)), 32)]

        (total,) = f.loop(3, inner, [(carried[0], bound)])
        flag = f.load_flag("%out", i)  # bytes of the output's first vector, which is written only at the end
        scratch = f.allocate(2)
        f.store(f.select(flag, f.constant(100), f.constant(0)), scratch, 1)
        return [f.mask(f.add(total, f.load(scratch, 1, 100)), 32)]

    (total,) = f.loop("%n", outer, [(f.constant(0), bound)])
    twice, thrice = f.interleave(
        lambda: f.add(total, total), lambda: f.add(f.mul32(total, f.constant(2)), f.mask(total, 20))
    )
    f.store(twice, "%out", 0)
    f.store(thrice, "%out", 1)
    run, _keep = _compiled(f)
    source = np.arange(3 * LANES, dtype=np.uint64)
    out = np.zeros((2, LANES), dtype=np.uint64)
    out.view(np.uint8)[0, :4] = [1, 0, 3, 2]  # only the lowest bit counts
    run(source.ctypes.data, out.ctypes.data, 4)
    expected = 4 * source.reshape(3, LANES).sum(axis=0) + 200
    assert np.array_equal(out, np.stack([2 * expected, 3 * expected]))
