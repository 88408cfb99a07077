"""Field arithmetic of the compiled paths at the edges of limbs, against Python's integers; and what was compiled."""

from __future__ import annotations

import ctypes
import random
import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
from llvmlite import binding
from securevfl_crypto.elligator2 import P as MPZ_P
from securevfl_crypto.elligator2 import map_to_curve, sums_of_maps
from securevfl_crypto.engine.compiled import Kernels, curve_part, curve_text, field_of
from securevfl_crypto.engine.cpu import VECTOR_PATHS, VectorPath
from securevfl_crypto.engine.emitter import BoundError, Function, Vec
from securevfl_crypto.engine.field import Element, Field
from securevfl_crypto.engine.llvm import compile_in_memory, target_machine
from support.engines import runnable

P = int(MPZ_P)
J = 486662


@pytest.fixture(scope="module", params=[path.name for path in VECTOR_PATHS])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """The kernels of each compiled path that this machine can run, and those that a library hides."""
    if request.param not in runnable():
        pytest.skip(f"this machine cannot run {request.param}")
    path = next(path for path in VECTOR_PATHS if path.name == request.param)
    return Kernels(path, compile_in_memory(curve_part(path, internal=True), path))


def _field(path: VectorPath) -> Field:
    return field_of(path, Function("none", "", path.lanes))


def _value(kernels: Kernels, limbs: np.ndarray, lane: int) -> int:
    positions = _field(kernels.path).positions
    return sum(int(limbs[k, lane]) << position for k, position in enumerate(positions))


def _at_the_edges(kernels: Kernels, rng: random.Random) -> np.ndarray:
    """Limbs (count, lanes) within `tops`: each at an end of its range, near one, at the radix, or anywhere."""
    field = _field(kernels.path)
    ends = [*field.positions[1:], 255]
    out = np.empty((field.count, kernels.path.lanes), dtype=np.uint64)
    for lane in range(kernels.path.lanes):
        same = rng.choice([None, None, 0, 1])  # now and then all limbs at one end
        for k, top in enumerate(field.tops):
            radix = 1 << ends[k] - field.positions[k]
            choices = [0, 1, top, top - 1, radix - 1, min(radix, top), rng.randint(0, top), rng.randint(0, top)]
            out[k, lane] = (0, top)[same] if same is not None else rng.choice(choices)
    return out


def _settled(kernels: Kernels, limbs: np.ndarray) -> bool:
    return all(int(row.max()) <= top for row, top in zip(limbs, _field(kernels.path).tops, strict=True))


def _run(kernels: Kernels, name: str, *elements: np.ndarray, count: int | None = None, width: int = 1) -> np.ndarray:
    """One kernel on whole elements, of which `width` stand side by side."""
    shape = (width * kernels.limbs, kernels.path.lanes)
    out = np.zeros(shape, dtype=np.uint64)
    numbers = () if count is None else (count,)
    kernels[name](out.ctypes.data, *(element.ctypes.data for element in elements), *numbers)
    return out


ROUNDS = range(60)


def test_products_at_the_edges_of_limbs(kernels: Kernels) -> None:
    for seed in ROUNDS:
        rng = random.Random(seed)
        a, b = _at_the_edges(kernels, rng), _at_the_edges(kernels, rng)
        out = _run(kernels, "multiplication", a, b)
        assert _settled(kernels, out)
        for lane in range(kernels.path.lanes):
            assert (_value(kernels, out, lane) - _value(kernels, a, lane) * _value(kernels, b, lane)) % P == 0


def test_products_may_overwrite_their_operands(kernels: Kernels) -> None:
    a, b = (_at_the_edges(kernels, random.Random(seed)) for seed in (1, 2))
    expected = _run(kernels, "multiplication", a, b)
    kernels["multiplication"](a.ctypes.data, a.ctypes.data, b.ctypes.data)
    assert np.array_equal(a, expected)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_squarings_at_the_edges_of_limbs(kernels: Kernels, times: int) -> None:
    n = kernels.limbs
    for seed in ROUNDS:
        rng = random.Random(seed)
        pair = np.concatenate([_at_the_edges(kernels, rng), _at_the_edges(kernels, rng)])
        both = _run(kernels, "squarings2", pair, count=times, width=2)
        one = _run(kernels, "squarings1", pair, count=times)
        for out, a in ((one, pair[:n]), (both[:n], pair[:n]), (both[n:], pair[n:])):
            assert _settled(kernels, out)
            for lane in range(kernels.path.lanes):
                assert _value(kernels, out, lane) % P == pow(_value(kernels, a, lane), 2**times, P)


