"""What is left of answers and sums once all that is known is taken off: noise that has to be there, as wide as it has
to be by a count that is made here. And headers, each byte of which is compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats
from securevfl_crypto.aggregation import Addends, CkksAggregation, CkksAggregator
from securevfl_crypto.aggregation import ckks as ckks_module
from securevfl_crypto.block import Block
from securevfl_crypto.errors import MalformedError
from securevfl_crypto.masks import PairwiseMasks, ZeroShares
from securevfl_crypto.rlwe import BFV, CKKS
from securevfl_crypto.rlwe.base import RlweScheme
from securevfl_crypto.rlwe.envelopes import Content
from securevfl_crypto.rlwe.parameters import DEGREE
from securevfl_crypto.rlwe.residues import Basis

from tests.crypto.lattice import centred, known_key, phase

both = pytest.mark.parametrize("scheme", [BFV(), CKKS()], ids=lambda scheme: scheme.name)
SIZES = Block(batch=300, width_in=12, width_out=5, x_bits=15, s_bits=19, w_bits=34, z_bits=56)
FRESH = 21
"""The largest noise of SEAL's centred binomial distribution of 42 bits."""


@both
def test_a_gradients_flood_is_wide_enough_for_all_rows_of_a_batch(
    scheme: RlweScheme, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key's owner takes its own evaluation off an answer: what is left is uniform, and 2^40 times wider than the
    noise that all the rows of the batch can carry into one coefficient."""
    key, secrets = known_key(scheme, monkeypatch)
    owner, holder = scheme.create_owner(key, SIZES), scheme.create_holder(key.public, SIZES, ZeroShares([]))
    plan, x = holder._plan, np.full((300, 12), 2**15 - 1)
    encoding, seal = plan.gradients, plan.gradients.seal
    sealed = owner.seal_steps(np.zeros((300, 5), dtype=np.int64))
    rows, outs = plan.row_tiles(300), len(plan.output_tiles)
    assert len(rows) > 1, "a batch of one tile would not show a flood for one tile"
    steps = holder._load_ciphertexts(plan.create_envelope(Content.STEPS, encoding, 300), sealed, len(rows) * outs)
    plain = holder._encode_tiles(x, encoding)
    terms = [(steps[down * outs], row[0]) for down, row in enumerate(plain)]
    _, _, places = next(iter(plan.gradient_tiles(x.shape[1])))
    chain = scheme.chains.index(encoding.noise.chain)
    mask = encoding.encode_integers(np.zeros(len(places.index), dtype=np.int64))
    answer = seal.read_ciphertext(holder._hide_sum(chain, encoding, list(terms), mask, places))
    own = seal.read_ciphertext(seal.sum_products([c for c, _ in terms], [p for _, p in terms]))
    basis = Basis(seal.data.primes)
    left = np.stack([basis.add(a, basis.negate(b, np.ones(DEGREE, bool))) for a, b in zip(answer, own, strict=True)])
    found = centred(basis, phase(seal, secrets[chain], left)[:, places.index])
    telling = sum(x[a, plan.input_tiles[0]].size for a in rows) * (2**15 - 1) * FRESH
    assert telling >= 300 * 2**15 * FRESH / 2
    most = max(abs(int(v)) for v in found)
    assert most > telling * 2**40 * 0.8
    width = 2.0 ** int(np.ceil(np.log2(float(most))))
    assert stats.kstest([float(v) / width for v in found], "uniform", args=(-1, 2)).pvalue > 2**-30


class _Before:
    """SEAL's evaluator, which keeps what a ciphertext was before its modulus was lowered."""

    def __init__(self, evaluator: Any, kept: list[np.ndarray], read: Callable[[Any], np.ndarray]) -> None:
        self._evaluator, self._kept, self._read = evaluator, kept, read

    def mod_switch_to_next_inplace(self, ciphertext: Any) -> None:
        self._kept.append(self._read(ciphertext))
        self._evaluator.mod_switch_to_next_inplace(ciphertext)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._evaluator, name)


def test_both_halves_of_an_aggregated_vector_carry_fresh_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """With u = 1 an encryption of zero is the public key plus noise on either half; without it two of them tell their
    difference in u, and u their content."""
    scheme = CkksAggregation()
    key = scheme.generate_key()
    own = scheme.create_aggregator(key.public, Addends(count=9000, bits=20, parties=1))
    assert isinstance(own, CkksAggregator)
    one, kept = np.zeros(DEGREE, dtype=np.int64), list[np.ndarray]()
    one[0] = 1
    monkeypatch.setattr(ckks_module, "sample_ternary", lambda: one)
    monkeypatch.setattr(own._context, "evaluator", _Before(own._context.evaluator, kept, own._context.read_ciphertext))
    own.seal(np.zeros(9000, dtype=np.int64), ZeroShares([]))
    first, seed = key.public.halves[0]
    blinder = own._context.read_ciphertext(own._context.expand_seeded(first, seed))
    basis, noises = Basis(own._context.data.primes), []
    assert len(kept) == 2, "one for each 8,192 values"
    for halves in kept:
        for half, public in zip(halves, blinder, strict=True):
            noise = centred(basis, basis.add(half, basis.negate(public, np.ones(DEGREE, bool)))).astype(float)
            assert abs(np.std(noise) - np.sqrt(10.5)) < 0.25
            noises.append(noise)
    for i, one_noise in enumerate(noises):
        for other in noises[:i]:
            assert abs(np.corrcoef(one_noise, other)[0, 1]) < 0.08


@both
def test_every_byte_of_a_header_is_compared(scheme: RlweScheme) -> None:
    """Magic, version, scheme, content, chain, tag of the key, tile, rows and count: 36 bytes, of four messages."""
    key, sizes = (
        scheme.generate_key(),
        Block(batch=4, width_in=3, width_out=2, x_bits=15, s_bits=19, w_bits=34, z_bits=56),
    )
    owner, holder = scheme.create_owner(key, sizes), scheme.create_holder(key.public, sizes, ZeroShares([]))
    x, share = np.ones((4, 3), dtype=np.int64), holder.fresh_share()
    weights, steps = owner.seal_weights(share), owner.seal_steps(np.ones((4, 2), dtype=np.int64))
    uses: list[tuple[np.ndarray, Callable[[np.ndarray], object]]] = [
        (weights, lambda m: holder.answer_product(m, x, share)),
        (steps, lambda m: holder.answer_gradient(m, x)),
        (holder.answer_product(weights, x, -share), lambda m: owner.open_product([m], 4)),
        (holder.answer_gradient(steps, x)[0], owner.open_gradient),
    ]
    for message, use in uses:
        for at in range(36):
            changed = message.copy()
            changed[0, at] ^= 1
            with pytest.raises(MalformedError, match="begins with"):
                use(changed)


def test_every_byte_of_a_sums_header_is_compared() -> None:
    scheme = CkksAggregation()
    key = scheme.generate_key()
    own = scheme.create_aggregator(key.public, Addends(count=3, bits=20, parties=2))
    pairs = [ZeroShares([PairwiseMasks(bytes(32), positive=sign)]) for sign in (True, False)]
    messages = [own.seal(np.arange(3), zero) for zero in pairs]
    whole = own.add(messages)
    for at in range(25):
        for message, use in ((messages[0], lambda m: own.add([m, messages[1]])), (whole, lambda m: own.open(m, key))):
            changed = message.copy()
            changed[at] ^= 1
            with pytest.raises(MalformedError):
                use(changed)
