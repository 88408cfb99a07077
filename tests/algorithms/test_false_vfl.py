"""FALSE-VFL: its densities and bounds against known ones, and gradients that cross the parties."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import low_overlap_parties
from support.small_algorithms import make
from torch.distributions import MultivariateNormal, Normal

import securevfl as sv
from securevfl.algorithms.field.false_vfl import FalseVFL
from securevfl.algorithms.field.false_vfl.settings import (
    LatentModel,
    fuse_posteriors,
    log_normal,
    mean_log_ratio,
)
from securevfl.run.simulation import join_parties, run_parties
from securevfl.testing.trial import roles_begun


def test_posteriors_fuse_by_mean_and_precision() -> None:
    torch.manual_seed(0)
    parts = [(torch.randn(5, 3), torch.randn(5, 3)) for _ in range(3)]
    mean, wide = fuse_posteriors(parts)
    for row in range(5):
        for k in range(3):
            precision = sum(1 / math.exp(float(one[row, k])) for _, one in parts)
            assert float(mean[row, k]) == pytest.approx(sum(float(one[row, k]) for one, _ in parts) / 3, abs=1e-5)
            assert math.exp(float(wide[row, k])) == pytest.approx(1 / precision, rel=1e-4)
    alone = fuse_posteriors(parts[:1])
    assert torch.allclose(alone[0], parts[0][0])
    assert torch.allclose(alone[1], parts[0][1], atol=1e-5)


def test_densities_are_gaussian() -> None:
    torch.manual_seed(1)
    x, mean, wide = torch.randn(4, 6, 3), torch.randn(6, 3), torch.randn(6, 3)
    slow = Normal(mean, torch.exp(0.5 * wide)).log_prob(x).sum(-1)
    assert torch.allclose(log_normal(x, (mean, wide)), slow, atol=1e-5)


def test_the_bound_is_the_likelihood_where_the_posterior_is_exact() -> None:
    """x = h + noise with h from N(0, 1): with the true posterior each ratio is p(x), whatever the sample."""
    x = torch.linspace(-2, 2, 9).unsqueeze(1)
    posterior = (x / 2, torch.full_like(x, math.log(0.5)))
    h = posterior[0] + math.sqrt(0.5) * torch.randn(7, 9, 1)
    zero = torch.zeros(1)
    logs = log_normal(x, (h, zero)) + log_normal(h, (zero, zero)) - log_normal(h, posterior)
    exact = MultivariateNormal(torch.zeros(1), torch.full((1, 1), 2.0)).log_prob(x)
    assert torch.allclose(mean_log_ratio(logs), exact, atol=1e-4)
    loose = log_normal(x, (h, zero)) + log_normal(h, (zero, zero)) - log_normal(h, (posterior[0], zero))
    assert not torch.allclose(mean_log_ratio(loose), exact, atol=1e-2)


def test_ratios_have_all_four_densities() -> None:
    torch.manual_seed(2)
    model = LatentModel(FalseVFL(latent=3, deep=2))
    posterior, noise = (torch.randn(5, 3), torch.randn(5, 3)), torch.randn(4, 5, 2)
    h = posterior[0] + torch.exp(0.5 * posterior[1]) * torch.randn(4, 5, 3)
    mean, wide = model.encoder(h).chunk(2, dim=-1)
    z = mean + torch.exp(0.5 * wide) * noise
    back, spread = model.decoder(z).chunk(2, dim=-1)
    slow = (
        Normal(back, torch.exp(0.5 * spread)).log_prob(h).sum(-1)
        + Normal(0.0, 1.0).log_prob(z).sum(-1)
        - Normal(posterior[0], torch.exp(0.5 * posterior[1])).log_prob(h).sum(-1)
        - Normal(mean, torch.exp(0.5 * wide)).log_prob(z).sum(-1)
    )
    assert torch.allclose(model.log_ratio(h, posterior, noise), slow, atol=1e-4)


@pytest.fixture(scope="module")
def first_step() -> tuple[dict[str, Any], dict[str, dict[str, torch.Tensor]]]:
    """Roles of one step of pretraining, and the gradients that their networks were left with."""
    people = low_overlap_parties(1, rows=90, overlap=0.5)
    job = sv.Job(
        algorithm=make("false_vfl", pretraining=1, lr=1e-9), protection=sv.Plain(), epochs=1, batch_size=64, seed=3
    )
    with roles_begun() as roles:
        run_parties(job, people, join_parties(people, job), run="run")
    at = {role.site.name: role for role in roles}
    grown = {
        name: {
            key: one.grad.clone()
            for key, one in role.generative.model.named_parameters()  # type: ignore[attr-defined]
            if one.grad is not None
        }
        for name, role in at.items()
    }
    return at, grown


def test_gradients_over_links_are_those_of_one_model(first_step: tuple[Any, Any]) -> None:
    """A step of two parties leaves the gradients that the same bound has in one process."""
    roles, found = first_step
    bank, shop = roles["bank"], roles["shop1"]
    draws = bank._make_generator("pretraining")
    common = bank.draw_common(0)
    pools = [(common, (bank, shop)), (shop.draw_own(0), (shop,)), (bank.draw_own(0), (bank,))]
    networks = [bank.generative.model, shop.generative.model]
    for model in networks:
        model.zero_grad(set_to_none=True)
    for rows, parties in pools:
        xs = [party.columns(rows) for party in parties]
        posterior = fuse_posteriors([party.model.encode(x) for party, x in zip(parties, xs, strict=True)])
        h, logs = bank._sample_latents(posterior, bank._draw_noise(len(rows), draws))
        for party, x in zip(parties, xs, strict=True):
            logs = logs + party.model.log_likelihood(x, h)
        torch.autograd.backward(-mean_log_ratio(logs).mean())
    for role in (bank, shop):
        name = role.site.name
        assert len(found[name]) > 5
        for key, one in role.generative.model.named_parameters():
            if one.grad is not None:
                np.testing.assert_allclose(found[name][key], one.grad, rtol=2e-3, atol=2e-5, err_msg=f"{name} {key}")


def test_a_passive_party_reads_the_posteriors_of_the_others() -> None:
    job = sv.Job(algorithm=make("false_vfl"), protection=sv.Plain())
    told = [one for one in job.findings(["shop1", "shop2"], "bank") if one.about == "shop2" and one.party == "shop1"]
    assert [one.severity for one in told] == ["leak"]
    assert not [one for one in job.findings(["shop1"], "bank") if one.about == one.party]


def test_a_peer_sends_no_more_rows_than_a_batch_has(first_step: tuple[Any, Any]) -> None:
    bank = first_step[0]["bank"]
    shape = (bank.nominal_batch + 1, bank.config.latent)

    class Told:
        peer = "shop1"

        async def receive(self, *names: object) -> Any:
            return SimpleNamespace(arrays={"mean": np.zeros(shape, np.float32), "wide": np.zeros(shape, np.float32)})

    with pytest.raises(sv.ProtocolError, match="rows for a batch of"):
        asyncio.run(bank._receive_posterior(Told(), None))
