"""A holder whose answer is no product: what it would open is the owner's secret key, in the range of z. The owner
refuses it at the places of a product that hold nothing."""

from __future__ import annotations

import numpy as np
import pytest
from gmpy2 import mpz
from securevfl_crypto import generate_keypair
from securevfl_crypto.block import Block
from securevfl_crypto.errors import OverflowRefused
from securevfl_crypto.masks import ZeroShares
from securevfl_crypto.rlwe import BFV, CKKS
from securevfl_crypto.rlwe import owner as owner_module
from securevfl_crypto.rlwe.base import RlweScheme
from securevfl_crypto.rlwe.envelopes import Content
from securevfl_crypto.rlwe.holder import RlweHolder
from securevfl_crypto.rlwe.owner import RlweOwner, times_secret
from securevfl_crypto.rlwe.parameters import DEGREE
from securevfl_crypto.rlwe.tiling import CHECKS, Tiling

from tests.crypto.schemes import zero_shares

both = pytest.mark.parametrize("scheme", [BFV(), CKKS()], ids=lambda scheme: scheme.name)
KEYS = {scheme: scheme.generate_key() for scheme in (BFV(), CKKS())}
BLOCK = Block(batch=256, width_in=32, width_out=16, x_bits=15, s_bits=19, w_bits=38, z_bits=56)


def halves(scheme: RlweScheme, zero: ZeroShares | None = None) -> tuple[RlweOwner, RlweHolder]:
    key = KEYS[scheme]
    return scheme.create_owner(key, BLOCK), scheme.create_holder(key.public, BLOCK, zero or ZeroShares([]))


def honest(owner: RlweOwner, holder: RlweHolder, value: int) -> np.ndarray:
    """A holder's answer to weights W = 3."""
    share = holder.fresh_share()
    w = np.full((32, 16), 3, dtype=object)
    return holder.answer_product(owner.seal_weights(owner.ring.reduce(w - share)), np.full((256, 32), value), share)


def size(holder: RlweHolder, bits: int) -> int:
    """What moves an opened number by 2^bits, as a multiple of the unit of q'."""
    modulus = holder._plan.products.seal.kept.modulus
    return round((1 << bits) * modulus / holder._plan.products.modulus)


def changed(holder: RlweHolder, message: np.ndarray | None, amount: int, at: int, guessed: int = 0) -> np.ndarray:
    """An answer with `amount` X^at added to each c1, to an honest message or to nothing; and from c0 a guess of the
    key's coefficient taken off."""
    plan, basis = holder._plan, holder._plan.products.seal.kept
    tiles = list(plan.product_tiles(256))
    sizes = [len(places.index) + CHECKS for *_, places in tiles]
    envelope = plan.create_envelope(Content.PRODUCT, plan.products, 256)
    count = len(basis.primes)
    if message is None:
        blank = [(np.zeros((count, n), np.uint64), np.zeros((count, DEGREE), np.uint64)) for n in sizes]
    else:
        blank = [(first.copy(), second.copy()) for first, second in envelope.read_answers(message, sizes)]
    step = np.array([amount % prime for prime in basis.primes], dtype=np.uint64)
    away = basis.to_residues(np.array([-guessed * amount], dtype=object))[:, 0]
    for first, second in blank:
        second[:, at] = basis.add(second[:, at : at + 1], step[:, None])[:, 0]
        first[:, -CHECKS:] = basis.add(first[:, -CHECKS:], np.repeat(away[:, None], CHECKS, axis=1))
    return envelope.write_answers(blank)


