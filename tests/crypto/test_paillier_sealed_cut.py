"""Paillier at a sealed cut: randomness drowned, masks wide enough, ciphertexts checked, plaintexts laid out alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from scipy import stats
from securevfl_crypto.block import Block
from securevfl_crypto.errors import MalformedError, OverflowRefused, WeakKeyError
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.modular.gmp import GmpModulus
from securevfl_crypto.paillier import (
    Paillier,
    PaillierHolder,
    PaillierOwner,
    PaillierPrivateKey,
    PaillierPublicKey,
    generate_keypair,
    public_key,
)

from tests.crypto.schemes import SCHEMES, Cut

CASE = SCHEMES[0]
SCHEME = Paillier(2048)
SMALL = generate_keypair(1024, unsafe_small_key=True)
ALONE = ZeroShares([])


def _halves(block: Block, scheme: Paillier = SCHEME) -> tuple[PaillierOwner, PaillierHolder]:
    """Of a key too small for use, which saves time."""
    return PaillierOwner(scheme, SMALL, block), PaillierHolder(scheme, SMALL.public, block, ALONE)


def _block(**sizes: Any) -> Block:
    return replace(
        Block(batch=4, width_in=3, width_out=2, x_bits=15, s_bits=21, w_bits=34, z_bits=55),
        **sizes,
    )


@pytest.mark.parametrize("scheme", [Paillier(2048, classical=True), Paillier(2048, constant_time=True)], ids=str)
def test_other_randomness_gives_the_same_results(scheme: Paillier) -> None:
    owner, holder = _halves(_block(), scheme)
    rng = np.random.default_rng(0)
    x, s = rng.integers(-99, 99, size=(4, 3)), rng.integers(-99, 99, size=(4, 2))
    w, u = rng.integers(-99, 99, size=(3, 2)).astype(object), holder.fresh_share()
    z = owner.open_product([holder.answer_product(owner.seal_weights(w - u), x, u)], 4)
    assert (z == x @ w).all()
    message, phi = holder.answer_gradient(owner.seal_steps(s), x)
    assert (owner.open_gradient(message) + phi == x.T @ s).all()


@pytest.mark.parametrize("scheme", [Paillier(2048, classical=True), Paillier(2048, constant_time=True)], ids=str)
def test_the_choice_of_randomness_reaches_every_message(scheme: Paillier, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    for kind, name in ((PaillierPublicKey, "make_answer_blindings"), (PaillierPrivateKey, "encrypt_batch")):
        original = getattr(kind, name)

        def spy(*args: Any, original: Any = original, **options: bool) -> Any:
            seen.append(options == {"classical": scheme.classical, "constant_time": scheme.constant_time})
            return original(*args, **options)

        monkeypatch.setattr(kind, name, spy)
    owner, holder = _halves(_block(), scheme)
    x = np.ones((4, 3), dtype=np.int64)
    holder.answer_product(owner.seal_weights(holder.fresh_share()), x, holder.fresh_share())
    holder.answer_gradient(owner.seal_steps(np.ones((4, 2), dtype=np.int64)), x)
    assert seen == [True] * 4


@pytest.mark.parametrize("use", ["product", "gradient"])
def test_a_holder_with_short_exponents_refuses_what_they_do_not_hide(use: str) -> None:
    """Blinded by powers of h_s, the symbol of ``c^x`` is the symbol of c to the power x: the parity of x."""
    block, public = _block(width_in=1, width_out=1, batch=1), SMALL.public
    classical = Paillier(2048, classical=True)
    owner, holder = _halves(block)
    sealed = owner.seal_steps(np.ones((1, 1), dtype=np.int64)) if use == "gradient" else owner.seal_weights(_one(1))
    root = next(r for r in range(2, 99) if gmpy2.jacobi(r, public.n) == -1)
    for place in range(len(sealed)):
        outside = [int(c) for c in public.modulus.to_ints(public.load_ciphertexts(sealed, len(sealed)))]
        outside[place] = int(outside[place] * gmpy2.powmod(root, public.n, public.n2) % public.n2)
        bad = public.store_ciphertexts(public.modulus.from_ints(list(map(mpz, outside))))
        for scheme, refused in ((SCHEME, True), (classical, False)):
            at = PaillierHolder(scheme, public, block, ALONE)
            call = {
                "product": lambda at=at, bad=bad: at.answer_product(bad, np.ones((1, 1), dtype=np.int64), _one(0)),
                "gradient": lambda at=at, bad=bad: at.answer_gradient(bad, np.ones((1, 1), dtype=np.int64)),
            }[use]
            if refused:
                with pytest.raises(MalformedError, match="set classical to the same value at both parties"):
                    call()
            else:
                call()
    holder.answer_product(owner.seal_weights(_one(1)), np.ones((1, 1), dtype=np.int64), _one(0))


def _one(value: int) -> np.ndarray:
    return np.full((1, 1), value, dtype=object)


def _confirms(x: np.ndarray, alphas: list[int], message: mpz) -> bool:
    """The owner's attack: is the randomness of what came back ``h_s^(Σ α_j x_j)`` for the guess x?"""
    public = SMALL.public
    guess = gmpy2.powmod(public.hs, sum(a * int(v) for a, v in zip(alphas, x, strict=True)), public.n2)
    return bool(message == public.encode_plaintext(SMALL.decrypt(message)) * guess % public.n2)


