"""The budget of noisy sums: exact conversions against a numerical accountant and Opacus, the exact sampler, what parts
and parties add up to, and an audit by crafted shapes that reaches what is stated, and that each break exceeds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import erfc

from securevfl.algorithms.additive import edges, shapes, units
from securevfl.algorithms.additive.clear import train_in_clear
from securevfl.algorithms.additive.columns import BinnedColumn
from securevfl.algorithms.additive.edges import LEVELS, declared_column
from securevfl.algorithms.additive.shapes import OwnShapes, PublicPlan
from securevfl.algorithms.additive.steps import StepRule
from securevfl.algorithms.additive.units import SUM_ONE
from securevfl.errors import InputError
from securevfl.privacy import GaussianRelease, epsilon_prv
from securevfl.privacy.accountant import PureRelease, epsilon_exact, epsilon_rdp
from securevfl.privacy.discrete_gaussian import TAIL, draw_discrete_gaussian
from securevfl.privacy.gaussian_dp import delta_at, epsilon_at, mu_for
from securevfl.privacy.sums_budget import SumsBudget, SumsUses

DELTA = 1e-5


def _budget(epsilon: float = 8.0, **more: object) -> SumsBudget:
    values = {"rows": 10_000, "columns": 5, "epochs": 4, "outputs": 1, "counted": True, "adders": "two parties"}
    return SumsBudget(epsilon=epsilon, delta=DELTA, **(values | more))  # type: ignore[arg-type]


def _numerical_epsilon(mus: list[float], delta: float) -> float:
    """ε of Gaussian releases by convolving discretised privacy losses, each rounded up: an upper bound."""
    step, half = 2e-5, 1 << 20
    grid = (np.arange(2 * half) - half) * step
    spectrum = np.ones(half + 1, dtype=complex)
    for mu, times in Counter(mus).items():
        # Under the first hypothesis the loss is N(μ²/2, μ²); its mass in (x − step, x] goes to x.
        tail = erfc(-(grid - mu * mu / 2) / (mu * math.sqrt(2))) / 2
        mass = np.diff(tail, prepend=0.0)
        spectrum *= np.fft.rfft(np.roll(mass, -half)) ** times
    total = np.roll(np.fft.irfft(spectrum), half)
    low, high = 0.0, 40.0
    while high - low > 1e-7:
        middle = (low + high) / 2
        above = grid > middle
        found = float((total[above] * -np.expm1(middle - grid[above])).sum())
        low, high = (middle, high) if found > delta else (low, middle)
    return high


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 8.0])
def test_stated_epsilon_is_that_of_a_numerical_accountant(epsilon: float) -> None:
    """All releases of a job, one by one, with the noise that they get."""
    budget = _budget(epsilon, epochs=12, columns=24)
    each = budget.sensitivity / budget.sums_sigma
    mus = [budget.start_sensitivity / budget.start_sigma, *[budget.mu_column] * 23, *[each] * 12]
    found = _numerical_epsilon(mus, DELTA)
    assert len(mus) == 36  # each loss is rounded up, by 2e-5 at most
    assert epsilon - 1e-5 <= found <= epsilon + 0.001
    assert budget.spent_epsilon() == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 8.0])
def test_exact_epsilon_is_below_opacus_and_above_nothing(epsilon: float) -> None:
    mu = mu_for(epsilon, DELTA)
    release = GaussianRelease(math.sqrt(60) / mu, 60)
    assert epsilon_exact(release, DELTA) == pytest.approx(epsilon, abs=1e-9)
    assert epsilon - 0.01 <= epsilon_prv(release, DELTA) <= epsilon + 0.03
    assert epsilon < epsilon_rdp(release, DELTA) < 1.12 * epsilon
    assert epsilon_at(mu, DELTA) == pytest.approx(epsilon, abs=1e-12)
    assert delta_at(epsilon, mu) <= DELTA


def test_exact_epsilon_falls_back_where_releases_are_not_all_gaussian() -> None:
    mixed = [GaussianRelease(2.0, 3), PureRelease(0.5)]
    assert epsilon_exact(mixed, DELTA) == epsilon_rdp(mixed, DELTA)
    sampled = GaussianRelease(2.0, 3, sample_rate=0.1)
    assert epsilon_exact(sampled, DELTA) == epsilon_rdp(sampled, DELTA)
    assert epsilon_exact([], DELTA) == 0
    assert mu_for(200.0, DELTA) > mu_for(100.0, DELTA) > 10


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (math.inf, 1e-5), (1.0, 0.0), (1.0, 1.0)])
def test_a_budget_out_of_range_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(InputError):
        mu_for(epsilon, delta)


def test_a_small_discrete_gaussian_has_its_probabilities() -> None:
    """Chi-square over the integers near 0: σ = 3, 40,000 draws; the bound is that of 1 in 10⁶."""
    drawn = draw_discrete_gaussian((40_000,), 3)
    places = np.arange(-8, 9)
    weight = np.exp(-(np.arange(-40, 41) ** 2) / 18)
    wanted = 40_000 * np.exp(-(places**2) / 18) / weight.sum()
    counts = np.array([(drawn == place).sum() for place in places])
    assert ((counts - wanted) ** 2 / wanted).sum() < 59
    assert np.abs(drawn).max() <= TAIL * 3


def test_a_large_discrete_gaussian_has_its_moments() -> None:
    sigma = 300 << 20
    drawn = draw_discrete_gaussian((20_000,), sigma) / sigma
    assert abs(drawn.mean()) < 5 / math.sqrt(20_000)
    assert drawn.std() == pytest.approx(1, abs=0.025)
    assert (drawn**4).mean() == pytest.approx(3, abs=0.35)
    assert np.abs(drawn).max() <= TAIL
    with pytest.raises(InputError, match="1 to 2\\^56"):
        draw_discrete_gaussian((1,), 0)


def test_a_draw_beyond_the_tail_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from securevfl.privacy import discrete_gaussian

    monkeypatch.setattr(discrete_gaussian, "TAIL", 1.0)
    assert np.abs(draw_discrete_gaussian((500,), 1000)).max() <= 1000


def test_parts_of_the_budget_add_up() -> None:
    for counted in (False, True):
        budget = _budget(1.0, counted=counted, columns=24, epochs=60)
        assert sum(mu**2 for mu in budget.spent_mu().values()) == pytest.approx(budget.mu**2)
        assert budget.mu_column * math.sqrt(23) == pytest.approx(budget.spent_mu().get("counts", 0.0))
    assert budget.setup_units == 8  # 11 % of 68 units
    assert budget.spent_mu()["counts"] ** 2 / budget.mu**2 == pytest.approx(0.107, abs=0.002)


def test_who_adds_noise_decides_how_much() -> None:
    two, three = _budget(adders="two parties"), _budget(adders="three computing parties")
    assert two.own_sigma == two.sums_sigma
    assert two.total_sigma == pytest.approx(math.sqrt(2) * two.sums_sigma)
    assert math.hypot(three.own_sigma, three.own_sigma) == pytest.approx(three.sums_sigma)
    assert three.total_sigma == pytest.approx(math.sqrt(1.5) * three.sums_sigma)
    assert _budget(outputs=3).sums_sigma == pytest.approx(math.sqrt(2) * two.sums_sigma)
    assert two.own_units(SUM_ONE) >= two.own_sigma * SUM_ONE


def test_a_training_that_noise_would_drown_is_refused_with_the_cure() -> None:
    with pytest.raises(InputError, match=r"1,000 rows at ε = 1 .* 23 columns: n·μ = 268.* 50·F = 1,150 .*4,291 rows"):
        _budget(1.0, rows=1000, columns=24).check_worth()
    _budget(1.0, rows=4291, columns=24).check_worth()


def test_uses_are_counted_in_units_and_no_more_than_planned() -> None:
    uses, rows = SumsUses(_budget(), 7), np.arange(5)
    uses.count_setup(rows)
    for _ in range(4):
        uses.count_epoch(rows)
    assert uses.cost_so_far.times == uses.budget.units == 5
    assert epsilon_exact(uses.planned_release, DELTA) == pytest.approx(8.0, abs=1e-9)
    with pytest.raises(Exception, match="planned"):
        uses.count_epoch(rows)


def test_one_row_moves_the_tree_of_counts_by_its_sensitivity_at_most() -> None:
    worst = 0.0
    for first, second in ((0, 255), (0, 1), (127, 128), (3, 77)):
        one, other = (np.bincount([cell], minlength=edges.CELLS) for cell in (first, second))
        gaps = [
            np.square(one.reshape(1 << level, -1).sum(1) - other.reshape(1 << level, -1).sum(1)).sum()
            for level in range(LEVELS)
        ]
        worst = max(worst, math.sqrt(sum(gaps)))
    assert worst <= edges._TREE_SENSITIVITY
    drawn: list[float] = []
    edges._count_tree(np.zeros(edges.CELLS), 2.0, lambda shape: drawn.extend([0.0] * shape[0]) or np.zeros(shape))
    assert len(drawn) == 2 * edges.CELLS - 1  # every interval gets its own noise


# The audit: a row that shapes predict wrongly in both worlds, as strongly as caps allow.


def _two_worlds(outputs: int) -> tuple[list[np.ndarray], int]:
    """All parties' sums in two worlds that differ in one row, and F + 1.

    The row's columns are in bins whose shapes are at one end in the first world and at the other in the second; all
    contrasts are +1 on both, and its label is the opposite of what they predict.
    """
    found = []
    for world in (0, 1):
        parties = []
        plan = PublicPlan(
            rows=3, parties=("a", "b"), columns=(2, 3), outputs=outputs, seed=7, start=np.full(outputs, 1 / outputs)
        )
        rule = StepRule(lr=0.6, l2=100.0, damping=20.0)
        for party, width in (("a", 1), ("b", 3)):
            # Three bins and rare first two, so that a cut after the second has both on the side of +1.
            columns = [
                BinnedColumn(f"x{j}", np.array([0.5, 1.5]), np.array([0.1, 0.1, 0.8, 0.0])) for j in range(width)
            ]
            begun = [BinnedColumn.intercept(), *columns] if party == "a" else columns
            x = np.full((3, width), 2.0)
            x[0] = world
            one = OwnShapes(party, plan, rule, begun, x)
            for start in one.offsets[:-1].tolist():
                if one.columns[int(np.searchsorted(one.offsets, start))].bins == 4:
                    low = np.zeros(outputs)
                    low[-1] = 1.0
                    one.values[start], one.values[start + 1] = (-9 * low, 9 * low)
                    if outputs > 1:
                        one.values[start, 0] = 9
            parties.append(one)
        label = 1 - world if outputs == 1 else (outputs - 1 if world == 0 else 0)
        y = np.array([label, 0, 0])
        sums: list[np.ndarray] = []

        def seen(_: int, __: np.ndarray, opened: list[np.ndarray], sums: list[np.ndarray] = sums) -> None:
            sums.append(np.concatenate(opened).ravel() / SUM_ONE)

        train_in_clear(parties, units.target_units(y, outputs), 1, seen=seen)
        found.append(sums[0])
    return found, 5


@pytest.fixture
def all_plus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contrasts that are +1 on the first two bins of each column."""

    def draw(columns: list[BinnedColumn], *_: object) -> shapes.Contrasts:
        values = [np.array([256] if one.is_intercept else [256, 256, -64, -64]) for one in columns]
        return shapes.Contrasts(np.concatenate(values), np.ones(len(columns)))

    monkeypatch.setattr(shapes, "draw_contrasts", draw)