def secret(scheme: RlweScheme, holder: RlweHolder) -> np.ndarray:
    """The secret's coefficients, −1, 0 and 1."""
    encoding = holder._plan.products
    seal, basis = encoding.seal, encoding.seal.kept
    one = np.zeros((len(basis.primes), DEGREE), np.uint64)
    one[:, 0] = 1
    opener = KEYS[scheme].openers[KEYS[scheme].public.chains.index(encoding.noise.chain)]
    found = basis.to_integers(times_secret(seal, opener, [one])[0])
    return np.where(found > basis.modulus // 2, found - basis.modulus, found).astype(int)


@both
def test_an_owner_that_does_not_look_opens_its_own_key(scheme: RlweScheme, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack works: every number of z is a coefficient of the key times 2^46, below a quarter of z's range."""
    owner, holder = halves(scheme)
    message = changed(holder, None, size(holder, 46), at=0)
    with pytest.raises(OverflowRefused, match="at an empty place of a product"):
        owner.open_product([message], 256)
    monkeypatch.setattr(owner_module, "_check_noise", lambda basis, phases, noise: None)
    z = owner.open_product([message], 256)
    key = secret(scheme, holder)
    assert set(np.unique(key)) == {-1, 0, 1}
    for a, b, places in holder._plan.product_tiles(256):
        found = np.round(z[a, b].ravel().astype(float) / 2.0**46).astype(int)
        assert (found == np.where(places.negative, -key[places.index], key[places.index])).all()


@both
@pytest.mark.parametrize("guess", [-1, 0, 1])
@pytest.mark.parametrize("base", ["nothing", "honest"])
def test_the_key_is_not_opened_with_any_guess_nor_hidden_in_an_honest_answer(
    scheme: RlweScheme, base: str, guess: int
) -> None:
    """From the whole range of z down to one hundred times the noise."""
    owner, holder = halves(scheme)
    noise = holder._plan.products.noise.answer_bound
    whole = None if base == "nothing" else honest(owner, holder, 5)
    for amount in (size(holder, 46), 100 * noise, 3 * noise):
        for at in (0, 1, 4097, DEGREE - 1):
            with pytest.raises(OverflowRefused, match="at an empty place of a product"):
                owner.open_product([changed(holder, whole, amount, at, guess)], 256)


@both
def test_one_of_several_holders_is_noticed_too(scheme: RlweScheme) -> None:
    zeros = zero_shares(2)
    (owner, first), (_, second) = halves(scheme, zeros[0]), halves(scheme, zeros[1])
    sent = [honest(owner, first, 5), honest(owner, second, 7)]
    z = owner.open_product(sent, 256)
    assert np.abs(z - 3 * 32 * 12).max() <= 2 * owner.product_error
    with pytest.raises(OverflowRefused, match="at an empty place of a product"):
        owner.open_product([sent[0], changed(second, sent[1], size(second, 46), at=0)], 256)


@both
def test_what_passes_moves_z_by_no_more_than_noise(scheme: RlweScheme) -> None:
    """An amount below the noise passes: BFV rounds it away, CKKS has it in the last bits."""
    owner, holder = halves(scheme)
    noise, exact = holder._plan.products.noise.answer_bound, 3 * 32 * 5
    z = owner.open_product([changed(holder, honest(owner, holder, 5), noise // 8, at=0)], 256)
    assert np.abs(z - exact).max() <= owner.product_error * 9 // 8


@pytest.mark.parametrize(
    ("batch", "d", "h"), [(256, 32, 16), (1, 1, 1), (256, 9, 16), (4096, 2, 1), (64, 300, 70), (8192, 1, 1)]
)
def test_checked_places_are_out_of_reach_of_every_product(batch: int, d: int, h: int) -> None:
    """By the exponents of all pairs of coefficients of x and V; and no result is there."""
    tiling = Tiling.plan(batch, d, h)
    x, v = (tiling.feature_places(tiling.rows, tiling.features), tiling.weight_places(tiling.features, tiling.outputs))
    reached = np.unique((np.unique(x.index)[:, None] + np.unique(v.index)[None]) % DEGREE)
    checks = tiling.check_places()
    assert len(checks.index) == len(set(checks.index)) == CHECKS
    assert not checks.negative.any()
    assert not set(checks.index) & set(reached)
    assert set(tiling.product_places(tiling.rows, tiling.outputs).index) <= set(reached)


def test_under_paillier_every_unit_is_a_ciphertext_of_one_number() -> None:
    """There is nothing else to open: (1 + n)^m rⁿ takes every value once, and a number that is no unit is refused."""
    key = generate_keypair(1024, unsafe_small_key=True)
    n, n2 = key.public.n, key.public.n2
    for number in (2, 3, n - 1, n2 - 1, mpz(2) ** 2000 + 1):
        m = key.decrypt(mpz(number) % n2)
        rest = mpz(number) * key.public.encode_plaintext(-m) % n2
        assert key.decrypt(rest) == 0
