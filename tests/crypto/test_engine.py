"""One contract for every path of the batch engine: RFC vectors, other implementations, shapes, threads."""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.elligator2 import expand_message_xmd, sums_of_maps
from securevfl_crypto.engine import PATHS, Engine
from securevfl_crypto.engine.ladder import BLOCKS
from securevfl_crypto.errors import EngineError, MalformedError
from support.engines import built, runnable
from vectors.known_answers import RANDOM_ORACLE as VECTORS
from vectors.known_answers import RANDOM_ORACLE_DST as DST

P = 2**255 - 19
SIZES = [0, 1, 7, 8, 9, 15, 17, 511, 512, 513, 1025]
"""Around vectors (4 or 8 lanes), pairs of them, which arrays are filled up to, and groups of 64 (256 or 512 rows)."""


@pytest.fixture(scope="module", params=PATHS)
def by(request: pytest.FixtureRequest) -> Engine:
    """Each path that this machine can run."""
    if request.param not in runnable():
        pytest.skip(f"this machine cannot run {request.param}")
    return built(request.param)


def _bytes(shape: tuple[int, int]) -> np.ndarray:
    return np.frombuffer(secrets.token_bytes(shape[0] * shape[1]), dtype=np.uint8).reshape(shape)


def _points(values: list[int]) -> np.ndarray:
    return np.frombuffer(b"".join(v.to_bytes(32, "little") for v in values), dtype=np.uint8).reshape(-1, 32)


def _openssl(secret: bytes, points: np.ndarray) -> np.ndarray:
    key = X25519PrivateKey.from_private_bytes(secret)

    def product(point: bytes) -> bytes:
        try:
            return key.exchange(X25519PublicKey.from_public_bytes(point))
        except ValueError:  # its way to say that the product is zero
            return bytes(32)

    return np.array([list(product(row.tobytes())) for row in points], dtype=np.uint8).reshape(-1, 32)


# X25519


@pytest.mark.parametrize(
    ("scalar", "point", "expected"),
    [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ],
)
def test_vectors_of_rfc_7748(by: Engine, scalar: str, point: str, expected: str) -> None:
    """RFC 7748, section 5.2; bit 255 of the second point is set and must not count."""
    rows = np.frombuffer(bytes.fromhex(point), dtype=np.uint8).reshape(1, 32)
    assert by.x25519(bytes.fromhex(scalar), rows).tobytes().hex() == expected


def test_iterated_vector_of_rfc_7748(by: Engine) -> None:
    """RFC 7748, section 5.2: after one and after 1,000 iterations."""
    scalar = point = bytes([9]) + bytes(31)
    for step in range(1000):
        rows = np.frombuffer(point, dtype=np.uint8).reshape(1, 32)
        scalar, point = by.x25519(scalar, rows).tobytes(), scalar
        if step == 0:
            assert scalar.hex() == "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
    assert scalar.hex() == "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"


# The coordinates of all points of small order of the curve and its twist: Bernstein, https://cr.yp.to/ecdh.html#validate
SMALL_ORDER = [
    0,
    1,
    P - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
]
AWKWARD = (
    [v + lift for v in SMALL_ORDER for lift in (0, 1 << 255)]
    + [v + P for v in SMALL_ORDER if v + P < 1 << 256]
    + [P + k for k in range(-20, 21)]
    + [(1 << 255) + k for k in range(-3, 40)]
    + [2 * P + k for k in range(-3, 38)]
    + [(1 << 256) - 1]
    + [1 << k for k in range(256)]
    + [(1 << k) - 1 for k in range(256)]
)
SCALARS = [bytes(32), b"\xff" * 32, bytes([7]) + bytes(30) + b"\x80", b"\x55" * 32, b"\xaa" * 32]


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda s: s.hex()[:4])
def test_awkward_points_agree_with_openssl(by: Engine, scalar: bytes) -> None:
    points = _points(AWKWARD)
    assert np.array_equal(by.x25519(scalar, points), _openssl(scalar, points))


@pytest.mark.parametrize("scalar", [bytes(32), b"\xff" * 32])
def test_points_of_small_order_give_zero_and_spare_their_neighbours(by: Engine, scalar: bytes) -> None:
    """All blocks share an inversion: one zero denominator must not spoil the others."""
    values = [v + lift for v in SMALL_ORDER for lift in (0, 1 << 255)] + [P, P + 1]
    points = np.repeat(_bytes((len(values), 32)), 2, axis=0)
    points[::2] = _points(values)
    out = by.x25519(scalar, points)
    assert not out[::2].any()
    assert np.array_equal(out[1::2], _openssl(scalar, points[1::2]))