def test_the_owner_confirms_a_guess_without_blinding_and_cannot_with_it() -> None:
    public, x = SMALL.public, np.array([[3, -4, 9]])
    block = _block(batch=1, width_out=1)
    owner, holder = _halves(block)
    alphas = [12345678901234567890 + j for j in range(3)]
    fixed = [
        public.encode_plaintext(w) * gmpy2.powmod(public.hs, a, public.n2)
        for w, a in zip((5, 6, 7), alphas, strict=True)
    ]
    arithmetic = public.modulus
    sealed, share = public.store_ciphertexts(arithmetic.from_ints(fixed)), np.zeros((3, 1), dtype=object)
    bare = arithmetic.to_ints(arithmetic.power_products(public.load_ciphertexts(sealed, 3), x))[0]
    assert _confirms(x[0], alphas, bare)
    assert not _confirms(x[0] + 1, alphas, bare)
    sent = holder.answer_product(sealed, x, share)
    assert owner.open_product([sent], 1)[0, 0] == 15 - 24 + 63
    assert not _confirms(x[0], alphas, arithmetic.to_ints(public.load_ciphertexts(sent, 1))[0])
    back, phi = holder.answer_gradient(sealed[:1], x[:1])
    found = arithmetic.to_ints(public.load_ciphertexts(back, 3))
    assert [owner.open_gradient(back)[j, 0] + phi[j, 0] for j in range(3)] == [15, -20, 45]
    assert not any(_confirms(x[0, j : j + 1], alphas[:1], c) for j, c in enumerate(found))