def test_inversion_and_power(kernels: Kernels) -> None:
    n = kernels.limbs
    for seed in range(12):
        rng = random.Random(seed)
        pair = np.concatenate([_at_the_edges(kernels, rng), _at_the_edges(kernels, rng)])
        inverse, roots = _run(kernels, "inversion", pair), _run(kernels, "power", pair, width=2)
        for lane in range(kernels.path.lanes):
            assert _value(kernels, inverse, lane) % P == pow(_value(kernels, pair[:n], lane), P - 2, P)
            for out, a in ((roots[:n], pair[:n]), (roots[n:], pair[n:])):
                assert _value(kernels, out, lane) % P == pow(_value(kernels, a, lane), (P - 5) // 8, P)


# Small kernels of the field's other operations. Each takes two elements, or words, and writes four words.

_Words = Callable[[Field], list[Vec]]


def _ab(field: Field) -> tuple[Element, Element]:
    return field.load("%a"), field.load("%b")


def _mask_words(field: Field) -> list[Vec]:
    f, a = field.f, field.load("%a")
    zero, one = f.constant(0), f.constant(1)
    both = f.xor_masks(field.is_zero(a), field.is_odd(a))
    return [f.select(mask, one, zero) for mask in (field.is_zero(a), field.is_odd(a), both)] + [zero]


def _unpacked(field: Field, bits: int) -> list[Vec]:
    words = [field.f.load("%a", k) for k in range(4)]
    return field.pack(field.freeze(field.mul_add_small(field.unpack(words, bits=bits), field.constant(0), 1)))


def _of(operation: Callable[[Field, Element, Element], Element]) -> _Words:
    return lambda field: field.pack(field.freeze(operation(field, *_ab(field))))


def _narrowed(field: Field, a: Element, b: Element) -> Element:
    return field.mul(field.narrow(field.add(a, b)), field.narrow(field.sub(a, b)))


def _squared_sum(field: Field, a: Element, b: Element) -> Element:
    """(−a − b)², of which limbs with signs have a negative one."""
    return field.square(field.narrow(field.sub(field.sub(field.constant(0), a), b)))


SMALL: dict[str, tuple[_Words, Callable[[int, int], int]]] = {
    "frozen": (_of(lambda field, a, _: a), lambda a, _: a),
    "sum": (_of(lambda field, a, b: field.add(a, b)), lambda a, b: a + b),
    "difference": (_of(lambda field, a, b: field.sub(a, b)), lambda a, b: a - b),
    "scaled": (_of(lambda field, a, b: field.mul_add_small(a, b, 121665)), lambda a, b: a + 121665 * b),
    "largest": (_of(lambda field, a, b: field.mul_add_small(a, b, 2**17 - 1)), lambda a, b: a + (2**17 - 1) * b),
    "narrowed": (_of(_narrowed), lambda a, b: a * a - b * b),
    "negative": (_of(lambda field, a, _: field.sub(field.constant(0), a)), lambda a, _: -a),
    "constant": (_of(lambda field, a, _: field.mul(a, field.constant(-J))), lambda a, _: -J * a),
    "negated": (_of(_squared_sum), lambda a, b: (a + b) ** 2),
    "squared": (_of(lambda field, a, b: field.square(field.narrow(field.sub(b, a)))), lambda a, b: (a - b) ** 2),
    "masks": (_mask_words, lambda a, _: (a % P == 0) | (a % P % 2) << 64 | ((a % P == 0) ^ (a % P % 2)) << 128),
    "unpacked255": (lambda field: _unpacked(field, 255), lambda a, _: a % 2**255),
    "unpacked256": (lambda field: _unpacked(field, 256), lambda a, _: a),
}


@lru_cache(maxsize=4)
def _small(path: VectorPath) -> tuple[dict[str, Callable[..., None]], object]:
    parts = [line for line in curve_text(path).splitlines() if line.startswith("declare")]
    for name, (words, _) in SMALL.items():
        function = Function(name, "ptr %out, ptr %a, ptr %b", path.lanes)
        for k, word in enumerate(words(field_of(path, function))):
            function.store(word, "%out", k)
        parts.append(function.to_text())
    module = binding.parse_assembly("\n".join(parts))
    module.verify()
    compiled = binding.create_mcjit_compiler(module, target_machine(path, level=1, in_memory=True))
    compiled.finalize_object()
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)
    return {name: kind(compiled.get_function_address(name)) for name in SMALL}, compiled


def _words(kernels: Kernels, name: str, a: np.ndarray, b: np.ndarray) -> list[int]:
    """What a small kernel gives, for each lane."""
    out = np.zeros((4, kernels.path.lanes), dtype=np.uint64)
    functions, _ = _small(kernels.path)
    functions[name](out.ctypes.data, a.ctypes.data, b.ctypes.data)
    return [sum(int(out[k, lane]) << 64 * k for k in range(4)) for lane in range(kernels.path.lanes)]


