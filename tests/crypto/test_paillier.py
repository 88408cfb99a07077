"""Paillier: known answers, agreement with python-paillier, key hygiene, hostile bytes."""

from __future__ import annotations

import contextlib

import gmpy2
import phe
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto import (
    MalformedError,
    PaillierPrivateKey,
    PaillierPublicKey,
    WeakKeyError,
    generate_keypair,
)

KEY = generate_keypair(512, unsafe_small_key=True)


@given(st.integers(-(2**500), 2**500))
def test_what_is_decrypted_is_what_was_encrypted(m: int) -> None:
    assert KEY.decrypt(KEY.public.encrypt(m)) == m


@given(st.integers(-(2**400), 2**400), st.integers(-(2**400), 2**400), st.integers(-(2**60), 2**60))
def test_ciphertexts_add_and_scale(a: int, b: int, k: int) -> None:
    n2 = KEY.public.n2
    total = KEY.public.encrypt(a) * gmpy2.powmod(KEY.public.encrypt(b), k, n2) % n2
    assert KEY.decrypt(total) == a + k * b


def test_known_answer() -> None:
    """A textbook key, computed by hand: p = 7, q = 11, n = 77; x = 2, h = −4 = 73 mod 77, h_s = 73^77 mod 5929.

    (1 + 77·5)·h_s^1 mod 5929 decrypts to 5 with λ = 30: L(c^30 mod 5929)·(30)^-1 mod 77.
    """
    hs = pow(73, 77, 77**2)
    public = PaillierPublicKey(mpz(77), mpz(hs), unsafe_small_key=True)
    c = public.raw(5) * hs % public.n2
    assert int(c) == 386 * hs % 5929
    by_definition = (pow(int(c), 30, 5929) - 1) // 77 * pow(30, -1, 77) % 77
    assert PaillierPrivateKey(public, mpz(7), mpz(11)).decrypt(c) == by_definition == 5


def test_python_paillier_reads_ours_and_we_read_its() -> None:
    theirs = phe.PaillierPublicKey(int(KEY.public.n))
    secret = phe.PaillierPrivateKey(theirs, int(KEY.p), int(KEY.q))
    for m in (0, 1, 123456789, 2**300):
        assert secret.raw_decrypt(int(KEY.public.encrypt(m))) == m
        assert KEY.decrypt(mpz(theirs.raw_encrypt(m))) == m
    both = KEY.public.encrypt(20) * theirs.raw_encrypt(22) % KEY.public.n2
    assert secret.raw_decrypt(int(both)) == 42


def test_encryption_is_fresh_each_time() -> None:
    assert len({KEY.public.encrypt(7) for _ in range(50)}) == 50