def _audited(budget: SumsBudget, outputs: int, noise: Callable[[tuple[int, ...]], np.ndarray] | None = None) -> float:
    """μ of all epochs' sums, as an exact test of the two worlds finds it, over the one that is stated.

    Without `noise`, σ is what the other party draws.
    """
    (one, other), _ = _two_worlds(outputs)
    shift = one - other
    if noise is None:
        sigma = budget.own_units(SUM_ONE) / SUM_ONE
        if budget.adders == "three computing parties":
            sigma *= math.sqrt(2)
        return float(np.linalg.norm(shift)) / sigma * math.sqrt(budget.epochs) / budget.mu_sums
    direction = shift / np.linalg.norm(shift)
    spread = float((noise((3000, budget.epochs, len(shift))) @ direction).sum(axis=1).std())  # of either world
    return budget.epochs * float(np.linalg.norm(shift)) / spread / budget.mu_sums


@pytest.mark.usefixtures("all_plus")
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("adders", ["two parties", "three computing parties"])
def test_crafted_shapes_reach_the_stated_loss_and_never_exceed_it(outputs: int, adders: str) -> None:
    ratio = _audited(_budget(outputs=outputs, adders=adders), outputs)
    assert 0.95 < ratio <= 1


@pytest.mark.usefixtures("all_plus")
def test_the_noise_that_is_drawn_gives_the_stated_loss() -> None:
    budget = _budget(epochs=2)

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        return draw_discrete_gaussian(shape, budget.own_units(SUM_ONE)) / SUM_ONE

    assert 0.92 < _audited(budget, 1, draw) < 1.08  # 6 standard deviations of the audit; the breaks below give 1.1


