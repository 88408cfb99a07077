"""Paillier: known answers, agreement with python-paillier, key hygiene, hostile bytes."""

from __future__ import annotations

import contextlib

import gmpy2
import numpy as np
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
BATCH = generate_keypair(1024, unsafe_small_key=True)  # batches need moduli of 1024 bits
SIZES = [0, 1, -1, 123456789, -(2**300), 2**1000, 5 * 2**1021]


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
    c = public.encode_plaintext(5) * hs % public.n2
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


@pytest.mark.parametrize("options", [{}, {"classical": True}, {"constant_time": True}], ids=str)
@pytest.mark.parametrize("owner", [False, True])
def test_batches_are_read_one_by_one_and_by_python_paillier(owner: bool, options: dict[str, bool]) -> None:
    public, n = BATCH.public, BATCH.public.n
    theirs = phe.PaillierPublicKey(int(n))
    secret = phe.PaillierPrivateKey(theirs, int(BATCH.p), int(BATCH.q))
    batch = (BATCH if owner else public).encrypt_batch(SIZES, **options)
    expected = [(m + n // 2) % n - n // 2 for m in SIZES]
    assert BATCH.decrypt_batch(batch) == expected
    found = public.modulus.to_ints(batch)
    assert [BATCH.decrypt(c) for c in found] == expected
    assert [secret.raw_decrypt(int(c)) for c in found] == [m % n for m in SIZES]
    assert len(set(public.modulus.to_ints((BATCH if owner else public).encrypt_batch([7] * 40, **options)))) == 40


def test_batches_read_what_python_paillier_and_single_encryptions_wrote() -> None:
    theirs = phe.PaillierPublicKey(int(BATCH.public.n))
    numbers = [mpz(theirs.raw_encrypt(m)) for m in (5, 0, 2**900)] + [BATCH.encrypt(-6), BATCH.public.encrypt(-(2**9))]
    assert BATCH.decrypt_batch(BATCH.public.modulus.from_ints(numbers)) == [5, 0, 2**900, -6, -(2**9)]
    assert BATCH.decrypt_batch(BATCH.public.encrypt_batch([])) == []


def test_batches_are_what_the_definition_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """(1 + n m) h_s^α for one and the same α, by the public key and by the factors, scanned or looked up."""
    public, drawn = BATCH.public, []

    def draw(count: int) -> bytes:
        drawn.append(bytes((7 + i * i) % 256 for i in range(count)))
        return drawn[-1]

    monkeypatch.setattr("secrets.token_bytes", draw)
    for key in (public, BATCH):
        for constant_time in (False, True):
            drawn.clear()
            found = public.modulus.to_ints(key.encrypt_batch(SIZES, constant_time=constant_time))
            assert len(drawn) == 1
            width = public.randomness_bits // 8
            assert len(drawn[0]) == width * len(SIZES)
            for i, (m, c) in enumerate(zip(SIZES, found, strict=True)):
                alpha = int.from_bytes(drawn[0][i * width : (i + 1) * width], "little")
                assert c == public.encode_plaintext(m) * gmpy2.powmod(public.hs, alpha, public.n2) % public.n2


def test_ciphertexts_travel() -> None:
    public = BATCH.public
    array = public.store_ciphertexts(BATCH.encrypt_batch(SIZES[:6]))
    assert (array.dtype, array.shape) == (np.uint8, (6, public.ciphertext_bytes))
    assert BATCH.decrypt_batch(public.load_ciphertexts(array, 6)) == SIZES[:6]
    assert len(public.load_ciphertexts(array[:0], 0)) == 0
    for place in range(6):
        for number in (0, public.n2, public.n2 + 1, public.n, BATCH.p, BATCH.q * 77):
            bad = array.copy()
            bad[place] = np.frombuffer(int(number).to_bytes(public.ciphertext_bytes, "little"), dtype=np.uint8)
            with pytest.raises(MalformedError):
                public.load_ciphertexts(bad, 6)
    for other in (array[:5], array[:, 1:], array.astype(np.int16), array.ravel(), array.tobytes(), None):
        with pytest.raises(MalformedError, match="ciphertexts are"):
            public.load_ciphertexts(other, 6)


def test_security_of_moduli() -> None:
    """NIST's sizes have NIST's strengths; those between them have less than the number field sieve's effort gives."""
    found = {}
    for bits in (2048, 2050, 2560, 3072, 4096, 7680, 8192):
        n = mpz(2) ** (bits - 1) + 2**20 + 1
        while gmpy2.gcd(n, gmpy2.primorial(4096)) != 1 or gmpy2.is_prime(n):
            n += 2
        found[bits] = PaillierPublicKey(n, mpz(4)).security
    assert found == {2048: 112, 2050: 112, 2560: 120, 3072: 128, 4096: 142, 7680: 192, 8192: 196}


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
            assert c == KEY.public.encode_plaintext(m) * power % KEY.public.n2
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
    for factor in (4093, 8191):
        with pytest.raises(MalformedError, match="factor below 8192"):
            PaillierPublicKey(factor * gmpy2.next_prime(mpz(2) ** 2050), mpz(4))


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
        PaillierPublicKey.from_bytes(b"SVPK\x02" + (2**31).to_bytes(4, "little"))


@pytest.mark.parametrize(
    "n", [mpz(2) ** 100, gmpy2.next_prime(mpz(2) ** 100), gmpy2.next_prime(mpz(2) ** 50) ** 2, mpz(103) ** 3]
)
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
