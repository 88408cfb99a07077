"""BFV and CKKS beyond the tests that all schemes share: noise, what it would tell, and blocks of every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from securevfl_crypto.block import Block
from securevfl_crypto.errors import MalformedError, OverflowRefused
from securevfl_crypto.masks import PairwiseMasks, ZeroShares
from securevfl_crypto.rlwe import BFV, CKKS
from securevfl_crypto.rlwe import holder as holder_module
from securevfl_crypto.rlwe.base import RlweScheme
from securevfl_crypto.rlwe.envelopes import Content
from securevfl_crypto.rlwe.holder import RlweHolder
from securevfl_crypto.rlwe.owner import RlweOwner
from securevfl_crypto.rlwe.parameters import DEGREE
from securevfl_crypto.rlwe.residues import Basis

from tests.crypto.lattice import centred, known_key, phase
from tests.crypto.schemes import close, zero_shares

both = pytest.mark.parametrize("scheme", [BFV(), CKKS()], ids=lambda s: s.name)
KEYS = {scheme: scheme.generate_key() for scheme in (BFV(), CKKS())}


def block(**changes: Any) -> Block:
    sizes = {"batch": 32, "width_in": 6, "width_out": 4, "x_bits": 15, "s_bits": 19, "w_bits": 34, "z_bits": 58}
    return Block(**{**sizes, **changes})


def halves(scheme: RlweScheme, sizes: Block, zero: ZeroShares | None = None) -> tuple[RlweOwner, RlweHolder]:
    key = KEYS[scheme]
    return scheme.create_owner(key, sizes), scheme.create_holder(key.public, sizes, zero or ZeroShares([]))


def signed(owner: RlweOwner, values: np.ndarray) -> np.ndarray:
    modulus = owner.ring.modulus
    return (
        values
        if modulus is None
        else np.where(values % modulus > modulus // 2, values % modulus - modulus, values % modulus)
    )


def integers(rng: np.random.Generator, bits: int, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-(2**bits) + 1, 2**bits, shape)


@both
@settings(max_examples=12, deadline=None)
@given(st.data())
def test_blocks_of_every_size(scheme: RlweScheme, data: st.DataObject) -> None:
    """Uniform and integer shares, one chain or the other, several tiles along each axis; z up to a quarter."""
    integer = data.draw(st.booleans())
    d, h, batch = (data.draw(st.integers(1, most)) for most in (70, 40, 70))
    z_bits = data.draw(st.sampled_from([54, 60, 61, 64, 66]))
    sizes = block(batch=batch, width_in=d, width_out=h, z_bits=z_bits, integer_shares=integer)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    owner, holder = halves(scheme, sizes)
    x, s = integers(rng, 15, (batch, d)), integers(rng, 19, (batch, h))
    w = integers(rng, min(34, z_bits - 3 - 15 - 7), (d, h)).astype(object)
    u = holder.fresh_share()
    extra = integers(rng, 40, (batch, h))
    z = owner.open_product(
        [holder.answer_product(owner.seal_weights(owner.ring.reduce(w - u)), x, u, extra=extra)], batch
    )
    assert close(z, x.astype(object) @ w + extra, owner.product_error)
    message, phi = holder.answer_gradient(owner.seal_steps(s), x)
    total = signed(owner, owner.open_gradient(message) + phi)
    if integer:
        assert max(abs(int(p)) for p in phi.flat) < 2**sizes.phi_bits + 1
    assert close(total, x.T.astype(object) @ s, owner.gradient_error)


@both
def test_integer_shares_of_several_holders_add_up(scheme: RlweScheme) -> None:
    sizes, rng = block(integer_shares=True), np.random.default_rng(3)
    pairs = [halves(scheme, sizes, zero) for zero in zero_shares(3)]
    x = integers(rng, 15, (32, 6))
    w = integers(rng, 34, (6, 4)).astype(object)
    sent = []
    for owner, holder in pairs:
        u = holder.fresh_share()
        sent.append(holder.answer_product(owner.seal_weights(w - u), x, u))
    assert close(pairs[0][0].open_product(sent, 32), 3 * (x.astype(object) @ w), 3 * pairs[0][0].product_error)


@both
def test_what_does_not_fit_is_refused(scheme: RlweScheme) -> None:
    for changes in ({"z_bits": 100}, {"sigma": 130}, {"x_bits": 31}, {"integer_shares": True, "s_bits": 40}):
        with pytest.raises(OverflowRefused):
            scheme.create_owner(KEYS[scheme], block(**changes))
    owner, holder = halves(scheme, block())
    sent = holder.answer_product(
        owner.seal_weights(holder.fresh_share()), np.ones((32, 6), dtype=np.int64), holder.fresh_share()
    )
    with pytest.raises(MalformedError, match="17 parties"):
        owner.open_product([sent] * 17, 32)


@both
def test_more_holders_than_their_noise_has_room_for_are_refused_at_setup(scheme: RlweScheme) -> None:
    public = KEYS[scheme].public
    pairs = [PairwiseMasks(bytes(32), positive=True)] * 16
    scheme.create_holder(public, block(), ZeroShares(pairs[:15]))
    with pytest.raises(OverflowRefused, match=r"products of 17 holders .* use Paillier"):
        scheme.create_holder(public, block(), ZeroShares(pairs))


@both
def test_a_gradient_beyond_its_mask_is_refused(scheme: RlweScheme, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, holder = halves(scheme, block(integer_shares=True))
    steps, x = owner.seal_steps(np.ones((32, 4), dtype=np.int64)), np.ones((32, 6), dtype=np.int64)
    large = np.full((6, 4), 2 ** (block().phi_bits + 1) + 2**50, dtype=object)
    if scheme.exact:
        large = np.full((6, 4), 2 ** (block().phi_bits + 1) - 2**50, dtype=object)  # the last bit that its ring has
        monkeypatch.setattr("securevfl_crypto.block.Block.phi_bits", property(lambda self: 20))
        owner, holder = halves(scheme, block(integer_shares=True))
        steps = owner.seal_steps(np.ones((32, 4), dtype=np.int64))
        large = np.full((6, 4), 2**40, dtype=object)
    monkeypatch.setattr(holder, "_random_integers", lambda bits: large)
    with pytest.raises(OverflowRefused, match="mask is wider than agreed"):
        owner.open_gradient(holder.answer_gradient(steps, x)[0])


@both
def test_an_answer_has_only_the_coefficients_of_its_result(scheme: RlweScheme) -> None:
    """Other coefficients hold sums over other rows and columns, without masks."""
    owner, holder = halves(scheme, block())
    x = np.ones((32, 6), dtype=np.int64)
    product = holder.answer_product(owner.seal_weights(holder.fresh_share()), x, holder.fresh_share())
    gradient, _ = holder.answer_gradient(owner.seal_steps(np.ones((32, 4), dtype=np.int64)), x)
    chain = scheme.chains[0]
    width = sum(chain.widths[:-1])
    assert product.size == 36 + width * (DEGREE + 32 * 4 + 32)  # and the places that the owner checks
    assert gradient.size == 36 + width * (DEGREE + 6 * 4)


class Spy:
    """What the owner of a key with a known secret can compute of a holder's answer before its modulus is lowered."""

    def __init__(self, scheme: RlweScheme, monkeypatch: pytest.MonkeyPatch) -> None:
        self.key, self.secrets = known_key(scheme, monkeypatch)
        self.sizes = block()
        self.owner = scheme.create_owner(self.key, self.sizes)
        self.holder = scheme.create_holder(self.key.public, self.sizes, ZeroShares([]))
        self.plan = self.holder._plan
        self.seal = self.plan.products.seal
        self.sealed = self.owner.seal_weights(self.holder.fresh_share())

    def evaluation(self, x: np.ndarray) -> tuple[Any, list[tuple[Any, Any]]]:
        """The owner's own sum of products for a guess, and its terms."""
        weights = self.holder._load_ciphertexts(
            self.plan.create_envelope(Content.WEIGHTS, self.plan.products), self.sealed, 1
        )
        terms = [(weights[0], self.holder._encode_tile(x, self.plan.products))]
        return self.seal.sum_products(*([part] for part in terms[0])), terms

    def answer(self, x: np.ndarray) -> np.ndarray:
        """Both halves (2, data primes, N) of an answer, its modulus not lowered, without a mask."""
        places = self.plan.tiling.product_places(*x.shape[:1], self.sizes.width_out)
        mask = self.plan.products.encode_integers(np.zeros(len(places.index), dtype=np.int64))
        hidden = self.holder._hide_sum(0, self.plan.products, self.evaluation(x)[1], mask, places)
        return self.seal.read_ciphertext(hidden)

    def residual(self, answer: np.ndarray, guess: np.ndarray) -> np.ndarray:
        """Noise of the answer minus the owner's evaluation of a guess, at the coefficients that are sent."""
        own = self.seal.read_ciphertext(self.evaluation(guess)[0])
        basis = Basis(self.seal.data.primes)
        difference = np.stack(
            [basis.add(a, basis.negate(b, np.ones(DEGREE, dtype=bool))) for a, b in zip(answer, own, strict=True)]
        )
        places = self.plan.tiling.product_places(len(guess), self.sizes.width_out)
        return centred(basis, phase(self.seal, self.secrets[0], difference)[:, places.index])


