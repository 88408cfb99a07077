"""A scorecard of two parties on shares: bins as numbers of their own rows, the same weights as in floating point, what
is opened, kept and refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.helpers import make_parties

import securevfl as sv
from securevfl.data import Parties
from securevfl.run import Result
from securevfl.shares.two import making
from securevfl.shares.two.card_programs import TwoCardActive, TwoCardPassive
from securevfl.shares.two.cells import HeldCells, check_bins, encode_bins
from securevfl.shares.two.course import LARGEST_BATCH
from securevfl.shares.two.making import check_widths, count_parts
from securevfl.transport import Kind

PAIR, HELPED = sv.Shares(computing=2), sv.Shares(computing=2, helper="notary")
CARD = sv.Scorecard(bins=5, least=10)
EPOCHS = 3
ONE = 2**10


def _job(protection: sv.Shares = PAIR, **more: Any) -> sv.Job:
    plan: dict[str, Any] = {"algorithm": CARD, "epochs": EPOCHS, "batch_size": 32, "seed": 0}
    return sv.Job(protection=protection, **(plan | more))


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(1, 400)


class _Watched:
    """The programs of a run, kept to look into."""

    def __init__(self, job: sv.Job, people: Parties) -> None:
        self.programs: dict[str, Any] = {}
        with pytest.MonkeyPatch.context() as patch:
            for kind in (TwoCardActive, TwoCardPassive):
                patch.setattr(kind, "__init__", self._keep(kind.__init__))
            self.result = sv.simulate(job, people)

    def _keep(self, make: Any) -> Any:
        def begin(program: Any, role: Any, sharing: Any) -> None:
            make(program, role, sharing)
            if sharing.trains:
                self.programs[role.site.name] = program

        return begin


@pytest.fixture(scope="module", params=[PAIR, HELPED], ids=["pair", "helper"])
def watched(request: pytest.FixtureRequest, people: Parties) -> _Watched:
    return _Watched(_job(request.param, keep="last", patience=None), people)


@pytest.fixture(scope="module")
def ran(watched: _Watched) -> Result:
    return watched.result


def _entries(result: Result) -> dict[str, list[Any]]:
    (ledgers,) = [found for key, found in result.ledgers.items() if key != "alignment"]
    return {name: list(ledger.iter_entries()) for name, ledger in ledgers.items()}


def _kept(result: Result, name: str) -> Any:
    return result.model().parts[name]["parts"]["shares"]


# --- how bins are encoded


@settings(max_examples=60, deadline=None)
@example(bins=10, columns=3, rows=500)
@given(bins=st.integers(2, 40), columns=st.integers(1, 400), rows=st.integers(20, 1 << 20))
def test_cells_are_the_root_of_the_smoothing_kernel(bins: int, columns: int, rows: int) -> None:
    found = encode_bins(bins, columns, rows) / ONE
    size = min(0.25, 3 / columns)
    assert found.shape == (bins, bins)
    assert np.array_equal(found, found.T)
    roughness = np.diff(np.eye(bins), 2, axis=0) if bins > 2 else np.zeros((0, bins))
    whole = np.eye(bins) + 100 * bins / rows * roughness.T @ roughness
    np.testing.assert_allclose(found @ found / size, np.linalg.inv(whole), atol=bins / ONE / np.sqrt(size))


@pytest.mark.parametrize("bins", [2, 3, 10, 64])
def test_straight_lines_are_learned_as_fast_as_before(bins: int) -> None:
    found, places = encode_bins(bins, 12, 500) / ONE, np.arange(bins) / bins
    np.testing.assert_allclose(found @ np.ones(bins), 0.5, atol=bins / ONE)
    np.testing.assert_allclose(found @ places, places / 2, atol=bins / ONE)


def test_bins_with_few_rows_follow_their_neighbours_and_many_rows_show_jumps() -> None:
    few, many = (encode_bins(10, 1, rows) for rows in (500, 10_000_000))
    assert few[5, 5] < 0.8 * many[5, 5]
    assert few[5, 4] > 0.1 * few[5, 5]
    assert np.array_equal(many, np.diag(np.full(10, ONE // 2)))


def test_two_bins_of_a_category_are_cells_alone() -> None:
    assert np.array_equal(encode_bins(2, 1, 30), np.diag([ONE // 2, ONE // 2]))


def test_more_columns_have_smaller_cells() -> None:
    rows = 1 << 30
    assert [int(encode_bins(4, columns, rows)[0, 0]) for columns in (1, 12, 48, 300)] == [512, 512, 256, 102]


@pytest.mark.parametrize("columns", [1, 12, 100])
@pytest.mark.parametrize("bins", [2, 3, 10])
def test_steps_at_the_default_rate_are_stable_where_all_columns_are_copies(columns: int, bins: int) -> None:
    """The rate times the largest curvature, which is a quarter of that of the rows, is at most 2."""
    cells = encode_bins(bins, columns, 4000) / ONE
    x = np.concatenate([np.tile(cells, (1, 2 * columns)), np.ones((bins, 1))], axis=1)
    curvature = np.linalg.eigvalsh(x @ x.T).max() / bins / 4
    assert curvature * sv.Shares().lr / (1 - sv.Shares().momentum) < 2.02


def test_rows_hold_the_cells_of_their_bins(watched: _Watched) -> None:
    for program in watched.programs.values():
        rows = program.role.table.split.train[:50]
        codes, cuts = program.binned.find_bins(rows), program.binned.cuts
        found = program.fed.encode_rows(rows)
        assert found.shape == (50, program.fed.width())
        assert program.fed.rows == len(program.role.table.split.train)
        start = 0
        for j, cut in enumerate(cuts):
            own = encode_bins(len(cut) + 1, len(cuts), program.fed.rows)
            for row in range(50):
                assert np.array_equal(found[row, start : start + len(own)], own[codes[row, j]])
            start += len(own)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=12, max_size=12), min_size=1, max_size=4), st.integers(1, 4))
def test_bins_with_fewer_rows_are_refused(columns: list[list[int]], least: int) -> None:
    codes, cuts = np.array(columns, dtype=np.int64).T, [np.zeros(3)] * len(columns)
    counts = [column.count(number) for column in columns for number in range(4)]
    if min(counts) >= least:
        check_bins(codes, cuts, least, "bank")
        return
    with pytest.raises(sv.PolicyError, match=f"one of its bins has {min(counts)} training rows.*Take fewer bins"):
        check_bins(codes, cuts, least, "bank")


def test_columns_with_one_bin_have_no_cells() -> None:
    codes = np.array([[0, 0, 1], [2, 0, 0]])
    binned = SimpleNamespace(cuts=[np.zeros(2), np.zeros(0), np.zeros(1)], find_bins=lambda rows: codes[rows])
    cells = HeldCells(binned)  # type: ignore[arg-type]
    cells.rows = 1 << 40
    assert cells.width() == 5
    assert (cells.encode_rows(np.arange(2)) // 512).tolist() == [[1, 0, 0, 0, 1], [0, 0, 1, 1, 0]]
    binned.cuts = [np.zeros(0)] * 3
    assert cells.encode_rows(np.arange(2)).shape == (2, cells.width()) == (2, 0)


# --- what is trained


def test_it_learns(ran: Result) -> None:
    run = ran.record.runs[-1]
    assert set(run.test) == {"accuracy", "log_loss", "auc", "ks"}
    assert [set(epoch.valid) for epoch in run.epochs] == [{"accuracy", "log_loss", "auc"}] * EPOCHS
    assert run.test["auc"] > 0.85
    assert sum("15 bins of 3 columns, cut by its own rows" in note for note in run.notes) == 2


def test_weights_are_those_of_the_same_steps_in_floating_point(watched: _Watched) -> None:
    """By both parties' rows and the labels together, with the true sigmoid."""
    first, second = watched.programs["bank"], watched.programs["shop1"]
    rate = sv.Shares().lr / (1 - sv.Shares().momentum) / 32
    sizes = first.fed.width(), second.fed.width()
    weights = np.zeros(sizes[0] + 1 + sizes[1])
    for epoch in range(1, EPOCHS + 1):
        for rows in first.role.batches(epoch):
            parts = [first.fed.encode_rows(rows) / ONE, np.ones((len(rows), 1)), second.fed.encode_rows(rows) / ONE]
            x = np.concatenate(parts, axis=1)
            y = first.role.labels(rows).numpy()
            weights -= rate * x.T @ (1 / (1 + np.exp(-x @ weights)) - y)
    one, other = (_kept(watched.result, name) for name in ("bank", "shop1"))
    wide = [one["regression"], other["regression"]]
    found = np.concatenate([(wide[0]["own"] + wide[1]["other"]).numpy(), (wide[0]["other"] + wide[1]["own"]).numpy()])[
        :, 0
    ]
    np.testing.assert_allclose(found / 2.0**45, weights, atol=0.02)
    assert np.abs(weights).max() > 0.3
    assert np.abs(wide[0]["own"].numpy() / 2.0**45).max() > 1024  # a summand alone is random


