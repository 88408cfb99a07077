"""Means of clipped vectors by group: the noise on sums and sizes, the sensitivity, the counting."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from securevfl.errors import InputError
from securevfl.privacy import GaussianRelease, epsilon_rdp, group_means
from securevfl.privacy.noise import Entropy, Noised, add_noise


def test_means_have_the_stated_noise_on_sums_and_sizes() -> None:
    clip, sigma, count = 2.0, 1.5, 4000
    groups = np.repeat(np.arange(count), 30)  # so large that no noisy size is raised to 1
    vectors = torch.full((len(groups), 3), 0.5, dtype=torch.float64)
    noisy, counts, spent = group_means(vectors, groups, count, clip=clip, sigma=sigma, delta=1e-5)
    assert {(m.multiplier, m.sensitivity) for m in (noisy, counts)} == {(sigma, 2 * clip)}
    means, sizes = noisy.value, counts.value
    assert stats.kstest((sizes - 30).numpy() / (2 * sigma), "norm").pvalue > 1e-6
    sums = (means * sizes[:, None] - 15.0)[torch.linalg.vector_norm(means, dim=1) < 0.99 * clip]  # those not clipped
    assert float(sums.std()) == pytest.approx(2 * clip * sigma, rel=0.04)
    assert torch.linalg.vector_norm(means, dim=1).max() <= clip * (1 + 1e-9)
    assert (spent.times, spent.protects) == (1, ("features", "labels"))
    assert spent.epsilon_rdp == epsilon_rdp(GaussianRelease(sigma, 1), 1e-5)


def test_means_of_many_rows_are_near_and_empty_groups_are_no_error() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, 30_000)
    vectors = torch.from_numpy(rng.normal(size=(30_000, 4)) * 0.1 + groups[:, None])
    noisy, counts, _ = group_means(vectors, groups, 4, clip=5.0, sigma=2.0, delta=1e-5)
    means, sizes = noisy.value, counts.value
    for kind in range(3):
        assert torch.allclose(means[kind], torch.full((4,), float(kind), dtype=torch.float64), atol=0.02)
        assert sizes[kind] == pytest.approx((groups == kind).sum(), abs=40)
    assert sizes[3] < 40


def test_replacing_a_row_moves_sums_and_sizes_by_no_more_than_the_sensitivity(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[torch.Tensor, float]] = []

    def watched(values: torch.Tensor, sigma: float, sensitivity: float, entropy: Entropy) -> Noised[torch.Tensor]:
        seen.append((values, sensitivity))
        return add_noise(values, sigma, sensitivity, entropy)

    monkeypatch.setattr("securevfl.privacy.means.add_noise", watched)
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
