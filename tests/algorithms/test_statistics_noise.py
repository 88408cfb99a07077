"""Noise of statistics: who adds it, how much, to what, and how far a row can move what it is added to."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

import securevfl as sv
from securevfl.algorithms.statistics import noisy_columns, roles
from securevfl.algorithms.statistics.columns import ONE
from securevfl.algorithms.statistics.roles import StatisticsActive, StatisticsPassive
from securevfl.privacy.statistics_budget import StatisticsBudget, clip_norm
from securevfl.shares.crossing import of_two, programs
from securevfl.shares.crossing.computing import draw_noise
from securevfl.training.crossing import CrossPlan

ROWS = 240
GENERATOR = np.random.default_rng(11)
LABEL = (np.arange(ROWS) % 6 == 0).astype(int)
BUDGET = sv.DP(model=sv.Gaussian(epsilon=20.0, delta=1e-5))


@dataclass
class Heard:
    """What one run computed with.

    Attributes:
        matrices: party → its rows.
        added: party that added noise, its share, and the noise.
        own: σ and noise of own correlations, in the order in which parties drew them.
        told: passive party, in the plan's order → its own correlations as they arrived.
        plan: of the products.
        opened: what was opened.
    """

    matrices: dict[str, np.ndarray] = field(default_factory=dict)
    added: list[tuple[str, float, np.ndarray]] = field(default_factory=list)
    own: list[tuple[float, np.ndarray]] = field(default_factory=list)
    told: dict[str, np.ndarray] = field(default_factory=dict)
    plan: CrossPlan | None = None
    opened: np.ndarray = field(default_factory=lambda: np.empty(0))


def hear(parties: int, protection: sv.Protection) -> Heard:
    """Run a job and take down its noise."""
    heard = Heard()
    take = StatisticsActive.take_sums

    def taken(role: StatisticsActive, opened: np.ndarray) -> None:
        heard.plan, heard.opened = role.cross, opened
        heard.told = {name: one for name, one in zip(role.site.passive, role.blocks, strict=True) if one is not None}
        take(role, opened)

    def drawn(plan: CrossPlan, share: float) -> np.ndarray | None:
        made, frame = draw_noise(plan, share), inspect.currentframe()
        assert frame is not None
        assert frame.f_back is not None
        assert made is not None
        heard.added.append((frame.f_back.f_locals["self"].sharing.site.name, share, made))
        return made

    def gaussian(shape: tuple[int, ...], std: float) -> torch.Tensor:
        noise = std * torch.randn(shape, dtype=torch.float64)
        heard.own.append((std, noise.numpy()))
        return noise

    with pytest.MonkeyPatch.context() as patch:
        for kind in (StatisticsActive, StatisticsPassive):
            made = kind.matrix

            def matrix(role: Any, made: Any = made) -> np.ndarray:
                found: np.ndarray = made(role)
                heard.matrices[role.site.name] = found
                return found

            patch.setattr(kind, "matrix", matrix)
        patch.setattr(StatisticsActive, "take_sums", taken)
        patch.setattr(programs, "draw_noise", drawn)
        patch.setattr(of_two, "draw_noise", drawn)
        patch.setattr(roles, "draw_gaussian", gaussian)
        ids = [f"c{place}" for place in range(ROWS)]
        label = {"label": LABEL, "classes": (0, 1), "label_name": "late"}
        tables = [
            sv.PartyTable(
                name=name, ids=ids, columns={f"{name}{k}": GENERATOR.normal(size=ROWS) for k in range(count)},
                preparation=sv.Preparation(), **(label if name == "bank" else {}),
            )
            for name, count in [("bank", 1), ("shop", 2), ("phone", 1)][:parties]
        ]  # fmt: skip
        job = sv.Job(algorithm=sv.Statistics(bins=10), protection=protection, epochs=1, seed=1)
        sv.simulate(job, sv.Parties.of(*tables), observer=sv.Observer())
    return heard


@pytest.fixture(scope="module")
def three() -> Heard:
    return hear(3, sv.Shares(dp=BUDGET))


@pytest.fixture(scope="module")
def two() -> Heard:
    return hear(2, sv.Shares(computing=2, dp=BUDGET))


@pytest.mark.parametrize(
    ("run", "adders"), [("three", {"shop": 0.5, "phone": 0.5}), ("two", {"shop": 1.0})], ids=["three", "two"]
)
def test_what_is_opened_has_the_noise_of_all_that_do_not_read_it(
    run: str, adders: dict[str, float], request: pytest.FixtureRequest
) -> None:
    """To the last bit; the party that reads it adds none."""
    heard: Heard = request.getfixturevalue(run)
    plan = heard.plan
    assert plan is not None
    assert {party: share for party, share, _ in heard.added} == adders
    passive = [heard.matrices[name] for name in heard.told]
    exact = plan.release_in_clear(plan.clear_products(heard.matrices["bank"], passive))
    noise = sum(made.view(np.int64) for *_, made in heard.added)
    assert (heard.opened - exact - noise).tolist() == [0] * len(exact)
    assert (noise != 0).mean() > 0.8


def test_rows_are_clipped_at_every_party(three: Heard) -> None:
    plan = three.plan
    assert plan is not None
    for place, (name, layout) in enumerate(zip(("bank", *three.told), plan.layouts, strict=True)):
        first = int(place > 0)
        norms = np.linalg.norm(three.matrices[name][:, first : first + layout.scores] / ONE, axis=1)
        assert norms.max() <= clip_norm(layout.scores)
        if name == "bank":  # its bins are exact, and the label's rare class is 2.2 deviations from the mean
            assert norms.max() == pytest.approx(clip_norm(layout.scores), abs=1e-3)


def test_own_correlations_are_told_with_their_noise(three: Heard) -> None:
    budget = StatisticsBudget(epsilon=20.0, delta=1e-5, passive=2, own_blocks=True)
    assert sorted(std for std, _ in three.own) == pytest.approx([budget.own_sigma(1), budget.own_sigma(2)])
    units = three.matrices["shop"][:, 1:3] / ONE
    ((_, noise),) = [one for one in three.own if one[1].shape == (2, 2)]
    assert three.told["shop"][0, 1] == pytest.approx((units[:, 0] @ units[:, 1] + noise[0, 1]) / ROWS, abs=1e-6)
    assert three.told["shop"][1, 0] == three.told["shop"][0, 1]
    assert three.told["shop"].diagonal().tolist() == [1.0, 1.0]


def test_all_releases_together_cost_the_budget() -> None:
    """The μ of every release by its own sensitivity, and their squares together."""
    budget = StatisticsBudget(epsilon=1.0, delta=1e-5, passive=2, own_blocks=True)
    widths = (4, 9)
    squares = [budget.mu_column(width) ** 2 for width in widths for _ in range(width)]
    squares += [(math.sqrt(2.0) * clip_norm(width) ** 2 / budget.own_sigma(width)) ** 2 for width in widths]
    squares.append((2 * 1.5**2 * math.sqrt(3 * 4 + 3 * 9 + 4 * 9) / budget.scores_sigma((3, *widths))) ** 2)
    squares.append(2 * 13 / budget.counts_sigma(13) ** 2)  # a row leaves a bin of each column, and enters another
    assert math.sqrt(sum(squares)) == pytest.approx(budget.mu)


def test_ranges_are_found_in_noisy_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell counts as filled by its rows and its noise together."""

    def draw(shape: tuple[int, ...], std: float) -> torch.Tensor:
        noise = torch.zeros(shape, dtype=torch.float64)
        noise[3], noise[40] = 5 * std, -1e9
        return noise

    values = np.full(10_000, 12.0)
    exact = noisy_columns._find_range(values, 50.0)
    monkeypatch.setattr(noisy_columns, "draw_gaussian", draw)
    low, high = noisy_columns._find_range(values, 50.0)
    assert low < -1e7 < exact[0]
    assert high > 10
