"""What the key owner sees of a holder at a sealed cut, whatever the scheme: nothing of its rows but the product."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tests.crypto.schemes import SCHEMES, Case, Cut, close

every = pytest.mark.parametrize("case", SCHEMES, ids=str)


@every
def test_one_holders_product_is_uniform_whatever_its_rows(case: Case) -> None:
    """What the owner decrypts of one of two holders: zeros and the largest rows look alike, and like no rows at all."""
    seen = []
    for value in (0, 2**15 - 1):
        cut = Cut(case, [2, 2], 9, 300, seed=1 + value % 2)
        sent = cut.holders[0].answer_product(
            cut.owners[0].seal_weights(cut.v[0]), np.full((300, 2), value, dtype=np.int64), cut.u[0]
        )
        seen.append(case.view(case.key(), sent))
        assert stats.kstest(seen[-1], "uniform").pvalue > 1e-6
    assert stats.ks_2samp(*seen).pvalue > 1e-6


@every
def test_every_products_mask_is_new(case: Case) -> None:
    """The same question twice: what the owner decrypts of one holder differs in every number, and by no constant."""
    cut = Cut(case, [2, 2], 3, 40)
    sealed, x = cut.owners[0].seal_weights(cut.v[0]), cut.x(40)
    first, second = (
        np.array(case.view(case.key(), cut.holders[0].answer_product(sealed, x, cut.u[0]))) for _ in range(2)
    )
    difference = (first - second) % 1.0
    assert len(np.unique(difference.round(12))) == len(difference)


@every
def test_without_a_mask_the_view_is_not_uniform(case: Case) -> None:
    """The test above can fail: one holder has no mask, since its product is what the owner is to learn."""
    cut = Cut(case, [2], 9, 300)
    sent = cut.holders[0].answer_product(cut.owners[0].seal_weights(cut.v[0]), cut.x(300), cut.u[0])
    assert stats.kstest(case.view(case.key(), sent), "uniform").pvalue < 1e-6


@every
def test_gradients_are_hidden_by_masks_that_fill_their_range(case: Case) -> None:
    """The owner's part of the gradient for no features and for the largest ones: two samples of one distribution."""
    seen = []
    for value in (0, 2**15 - 1):
        cut = Cut(case, [20], 9, 16)
        owner, found = cut.owners[0], []
        modulus = owner.ring.modulus
        scale = float(modulus // 2 if modulus else 1 << cut.block.phi_bits)
        x, s = np.full((16, 20), value, dtype=np.int64), np.full((16, 9), 2**21 - 1, dtype=np.int64)
        for _ in range(3):
            message, phi = cut.holders[0].answer_gradient(owner.seal_steps(s), x)
            mine = owner.ring.to_signed(owner.open_gradient(message))
            found += [float(value) / scale for value in mine.flat]
            assert close(owner.ring.to_signed(mine + phi), x.T.astype(object) @ s, owner.gradient_error)
        assert stats.kstest(found, "uniform", args=(-1, 2)).pvalue > 1e-6
        assert len(set(found)) == len(found)
        seen.append(found)
    assert stats.ks_2samp(*seen).pvalue > 1e-6


@every
def test_shares_hide_a_weight(case: Case) -> None:
    cut = Cut(case, [20], 9, 4)
    modulus, share = cut.owners[0].ring.modulus, cut.holders[0].fresh_share()
    assert share.shape == (20, 9)
    assert share.dtype == object
    scaled = [float(u) / modulus if modulus else float(u) / 2.0 ** (cut.block.share_bits + 1) + 0.5 for u in share.flat]
    assert stats.kstest(scaled, "uniform").pvalue > 1e-6


@every
def test_answers_and_questions_are_fresh(case: Case) -> None:
    """The same question twice, with no mask to make the difference: no ciphertext comes back twice."""
    cut = Cut(case, [3], 2, 4)
    owner, holder, x, s = cut.owners[0], cut.holders[0], cut.x(4), cut.s(4)
    weights, steps = owner.seal_weights(cut.v[0]), owner.seal_steps(s)
    assert not np.array_equal(weights, owner.seal_weights(cut.v[0]))
    assert not np.array_equal(steps, owner.seal_steps(s))
    sent = [holder.answer_product(weights, x, cut.u[0]) for _ in range(3)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (sent[one].reshape(len(sent[one]), -1) != sent[other].reshape(len(sent[other]), -1)).any(axis=1).all()
    assert not np.array_equal(holder.answer_gradient(steps, x)[0], holder.answer_gradient(steps, x)[0])
