"""Noise on z in shares, and means of clipped vectors: the scale of the noise, the sensitivity, the counting."""

from __future__ import annotations

import itertools
import math
import secrets

import numpy as np
import pytest
import torch
from helpers import parties, ready_keys
from scipy import stats

import securevfl as sv
from securevfl.errors import InputError, PolicyError, RangeError
from securevfl.privacy import GaussianRelease, JointRelease, epsilon_rdp, group_means
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
    shares = [_release(rows=2000).noise(rows, 20) for _ in range(3)]
    whole = 0.5 * 2 * 1.5 * 2.0
    values = sum(shares).numpy().ravel()
    assert stats.kstest(values / whole, "norm").pvalue > 1e-6
    spread = (values**2).sum() / whole**2  # chi-square with so many degrees of freedom
    assert 1e-7 < stats.chi2.cdf(spread, len(values)) < 1 - 1e-7
    one = shares[0].numpy().ravel()
    assert one.std() == pytest.approx(whole / math.sqrt(3), rel=0.02)
    assert abs(np.corrcoef(one, shares[1].numpy().ravel())[0, 1]) < 0.03


def test_a_party_whose_part_is_readable_adds_all_of_the_noise() -> None:
    noise = _release(rows=2000, parties=1).noise(np.arange(2000), 20).numpy()
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
        a, b = release.clipped(torch.stack([direction, -direction]) * 100)
        worst = max(worst, float(torch.linalg.vector_norm((a - b) @ weights[:3])))
    assert 0.98 * release.sensitivity < worst <= release.sensitivity == 2 * 1.5 * 2.0


def test_rows_are_counted_and_the_budget_ends() -> None:
    release = _release()
    for _ in range(3):
        release.noise(np.array([4, 7]), 2)
    assert release.spent.times == 3
    assert release.spent.what == "z"
    assert release.spent.protects == ("features",)
    assert release.spent.epsilon_rdp == epsilon_rdp(GaussianRelease(0.5, 3), 1e-5) == release.planned_epsilon
    again = _release()
    again.load(release.state())
    for one in (release, again):
        with pytest.raises(PolicyError, match="z would be released 4 times; the budget was planned for 3"):
            one.noise(np.array([7]), 2)
        assert one.spent.times == 3
    with pytest.raises(PolicyError, match="2 times"):
        _release(times=1).noise(np.array([3, 3]), 2)
    with pytest.raises(TypeError, match="state"):
        _release(rows=3).load(release.state())


def test_noise_is_new_each_time() -> None:
    release = _release()
    assert not torch.equal(release.noise(np.array([1]), 4), release.noise(np.array([1]), 4))


def test_low_bits_of_the_noise_are_uniform_where_normal_draws_have_holes() -> None:
    def tail(count: int) -> bytes:
        """The same extreme word for the normal draws, new ones for the dither."""
        return b"\x00" * count if next(calls) % 2 else secrets.token_bytes(count)

    calls = itertools.count()
    noise = _release(rows=3000, entropy=tail).noise(np.arange(3000), 1).numpy().ravel()
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
    parts = [r.clipped(100 * torch.randn(5000, 4, generator=rng, dtype=torch.float64)) for r in releases]
    noise = sum(r.noise(rows, 6) for r in releases)
    check_norms(torch.cat(parts, dim=1) @ weights + noise, bound)
    check_norms(torch.empty(0, 6), bound)
    with pytest.raises(RangeError, match="declare a larger bound"):
        check_norms(torch.cat(parts, dim=1) @ (20 * weights) + noise, bound)
    with pytest.raises(RangeError):
        check_norms(torch.full((1, 6), math.nan), bound)
    assert largest_norm(sigma=0.0, **setting) == pytest.approx(1.5 * math.sqrt(2) * 2.0)


def test_a_bound_has_to_be_declared_and_an_algorithm_has_to_have_it() -> None:
    with pytest.raises(InputError, match="weight_bound"):
        sv.DP(where="z")
    with pytest.raises(InputError, match="did you mean 'z'"):
        sv.DP(where="Z", weight_bound=1.0)
    with pytest.raises(InputError):
        _release(parties=0)
    with pytest.raises(InputError):
        _release(weight_bound=math.inf)
    assert "features at z" in sv.DP(where="z", weight_bound=3.0).describe()


# means


def test_means_have_the_stated_noise_on_sums_and_sizes() -> None:
    clip, sigma, count = 2.0, 1.5, 4000
    groups = np.repeat(np.arange(count), 30)  # so large that no noisy size is raised to 1
    vectors = torch.full((len(groups), 3), 0.5, dtype=torch.float64)
    means, sizes, spent = group_means(vectors, groups, count, clip=clip, sigma=sigma, delta=1e-5)
    assert stats.kstest((sizes - 30).numpy() / (2 * sigma), "norm").pvalue > 1e-6
    sums = (means * sizes[:, None] - 15.0)[torch.linalg.vector_norm(means, dim=1) < 0.99 * clip]  # those not clipped
    assert float(sums.std()) == pytest.approx(2 * clip * sigma, rel=0.03)
    assert torch.linalg.vector_norm(means, dim=1).max() <= clip * (1 + 1e-9)
    assert (spent.times, spent.protects) == (1, ("features", "labels"))
    assert spent.epsilon_rdp == epsilon_rdp(GaussianRelease(sigma, 1), 1e-5)