@pytest.mark.usefixtures("all_plus")
@pytest.mark.parametrize("broken", ["caps", "residual", "columns", "variance", "one party"])
def test_the_audit_finds_what_is_broken(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    budget, outputs = _budget(outputs=3), 3
    if broken == "caps":
        outputs, budget = 1, _budget()
        monkeypatch.setattr(shapes, "part_of", lambda sums, *_: np.rint(sums * units.PART_ONE).astype(np.int64))
    elif broken == "residual":  # R of one output for several classes
        monkeypatch.setattr(SumsBudget, "residual", property(lambda _: 1.0))
    elif broken == "columns":  # the sensitivity of one party's sums alone
        budget = _budget(outputs=3, columns=3)
    elif broken == "variance":  # σ²/3 of each computing party, so that all three reach σ
        budget = _budget(outputs=3, adders="three computing parties")
        monkeypatch.setattr(SumsBudget, "own_sigma", property(lambda one: one.sums_sigma / math.sqrt(3)))
    else:  # a party's own noise does not protect from itself: half of the variance each is too little
        monkeypatch.setattr(SumsBudget, "own_sigma", property(lambda one: one.sums_sigma / math.sqrt(2)))
    assert _audited(budget, outputs) > 1.1


def test_declared_bins_follow_from_the_declaration_alone() -> None:
    column = declared_column("x", [1.0, 2.0])
    assert column.masses.tolist() == [1 / 3, 1 / 3, 1 / 3, 0]


def test_what_interrupted_attempts_released_is_in_every_epsilon() -> None:
    budget = _budget()
    repeated = budget.units
    assert budget.spent_epsilon() == pytest.approx(budget.epsilon, rel=1e-9)
    twice = epsilon_at(budget.mu * math.sqrt(2), budget.delta)
    assert budget.spent_epsilon(repeated) == pytest.approx(twice, rel=1e-9)
    assert budget.ledger_facts(repeated)["epsilon"] == pytest.approx(twice, rel=1e-9)
    assert f"ε = {twice:.3g} " in budget.summary_sentence(repeated)
    assert "interrupted attempts" in budget.summary_sentence(repeated)
    assert "interrupted" not in budget.summary_sentence()