def test_it_scores_like_free_bins_or_better_with_few_rows() -> None:
    """The reason of the encoding, on columns whose effect is smooth, with 8 rows in a bin: clear, in floating point."""
    rng, gains = np.random.default_rng(5), []
    for _ in range(6):
        values = rng.random((2, 200, 6))
        logits = (4 * np.sin(3 * values) - 2.5).sum(axis=2) / 2
        labels = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(float)
        codes = (values * 25).astype(int)
        losses = []
        for rows in (200, 1 << 40):
            cells = encode_bins(25, 6, rows) / ONE
            x = np.concatenate([*(cells[codes[..., j]] for j in range(6)), np.ones((2, 200, 1))], axis=2)
            weights = np.zeros(x.shape[2])
            for _ in range(200):
                weights -= 2 / 200 * x[0].T @ (1 / (1 + np.exp(-x[0] @ weights)) - labels[0])
            losses.append(float(np.mean(np.logaddexp(0, x[1] @ weights) - labels[1] * (x[1] @ weights))))
        gains.append(losses[1] - losses[0])
    assert np.mean(gains) > 0.015


# --- what crosses, is opened and kept


def test_nothing_is_opened_but_metrics_two_bits_and_predictions(ran: Result) -> None:
    for name, entries in _entries(ran).items():
        assert all(entry.kind in (Kind.CONTROL, Kind.PUBLIC_KEY, Kind.SHARE) for entry in entries)
        assert all(entry.cipher == "masked" for entry in entries if entry.kind is Kind.SHARE)
        assert not any(entry.what.startswith(("scorecard/", "shares/bins", "shares/layout")) for entry in entries)
        opened = Counter(e.what for e in entries if e.way == "received" and "open" in e.what)
        both = {"shares/open range": EPOCHS + 1, "shares/open useful": 1}
        alone = {"shares/open metrics": EPOCHS, "shares/open predictions": 1}
        assert opened == {"bank": both | alone, "shop1": both}.get(name, {})


