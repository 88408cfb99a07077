"""An owner that chooses its key for an attack: whatever the order of h_s, an answer shows its plaintext alone."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from scipy import stats
from securevfl_crypto.block import Block
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.modular import Batch
from securevfl_crypto.paillier import Paillier, PaillierHolder, PaillierPublicKey
from securevfl_crypto.paillier.answer_residues import BASES, SLACK
from securevfl_crypto.paillier.modulus_proof import derive_base, prove_modulus
from securevfl_crypto.sums import SumHolder, SumPlan

BITS = 512
"""Of the keys here. The attacks take as many steps on keys of 2048 bits, only each of them is slower."""
SCHEME = Paillier(2048)


@dataclass(frozen=True)
class ChosenKey:
    """A key whose owner knows p, and the small primes that p − 1 and q − 1 consist of."""

    public: PaillierPublicKey
    p: mpz
    q: mpz

    def logarithm(self, residue: mpz, base: mpz, prime: mpz, r: int) -> int | None:
        """The logarithm modulo r, of what is left modulo one of the two primes; None if r does not divide the order."""
        top, one = (gmpy2.powmod(x % prime, (prime - 1) // r, prime) for x in (residue, base))
        if one == 1:
            return None
        power = mpz(1)
        for exponent in range(r):
            if power == top:
                return exponent
            power = power * one % prime
        raise AssertionError("no logarithm")


def _accepted(p: mpz, q: mpz) -> ChosenKey:
    """The key as a holder reads it: with its proof, which passes."""
    n = p * q
    raw = PaillierPublicKey(n, derive_base(n), True, prove_modulus(p, q)).to_bytes()
    return ChosenKey(PaillierPublicKey.from_bytes(raw, unsafe_small_key=True), p, q)


def _ground_key(r: int) -> ChosenKey:
    """A key whose h_s is an r-th power modulo p: about r moduli are tried."""
    half = BITS // 2
    low, high = (7 << (half - 3)) // (2 * r) + 1, (1 << half) // (2 * r)
    while True:
        p = 2 * r * mpz(low + secrets.randbelow(high - low)) + 1
        if p % 4 == 3 and gmpy2.is_prime(p):
            break
    while True:
        q = gmpy2.next_prime(secrets.randbits(half) | 7 << (half - 3))
        if q % 4 == 3 and q >> half == 0 and gmpy2.powmod(derive_base(p * q), (p - 1) // r, p) == 1:
            return _accepted(p, q)


def _smooth_prime(primes: list[int]) -> tuple[mpz, list[int]]:
    """p = 2 Π ℓ + 1 of half of the bits, for different primes ℓ of eleven bits that are taken out of the list."""
    rng = np.random.default_rng(secrets.randbits(64))
    while True:
        chosen = rng.choice(primes, 23, replace=False).tolist()
        p = 2 * prod(map(mpz, chosen)) + 1
        if p.bit_length() == BITS // 2 and p >> (BITS // 2 - 3) == 7 and gmpy2.is_prime(p):
            primes[:] = [prime for prime in primes if prime not in chosen]
            return p, chosen


def _holder(key: ChosenKey, batch: int, width: int) -> PaillierHolder:
    # slots so wide that a plaintext has one row
    block = Block(batch=batch, width_in=width, width_out=1, x_bits=15, s_bits=21, w_bits=34, z_bits=BITS // 2)
    return PaillierHolder(SCHEME, key.public, block, ZeroShares([]))


def _numbers(key: ChosenKey, sealed: np.ndarray) -> list[mpz]:
    return key.public.modulus.to_ints(key.public.load_ciphertexts(sealed, len(sealed)))


def _sealed(key: ChosenKey, ciphertexts: list[mpz]) -> np.ndarray:
    return key.public.store_ciphertexts(key.public.modulus.from_ints(ciphertexts))


def _by_powers_of_hs(self: PaillierPublicKey, count: int, **options: bool) -> Batch:
    """How answers must not be blinded, however long the exponents are."""
    return self.make_blindings(count, 64 if options.pop("short", False) else self.bits)


R, FACTORS = 105, (3, 5, 7)


def _character(key: ChosenKey, c: mpz) -> mpz:
    """An R-th root of unity modulo p: it shows the owner exponents modulo R."""
    return gmpy2.powmod(c % key.p, (key.p - 1) // R, key.p)


def _marked_unit(key: ChosenKey) -> mpz:
    """A unit whose character has order R, and that is 1 modulo q."""
    while True:
        one = mpz(secrets.randbelow(int(key.p) - 2) + 2)
        if all(gmpy2.powmod(_character(key, one), R // factor, key.p) != 1 for factor in FACTORS):
            return one + key.p * ((1 - one) * gmpy2.invert(key.p, key.q) % key.q)


@pytest.fixture(scope="module")
def ground() -> ChosenKey:
    return _ground_key(R)


def _read_modulo(key: ChosenKey, answers: Callable[[np.ndarray], np.ndarray]) -> list[int]:
    """What the owner of a ground key reads of each answer to ciphertexts of zero, the first marked by order r."""
    n2 = key.public.n2
    mark = gmpy2.powmod(_marked_unit(key) ** 2, key.public.n, n2)
    logs = {gmpy2.powmod(_character(key, mark), e, key.p): e for e in range(R)}
    sent = answers(_sealed(key, [mark * key.public.hs % n2, key.public.hs, key.public.hs]))
    return [logs[_character(key, c)] for c in _numbers(key, sent)]


@pytest.mark.parametrize("use", ["product", "gradient"])
def test_activations_modulo_a_chosen_number_are_not_in_the_answers(
    ground: ChosenKey, use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blinded by powers of h_s, all of them are: to the owner that tried a hundred moduli."""
    x = np.random.default_rng(1).integers(-(2**14), 2**14, (60, 3))
    holder = _holder(ground, 60, 3)
    columns = _holder(ground, 3, 60)

    def answers(sealed: np.ndarray) -> np.ndarray:
        if use == "product":
            return holder.answer_product(sealed, x, np.zeros((3, 1), dtype=object))
        return columns.answer_gradient(sealed, np.ascontiguousarray(x.T))[0]

    right = (x[:, 0] % R).tolist()
    with monkeypatch.context() as patched:
        patched.setattr(PaillierPublicKey, "make_answer_blindings", _by_powers_of_hs)
        assert _read_modulo(ground, answers) == right
    found = _read_modulo(ground, answers)
    assert sum(a == b for a, b in zip(found, right, strict=True)) <= 8  # by chance: 60 of 105 each