def test_means_of_many_rows_are_near_and_empty_groups_are_no_error() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, 30_000)
    vectors = torch.from_numpy(rng.normal(size=(30_000, 4)) * 0.1 + groups[:, None])
    means, sizes, _ = group_means(vectors, groups, 4, clip=5.0, sigma=2.0, delta=1e-5)
    for kind in range(3):
        assert torch.allclose(means[kind], torch.full((4,), float(kind), dtype=torch.float64), atol=0.02)
        assert sizes[kind] == pytest.approx((groups == kind).sum(), abs=40)
    assert sizes[3] < 40


def test_replacing_a_row_moves_sums_and_sizes_by_no_more_than_the_sensitivity(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[torch.Tensor, float]] = []

    def watched(values: torch.Tensor, sigma: float, sensitivity: float, entropy: object) -> torch.Tensor:
        seen.append((values, sensitivity))
        return values

    monkeypatch.setattr("securevfl.privacy.means.noised", watched)
    base = torch.tensor([[30.0, 0.0], [0.0, 0.1]])
    for other, group in (([-30.0, 0.0], 0), ([-30.0, 0.0], 1), ([0.0, 0.0], 1), ([0.0, 9.0], 0)):
        changed = base.clone()
        changed[0] = torch.tensor(other)
        seen.clear()
        group_means(base, np.array([0, 1]), 2, clip=1.5, sigma=1.0, delta=1e-5)
        group_means(changed, np.array([group, 1]), 2, clip=1.5, sigma=1.0, delta=1e-5)
        (one, bound), (two, _) = seen
        assert float(torch.linalg.vector_norm(one - two)) <= bound * (1 + 1e-9) == pytest.approx(3.0)


def test_groups_that_do_not_fit_are_refused() -> None:
    vectors = torch.zeros(3, 2)
    for groups, clip in ((np.array([0, 1]), 1.0), (np.array([0, 1, 2]), 1.0), (np.array([0, 1, 1]), 0.0)):
        with pytest.raises(InputError):
            group_means(vectors, groups, 2, clip=clip, sigma=1.0, delta=1e-5)


# in a run


@pytest.mark.parametrize("bottom", [(), (3,)])
def test_a_run_with_noise_on_z_counts_every_use_and_says_on_what_it_depends(bottom: tuple[int, ...]) -> None:
    dp = sv.DP(where="z", weight_bound=20.0, epsilon=30.0, gradients=False)
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, top=(), bottom=bottom), protection=sv.Plain(dp=dp), epochs=3, seed=1)
    run = sv.simulate(job, parties(), baselines=()).record.runs[-1]
    assert [(e.party, e.what, e.releases) for e in run.epsilon] == [("shop1", "z", 3), ("shop2", "z", 3)]
    assert all(29 < e.epsilon_rdp <= 30 for e in run.epsilon)
    assert any("declared norm of 20" in note for note in run.notes)
    weights = "weights of the cut and of the bottoms" if bottom else "weights of the cut,"
    assert any(weights in note and "given the weights" in note for note in run.notes)


def test_weights_past_the_declared_bound_end_the_run() -> None:
    dp = sv.DP(where="z", weight_bound=1e-6, epsilon=30.0, gradients=False)
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, top=()), protection=sv.Plain(dp=dp), epochs=3, seed=1)
    with pytest.raises(RangeError, match="weight_bound"):
        sv.simulate(job, parties(), baselines=())


def test_sealed_and_plain_share_the_noise_in_their_own_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    ready_keys(monkeypatch)
    seen = []
    original = JointRelease.__init__

    def watched(self: JointRelease, **options: object) -> None:
        seen.append(options["parties"])
        original(self, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(JointRelease, "__init__", watched)
    dp = sv.DP(where="z", weight_bound=20.0, epsilon=30.0, gradients=False)
    for protection in (sv.Plain(dp=dp), sv.Plain(dp=dp, fixed_point=True), sv.Paillier(bits=2048, dp=dp)):
        job = sv.Job(algorithm=sv.SplitNN(hidden=2, top=()), protection=protection, epochs=1, steps=1, seed=1)
        run = sv.simulate(job, parties(rows=60), baselines=()).record.runs[-1]
        assert run.epsilon_totals[0].protects == "features"
    assert seen == [1, 1, 1, 1, 2, 2]