def test_no_label_is_counted_and_no_card_is_made(watched: _Watched) -> None:
    for program in watched.programs.values():
        assert not program.role.found
        assert not program.role.card


def test_the_card_of_the_job_holds_results_alone(ran: Result) -> None:
    assert ran.card is not None
    text = str(ran.card)
    assert "counts by" not in text
    assert "points" not in text


def test_a_model_in_shares_predicts_with_both_parties(ran: Result, people: Parties, tmp_path: Path) -> None:
    job = _job(HELPED if "notary" in ran.model().parts else PAIR, keep="last", patience=None)
    predicted = sv.predict(sv.Model.load(ran.model().save(tmp_path / "model"), job), people)
    scores = dict(zip(predicted.ids, predicted.probabilities[:, 1], strict=True))
    (own,) = ran.scores.values()
    wanted = dict(zip(ran.test_ids, own[:, 1], strict=True))
    assert max(abs(scores[name] - value) for name, value in wanted.items()) < 0.016
    for name in ("bank", "shop1"):
        assert set(_kept(ran, name)) == {"regression", "cuts", "rows"}


class _Stops(sv.Observer):
    """Ends the run in its second epoch."""

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


@pytest.mark.parametrize("protection", [PAIR, HELPED], ids=["pair", "helper"])
def test_a_run_goes_on_from_checkpoints(tmp_path: Path, people: Parties, protection: sv.Shares) -> None:
    job = _job(protection, keep="last", patience=None)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, people, checkpoints=tmp_path, observer=_Stops())
    found = sv.simulate(job, people, checkpoints=tmp_path).record.runs[-1]
    assert len(found.epochs) == EPOCHS
    whole = sv.simulate(job, people).record.runs[-1]
    # Rounding on shares makes runs differ by 0.002; an epoch less by 0.014.
    assert abs(found.test["log_loss"] - whole.test["log_loss"]) < 0.01


