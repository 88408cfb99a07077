"""Noise on z in shares, and means of clipped vectors: the scale of the noise, the sensitivity, the counting."""

from __future__ import annotations

import itertools
import math
import secrets

import numpy as np
import pytest
import torch
from scipy import stats

import securevfl as sv
from securevfl.errors import InputError, PolicyError, RangeError
from securevfl.privacy import GaussianRelease, JointRelease, epsilon_rdp
from securevfl.privacy.counts import EarlierCounts
from securevfl.privacy.joint import check_norms, largest_norm


def _release(**changes: object) -> JointRelease:
    options = {
        "rows": 50,
        "times": 3,
        "sigma": 0.5,
        "clip": 1.5,
        "weight_bound": 2.0,
        "parties": 3,
        "delta": 1e-5,
    } | changes
    return JointRelease(**options)  # type: ignore[arg-type]


def test_the_shares_of_all_parties_add_up_to_the_whole_noise() -> None:
    rows = np.arange(2000)
    shares = [_release(rows=2000).draw_share(rows, 20).noise for _ in range(3)]
    whole = 0.5 * 2 * 1.5 * 2.0
    values = sum(shares).numpy().ravel()
    assert stats.kstest(values / whole, "norm").pvalue > 1e-6
    spread = (values**2).sum() / whole**2  # chi-square with so many degrees of freedom
    assert 1e-7 < stats.chi2.cdf(spread, len(values)) < 1 - 1e-7
    one = shares[0].numpy().ravel()
    assert one.std() == pytest.approx(whole / math.sqrt(3), rel=0.02)
    assert abs(np.corrcoef(one, shares[1].numpy().ravel())[0, 1]) < 0.03


def test_a_party_whose_part_is_readable_adds_all_of_the_noise() -> None:
    noise = _release(rows=2000, parties=1).draw_share(np.arange(2000), 20).noise.numpy()
    assert noise.std() == pytest.approx(0.5 * 2 * 1.5 * 2.0, rel=0.02)


def test_replacing_a_row_moves_z_by_no_more_than_the_sensitivity() -> None:
    rng = torch.Generator().manual_seed(1)
    release = _release()
    weights = torch.randn(8, 5, generator=rng, dtype=torch.float64)
    weights[3:] *= 0.05  # two parties, and nearly all of the norm is the first one's
    weights *= 2.0 / torch.linalg.matrix_norm(weights, 2)
    u, _, _ = torch.linalg.svd(weights[:3])
    worst = 0.0
    for direction in [*u.T, *torch.randn(50, 3, generator=rng, dtype=torch.float64)]:
        a, b = release.clip_activations(torch.stack([direction, -direction]) * 100)
        worst = max(worst, float(torch.linalg.vector_norm((a - b) @ weights[:3])))
    assert 0.98 * release.sensitivity < worst <= release.sensitivity == 2 * 1.5 * 2.0


def test_rows_are_counted_and_the_budget_ends() -> None:
    release = _release()
    for _ in range(3):
        release.draw_share(np.array([4, 7]), 2)
    assert release.cost_so_far.times == 3
    assert release.cost_so_far.what == "z"
    assert release.cost_so_far.protects == ("features",)
    assert release.cost_so_far.epsilon_rdp == epsilon_rdp(GaussianRelease(0.5, 3), 1e-5) == release.planned_epsilon
    again = _release()
    counts = release.counts.end_epoch()
    again.counts.begin_attempt(EarlierCounts(kept=counts, lost=np.zeros_like(counts)), lambda most: None)
    for one in (release, again):
        with pytest.raises(PolicyError, match="z would be released 4 times; the budget was planned for 3"):
            one.draw_share(np.array([7]), 2)
        assert one.cost_so_far.times == 3
    with pytest.raises(PolicyError, match="2 times"):
        _release(times=1).draw_share(np.array([3, 3]), 2)


def test_noise_is_new_each_time() -> None:
    release = _release()
    assert not torch.equal(release.draw_share(np.array([1]), 4).noise, release.draw_share(np.array([1]), 4).noise)


def test_low_bits_of_the_noise_are_uniform_where_normal_draws_have_holes() -> None:
    def tail(count: int) -> bytes:
        """The same extreme word for the normal draws, new ones for the dither."""
        return b"\x00" * count if next(calls) % 2 else secrets.token_bytes(count)

    calls = itertools.count()
    noise = _release(rows=3000, entropy=tail).draw_share(np.arange(3000), 1).noise.numpy().ravel()
    width = 2.0**-20 * 2 * 1.5 * 2.0
    place = (noise - noise.min()) / width
    assert place.max() <= 1
    assert stats.kstest(place, "uniform").pvalue > 1e-6


def test_honest_norms_pass_and_weights_past_the_bound_are_found() -> None:
    setting = {"clip": 1.5, "weight_bound": 2.0, "parties": 2, "width": 6}
    bound = largest_norm(sigma=0.5, **setting)
    rng = torch.Generator().manual_seed(0)
    weights = torch.randn(8, 6, generator=rng, dtype=torch.float64)
    weights *= 2.0 / torch.linalg.matrix_norm(weights, 2)
    releases = [_release(rows=5000, parties=2) for _ in range(2)]
    rows = np.arange(5000)
    parts = [r.clip_activations(100 * torch.randn(5000, 4, generator=rng, dtype=torch.float64)) for r in releases]
    noise = sum(r.draw_share(rows, 6).noise for r in releases)
    check_norms(torch.cat(parts, dim=1) @ weights + noise, bound)
    check_norms(torch.empty(0, 6), bound)
    with pytest.raises(RangeError, match="exceed what was agreed"):
        check_norms(torch.cat(parts, dim=1) @ (20 * weights) + noise, bound)
    with pytest.raises(RangeError):
        check_norms(torch.full((1, 6), math.nan), bound)
    assert largest_norm(sigma=0.0, **setting) == pytest.approx(1.5 * 2 * 2.0)


def test_a_share_tells_the_noise_of_the_sum() -> None:
    share = _release(sigma=0.5, clip=1.5, weight_bound=2.0, parties=3).draw_share(np.array([1]), 4)
    assert (share.multiplier, share.sensitivity) == (0.5, 6.0)


def test_a_bound_has_to_be_declared() -> None:
    with pytest.raises(InputError, match="weight_bound is missing"):
        sv.JointNoise()
    with pytest.raises(InputError, match="weight_bound is 0"):
        sv.JointNoise(weight_bound=0)
    with pytest.raises(InputError):
        _release(parties=0)
    with pytest.raises(InputError):
        _release(weight_bound=math.inf)
