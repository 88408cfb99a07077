"""What arithmetic modulo a number refuses, and which path is taken for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from gmpy2 import mpz
from securevfl_crypto.engine.compiled_long import long_kernels
from securevfl_crypto.engine.cpu import paths_of_this_cpu
from securevfl_crypto.errors import EngineError, MalformedError
from securevfl_crypto.modular import Modulus, choice, modular_arithmetic
from securevfl_crypto.modular.gmp import GmpModulus
from securevfl_crypto.modular.vector import VectorModulus

VECTORS = [path.name for path in paths_of_this_cpu()]
PRIME = (mpz(1) << 1279) - 1
BYTE_SHORT = (mpz(1) << 2049) + 3
"""Its bytes can hold more than the limbs of some paths."""


@pytest.fixture(params=[*VECTORS, "cryptography"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _wire(arithmetic: Modulus, value: mpz | int) -> np.ndarray:
    return np.frombuffer(int(value).to_bytes(arithmetic.width, "little"), dtype=np.uint8).reshape(1, -1)


MALFORMED: dict[str, Callable[[Modulus], Any]] = {
    "the modulus itself": lambda a: a.load_bytes(_wire(a, a.m)),
    "all ones": lambda a: a.load_bytes(np.full((9, a.width), 255, dtype=np.uint8)),
    "one byte too many": lambda a: a.load_bytes(np.zeros((2, a.width + 1), dtype=np.uint8)),
    "signed bytes": lambda a: a.load_bytes(np.zeros((2, a.width), dtype=np.int8)),
    "one axis": lambda a: a.load_bytes(np.zeros(a.width, dtype=np.uint8)),
    "two and three": lambda a: a.mul(a.from_ints([1, 2]), a.from_ints([1, 2, 3])),
    "none and two": lambda a: a.mul(a.from_ints([]), a.from_ints([1, 2])),
    "another modulus": lambda a: a.to_ints(
        modular_arithmetic(PRIME - 2, VECTORS[0] if VECTORS else None).from_ints([1])
    ),
    "a place beyond": lambda a: a.take(a.from_ints([1, 2]), np.array([2])),
    "a place before": lambda a: a.take(a.from_ints([1, 2]), np.array([-1])),
    "places that are none": lambda a: a.take(a.from_ints([1, 2]), np.array([0.0])),
    "a negative power": lambda a: a.power(a.from_ints([2]), -1),
    "no bits": lambda a: a.fixed_base(3, 0),
    "no bits to scan": lambda a: a.fixed_base(3, 0, scan=True),
    "exponents for three": lambda a: a.power_products(a.from_ints([2, 3]), np.zeros((4, 3), dtype=np.int64)),
    "exponents of 32 bits": lambda a: a.power_products(a.from_ints([2]), np.zeros((4, 1), dtype=np.int32)),
    "a window of three bits": lambda a: a.fixed_base(3, 64, window=3),
    "groups of 32 bits": lambda a: a.group_products(a.from_ints([2]), np.zeros((1, 2), dtype=np.int32), 1),
    "groups for three": lambda a: a.group_products(a.from_ints([2, 3]), np.zeros((3, 2), dtype=np.int64), 1),
    "a group beyond": lambda a: a.group_products(a.from_ints([2]), np.full((1, 1), 2), 2),
    "a group before none": lambda a: a.group_products(a.from_ints([2]), np.full((1, 1), -2), 2),
    "parts that are unequal": lambda a: a.horner(a.from_ints([2, 3, 4]), 2, 8),
    "parts on one place": lambda a: a.horner(a.from_ints([2, 3]), 2, 0),
    "no magnitude": lambda a: a.power_products(a.from_ints([2]), np.full((4, 1), -(1 << 63))),
    "a base of 0 to a negative power": lambda a: a.power_products(a.from_ints([0]), np.array([[-3]])),
}


@pytest.mark.parametrize("attempt", MALFORMED.values(), ids=MALFORMED)
def test_malformed_input_is_refused(name: str, attempt: Callable[[Modulus], Any]) -> None:
    for m in (PRIME, BYTE_SHORT):
        with pytest.raises(MalformedError):
            attempt(modular_arithmetic(m, name))


@pytest.mark.parametrize("m", [PRIME - 1, PRIME >> 256, (mpz(1) << 16384) + 1, -PRIME])
def test_moduli_out_of_range_are_refused(m: mpz) -> None:
    with pytest.raises(MalformedError, match="expected an odd one of 1024 to 16384 bits"):
        modular_arithmetic(m)


@pytest.fixture
def fresh() -> Iterator[None]:
    for cache in (choice._cached_modulus, choice._test_kernels):
        cache.cache_clear()
    yield
    for cache in (choice._cached_modulus, choice._test_kernels):
        cache.cache_clear()


@pytest.mark.skipif(not VECTORS, reason="no vector path here")
@pytest.mark.usefixtures("fresh")
def test_a_path_that_fails_its_self_test_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "agrees_with_gmp", lambda candidate: False)
    monkeypatch.delenv("SECUREVFL_ENGINE", raising=False)
    with pytest.raises(EngineError, match="gives wrong products"):
        modular_arithmetic(PRIME, VECTORS[0])
    with pytest.warns(RuntimeWarning, match="taking a slower path"):
        assert isinstance(modular_arithmetic(PRIME), GmpModulus)


@pytest.mark.usefixtures("fresh")
def test_the_self_test_sees_wrong_products() -> None:
    class Wrong(GmpModulus):
        def invert(self, batch: Any) -> Any:
            return super().invert(super().mul(batch, batch))

    assert choice.agrees_with_gmp(GmpModulus(PRIME))
    assert not choice.agrees_with_gmp(Wrong(PRIME))


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECUREVFL_ENGINE", "libsodium")
    assert isinstance(modular_arithmetic(PRIME), GmpModulus)
    for path in VECTORS:
        monkeypatch.setenv("SECUREVFL_ENGINE", path)
        found = modular_arithmetic(PRIME)
        assert isinstance(found, VectorModulus)
        assert found.kernels.path.name == path
        assert modular_arithmetic(PRIME) is found
        assert long_kernels(found.kernels.path, squares=False) is found.kernels
    monkeypatch.delenv("SECUREVFL_ENGINE")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        modular_arithmetic(PRIME)
    with pytest.raises(EngineError, match="abacus"):
        modular_arithmetic(PRIME, "abacus")


@pytest.mark.skipif(not VECTORS, reason="this CPU runs no kernels")
@pytest.mark.parametrize("bits", [2048, 6144])
def test_kernels_that_are_wrong_at_one_length_are_not_used_there(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a lost carry between limbs was: the self-test of 1279 bits passed, and no value of a key of 3072 decrypted."""
    root = (mpz(1) << bits // 2) - 1
    right = VectorModulus.mul

    def wrong(self: VectorModulus, a: Any, b: Any) -> Any:
        return right(self, a, a if self.m.bit_length() > 4000 else b)

    monkeypatch.setattr(VectorModulus, "mul", wrong)
    if bits == 2048:
        assert choice._make_modulus(root**2, VECTORS[0], root).m == root**2
        return
    with pytest.raises(EngineError, match="wrong products modulo numbers of 6144 bits"):
        choice._make_modulus(root**2, VECTORS[0], root)
    with pytest.warns(RuntimeWarning, match="6144 bits"):
        assert isinstance(choice._make_modulus(root**2, None, root), GmpModulus)


@pytest.mark.skipif(not VECTORS, reason="this CPU runs no kernels")
def test_kernels_that_square_wrongly_at_one_length_are_not_used_there(monkeypatch: pytest.MonkeyPatch) -> None:
    right = VectorModulus.power
    monkeypatch.setattr(VectorModulus, "power", lambda self, a, e: right(self, a, e + (self.m.bit_length() > 4000)))
    with pytest.raises(EngineError, match="wrong products modulo numbers of 6144 bits"):
        choice._make_modulus(((mpz(1) << 3072) - 1) ** 2, VECTORS[0], (mpz(1) << 3072) - 1)