def test_checkpoints_of_other_rows_are_refused(watched: _Watched) -> None:
    model, cells = watched.programs["bank"].model, watched.programs["bank"].fed
    state = model.get_state()
    before, cells.rows = cells.rows, cells.rows - 1
    try:
        with pytest.raises(sv.InputError, match="start the job again in another folder"):
            model.load_state(state)
    finally:
        cells.rows = before
    cuts = watched.programs["bank"].binned.cuts
    cut, cuts[0] = cuts[0], cuts[0][:-1]
    try:
        with pytest.raises(sv.InputError, match="other bins"):
            model.load_state(state)
    finally:
        cuts[0] = cut


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 40_000), st.integers(1, 9_000))
def test_answers_about_many_rows_are_declared_as_they_are_opened(rows: int, most: int) -> None:
    parts = [min(most, rows - start) for start in range(0, rows, most)]
    assert count_parts(rows, most) == sum(-(-part // LARGEST_BATCH) for part in parts)


# --- what is refused


@pytest.mark.parametrize(
    ("algorithm", "protection", "words"),
    [
        (sv.Scorecard(monotone=True), PAIR, "leave monotone out"),
        (CARD, PAIR.replace(dp=sv.DP(model=sv.Gaussian(epsilon=4.0)), metrics="none"), "logistic_regression"),
        (sv.Additive(), PAIR, "'additive' under protection 'bfv'"),
        (sv.Boosting(), HELPED, "such as logistic_regression"),
    ],
    ids=["monotone", "noise", "additive", "trees"],
)
def test_what_two_cannot_do_is_refused_with_what_helps(
    algorithm: sv.Algorithm, protection: sv.Shares, words: str
) -> None:
    with pytest.raises(sv.InputError, match=words):
        sv.Job(algorithm=algorithm, protection=protection, keep="last")


def test_more_bins_than_keys_serve_are_refused_with_what_helps(
    people: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_widths([4095, 4096])
    for widths in ([4096, 1], [1, 4097]):
        with pytest.raises(sv.InputError, match="take fewer columns or bins, a helper, or three"):
            check_widths(widths)
    monkeypatch.setattr(making, "MOST_COLUMNS", 15)
    with pytest.raises(sv.InputError, match="rows have 16 numbers"):
        sv.simulate(_job(), people)
    assert sv.simulate(_job(HELPED, epochs=1), people).record.runs


def test_too_few_rows_for_two_bins_are_refused(people: Parties) -> None:
    with pytest.raises(sv.InputError, match="a smaller least"):
        sv.simulate(_job(algorithm=sv.Scorecard(least=400)), people)


def test_two_parties_and_a_scorecard_train_on_shares_by_default(people: Parties) -> None:
    job = sv.Job(algorithm=CARD, epochs=1, batch_size=64, seed=0, keep="last", patience=None)
    assert "secret shares of two" in str(sv.simulate(job, people).card)