def test_the_owner_encrypts_as_the_public_key_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The faster way by the factors gives (1 + n m) h_s^α for one and the same α: the same ciphertext, bit by bit."""
    drawn: list[bytes] = []

    def draw(count: int) -> bytes:
        drawn.append(bytes((len(drawn) + i) % 256 for i in range(count)))
        return drawn[-1]

    monkeypatch.setattr("secrets.token_bytes", draw)
    for m in (0, 1, -5, 2**300):
        for encrypt in (KEY.encrypt, KEY.public.encrypt):
            drawn.clear()
            c = encrypt(m)
            assert [len(alpha) for alpha in drawn] == [KEY.public.randomness_bits // 8]
            power = gmpy2.powmod(KEY.public.hs, int.from_bytes(drawn[0], "little"), KEY.public.n2)
            assert c == KEY.public.raw(m) * power % KEY.public.n2
    monkeypatch.undo()
    assert len({KEY.encrypt(7) for _ in range(50)}) == 50
    assert all(KEY.decrypt(KEY.encrypt(m)) == m for m in (0, -1, 2**500, -(2**500)))


def test_a_base_that_blinds_nothing_is_refused() -> None:
    n, n2 = KEY.public.n, KEY.public.n2
    for hs in (n2 - 1, 1 + n, 1 + 5 * n, n - 1):
        with pytest.raises(MalformedError, match="blinds nothing"):
            PaillierPublicKey(n, hs, unsafe_small_key=True)
    nonresidue = next(mpz(a) for a in range(2, 99) if gmpy2.jacobi(a, n) == -1)
    with pytest.raises(MalformedError, match="blinds nothing"):
        PaillierPublicKey(n, gmpy2.powmod(nonresidue, n, n2), unsafe_small_key=True)


def test_a_modulus_with_a_small_factor_is_refused() -> None:
    n = 4093 * gmpy2.next_prime(mpz(2) ** 2050)
    with pytest.raises(MalformedError, match="factor below 4096"):
        PaillierPublicKey(n, mpz(4))


def test_keys_have_the_structure_that_the_scheme_needs() -> None:
    p, q, n = KEY.p, KEY.q, KEY.public.n
    assert n.bit_length() == 512
    assert p % 4 == q % 4 == 3
    assert gmpy2.gcd(p - 1, q - 1) == 2
    assert gmpy2.is_prime(p, 50)
    assert gmpy2.is_prime(q, 50)
    # h_s is an n-th power: an encryption of zero, of order dividing λ(n), and no power lands it at 1 early.
    assert KEY.decrypt(KEY.public.hs) == 0
    order = (p - 1) * (q - 1) // 2
    assert gmpy2.powmod(KEY.public.hs, order, KEY.public.n2) == 1
    assert gmpy2.powmod(KEY.public.hs, 2, KEY.public.n2) != 1
    assert KEY.public.randomness_bits >= 256


def test_a_real_key_works() -> None:
    key = generate_keypair(2048)
    assert key.public.bits == 2048
    assert key.decrypt(key.public.encrypt(-(2**2000))) == -(2**2000)
    assert PaillierPublicKey.from_bytes(key.public.to_bytes()) == key.public


@pytest.mark.parametrize("bits", [512, 1024, 2046])
def test_weak_keys_are_refused(bits: int) -> None:
    with pytest.raises(WeakKeyError, match="2048"):
        generate_keypair(bits)
    with pytest.raises(WeakKeyError, match="at least 2048"):
        PaillierPublicKey.from_bytes(KEY.public.to_bytes())


def test_serialised_keys_come_back() -> None:
    back = PaillierPublicKey.from_bytes(KEY.public.to_bytes(), unsafe_small_key=True)
    assert back == KEY.public
    assert back.fingerprint == KEY.public.fingerprint
    assert back.fingerprint != generate_keypair(512, unsafe_small_key=True).public.fingerprint


@settings(max_examples=200)
@given(st.data())
def test_damaged_keys_raise_and_nothing_else(data: st.DataObject) -> None:
    raw = KEY.public.to_bytes()
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises((MalformedError, WeakKeyError)):
        PaillierPublicKey.from_bytes(raw[:cut], unsafe_small_key=True)
    with pytest.raises((MalformedError, WeakKeyError)):
        PaillierPublicKey.from_bytes(raw + b"\0", unsafe_small_key=True)
    changed = bytearray(raw)
    changed[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(MalformedError, WeakKeyError):
        PaillierPublicKey.from_bytes(bytes(changed), unsafe_small_key=True)


def test_a_key_that_announces_gigabytes_takes_no_memory() -> None:
    with pytest.raises(MalformedError, match="at most 8192"):
        PaillierPublicKey.from_bytes(b"SVPK\x01" + (2**31).to_bytes(4, "little"))


@pytest.mark.parametrize("n", [mpz(2) ** 100, gmpy2.next_prime(mpz(2) ** 100), gmpy2.next_prime(mpz(2) ** 50) ** 2])
def test_numbers_that_are_no_modulus_are_refused(n: mpz) -> None:
    with pytest.raises(MalformedError, match="two odd primes"):
        PaillierPublicKey(n, mpz(3), unsafe_small_key=True)


def test_secrets_do_not_print() -> None:
    text = repr(KEY) + str(KEY)
    assert str(int(KEY.p)) not in text
    assert str(int(KEY.q)) not in text


def test_a_private_key_must_fit_its_public_key() -> None:
    other = generate_keypair(512, unsafe_small_key=True)
    with pytest.raises(MalformedError, match="factors"):
        PaillierPrivateKey(KEY.public, other.p, other.q)