def test_counts_of_a_bin_modulo_a_chosen_number_are_not_in_the_answers(
    ground: ChosenKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same at sealed sums: whether the marked row is in a bin."""
    holder = SumHolder(ground.public, SumPlan(key_bits=BITS, rows=3, bounds=(1,)))
    bins = np.array([[b] for b in (0, 1, 1)])

    def answers(sealed: np.ndarray) -> np.ndarray:
        return np.concatenate([holder.compute_sums(holder.load_rows(sealed), bins, [2], complete=False).ciphertexts])

    def marks() -> set[tuple[int, ...]]:
        return {tuple(_read_modulo(ground, answers)) for _ in range(6)}

    with monkeypatch.context() as patched:
        patched.setattr(PaillierPublicKey, "make_answer_blindings", _by_powers_of_hs)
        assert len(marks()) == 1
    assert len(marks()) > 1


def test_the_exponents_of_an_owner_that_computes_logarithms_are_not_in_the_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """p − 1 and q − 1 of small primes: without any search a row is read exactly, if what blinds it is shorter than the
    owner's exponents."""
    primes = [int(p) for p in range(1 << 10, 1 << 12) if gmpy2.is_prime(p)]
    (p, first), (q, second) = _smooth_prime(primes), _smooth_prime(primes)
    key, x = _accepted(p, q), np.array([[12345, 7, -9999]])
    holder, hs, n2 = _holder(key, 1, 3), key.public.hs, key.public.n2
    shifts = [BITS - 112 + 20 * j for j in range(3)]
    sealed = _sealed(key, [gmpy2.powmod(hs, mpz(1) << shift, n2) for shift in shifts])

    def read() -> list[int]:
        (c,) = _numbers(key, holder.answer_product(sealed, x + (1 << 14), np.zeros((3, 1), dtype=object)))
        known = [
            (r, found)
            for prime, factors in ((p, first), (q, second))
            for r in factors
            if (found := key.logarithm(c, hs, prime, r)) is not None
        ]
        modulus = prod(mpz(r) for r, _ in known)
        whole = sum(found * (m := modulus // r) * gmpy2.invert(m, r) for r, found in known) % modulus
        assert modulus >> (BITS - 50)
        return [int(whole >> shift) % (1 << 20) - (1 << 14) for shift in shifts]

    with monkeypatch.context() as patched:
        patched.setattr(
            PaillierPublicKey, "make_answer_blindings", lambda self, count, **options: self.make_blindings(count, 64)
        )
        assert read() == x[0].tolist()
    assert not set(read()) & set(x[0].tolist())


def test_answers_are_uniform_among_all_residues(ground: ChosenKey) -> None:
    """Modulo every small factor of the order, and in both signs and symbols, of which powers of h_s have one."""
    public, p = ground.public, ground.p
    found = public.modulus.to_ints(public.make_answer_blindings(2100))
    symbols = [(int(gmpy2.jacobi(c % p, p)), int(gmpy2.jacobi(c % ground.q, ground.q))) for c in found]
    assert stats.chisquare([symbols.count((a, b)) for a in (1, -1) for b in (1, -1)]).pvalue > 1e-6
    root = _character(ground, _marked_unit(ground))
    logs = {gmpy2.powmod(root, e, p): e for e in range(R)}
    counts = np.bincount([logs[_character(ground, c)] for c in found], minlength=R)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert all(gmpy2.powmod(c, (p - 1) * (ground.q - 1), public.n2) == 1 for c in found[:9])  # encryptions of zero
    assert len(set(found)) == len(found)


def test_a_holder_draws_its_own_residues_and_128_bits_more_than_the_key_has(
    ground: ChosenKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    from securevfl_crypto.paillier import public_key

    units, exponents = list[int](), list[np.ndarray]()
    random_units, random_exponents = public_key.random_units, public_key.random_exponents

    def spy_units(n: mpz, count: int) -> list[mpz]:
        units.append(count)
        return random_units(n, count)

    def spy_exponents(count: int, bits: int) -> np.ndarray:
        exponents.append(random_exponents(count, bits))
        return exponents[-1]

    monkeypatch.setattr(public_key, "random_units", spy_units)
    monkeypatch.setattr(public_key, "random_exponents", spy_exponents)
    public = PaillierPublicKey.from_bytes(ground.public.to_bytes(), unsafe_small_key=True)
    for count in (3, 5):
        public.make_answer_blindings(count)
    assert units == [BASES] == [132]
    assert SLACK == 128
    assert [e.shape for e in exponents] == [(3, (BITS + 128) // 8), (5, (BITS + 128) // 8)]
    assert len({row.tobytes() for found in exponents for row in found}) == 8


@pytest.mark.parametrize("options", [{"classical": True}, {"constant_time": True}], ids=str)
def test_answers_without_tables_are_powers_of_fresh_units(
    ground: ChosenKey, options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    from securevfl_crypto.paillier import public_key

    drawn: list[list[mpz]] = []
    random_units = public_key.random_units

    def spy(n: mpz, count: int) -> list[mpz]:
        drawn.append(random_units(n, count))
        return drawn[-1]

    monkeypatch.setattr(public_key, "random_units", spy)
    public = ground.public
    found = public.modulus.to_ints(public.make_answer_blindings(4, **options))
    assert found == [gmpy2.powmod(r, public.n, public.n2) for r in drawn[0]]
    assert len(set(drawn[0])) == 4