@pytest.mark.parametrize("name", [name for name in SMALL if not name.startswith("unpacked")])
def test_small_operations_at_the_edges_of_limbs(kernels: Kernels, name: str) -> None:
    right = SMALL[name][1]
    for seed in ROUNDS:
        rng = random.Random(seed)
        a, b = _at_the_edges(kernels, rng), _at_the_edges(kernels, rng)
        for lane, word in enumerate(_words(kernels, name, a, b)):
            expected = right(_value(kernels, a, lane), _value(kernels, b, lane))
            assert word == (expected if name == "masks" else expected % P)


EDGES = [
    *range(21),
    *range(P - 20, P + 21),
    *range(2**255 - 3, 2**255 + 25),
    *(2**k + d for k in (50, 51, 52, 102, 104, 153, 156, 204, 208, 254) for d in (-20, -19, -1, 0, 1)),
    *(P - 2**k for k in (50, 51, 52, 102, 104, 153, 156, 204, 208, 254)),
    *(2**255 - 2**k for k in (50, 51, 52, 102, 104, 153, 156, 204, 208, 254)),
]


def test_freezing_at_the_edges_of_the_field(kernels: Kernels) -> None:
    """Around 0, p and 2^255, in plain digits; the last one takes what lies above 2^255."""
    field, lanes = _field(kernels.path), kernels.path.lanes
    for start in range(0, len(EDGES), lanes):
        values = (EDGES[start : start + lanes] * lanes)[:lanes]
        a = np.array([field.to_digits(value) for value in values], dtype=np.uint64).T.copy()
        for name in ("frozen", "masks", "negative"):
            right = SMALL[name][1]
            for value, word in zip(values, _words(kernels, name, a, a), strict=True):
                assert word == (right(value, 0) if name == "masks" else right(value, 0) % P), (name, value)


@pytest.mark.parametrize("top", [0, 1])
def test_freezing_the_largest_and_the_least(kernels: Kernels, top: int) -> None:
    field, lanes = _field(kernels.path), kernels.path.lanes
    a = np.array([[limb * top] * lanes for limb in field.tops], dtype=np.uint64)
    assert _words(kernels, "frozen", a, a) == [_value(kernels, a, 0) % P] * lanes


@pytest.mark.parametrize("bits", [255, 256])
def test_words_are_unpacked(kernels: Kernels, bits: int) -> None:
    lanes = kernels.path.lanes
    values = [*EDGES, *(2**256 - 1 - k for k in range(8)), *(1 << k for k in range(256))]
    values += [random.Random(7).getrandbits(256) for _ in range(20)]
    for start in range(0, len(values), lanes):
        some = (values[start : start + lanes] * lanes)[:lanes]
        a = np.array([[v >> 64 * k & 2**64 - 1 for v in some] for k in range(4)], dtype=np.uint64)
        right = SMALL[f"unpacked{bits}"][1]
        assert _words(kernels, f"unpacked{bits}", a, a) == [right(v, 0) % P for v in some]


# The map at inputs that no hash is known for, 384 bits each


