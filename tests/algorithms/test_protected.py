"""Methods for few common rows under protections: each trains with parity or is refused with a reason, the page says
which, and what the reasons rest on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from protection_page import CIPHERS, FEW, NOISE, PAGE, accepted, made, written
from support.helpers import low_overlap_parties
from support.small_algorithms import KINDS, SETTINGS, make

import securevfl as sv
from securevfl.algorithms.attention import apply_attention, apply_polynomial_attention
from securevfl.cut import Protection
from securevfl.party_context import PartySecret
from securevfl.run.simulation import join_parties, run_parties
from securevfl.transport import Kind

TAKES_CIPHERS = [name for name in FEW if not made(name).reveals]


def scores(name: str, protection: Protection) -> np.ndarray:
    algorithm = make(name, **({"bottom": (4,)} if name in ("ssl", "best") else {}))
    work = sv.Job(
        algorithm=algorithm, epochs=max(2, algorithm.least_epochs), steps=1, batch_size=16, protection=protection
    )
    table = low_overlap_parties(1, rows=80, width=2, overlap=0.5)
    alike = {party: PartySecret.from_seed(0, party) for party in table}
    return run_parties(work, table, join_parties(table, work), run="run", secrets=alike).trained["bank"].scores


def test_the_page_says_which_method_runs_under_which_protection() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == written(page), "run python tools/pages/protection_page.py"


def test_bit_by_bit_parity_is_held_for_all_that_the_page_calls_sealed() -> None:
    """Under BFV by the public checks and under Paillier by the contract, which both go over these very names."""
    compared = {name for name in SETTINGS if not KINDS[name].reveals}
    assert {name for name in FEW if accepted(name, CIPHERS["paillier"])} == compared & {*FEW}
    for name in FEW:
        assert len({accepted(name, cipher) for cipher in CIPHERS.values()}) == 1


@pytest.mark.parametrize("name", TAKES_CIPHERS)
def test_under_ckks_it_trains_as_in_the_clear(name: str) -> None:
    np.testing.assert_allclose(scores(name, sv.CKKS()), scores(name, sv.Plain()), atol=2e-3)


@pytest.mark.parametrize("name", [name for name in FEW if made(name).reveals])
@pytest.mark.parametrize("cipher", CIPHERS)
def test_what_hands_over_representations_is_refused_with_the_reason(name: str, cipher: str) -> None:
    with pytest.raises(sv.PolicyError, match="cannot seal it: use protection 'plain', with dp=") as caught:
        sv.Job(algorithm=made(name), epochs=made(name).least_epochs, protection=CIPHERS[cipher])
    assert made(name).reveals in str(caught.value)
    # FedHSSL averages weights, which carry no noise: with features=… it wants aggregate=False, see the contract.
    # FALSE-VFL and HybridTree take no noise at all.
    assert accepted(name, NOISE["features at a passive party"]) is (name not in {"false_vfl", "fedhssl", "hybrid_tree"})


def test_the_gradient_of_fedcvts_difference_opens_the_peers_representations() -> None:
    """L_diff^AB: what party A needs to train its bottom is R_c^A - R_c^B of each row, so that sealing R_c^B hides
    nothing from it."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand((40, 8), generator=generator) for _ in range(2))
    a.requires_grad_()
    (a - b).square().sum(dim=1).mean().backward()
    assert a.grad is not None
    torch.testing.assert_close(a.detach() - a.grad * len(a) / 2, b)


@pytest.mark.parametrize("similarity", ["softmax", "polynomial"])
def test_an_opened_estimate_of_fedcvt_tells_the_query(similarity: str) -> None:
    """R̃_c^A of B's rows is an average of A's own rows, weighed by their likeness to R_c^B: whoever has the keys finds
    the query, up to its length where weights are scaled by their sum."""
    generator = torch.Generator().manual_seed(0)
    key, query = (torch.rand((n, 8), generator=generator, dtype=torch.float64) for n in (64, 20))

    def estimate(q: torch.Tensor) -> torch.Tensor:
        return apply_attention(q, key, key, 0.5) if similarity == "softmax" else apply_polynomial_attention(q, key, key)

    told = estimate(query)
    guess = torch.full_like(query, 0.5).requires_grad_()
    search = torch.optim.LBFGS([guess], max_iter=400, tolerance_grad=1e-14, tolerance_change=1e-16)

    def distance() -> torch.Tensor:
        search.zero_grad()
        loss = 1e4 * (estimate(guess) - told).square().sum()
        loss.backward()
        return loss

    search.step(distance)  # type: ignore[no-untyped-call]
    likeness = torch.cosine_similarity(guess.detach(), query, dim=1)
    start = torch.cosine_similarity(torch.full_like(query, 0.5), query, dim=1)
    assert likeness.min() > 0.999 > start.min()


@pytest.mark.parametrize("name", FEW)
def test_handed_over_representations_are_declared_with_noise_where_they_carry_it(name: str) -> None:
    noise = sv.Plain(dp=sv.DP(features=sv.Gaussian()))
    for protection in (sv.Plain(), noise):
        if accepted(name, protection):
            handed = [one for one in made(name).exchanges(protection, 1) if one.kind is Kind.REPRESENTATION]
            assert {one.noised for one in handed} <= {protection is noise}
