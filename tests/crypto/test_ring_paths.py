"""All paths give the same bytes; one that computes wrongly is not taken; octets that could overflow are no kernel."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.engine import BoundError, cpu
from securevfl_crypto.engine.comparison import emit_residues
from securevfl_crypto.engine.compiled_ring import RingKernels, ring_kernels, ring_part, ring_text
from securevfl_crypto.engine.emitter import Function
from securevfl_crypto.engine.llvm import target_machine
from securevfl_crypto.engine.octets import OctetRows, Octets
from securevfl_crypto.errors import EngineError
from securevfl_crypto.ring import COLUMNS, MODULUS, Stream, compiled, paths
from securevfl_crypto.ring.compiled import CompiledRingLoops
from securevfl_crypto.ring.portable import PortableRingLoops
from support.ring_paths import NAMES, built

COMPILED = [name for name in NAMES if name != "numpy"]
_VECTOR = {path.name: path for path in cpu.VECTOR_PATHS}


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A process that has not chosen yet."""
    monkeypatch.delenv("SECUREVFL_ENGINE", raising=False)
    monkeypatch.setattr(paths, "_load", paths._load.__wrapped__)
    paths._chosen.cache_clear()
    yield monkeypatch
    paths._chosen.cache_clear()


def _residues(modulus: int, *shape: int) -> np.ndarray:
    return Stream.with_fresh_key().draw_residues(0, int(np.prod(shape)), modulus).reshape(shape)


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("first", [True, False])
def test_comparisons_agree_with_numpy(name: str, first: bool) -> None:
    """Random rows, and rows of the smallest and the largest numbers, for words that are all zeros, all ones, or random;
    every turn."""
    path, right = built(name), PortableRingLoops()
    words = np.concatenate(
        [Stream.with_fresh_key().draw_words(0, 256), np.array([0, 2**64 - 1, 2**62, 2**63, 1, 2**61], np.uint64)]
    )
    turns = np.arange(len(words)).astype(np.uint8)
    bits = _residues(MODULUS, len(words), COLUMNS)
    factors, zeros = _residues(MODULUS - 1, len(words), COLUMNS), _residues(MODULUS, len(words), COLUMNS)
    lows, highs = np.zeros_like(bits), np.full_like(bits, MODULUS - 1)
    for share in (bits, lows, highs):
        assert (path.deal_bits(words, share) == right.deal_bits(words, share)).all()
        for factor, zero in ((factors, zeros), (lows, lows), (highs - np.uint8(1), highs), (factors, highs)):
            found = [p.mask_comparison(words, share, factor, zero, turns, first=first) for p in (path, right)]
            assert (found[0] == found[1]).all()
            assert found[0].max() < MODULUS
    assert (path.count_zeros(bits, zeros) == right.count_zeros(bits, zeros)).all()
    assert (path.count_zeros(lows, lows) == COLUMNS).all()
    for first_rows in (1, 2, 4, 8):  # several constants behind one mask
        few = slice(0, len(words) // 8 * first_rows)
        arguments = (words[few], bits[: len(words) // 8], factors[few], zeros[few], turns[few])
        again = [p.mask_comparison(*arguments, first=first) for p in (path, right)]
        assert (again[0] == again[1]).all()


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("modulus", [66, 67, 2, 251])
def test_residues_agree_with_numpy(name: str, modulus: int) -> None:
    all_octets = np.arange(256, dtype=np.uint8)
    for raw in (
        Stream.with_fresh_key().draw_octets(0, 64 * 50),
        all_octets,
        np.full(64, 255, np.uint8),
        np.zeros(128, np.uint8),
    ):
        outs = [np.full(len(raw), 99, np.uint8) for _ in range(2)]
        counts = [
            p.residues(raw, modulus, out) for p, out in zip((built(name), PortableRingLoops()), outs, strict=True)
        ]
        assert counts[0] == counts[1] == int((raw < 256 - 256 % modulus).sum())
        assert (outs[0][: counts[0]] == outs[1][: counts[0]]).all()


def _edges(octets: int) -> dict[str, np.ndarray]:
    """Octets of which some, none, all, every second one, or whole halves of a row are dropped."""
    place = np.arange(octets)
    return {
        "random": Stream.with_fresh_key().draw_octets(0, octets),
        "each of the 256": place.astype(np.uint8),
        "none dropped": np.zeros(octets, np.uint8),
        "the largest, none dropped": np.full(octets, 3 * (MODULUS - 1) - 1, np.uint8),
        "all dropped": np.full(octets, 255, np.uint8),
        "by turns": np.where(place % 2, 255, place % 197).astype(np.uint8),
        "first of eight kept": np.where(place % 8, 255, 131).astype(np.uint8),
        "last of eight kept": np.where(place % 8 == 7, 131, 255).astype(np.uint8),
        "first half of a row": np.where(place % 64 < 32, 65, 255).astype(np.uint8),
        "last half of a row": np.where(place % 64 < 32, 255, 66).astype(np.uint8),
    }


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("pext", [True, False])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 17, 100, 1000])
def test_both_kernels_of_residues_agree_with_numpy(name: str, pext: bool, n: int) -> None:
    """Also the kernel that this CPU would not choose; and neither writes outside of its output."""
    path = CompiledRingLoops(ring_kernels(_VECTOR[name]), pext=pext)
    for label, raw in _edges(COLUMNS * n).items():
        for modulus in (MODULUS - 1, MODULUS):
            right, out = np.empty_like(raw), np.full(len(raw) + 128, 99, np.uint8)
            count = PortableRingLoops().residues(raw, modulus, right)
            assert path.residues(raw, modulus, out[64:-64]) == count, label
            assert np.array_equal(out[64 : 64 + count], right[:count]), label
            assert (np.concatenate([out[:64], out[-64:]]) == 99).all(), label


@settings(deadline=None, max_examples=50)
@given(data=st.data(), n=st.integers(1, 4), modulus=st.sampled_from([MODULUS - 1, MODULUS]))
def test_residues_of_any_octets_are_those_of_python(data: st.DataObject, n: int, modulus: int) -> None:
    """Octets beside the limit are frequent, so that every mask of an eighth is likely."""
    octet = st.one_of(st.integers(0, 255), st.sampled_from([0, 255, 3 * modulus - 1, 3 * modulus]))
    raw = data.draw(st.lists(octet, min_size=COLUMNS * n, max_size=COLUMNS * n))
    right = [each % modulus for each in raw if each < 3 * modulus]
    for name in COMPILED:
        for pext in (True, False):
            out = np.empty(len(raw), np.uint8)
            path = CompiledRingLoops(ring_kernels(_VECTOR[name]), pext=pext)
            assert out[: path.residues(np.array(raw, np.uint8), modulus, out)].tolist() == right


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("fast", [True, False])
def test_the_cpu_chooses_the_kernel_of_residues(monkeypatch: pytest.MonkeyPatch, name: str, fast: bool) -> None:
    monkeypatch.setattr(compiled, "has_fast_pext", lambda: fast)
    called = []

    class Listed(RingKernels):
        def __getitem__(self, kernel: str) -> Callable[..., None]:
            called.append(kernel)
            return super().__getitem__(kernel)

    kernels = ring_kernels(_VECTOR[name])
    path = CompiledRingLoops(Listed(kernels.path, kernels._loaded))
    raw = np.zeros(COLUMNS, np.uint8)
    assert path.residues(raw, 66, raw.copy()) == path.residues(raw, 67, raw.copy()) == COLUMNS
    end = "_pext" if fast and name != "ifma" else ""
    assert called == [f"residues_66{end}", f"residues_67{end}"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("m", [1, 3, 4, 9])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 17, 48])