def test_scalars_are_clamped(by: Engine) -> None:
    points = _bytes((3, 32))
    secret = bytearray(secrets.token_bytes(32))
    expected = by.x25519(bytes(secret), points)
    for place, bits in ((0, 7), (31, 0xC0)):
        for bit in (1 << k for k in range(8) if bits >> k & 1):
            other = bytearray(secret)
            other[place] ^= bit
            assert np.array_equal(by.x25519(bytes(other), points), expected)
    for place, bit in ((0, 8), (15, 1), (31, 32)):
        other = bytearray(secret)
        other[place] ^= bit
        assert not np.array_equal(by.x25519(bytes(other), points), expected)


@settings(max_examples=12)
@given(st.binary(min_size=32, max_size=32), st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=20))
def test_every_path_agrees_with_openssl(scalar: bytes, points: list[bytes]) -> None:
    rows = np.frombuffer(b"".join(points), dtype=np.uint8).reshape(-1, 32)
    expected = _openssl(scalar, rows)
    for path in runnable():
        assert np.array_equal(built(path).x25519(scalar, rows), expected), path


# SHA-512 and the expander


def _digests(rows: np.ndarray, prefix: bytes) -> bytes:
    return b"".join(hashlib.sha512(prefix + row.tobytes()).digest() for row in rows)


@pytest.mark.parametrize("before", [0, 128, 256])
def test_sha512_agrees_with_hashlib_at_every_length(by: Engine, before: int) -> None:
    prefix = secrets.token_bytes(before)
    data = _bytes((2, 301))
    for length in range(301):
        rows = data[:, :length]
        assert by.sha512(rows, prefix).tobytes() == _digests(rows, prefix), length


def test_expander_agrees_with_the_reference(by: Engine) -> None:
    for tag_size in (1, 44, 45, 46, 47, 109, 110, 255):
        dst = secrets.token_bytes(tag_size)
        for length in (0, 1, 22, 127, 128, 200):
            rows = _bytes((3, length))
            expected = b"".join(expand_message_xmd(row.tobytes(), dst, 96) for row in rows)
            assert by.expand(rows, dst).tobytes() == expected, (tag_size, length)


# The hash to the curve


def _reference(rows: np.ndarray, dst: bytes) -> bytes:
    raw = [expand_message_xmd(row.tobytes(), dst, 96) for row in rows]
    halves = [int.from_bytes(part, "big") for data in raw for part in (data[:48], data[48:])]
    return b"".join(int(x).to_bytes(32, "little") for x, _ in sums_of_maps(halves))


@pytest.mark.parametrize("vector", VECTORS, ids=["empty", "abc", "short", "q128", "a512"])
def test_vectors_of_rfc_9380(by: Engine, vector: tuple[bytes, str, str, str, str, str, str, str, str]) -> None:
    """The path gives Q0 + Q1; three doublings by coordinates alone, (x² − 1)² / 4x(x² + Jx + 1), clear the cofactor."""
    rows = np.frombuffer(vector[0], dtype=np.uint8).reshape(1, -1)
    x = int.from_bytes(by.hash_to_u(rows, DST).tobytes(), "little")
    for _ in range(3):
        x = (x * x - 1) ** 2 * pow(4 * x * (x * x + 486662 * x + 1), -1, P) % P
    assert f"{x:064x}" == vector[1]


def test_hash_agrees_with_the_reference(by: Engine) -> None:
    for tag_size in (1, 44, 45, 46, 47, 255):
        dst = secrets.token_bytes(tag_size)
        for length in (0, 1, 127, 128, 200):
            rows = _bytes((17, length))
            assert by.hash_to_u(rows, dst).tobytes() == _reference(rows, dst), (tag_size, length)


# Arrays


class _Operations:
    """The four operations as functions of an array alone, and what they give for 1,025 rows by `cryptography`."""

    def __init__(self) -> None:
        self.secret, self.rows = secrets.token_bytes(32), _bytes((max(SIZES), 32))
        self.of: dict[str, Callable[[Engine, np.ndarray], np.ndarray]] = {
            "x25519": lambda by, rows: by.x25519(self.secret, rows),
            "hash_to_u": lambda by, rows: by.hash_to_u(rows, b"sizes"),
            "expand": lambda by, rows: by.expand(rows, b"sizes"),
            "sha512": lambda by, rows: by.sha512(rows, bytes(128)),
        }
        self.expected = {name: run(built("cryptography"), self.rows) for name, run in self.of.items()}


@pytest.fixture(scope="module")
def operations() -> _Operations:
    return _Operations()


NAMES = ["x25519", "hash_to_u", "expand", "sha512"]