def _character(c: mpz, p: mpz, r: int) -> mpz:
    """An r-th root of unity modulo p that is a homomorphism: it tells the owner, who knows p, exponents modulo r."""
    return gmpy2.powmod(c, (p - 1) // r, p)


def test_exponents_of_what_comes_back_are_uniform_modulo_small_factors_of_the_order() -> None:
    """The owner reads the exponent of h_s modulo every small factor r of p − 1. Unblinded it is Σ α_j x_j modulo r."""
    for _ in range(50):
        key = generate_keypair(512, unsafe_small_key=True)
        found = [r for r in (3, 5, 7, 11) if (key.p - 1) % r == 0 and _character(key.public.hs, key.p, r) != 1]
        if found and key.public.n2.bit_length() == 1024:
            break
    r, p, public = found[0], key.p, key.public
    logs = {gmpy2.powmod(_character(public.hs, p, r), e, p): e for e in range(r)}

    def exponent(c: mpz) -> int:
        return logs[_character(c, p, r)]  # c is raw(m) times a power of h_s, and raw(m) is 1 modulo p

    # slots so wide that a plaintext holds one row, and answers are as many as rows
    holder = PaillierHolder(SCHEME, public, _block(batch=600, width_in=1, width_out=1, z_bits=400, sigma=40), ALONE)
    weight = public.encrypt(0)
    sealed = public.store_ciphertexts(public.modulus.from_ints([weight]))
    x = np.full((600, 1), 12345)
    assert exponent(gmpy2.powmod(weight, 12345, public.n2)) == exponent(weight) * 12345 % r
    sent = public.modulus.to_ints(
        public.load_ciphertexts(holder.answer_product(sealed, x, np.zeros((1, 1), dtype=object)), 600)
    )
    assert stats.chisquare(np.bincount([exponent(c) for c in sent], minlength=r)).pvalue > 1e-6


@pytest.mark.parametrize(("d", "h", "batch"), [(5, 2, 9), (1, 1, 300), (40, 1, 30)])
def test_each_ciphertext_of_an_answer_is_blinded_by_a_fresh_residue(
    d: int, h: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exponents have 128 bits more than the key, in both answers."""
    drawn: list[np.ndarray] = []
    exponents = public_key.random_exponents

    def spy_drawn(count: int, bits: int) -> np.ndarray:
        drawn.append(exponents(count, bits))
        return drawn[-1]

    owner, holder = _halves(_block(batch=batch, width_in=d, width_out=h))
    weights, x = owner.seal_weights(holder.fresh_share()), np.ones((batch, d), dtype=np.int64)
    steps = owner.seal_steps(np.ones((batch, h), dtype=np.int64))
    monkeypatch.setattr(public_key, "random_exponents", spy_drawn)
    answers = [holder.answer_product(weights, x, holder.fresh_share()), holder.answer_gradient(steps, x)[0]]
    for answer, found in zip(answers, drawn, strict=True):
        assert len(found) == len(answer)
        assert 8 * found.shape[1] == SMALL.public.bits + 128
        assert found[:, -8:].any()
        assert len({row.tobytes() for row in found}) == len(found)


@pytest.mark.parametrize("owner", [False, True])
def test_classical_randomness_is_all_of_the_residues(owner: bool) -> None:
    """Powers of h_s have Jacobi symbol 1; of uniform n-th residues half have −1. All encrypt zero."""
    key = SMALL if owner else SMALL.public
    public = SMALL.public
    for classical in (True, False):
        found = public.modulus.to_ints(key.encrypt_batch([0] * 80, classical=classical))
        assert all(SMALL.decrypt(c) == 0 for c in found[:3])
        below = sum(gmpy2.jacobi(c % public.n, public.n) == -1 for c in found)
        assert 15 <= below <= 65 if classical else below == 0
        for factor in (SMALL.p, SMALL.q):  # each is random for itself, modulo either factor
            assert len({c % factor for c in found}) == len(found)


@pytest.mark.parametrize(("batch", "d", "h"), [(8, 3, 2), (256, 12, 16), (1000, 64, 7)])
def test_every_integer_mask_is_40_bits_wider_than_what_it_hides(batch: int, d: int, h: int) -> None:
    block = _block(batch=batch, width_in=d, width_out=h)
    assert block.phi_bits >= (batch * (2**15 - 1) * (2**21 - 1)).bit_length() + 40
    assert block.share_bits >= 34 + 40
    holder = SCHEME.create_holder(CASE.key().public, block, ALONE)
    half = holder._half
    assert 8 * half.gradients.slot >= block.phi_bits + 2
    assert 8 * half.products.slot >= block.z_bits + 1
    assert half.products.per * half.products.group * half.products.slot * 8 <= 2046
    assert half.gradients.per == 1
    drawn = holder.fresh_share()
    top = max(abs(int(u)) for u in drawn.flat)
    assert top < 2**block.share_bits + 1
    assert top > 2 ** (block.share_bits - 8)


def test_hostile_ciphertexts_are_refused() -> None:
    block = _block()
    owner, holder = _halves(block)
    x = np.ones((4, 3), dtype=np.int64)
    weights, steps = owner.seal_weights(holder.fresh_share()), owner.seal_steps(np.ones((4, 2), dtype=np.int64))
    product, gradient = holder.answer_product(weights, x, holder.fresh_share()), holder.answer_gradient(steps, x)[0]
    width = SMALL.public.ciphertext_bytes
    for message, use in (
        (weights, lambda m: holder.answer_product(m, x, holder.fresh_share())),
        (steps, lambda m: holder.answer_gradient(m, x)),
        (product, lambda m: owner.open_product([m], 4)),
        (gradient, owner.open_gradient),
    ):
        assert message.shape[1] == width
        for number in (0, SMALL.public.n2, SMALL.public.n, SMALL.p, 3 * SMALL.q * SMALL.q, 2 ** (8 * width) - 1):
            for place in {0, len(message) // 2, len(message) - 1}:
                bad = message.copy()
                bad[place] = np.frombuffer(int(number).to_bytes(width, "little"), dtype=np.uint8)
                with pytest.raises(MalformedError):
                    use(bad)


def test_the_owner_checks_what_it_opens() -> None:
    """Entries that no gradient and mask add up to, and values where no row is."""
    block = _block(batch=3)
    owner, _ = _halves(block)
    key, packing = SMALL, owner._half.gradients
    for size, fine in ((2 ** (block.phi_bits + 1) - 1, True), (2 ** (block.phi_bits + 1), False)):
        array = np.zeros((3, 2), dtype=object)
        array[1, 1] = -size
        message = key.public.store_ciphertexts(key.encrypt_batch(packing.pack(array)))
        if fine:
            assert (owner.open_gradient(message) == array).all()
        else:
            with pytest.raises(OverflowRefused, match="a masked gradient reaches"):
                owner.open_gradient(message)
    products = owner._half.products
    assert products.per > 1
    rows = products.per + 1
    array = np.ones((2 * products.per, 2), dtype=np.int64)
    array[rows:] = 0
    assert (
        owner.open_product([key.public.store_ciphertexts(key.encrypt_batch(products.pack(array)))], rows) == 1
    ).all()
    array[rows:, 1] = 1
    with pytest.raises(OverflowRefused, match="in an unused slot"):
        owner.open_product([key.public.store_ciphertexts(key.encrypt_batch(products.pack(array)))], rows)


def test_holders_of_different_widths_lay_their_answers_out_alike() -> None:
    cut = Cut(CASE, [1, 200], 1, 64)
    assert cut.owners[0]._half.products == cut.owners[1]._half.products  # type: ignore[attr-defined]
    alone = SCHEME.create_owner(CASE.key(), replace(cut.blocks[0], widest=0))
    assert alone._half.products != cut.owners[0]._half.products  # type: ignore[attr-defined]


def test_what_is_added_must_fit() -> None:
    owner, holder = _halves(_block())
    weights, x = owner.seal_weights(holder.fresh_share()), np.ones((4, 3), dtype=np.int64)
    for extra in (np.full((4, 2), 2**55), np.full((4, 2), -(2**55)), np.full((4, 2), -(2**63))):
        with pytest.raises(OverflowRefused, match="added"):
            holder.answer_product(weights, x, holder.fresh_share(), extra=extra)


@pytest.mark.parametrize("bits", [0, 1024, 2046, 2049, 8194])
def test_a_scheme_of_impossible_keys_is_refused(bits: int) -> None:
    with pytest.raises(WeakKeyError, match="2048"):
        Paillier(bits)


def test_keys_may_be_larger_than_agreed_and_not_smaller() -> None:
    key, block = CASE.key(), _block()
    assert isinstance(key, PaillierPrivateKey)
    with pytest.raises(WeakKeyError, match="3072 were agreed"):
        Paillier(3072).read_public(key.public.to_bytes())
    with pytest.raises(WeakKeyError, match="3072 were agreed"):
        Paillier().create_owner(key, block)
    with pytest.raises(WeakKeyError, match="3072 were agreed"):
        Paillier().create_holder(key.public, block, ALONE)
    assert Paillier(2048).create_holder(key.public, block, ALONE).ring.modulus is None


def test_the_scheme_computes_by_gmp_where_nothing_faster_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of one path are read by the other: what travels are numbers."""
    raw = SMALL.public.to_bytes()
    monkeypatch.setattr(public_key, "modular_arithmetic", GmpModulus)
    slow = PaillierPublicKey.from_bytes(raw, unsafe_small_key=True)
    owner, fast = _halves(_block())
    holder = PaillierHolder(SCHEME, slow, _block(), ALONE)
    x, u = np.arange(12).reshape(4, 3), fast.fresh_share()
    w = np.arange(6).reshape(3, 2).astype(object)
    sealed = owner.seal_weights(w - u)
    for one in (holder, fast):
        assert (owner.open_product([one.answer_product(sealed, x, u)], 4) == x @ w).all()
