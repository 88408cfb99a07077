"""Loops over rows of bits: all paths give the same bytes, and those of ten obvious lines; a wrong path is not taken."""

from __future__ import annotations

import hashlib
import secrets
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.bits import BitLoops, bit_loops, byte_tables, paths
from securevfl_crypto.bits.compiled import CompiledBitLoops
from securevfl_crypto.bits.portable import PortableBitLoops
from securevfl_crypto.engine import cpu
from securevfl_crypto.engine.compiled_bits import bit_kernels
from securevfl_crypto.engine.cpu import paths_of_this_cpu
from securevfl_crypto.errors import EngineError

_VECTOR = {path.name: path for path in paths_of_this_cpu()}
NAMES = (*_VECTOR, "numpy")
SIZES = [0, 1, 15, 16, 17, 33, 100]


def built(name: str) -> BitLoops:
    """A path, taken without its self-test: what computes wrongly must fail."""
    return CompiledBitLoops(bit_kernels(_VECTOR[name])) if name in _VECTOR else PortableBitLoops()


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A process that has not chosen yet."""
    monkeypatch.delenv("SECUREVFL_ENGINE", raising=False)
    monkeypatch.setattr(paths, "_load", paths._load.__wrapped__)
    paths._chosen.cache_clear()
    yield monkeypatch
    paths._chosen.cache_clear()


def _random(rows: int, width: int) -> np.ndarray:
    return np.frombuffer(secrets.token_bytes(rows * width), dtype=np.uint8).reshape(rows, width).copy()


def _bit(rows: np.ndarray, row: int, column: int) -> int:
    return int(rows[row, column // 8] >> (column % 8)) & 1


@pytest.mark.parametrize("name", NAMES)
def test_columns_become_rows(name: str) -> None:
    wide = _random(512, 3 * 64 + 16)
    columns = wide[:, :128]  # with gaps between them, as the extension keeps them
    rows = built(name).transpose(columns)
    assert rows.shape == (1024, 64)
    for row, column in ((0, 0), (1, 511), (511, 7), (512, 8), (1023, 300), (777, 64), (64, 63)):
        assert _bit(rows, row, column) == _bit(columns, column, row)
    back = built(name).transpose(np.ascontiguousarray(rows[:512]))  # a square twice is itself
    assert np.array_equal(back, columns[:, :64])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", SIZES)
def test_sums_that_bytes_select(name: str, count: int) -> None:
    path, generator, words, start = built(name), _random(80, 64), _random(count, 16), _random(count, 64)
    slots, bits = _random(90, 64), _random(count, 5)
    positions = (_random(count, 12).view("<u4") % 30 + np.array([0, 30, 60])).astype(np.uint32)
    coded, decoded = start.copy(), start.copy()
    path.encode(words[:, 2:], byte_tables(generator), coded)
    path.decode(positions, bits, byte_tables(slots[-40:]), slots, decoded)
    for row in range(count):
        chosen = [generator[bit] for bit in range(80) if _bit(words[:, 2:], row, bit)]
        assert np.array_equal(coded[row], np.bitwise_xor.reduce([start[row], *chosen]))
        chosen = [slots[50 + bit] for bit in range(40) if _bit(bits, row, bit)]
        assert np.array_equal(decoded[row], np.bitwise_xor.reduce([start[row], *slots[positions[row]], *chosen]))
    sums = path.sum_rows(start, bits)
    for bit in range(40):
        chosen = [start[row] for row in range(count) if _bit(bits, row, bit)]
        assert np.array_equal(sums[bit], np.bitwise_xor.reduce([np.zeros(64, np.uint8), *chosen]))


@pytest.mark.parametrize("name", NAMES)
def test_blake2s_of_the_rfc(name: str) -> None:
    """RFC 7693, appendix B: BLAKE2s-256 of "abc"."""
    message = np.zeros((1, 64), dtype=np.uint8)
    message[0, :3] = list(b"abc")
    digest = built(name).hash_rows(message, 3, np.zeros(16, np.uint8))
    assert digest.tobytes().hex() == "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize(("length", "number"), [(0, 0), (1, 1), (20, 2), (63, 0), (64, 2**32 - 1)])
def test_the_hash_is_blake2s(name: str, count: int, length: int, number: int) -> None:
    messages, salts = _random(count, 64), _random(count, 48)[:, 16:32]
    messages[:, length:] = 0
    digests = built(name).hash_rows(messages, length, salts, number)
    common = built(name).hash_rows(messages, length, np.arange(16, dtype=np.uint8), number)
    assert digests.shape == common.shape == (count, 32)
    for row in range(count):
        for salt, digest in ((salts[row].tobytes(), digests[row]), (bytes(range(16)), common[row])):
            right = hashlib.blake2s(
                messages[row, :length].tobytes(), salt=salt[:8], person=salt[8:], node_offset=number
            ).digest()
            assert digest.tobytes() == right


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(count=st.integers(0, 60), spare=st.integers(1, 40), width=st.integers(1, 8))
def test_peeled_keys_get_their_values(name: str, count: int, spare: int, width: int) -> None:
    third = count // 3 + spare
    positions = (_random(count, 12).view("<u4") % third + np.arange(3) * third).astype(np.uint32)
    peeled = built(name).peel(positions, 3 * third)
    assert np.array_equal(peeled.core, PortableBitLoops().peel(positions, 3 * third).core)
    values, slots = _random(count, 8 * width).view(np.uint64), _random(3 * third, 8 * width).view(np.uint64)
    before = slots.copy()
    peeled.substitute(values, slots)
    done = np.setdiff1d(np.arange(count), peeled.core)
    assert np.array_equal(np.bitwise_xor.reduce(slots[positions[done]], axis=1), values[done])
    free = np.setdiff1d(np.arange(3 * third), positions)
    assert np.array_equal(slots[free], before[free])


def test_wrong_results_are_found_and_another_path_taken(fresh: pytest.MonkeyPatch) -> None:
    breaks: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "transpose": lambda rows: rows ^ np.uint8(1),
        "hash_rows": lambda rows: np.roll(rows, 1, axis=0),
        "sum_rows": lambda rows: rows[::-1],
    }
    for name, change in breaks.items():
        with pytest.MonkeyPatch.context() as patch:
            right = getattr(CompiledBitLoops, name)
            patch.setattr(CompiledBitLoops, name, lambda *args, right=right, change=change: change(right(*args)))
            paths._chosen.cache_clear()
            for path in _VECTOR:
                with pytest.raises(EngineError, match="wrongly on this machine"):
                    bit_loops(path)
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                assert bit_loops().name == "numpy"
            assert len(seen) == len(_VECTOR)


def test_paths_are_chosen_by_name(fresh: pytest.MonkeyPatch) -> None:
    fresh.setenv("SECUREVFL_ENGINE", "cryptography")
    assert bit_loops().name == "numpy"
    assert bit_loops("libsodium").name == "numpy"
    with pytest.raises(EngineError, match="path 'magic'; expected one of"):
        bit_loops("magic")
    fresh.setattr(cpu, "host_features", frozenset)
    with pytest.raises(EngineError, match="needs a CPU with"):
        bit_loops("avx2")
