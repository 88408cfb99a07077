"""Releases of rows: clipped, noised by the stated amount, counted for each row, refused beyond the plan."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from securevfl.errors import PolicyError
from securevfl.privacy import GaussianRelease, RowRelease, clip_rows, epsilon_rdp
from securevfl.privacy.counts import EarlierCounts


def _release(**changes: object) -> RowRelease:
    options = {"rows": 10, "times": 3, "sigma": 0.5, "clip": 2.0, "delta": 1e-5} | changes
    return RowRelease("activations", **options)  # type: ignore[arg-type]


def test_a_release_is_clipped_value_plus_noise_of_sigma_times_sensitivity() -> None:
    release = _release(rows=4000, clip=2.0, sigma=0.5)
    values = torch.full((4000, 3), 100.0)
    residual = (release(values, np.arange(4000)).value - clip_rows(values, 2.0)).double()
    assert residual.std() == pytest.approx(0.5 * 2 * 2.0, rel=0.04)  # Δ = 2·clip: one row's content is replaced
    assert abs(residual.mean()) < 0.1


def test_a_smaller_sensitivity_than_twice_the_clip_can_be_given_and_a_larger_one_cannot() -> None:
    assert _release(clip=1.0, sensitivity=1.0).sensitivity == 1.0
    assert _release(clip=0.25, sensitivity=1.0).sensitivity == 0.5
    residual = _release(rows=4000, clip=1.0, sigma=2.0, sensitivity=1.0)(
        torch.zeros(4000, 2), np.arange(4000)
    ).value.double()
    assert residual.std() == pytest.approx(2.0, rel=0.05)


def test_noise_is_fresh_for_each_column_row_and_release() -> None:
    release, rows = _release(rows=4000, times=2, clip=1.0), np.arange(4000)
    one, other = (release(torch.zeros(4000, 3), rows).value.double() for _ in range(2))
    together = torch.cat([one, other, one.roll(1, dims=0)], dim=1)
    correlation = torch.corrcoef(together.T) - torch.eye(9, dtype=torch.float64)
    assert correlation.abs().max() < 6 / 4000**0.5, "what is subtracted from one column is subtracted from another"


def test_gradients_flow_through_the_clip() -> None:
    values = torch.tensor([[0.3, 0.4], [30.0, 40.0]], requires_grad=True)
    _release(clip=1.0)(values, np.array([0, 1])).value.sum().backward()
    assert torch.allclose(values.grad[0], torch.ones(2))
    assert values.grad[1].abs().max() < 0.1


def test_the_most_released_row_is_what_counts_and_the_budget_ends() -> None:
    release = _release()
    values = torch.ones(2, 2)
    release(values, np.array([0, 1]))
    release(values, np.array([1, 2]))
    assert release.cost_so_far.times == 2
    assert release.cost_so_far.epsilon_rdp == epsilon_rdp(GaussianRelease(0.5, 2), 1e-5)
    release(values, np.array([1, 3]))
    with pytest.raises(PolicyError, match="released 4 times; the budget was planned for 3"):
        release(values, np.array([1, 4]))
    assert release.planned_epsilon == release.cost_so_far.epsilon_rdp


def test_noise_drawn_once_stays_the_same_and_costs_once() -> None:
    release = _release(times=1, once=True)
    values = torch.arange(8.0).reshape(4, 2)
    first = release(values, np.arange(4)).value
    again = release(values[[2, 0]], np.array([2, 0])).value
    assert torch.equal(again, first[[2, 0]])
    mixed = release(values[:2], np.array([3, 7])).value
    assert torch.equal(mixed[0], first[3])
    assert release.cost_so_far.times == 1


def test_what_leaves_lies_on_the_grid_whatever_the_value_and_the_gradient_flows() -> None:
    release = _release(rows=4000, times=1, clip=1.0, sigma=1.0)
    values = (torch.rand(4000, 3) - 0.5).requires_grad_()  # float32, and as good as never on the grid
    sent = release(values, np.arange(4000)).value
    steps = sent.detach().double() / (release.sensitivity * 2.0**-20)
    assert torch.equal(steps, steps.round())
    sent.sum().backward()
    assert torch.allclose(values.grad, torch.ones(4000, 3))


def test_what_earlier_attempts_released_is_counted_beside_the_plan() -> None:
    release, reserved = _release(times=3), []
    values = torch.ones(2, 2)
    kept, lost = np.zeros((2, 10), np.int64)
    kept[[0, 1, 2]] = 2, 1, 1
    lost[[0, 1]] = 1, 2
    release.counts.begin_attempt(EarlierCounts(kept=kept, lost=lost), reserved.append)
    assert (release.counts.max_lost, release.counts.max_releases, release.cost_so_far.times) == (2, 3, 3)
    release(values, np.array([0, 1]))  # planned releases go on as planned
    assert release.cost_so_far.times == 4
    with pytest.raises(PolicyError, match="4 times"):
        release(values, np.array([0, 1]))
    assert reserved == [1]
    release(values, np.array([1, 2]))
    assert reserved == [1, 2]  # row 1 for the second time in this epoch
    assert release.counts.end_epoch().tolist() == [1, 2, 1, 0, 0, 0, 0, 0, 0, 0]
    release(values[:1], np.array([2]))
    assert reserved == [1, 2, 1]


def test_what_cannot_be_reserved_is_not_released() -> None:
    release = _release(times=3)

    def full(most: int) -> None:
        raise OSError("no space left on device")

    nothing = np.zeros(10, np.int64)
    release.counts.begin_attempt(EarlierCounts(kept=nothing, lost=nothing), full)
    for _ in range(2):
        with pytest.raises(OSError, match="no space"):
            release(torch.ones(2, 2), np.array([0, 1]))
    assert release.cost_so_far.times == 0


def test_noise_that_is_drawn_once_and_remembered_is_released_again_for_nothing() -> None:
    release, again, reserved = _release(times=1, once=True), _release(times=1, once=True), []
    first = release(torch.ones(2, 2), np.array([0, 1])).value
    again.counts.begin_attempt(
        EarlierCounts(kept=release.counts.end_epoch(), lost=np.zeros(10, np.int64)), reserved.append
    )
    again.load_state(release.get_state())
    assert torch.equal(again(torch.ones(2, 2), np.array([0, 1])).value, first)
    assert again.cost_so_far.times == 1
    assert reserved == []


def test_what_a_release_returns_tells_its_own_noise() -> None:
    sent = _release(sigma=0.7, clip=1.0)(torch.ones(2, 3), np.array([0, 1]))
    assert (sent.multiplier, sent.sensitivity) == (0.7, 2.0)
    once = _release(sigma=0.7, clip=1.0, sensitivity=0.5, once=True)(torch.ones(2, 3), np.array([0, 1]))
    assert (once.multiplier, once.sensitivity) == (0.7, 0.5)