def _sums(kernels: Kernels, pairs: list[tuple[int, int]]) -> list[int]:
    lanes = kernels.path.lanes
    blocks = max(2, -(-len(pairs) // lanes))
    filled = (pairs * (2 * lanes))[: blocks * lanes]
    planes = np.array(
        [[number >> 64 * k & 2**64 - 1 for number in column] for column in zip(*filled, strict=True) for k in range(6)],
        dtype=np.uint64,
    )
    num, den, scratch = (np.zeros((blocks, kernels.limbs, lanes), dtype=np.uint64) for _ in range(3))
    out = np.zeros((4, blocks * lanes), dtype=np.uint64)
    stride = blocks * lanes
    kernels["map_and_add"](planes.ctypes.data, stride, num.ctypes.data, den.ctypes.data, blocks)
    kernels["division"](out.ctypes.data, stride, num.ctypes.data, den.ctypes.data, scratch.ctypes.data, blocks)
    return [sum(int(out[k, i]) << 64 * k for k in range(4)) for i in range(len(pairs))]


def test_the_map_at_its_edges(kernels: Kernels) -> None:
    """Zero maps to (0, 0), of order two; then numbers about p, 2^256 and 2^384; equal coordinates give zero."""
    numbers = [0, 1, 2, 5, P - 2, P + 3, (P - 1) // 2, 2**255 - 20, 2**256 - 1, 2**256, 2**383, 2**384 - 1, 2**384 - P]
    pairs = [(x, y) for x in numbers for y in numbers]
    for (x, y), u in zip(pairs, _sums(kernels, pairs), strict=True):
        (x0, _), (x1, _) = map_to_curve([x % MPZ_P, y % MPZ_P])
        assert u == (0 if x0 == x1 else sums_of_maps([x, y])[0][0]), (x, y)


def test_reduction_of_384_bits(kernels: Kernels) -> None:
    """Each bit counts: (x + 2^k) with its complement modulo p."""
    pairs = [(1 << k, (1 << k) % P + 3) for k in range(384)]
    expected = [int(x) for x, _ in sums_of_maps([n for pair in pairs for n in pair])]
    assert _sums(kernels, pairs) == expected


# What was compiled


@pytest.mark.parametrize("path", VECTOR_PATHS, ids=lambda path: path.name)
def test_nothing_computed_becomes_an_address_or_a_condition(path: VectorPath) -> None:
    """In the IR, lanes never turn into scalars, and the one scalar that is read, a swap, only fills a mask."""
    text = curve_text(path)
    # Bits of doubles are read as integers, lane by lane.
    text = re.sub(rf"bitcast <{path.lanes} x (i64|double)> %\w+ to <{path.lanes} x (i64|double)>", "", text)
    for instruction in ("extractelement", "bitcast", "reduce", "ptrtoint", "inttoptr", "switch", "indirectbr"):
        assert instruction not in text
    read = 0
    for function in text.split("define ")[1:]:
        secret: set[str] = set()
        for line in function.splitlines():
            name, _, expression = line.strip().partition(" = ")
            if expression.startswith("load ") and not expression.startswith("load <"):
                constant = function.startswith("void @compression(") and expression.startswith("load i64,")
                assert constant or expression.startswith("load i8,")  # SHA-512's constants, and the ladder's swaps
                secret.add(name)
                read += not constant
            elif secret & set(re.findall(r"%\w+", expression or line)):
                assert expression.startswith(("trunc i8 ", "insertelement "))
                if expression.startswith("trunc"):
                    secret.add(name)
            if line.strip().startswith("br i1"):
                counter = re.fullmatch(r"br i1 (%i\d+)c, label %loop\d+, label %done\d+", line.strip())
                assert counter is not None
                assert f"{counter[1]}c = icmp ult i64 {counter[1]}n, " in function
                assert f"{counter[1]}n = add i64 {counter[1]}, 1" in function
    assert read == 1  # in the ladder, within the loop over bits


@pytest.mark.parametrize("path", VECTOR_PATHS, ids=lambda path: path.name)
def test_the_ladder_has_no_jumps_but_its_two_loops(path: VectorPath) -> None:
    """In the assembly that the compiler makes of it."""
    head, *functions = curve_text(path).split("define ")
    ladder = next(text for text in functions if text.startswith("void @ladder("))
    module = binding.parse_assembly(f"{head}define {ladder}")
    assembly = target_machine(path).emit_assembly(module)
    jumps = re.findall(r"^\s+(j\w+|loop\w*|call\w*|b|b\.\w+|bl\w*|br|[ct]bn?z)\s", assembly, re.MULTILINE)
    assert jumps in (["jb", "jb"], ["b.lo", "b.lo"])
    slow = r"^\s+(v?p?gather\w*|cmov\w*|div\w*|idiv\w*|udiv|sdiv|csel)\s"
    assert not re.findall(slow, assembly, re.MULTILINE)
    assert ("zmm" in assembly) == (path.lanes == 8)
    assert ("vpmadd52" in assembly) == (path.radix == 52)


@pytest.mark.parametrize("path", VECTOR_PATHS, ids=lambda path: path.name)
def test_what_is_too_large_is_neither_stored_nor_frozen(path: VectorPath, monkeypatch: pytest.MonkeyPatch) -> None:
    field = _field(path)
    large = [Vec(f"%x{k}", 0, top + 1) for k, top in enumerate(field.tops)]
    with pytest.raises(BoundError, match="is promised"):
        field.store(large, "%out")
    with pytest.raises(BoundError):
        field.store(field.narrow(field.add(large, large)), "%out")
    monkeypatch.setattr(field, "settle", lambda a: a)
    with pytest.raises(BoundError, match="is the most"):
        field.freeze(large)


@pytest.mark.parametrize("path", VECTOR_PATHS, ids=lambda path: path.name)
def test_products_refuse_what_was_not_narrowed(path: VectorPath) -> None:
    field = _field(path)
    wide = [Vec(f"%x{k}", 0, 1 << 53) for k in range(field.count)]
    for product in (lambda: field.mul(wide, wide), lambda: field.square(wide)):
        with pytest.raises(BoundError):
            product()
    with pytest.raises(BoundError):
        field.mul_add_small(wide, wide, 121665)