def spread(values: np.ndarray) -> float:
    return float(np.log2(np.sqrt(np.mean([float(v) ** 2 for v in values])) + 1e-9))


@both
def test_noise_confirms_a_guess_unless_it_is_flooded(scheme: RlweScheme, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner subtracts its evaluation of a guess of x: for the right guess only the noise of the fresh encryption
    of zero is left, 2^9; a guess that differs only where the weights are zero leaves x times its own noise."""
    spy = Spy(scheme, monkeypatch)
    rng = np.random.default_rng(0)
    spy.sealed = spy.owner.seal_weights(np.zeros((6, 4), dtype=object))  # so that messages do not tell right from wrong
    right = integers(rng, 15, (32, 6))
    wrong = integers(rng, 15, (32, 6))
    flooded = spy.answer(right)
    bits = spy.plan.products.noise.flood_bits
    for guess in (right, wrong):
        found = spy.residual(flooded, guess)
        assert bits - 2 < spread(found) < bits
        scaled = [float(v) / 2.0**bits for v in found]
        assert stats.kstest(scaled, "uniform", args=(-1, 2)).pvalue > 1e-6
    monkeypatch.setattr(
        holder_module, "sample_flooding", lambda basis, count, bits: np.zeros((len(basis.primes), count), np.uint64)
    )
    bare = spy.answer(right)
    assert spread(spy.residual(bare, right)) < 11
    assert spread(spy.residual(bare, wrong)) > 18


@both
def test_noise_stays_within_its_bounds(scheme: RlweScheme, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows as large as they may be and all of one sign. Without flood: x times fresh noise, and the blinding."""
    spy = Spy(scheme, monkeypatch)
    spy.sealed = spy.owner.seal_weights(np.zeros((6, 4), dtype=object))
    x, noise = np.full((32, 6), 2**15 - 1), spy.plan.products.noise
    basis = Basis(spy.seal.data.primes)
    own = centred(basis, phase(spy.seal, spy.secrets[0], spy.seal.read_ciphertext(spy.evaluation(x)[0])))
    assert noise.data_bound / 2**8 < max(abs(int(v)) for v in own) < noise.data_bound
    sent = spy.answer(x)
    flooded = centred(basis, phase(spy.seal, spy.secrets[0], sent)[:, spy.plan.tiling.product_places(32, 4).index])
    most = max(abs(int(v)) for v in flooded)
    assert 2**noise.flood_bits * 0.9 < most < 2**noise.flood_bits + noise.data_bound + noise.zero_bound
    assert noise.flood_bits >= noise.data_bound.bit_length() - 1 + spy.sizes.sigma


@both
def test_c1_is_rerandomised_by_a_sample_with_noise(scheme: RlweScheme, monkeypatch: pytest.MonkeyPatch) -> None:
    """With u = 1, c1 is the owner's evaluation plus the public key's, plus noise: none of the three may be missing."""
    spy = Spy(scheme, monkeypatch)
    x = np.ones((32, 6), dtype=np.int64)
    one = np.zeros(DEGREE, dtype=np.int64)
    one[0] = 1
    own = spy.seal.read_ciphertext(spy.evaluation(x)[0])[1]
    basis = Basis(spy.seal.data.primes)

    def left(expected: np.ndarray) -> np.ndarray:
        negative = basis.negate(expected, np.ones(DEGREE, dtype=bool))
        return centred(basis, basis.add(spy.answer(x)[1], negative))

    assert spread(left(own)) > basis.modulus.bit_length() - 4  # u is there,
    assert spread(left(spy.answer(x)[1])) > basis.modulus.bit_length() - 4  # and another one each time
    monkeypatch.setattr(holder_module, "sample_ternary", lambda: one)
    blinder = spy.seal.read_ciphertext(spy.seal.expand_seeded(*spy.key.public.halves[0]))[1]
    noise = left(basis.add(own, blinder))
    assert abs(np.std(noise.astype(float)) - np.sqrt(10.5)) < 0.2


@both
def test_an_answer_that_is_no_encryption_is_refused(scheme: RlweScheme) -> None:
    owner, holder = halves(scheme, block())
    sent = holder.answer_gradient(owner.seal_steps(np.ones((32, 4), dtype=np.int64)), np.ones((32, 6), dtype=np.int64))[
        0
    ].copy()
    sent[0, 36:] = 0
    with pytest.raises(MalformedError, match="not an encryption"):
        owner.open_gradient(sent)


@both
def test_a_tile_of_zeros_is_hidden_as_well(scheme: RlweScheme) -> None:
    owner, holder = halves(scheme, block(batch=2000, width_in=9))
    x = np.zeros((2000, 9), dtype=np.int64)
    x[:3] = 5
    w = np.full((9, 4), 77, dtype=object)
    u = holder.fresh_share()
    z = owner.open_product([holder.answer_product(owner.seal_weights(owner.ring.reduce(w - u)), x, u)], 2000)
    assert close(z, x.astype(object) @ w, owner.product_error)
    message, phi = holder.answer_gradient(owner.seal_steps(np.ones((2000, 4), dtype=np.int64)), x)
    total = signed(owner, owner.open_gradient(message) + phi)
    assert close(total, np.full((9, 4), 15, dtype=object), owner.gradient_error)


@both
def test_rows_are_encoded_once_and_never_mistaken(scheme: RlweScheme, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient takes the encoding that its product made; other rows, or the same array changed, are encoded anew."""
    owner, holder = halves(scheme, block())
    counted: list[int] = []
    tile = RlweHolder._encode_tile
    monkeypatch.setattr(RlweHolder, "_encode_tile", lambda *args: (counted.append(1), tile(*args))[1])
    x, share = np.full((32, 6), 3), holder.fresh_share()
    weights = owner.seal_weights(owner.ring.reduce(-share))
    steps = owner.seal_steps(np.ones((32, 4), dtype=np.int64))
    holder.answer_product(weights, x, share)
    holder.answer_gradient(steps, x)
    assert len(counted) == 1
    x[0, 0] = 30000
    message, phi = holder.answer_gradient(steps, x)
    assert len(counted) == 2
    total = signed(owner, owner.open_gradient(message) + phi)
    assert close(total[0], np.full(4, 30093, dtype=object), owner.gradient_error)


@both
def test_a_secret_key_shows_nothing(scheme: RlweScheme) -> None:
    assert "object at" in repr(KEYS[scheme])
    assert KEYS[scheme].public.security == 128
    assert KEYS[scheme].public.bits == max(chain.data_bits for chain in scheme.chains)


def test_bfv_and_ckks_do_not_read_each_others_keys() -> None:
    for scheme, other in ((BFV(), CKKS()), (CKKS(), BFV())):
        with pytest.raises(MalformedError):
            scheme.create_owner(KEYS[other], block())
        with pytest.raises(MalformedError):
            scheme.create_holder(KEYS[other].public, block(), ZeroShares([]))