def test_products_agree_with_numpys_integers(name: str, m: int, n: int) -> None:
    """Heights beside the block's, widths beside the panels', and every order in memory."""
    path, stream = built(name), Stream.with_fresh_key()
    for use, k in enumerate((1, 2, 150)):
        a, b = stream.draw_words(2 * use, (m, k)), stream.draw_words(2 * use + 1, (k, n))
        right = a @ b
        assert (path.product(a, b) == right).all()
        assert (path.product(np.asfortranarray(a), np.asfortranarray(b)) == right).all()
        assert (path.product(a[::-1, ::-1], b[::-1]) == (a[::-1, ::-1] @ b[::-1])).all()
        wide = np.repeat(a, 2, axis=1)
        assert (path.product(wide[:, ::2], b) == right).all()


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 2**32), n=st.sampled_from([5, 8, 11, 16, 21]))
def test_products_on_kernels_are_those_of_pythons_integers(name: str, seed: int, n: int) -> None:
    """Above 4,096 multiplications, where kernels serve; a third of the words are all zeros or all ones."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**64, 24 * 37 + 37 * n, dtype=np.uint64)
    words[rng.integers(0, len(words), len(words) // 3)] = rng.choice(np.array([0, 2**64 - 1], np.uint64))
    a, b = words[: 24 * 37].reshape(24, 37), words[24 * 37 :].reshape(37, n)
    right = (a.astype(object) @ b.astype(object)) % 2**64
    assert (built(name).product(a, b).astype(object) == right).all()


@pytest.mark.parametrize("name", NAMES)
def test_large_products_agree_with_numpys_integers(name: str) -> None:
    """Above 2^20 multiplications, where another kernel serves; pieces of the inner dimension; words that are all ones,
    or ones in the bits where it cuts words in two."""
    path, stream = built(name), Stream.with_fresh_key()
    for use, (m, k, n) in enumerate(((75, 300, 50), (3, 256, 2000), (130, 513, 17))):
        a, b = stream.draw_words(2 * use, (m, k)), stream.draw_words(2 * use + 1, (k, n))
        assert (path.product(a, b) == a @ b).all()
        assert (path.product(a.copy(order="F"), b.T.copy().T) == a @ b).all()
        for word in (2**64 - 1, 2**52 - 1, 2**52, 0xFFF << 52, 0xFFF):
            full = np.full_like(a, word)
            assert (path.product(full, b) == full @ b).all()
            other = np.full_like(b, word)
            assert (path.product(full, other) == (word * word * k) % 2**64).all()


def test_the_fastest_path_that_works_is_taken(fresh: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert paths.ring_loops().name == NAMES[0]


def test_a_forced_path_is_taken(fresh: pytest.MonkeyPatch) -> None:
    for name in cpu.PATHS:
        expected = name if name in NAMES else "numpy"
        if name not in NAMES and name in {path.name for path in cpu.VECTOR_PATHS}:
            continue
        fresh.setenv("SECUREVFL_ENGINE", name)
        paths._chosen.cache_clear()
        assert paths.ring_loops().name == expected
    with pytest.raises(EngineError, match="path 'gpu'"):
        paths.ring_loops("gpu")


def test_a_cpu_without_vectors_computes_with_numpy(fresh: pytest.MonkeyPatch) -> None:
    fresh.setattr(cpu, "host_features", frozenset)
    assert paths.ring_loops().name == "numpy"
    with pytest.raises(EngineError, match="needs a CPU with avx, avx2, bmi"):
        paths.ring_loops("avx2")


@pytest.mark.skipif(not COMPILED, reason="this machine runs no compiled path")
@pytest.mark.parametrize(
    ("loop", "said"),
    [
        ("product", "products"),
        ("residues", "residues"),
        ("deal_bits", "the shares of bits"),
        ("mask_comparison", "comparisons"),
        ("count_zeros", "zeros"),
        ("sum_words", "sums of words"),
        ("combine_octets", "products of octets"),
        ("sum_by_bin", "sums by bin"),
    ],
)
def test_a_path_that_computes_wrongly_is_not_taken(fresh: pytest.MonkeyPatch, loop: str, said: str) -> None:
    whole = getattr(CompiledRingLoops, loop)

    def broken(self: CompiledRingLoops, *arguments: np.ndarray, **options: bool) -> object:
        found = whole(self, *arguments, **options)
        if isinstance(found, np.ndarray):
            found.reshape(-1)[-1] ^= 1
        else:
            arguments[-1][0] ^= 1
        return found

    fresh.setattr(CompiledRingLoops, loop, broken)
    with pytest.warns(RuntimeWarning, match=f"computes {said} wrongly.*taking a slower path"):
        assert paths.ring_loops().name == "numpy"
    with pytest.raises(EngineError, match=f"computes {said} wrongly"):
        paths.ring_loops(COMPILED[0])


def test_kernels_are_emitted_for_every_width() -> None:
    for lanes in (4, 8):
        assert ring_text(lanes).count("define void") == 14
    assert ring_text(8, ifma=True).count("define void") == 13
    assert ring_text(2, pext=False).count("define void") == 12


@pytest.mark.skipif(not COMPILED, reason="this machine runs no compiled path")
def test_compiled_kernels_branch_on_counters_only() -> None:
    """The machine code has as many conditional jumps as the kernels have loops and loops that may not run: the compiler
    made no choice between secrets a branch."""
    from llvmlite import binding

    for path in cpu.VECTOR_PATHS:
        machine = target_machine(path)  # sets LLVM up, too
        text = ring_part(path).text()
        emitted = machine.emit_assembly(binding.parse_assembly(text))
        loops = {name: body.count("br i1") for name, body in re.findall(r"define void @(\w+)\((.*?)\n}", text, re.S)}
        bodies = re.split(r"^(\w+):$", re.sub(r"\s*(#|//).*$", "", emitted, flags=re.M), flags=re.M)
        found = {
            name: len(re.findall(r"^\s+(?:j(?!mp)\w+|b\.\w+|[ct]bn?z)\s", body, re.M))
            for name, body in zip(bodies[1::2], bodies[2::2], strict=True)
        }
        assert {name: found[name] for name in loops} == loops


def test_octets_that_could_overflow_are_refused() -> None:
    rows = OctetRows(Function("none", "", 8), MODULUS)
    large, residue = Octets("%a", 200), Octets("%b", MODULUS - 1)
    for wrong in (
        lambda: rows.add(large, residue),
        lambda: rows.reduce_once(large),
        lambda: rows.subtract_from(MODULUS - 2, residue),
        lambda: rows.multiply_modular(large, large),
        lambda: rows.constant(256),
        lambda: OctetRows(Function("none", "", 8), 86),
        lambda: emit_residues(Function("none", "ptr %raw", 8), 60),
    ):
        with pytest.raises(BoundError):
            wrong()
    assert rows.add_modular(residue, residue).top == MODULUS - 1
    assert rows.multiply_modular(residue, residue).top == MODULUS - 1
    assert rows.subtract_where_above(Octets("%c", 200), 134).top == 133