@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_rows(by: Engine, operations: _Operations, name: str) -> None:
    assert max(SIZES) > 2 * BLOCKS * 8
    for size in SIZES:
        out = operations.of[name](by, operations.rows[:size])
        assert out.dtype == np.uint8
        assert out.flags.c_contiguous
        assert out.flags.writeable
        assert np.array_equal(out, operations.expected[name][:size]), size


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", ["1", "2", "5"])
def test_threads_change_nothing(
    by: Engine, operations: _Operations, name: str, count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECUREVFL_THREADS", count)
    out = operations.of[name](by, operations.rows)
    assert np.array_equal(out, operations.expected[name])


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_read_whatever_their_layout_and_left_alone(by: Engine, operations: _Operations, name: str) -> None:
    run, rows = operations.of[name], operations.rows[:20]
    expected = operations.expected[name][:20]
    wide = np.zeros((20, 64), dtype=np.uint8)
    wide[:, ::2] = rows
    odd = np.zeros(20 * 32 + 1, dtype=np.uint8)[1:].reshape(20, 32)  # at an odd address
    odd[:] = rows
    for layout in (rows, wide[:, ::2], np.asfortranarray(rows), odd):
        before = layout.tobytes()
        assert np.array_equal(run(by, layout), expected)
        assert layout.tobytes() == before
    assert np.array_equal(run(by, rows[::-1]), expected[::-1])
    frozen = rows.copy()
    frozen.setflags(write=False)
    out = run(by, frozen)
    assert np.array_equal(out, expected)
    out[:] = 0  # results share no memory with each other or with the input
    assert np.array_equal(frozen, rows)
    assert np.array_equal(run(by, frozen), expected)


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((2, 32), dtype=np.int8),
        np.zeros((2, 32), dtype=np.float64),
        np.zeros((2, 4), dtype=np.uint64),
        np.zeros(64, dtype=np.uint8),
        np.zeros((1, 2, 32), dtype=np.uint8),
        bytes(64),
        [[0] * 32],
        None,
    ],
    ids=["int8", "float", "uint64", "flat", "deep", "bytes", "list", "none"],
)
@pytest.mark.parametrize("name", NAMES)
def test_other_types_and_shapes_are_refused(by: Engine, operations: _Operations, name: str, bad: object) -> None:
    with pytest.raises(MalformedError, match="expected"):
        operations.of[name](by, bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [0, 31, 33, 64])
def test_points_of_another_length_are_refused(by: Engine, width: int) -> None:
    with pytest.raises(MalformedError, match=r"uint8 \(n, 32\) was expected"):
        by.x25519(bytes(32), np.zeros((2, width), dtype=np.uint8))


@pytest.mark.parametrize("secret", [b"", bytes(31), bytes(33), bytearray(32), "x" * 32, None])
def test_other_secrets_are_refused_and_never_shown(by: Engine, secret: object) -> None:
    with pytest.raises(MalformedError, match="32 bytes are needed") as caught:
        by.x25519(secret, np.zeros((1, 32), dtype=np.uint8))  # type: ignore[arg-type]
    assert "x" * 32 not in str(caught.value)


@pytest.mark.parametrize("dst", [b"", b"x" * 256, "text", None])
def test_other_tags_are_refused(by: Engine, dst: object) -> None:
    rows = np.zeros((1, 3), dtype=np.uint8)
    for run in (by.hash_to_u, by.expand):
        with pytest.raises(MalformedError, match="domain separation tag"):
            run(rows, dst)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 127, 129])
def test_other_prefixes_are_refused(by: Engine, size: int) -> None:
    with pytest.raises(MalformedError, match="multiple of 128"):
        by.sha512(np.zeros((1, 3), dtype=np.uint8), bytes(size))


@pytest.mark.parametrize("count", ["0", "257", "-1", "two", "1.5"])
def test_other_numbers_of_threads_are_refused(count: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECUREVFL_THREADS", count)
    with pytest.raises(EngineError, match="from 1 to 256"):
        built(runnable()[0]).x25519(bytes(32), np.zeros((2000, 32), dtype=np.uint8))


FORK = """
import os, signal
import numpy as np
from securevfl_crypto.engine import choose_engine
points = np.arange(32 * 1200, dtype=np.uint64).astype(np.uint8).reshape(-1, 32)
before = choose_engine().x25519(bytes(32), points)
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(0 if np.array_equal(choose_engine().x25519(bytes(32), points), before) else 1)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    """The parent's pool is there, its threads are not: waiting for them would take for ever."""
    environment = os.environ | {"SECUREVFL_THREADS": "2", "SECUREVFL_ENGINE": runnable()[0]}
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "0", done.stderr
