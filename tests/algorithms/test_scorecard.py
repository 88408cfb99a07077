"""The scorecard: bins and evidence by hand, counts as on the pooled table under every protection, points that are the
scores, and parties that ask for what the job does not allow."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from securevfl_crypto.sums import SumHolder
from sklearn.metrics import roc_auc_score
from support.helpers import ready_keys

import securevfl as sv
from securevfl.algorithms.scorecard import counting
from securevfl.algorithms.scorecard import roles as roles_module
from securevfl.algorithms.scorecard.binning import Evidence, EvidenceEncoder, codes_of, cut_points, merge_to_monotone
from securevfl.cut import Protection
from securevfl.run.explained.own_terms import find_own_terms
from securevfl.run.model_parts import ModelPart
from securevfl.run.simulation import RunOutcome, join_parties, run_parties
from securevfl.testing.parties import make_parties
from securevfl.testing.trial import roles_begun

CARD = sv.Scorecard(bins=5, least=5, key_bits=2048, lr=0.05)


def test_cuts_leave_no_small_bin_and_ties_together() -> None:
    column = np.array([0] * 6 + [1] * 2 + [2] * 6 + [3] * 6, dtype=np.float32)[:, None]
    (cuts,) = cut_points(column, 10, 5)
    assert cuts.tolist() == [0, 2]
    assert np.bincount(codes_of(column, [cuts])[:, 0]).tolist() == [6, 8, 6]
    (constant,) = cut_points(np.zeros((20, 1), dtype=np.float32), 10, 2)
    assert not len(constant)


def test_evidence_by_hand() -> None:
    """Of 10 positives 8 are in the first bin, of 30 negatives 10."""
    found = Evidence.from_counts(np.array([18, 22]), np.array([8, 2]))
    whole = math.log(10.5 / 30.5)
    assert found.woe == pytest.approx([math.log(8.5 / 10.5) - whole, math.log(2.5 / 20.5) - whole])
    assert found.iv == pytest.approx((0.8 - 1 / 3) * found.woe[0] + (0.2 - 2 / 3) * found.woe[1])
    assert Evidence.from_counts(np.array([40]), np.array([10])).woe.tolist() == [0]


def test_bins_of_one_class_stay_within_what_a_cut_takes() -> None:
    found = Evidence.from_counts(np.array([1 << 22, 1 << 22]), np.array([1 << 22, 0]))
    assert np.abs(found.woe).max() == 6


def test_monotone_bins_are_pooled_neighbours() -> None:
    cuts, rows, positives = merge_to_monotone(
        np.array([1.0, 2.0, 3.0]), np.array([10, 10, 10, 10]), np.array([1, 5, 3, 9])
    )
    assert (cuts.tolist(), rows.tolist(), positives.tolist()) == ([1, 3], [10, 20, 10], [1, 8, 9])
    cuts, rows, positives = merge_to_monotone(np.array([1.0, 2.0]), np.array([10, 10, 10]), np.array([9, 5, 1]))
    assert cuts.tolist() == [1, 2]


def test_the_bottom_takes_the_bins_that_were_counted() -> None:
    x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32).round(1)
    cuts = cut_points(x, 6, 9)
    codes = codes_of(x, cuts)
    bottom, found = EvidenceEncoder(3, 6), []
    for j in range(3):
        rows = np.bincount(codes[:, j])
        found.append(Evidence.from_counts(rows, rows // (j + 2)))
    bottom.set_bins(cuts, found)
    right = np.stack([one.woe[codes[:, j]] for j, one in enumerate(found)], axis=1)
    assert bottom(torch.from_numpy(x)).numpy() == pytest.approx(right, abs=1e-6)


def _run(
    protection: Protection, algorithm: sv.Scorecard = CARD, people: sv.Parties | None = None, **changes: Any
) -> RunOutcome:
    plan: dict[str, Any] = {"epochs": 1, "batch_size": 32, "seed": 1} | changes
    job = sv.Job(algorithm=algorithm, protection=protection, **plan)
    tables = people or make_parties(passive=2, rows=150)
    return run_parties(job, tables, join_parties(tables, job), run="run")


PROTECTIONS = {
    "plain": sv.Plain(),
    "integers": sv.Plain(fixed_point=True),
    "paillier": sv.Paillier(bits=2048),
    "bfv": sv.BFV(),
    "ckks": sv.CKKS(),
    "auto": sv.Auto(offers=("bfv", "paillier"), bits=2048),
}


@pytest.fixture(scope="module")
def runs() -> Mapping[str, RunOutcome]:
    with pytest.MonkeyPatch.context() as patch:
        ready_keys(patch)
        return {name: _run(protection) for name, protection in PROTECTIONS.items()}


def card(ran: RunOutcome, party: str) -> Any:
    return ran.trained[party].model["scorecard"]


def _points(ran: RunOutcome, party: str, table: sv.PartyTable, rows: np.ndarray) -> np.ndarray:
    """A party's points of rows of its table, by its card alone."""
    found = np.full(len(rows), card(ran, party)["points to begin with"])
    for column in card(ran, party)["columns"]:
        values = np.asarray(table.columns[column["column"]])[rows]
        ends = [one["up to"] for one in column["bins"][:-1]]
        points = np.array([one["points"] for one in column["bins"]])
        found += points[np.searchsorted(np.array(ends, dtype=float) * (1 + 1e-9 * np.sign(ends)), values)]
    return found


@pytest.mark.parametrize("name", [name for name in PROTECTIONS if name != "plain"])
def test_evidence_is_the_same_under_every_protection(name: str, runs: Mapping[str, RunOutcome]) -> None:
    for party in ("bank", "shop1", "shop2"):
        for mine, plain in zip(card(runs[name], party)["columns"], card(runs["plain"], party)["columns"], strict=True):
            kept = ("above", "up to", "rows", "woe")
            assert [[one[what] for what in kept] for one in mine["bins"]] == [
                [one[what] for what in kept] for one in plain["bins"]
            ]


def test_evidence_is_that_of_the_pooled_table(runs: Mapping[str, RunOutcome]) -> None:
    """Counted anew from what the parties know together: nobody may do that."""
    people = make_parties(passive=2, rows=150)
    job = sv.Job(algorithm=CARD, protection=sv.Plain(), epochs=1, batch_size=32, seed=1)
    aligned = join_parties(people, job)
    train = runs["plain"].trained["bank"].split.train
    rows = {name: aligned.alignments[name]["bank"].rows[train] for name in people}
    bank = people["bank"]
    assert bank.label is not None
    label = bank.label[rows["bank"]]
    for party in people:
        for column in card(runs["plain"], party)["columns"]:
            values = np.asarray(people[party].columns[column["column"]])[rows[party]]
            for one in column["bins"]:
                low, high = (np.inf if end is None else end for end in (one["above"], one["up to"]))
                slack = 1e-5
                inside = (values > (-np.inf if one["above"] is None else low + slack)) & (values <= high + slack)
                assert inside.sum() == one["rows"]
                p, n = label.sum(), (1 - label).sum()
                odds = (label[inside].sum() + 0.5) / ((1 - label)[inside].sum() + 0.5)
                assert one["woe"] == pytest.approx(math.log(odds) - math.log((p + 0.5) / (n + 0.5)), abs=1e-5)


@pytest.mark.parametrize("name", PROTECTIONS)
def test_points_of_all_parties_add_up_to_the_score(name: str, runs: Mapping[str, RunOutcome]) -> None:
    """``600 + 20 / ln 2 · (ln odds − ln 50)`` of the probabilities that the run itself gave to the test rows."""
    ran, people = runs[name], make_parties(passive=2, rows=150)
    job = sv.Job(algorithm=CARD, protection=PROTECTIONS[name], epochs=1, batch_size=32, seed=1)
    aligned = join_parties(people, job)
    test = ran.trained["bank"].split.test
    total, logit = np.zeros(len(test)), np.zeros(len(test))
    for party in people:
        rows = aligned.alignments[party]["bank"].rows[test]
        total += _points(ran, party, people[party], rows)
        part = ModelPart(party=party, job=job, run="", tree=ran.trained[party].model)
        own = find_own_terms(part, people[party], rows)  # which explain each score to the owner of the columns
        logit += (own.start + own.totals)[:, 0]
    p = ran.trained["bank"].scores
    assert logit == pytest.approx(np.log(p[:, 1] / p[:, 0]), abs=1e-3)
    right = 600 + 20 / math.log(2) * (np.log(p[:, 0] / p[:, 1]) - math.log(50))
    assert total == pytest.approx(right, abs=0.05)


def test_counts_rank_the_rows_of_a_passive_party_by_the_label(runs: Mapping[str, RunOutcome]) -> None:
    """The attack behind the finding *leak*: the sum of a row's weights of evidence, with no known label and whatever
    protection. The labels depend on nine columns alike, three of them here."""
    people = make_parties(passive=2, rows=150)
    job = sv.Job(algorithm=CARD, protection=sv.BFV(), epochs=1, batch_size=32, seed=1)
    aligned, shop = join_parties(people, job), people["shop1"]
    train = runs["bfv"].trained["bank"].split.train
    rows = {name: aligned.alignments[name]["bank"].rows[train] for name in people}
    guess = np.zeros(len(train))
    for column in card(runs["bfv"], "shop1")["columns"]:
        ends = [one["up to"] + 1e-5 for one in column["bins"][:-1]]
        places = np.searchsorted(ends, np.asarray(shop.columns[column["column"]])[rows["shop1"]])
        guess += np.array([one["woe"] for one in column["bins"]])[places]
    label = people["bank"].label
    assert label is not None
    assert roc_auc_score(label[rows["bank"]], guess) > 0.7


@pytest.mark.parametrize(("columns", "solved"), [(30, True), (2, False)])
def test_counts_of_many_bins_are_equations_that_give_every_label(
    columns: int, solved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An honest passive party whose columns are noise solves what it was told for the labels of the training rows."""
    ready_keys(monkeypatch)
    people, heard = make_parties(passive=1, rows=150), []
    rows = len(people["shop1"].ids)
    noise = np.random.default_rng(0).normal(size=(columns, rows))
    people = _with(people, "shop1", {f"f{k}": column for k, column in enumerate(noise)})
    asked = counting.request_counts

    async def listened(link: Any, codes: np.ndarray, *rest: Any) -> list[np.ndarray]:
        found = await asked(link, codes, *rest)
        heard.append((codes, found))
        return found

    monkeypatch.setattr(roles_module, "request_counts", listened)
    with roles_begun() as begun:
        ran = _run(sv.Plain(), people=people)
    (bank,) = (role for role in begun if role.site.name == "bank")
    y = bank.labels(ran.split.train).numpy()  # type: ignore[attr-defined]
    ((codes, told),) = heard
    inside = np.concatenate([codes[:, [j]] == np.arange(len(one)) for j, one in enumerate(told)], axis=1).T
    guess = np.linalg.pinv(inside.astype(float), rcond=1e-8) @ np.concatenate(told)
    assert (((guess > 0.5) == y).all()) == solved
    notes = [note for note in ran.trained["bank"].notes if "independent counts" in note]
    assert len(notes) == solved
    assert not solved or f"{columns * 4 + 1} independent counts" in notes[0]


def test_it_says_what_tells_most(runs: Mapping[str, RunOutcome]) -> None:
    notes = [note for trained in runs["plain"].trained.values() for note in trained.notes]
    assert sum("largest information value" in note for note in notes) == 3


def test_ends_of_bins_are_told_as_people_read_them() -> None:
    """What single precision adds is left out, and a zero is no -3e-10."""
    from securevfl.algorithms.scorecard.points import _format_ends

    assert [str(end) for end in _format_ends(np.array([-1.0, -3.2e-10, 1.0000001]))] == ["-1.0", "0.0", "1.0"]
    assert _format_ends(np.array([4.00001, 1500.0002, 2122.0])) == [4.0, 1500.0, 2122.0]
    assert _format_ends(np.array([0.0123456789])) == [0.0123457]
    assert _format_ends(np.empty(0)) == []


def test_the_report_shows_the_points_that_parts_hold() -> None:
    """Every column with two bins or more, those that tell most first, and what a row begins with."""
    from securevfl.report import Record, render_report

    people = make_parties(rows=200)
    job = sv.Job(algorithm=sv.Scorecard(bins=4, least=10, key_bits=2048), protection=sv.Plain(), epochs=2)
    result = sv.simulate(job, people, baselines=())
    (run,) = result.record.runs
    held = result.model().parts
    for name in people:
        columns = {one["column"]: one for one in held[name]["scorecard"]["columns"] if len(one["bins"]) > 1}
        told = run.points.get(name, [])
        assert {one.column for one in told} == set(columns)
        assert [one.information_value for one in told] == sorted((o.information_value for o in told), reverse=True)
        for one in told:
            bins = columns[one.column]["bins"]
            assert [(b.up_to, b.points) for b in one.bins] == [(b["up to"], b["points"]) for b in bins]
    assert run.base_points == held[people.active.name]["scorecard"]["points to begin with"]
    page = render_report(result.record)
    assert "Points of the scorecard" in page
    assert f", plus {run.base_points:.1f}." in page
    other = sv.simulate(job.replace(algorithm=sv.SplitNN(hidden=4)), people, baselines=())
    assert not other.record.runs[0].points
    assert "Points of the scorecard" not in render_report(other.record)
    assert isinstance(result.record, Record)


def test_labels_and_bins_never_cross_in_the_clear(runs: Mapping[str, RunOutcome]) -> None:
    """Whatever the protection: of what the card exchanges, numbers of bins and their counts alone are readable."""
    for ran in runs.values():
        for ledger in ran.ledgers.values():
            for entry in ledger.entries:
                if entry.what in ("scorecard/labels", "scorecard/counts"):
                    assert entry.guard.cipher == "paillier"
                if entry.what == "scorecard/positives":
                    assert list(entry.shapes) == ["positives"]
                    assert len(entry.shapes["positives"]) == 1
                    assert entry.shapes["positives"][0] <= 15


def test_columns_and_bins_are_asked_for_in_an_order_that_no_seed_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two plain runs of one job, whose seed all parties know: the same card, and other codes under encryption."""
    asked: list[set[tuple[int, ...]]] = []
    honest = SumHolder.compute_sums

    def watched(self: Any, batch: Any, codes: np.ndarray, bins: Any) -> Any:
        asked.append({tuple(column) for column in codes.T.tolist()})
        return honest(self, batch, codes, bins)

    ready_keys(monkeypatch)
    monkeypatch.setattr(counting.SumHolder, "compute_sums", watched)
    first, second = (_run(sv.Plain(), people=make_parties(passive=1, rows=150)) for _ in range(2))
    assert card(first, "shop1") == card(second, "shop1")
    assert asked[0] != asked[1]


def test_a_party_that_asks_for_single_rows_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: a bin with one row in it would open that row's label."""
    ready_keys(monkeypatch)
    honest = SumHolder.compute_sums

    def alone(self: Any, batch: Any, codes: np.ndarray, bins: Any) -> Any:
        codes = codes.copy()
        codes[:, 0] = 0
        codes[7, 0] = 1
        return honest(self, batch, codes, bins)

    monkeypatch.setattr(counting.SumHolder, "compute_sums", alone)
    with pytest.raises(sv.ProtocolError, match=r"asks for a bin of [01] rows; the job says at least 5") as caught:
        _run(sv.Plain())
    told = [e for ledger in caught.value.ledgers for e in ledger.entries if e.what == "scorecard/positives"]
    assert len({ledger.party for ledger in caught.value.ledgers if ledger.party != "bank"}) == 2
    assert not told


def test_bins_that_leave_rows_out_are_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party that sends all bins could sum any rows in them: those of a column need not be all rows then."""
    ready_keys(monkeypatch)
    honest = SumHolder.compute_sums

    def some(self: Any, batch: Any, codes: np.ndarray, bins: Any) -> Any:
        codes = codes.copy()
        codes[::2, 0] = -1
        return honest(self, batch, codes, bins, complete=False)

    monkeypatch.setattr(counting.SumHolder, "compute_sums", some)
    with pytest.raises(sv.ProtocolError, match="does not leave out one bin of each column"):
        _run(sv.Plain())


def test_more_positives_than_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ready_keys(monkeypatch)
    opened = counting.SumOwner.open_sums

    def shifted(self: Any, *rest: Any) -> np.ndarray:
        found = opened(self, *rest)
        found[0, 0] = [60, 60]
        return found

    monkeypatch.setattr(counting.SumOwner, "open_sums", shifted)
    with pytest.raises(sv.ProtocolError, match="more rows of the second class than a bin has"):
        _run(sv.Plain())


def _with(people: sv.Parties, party: str, columns: Mapping[str, Any]) -> sv.Parties:
    tables = [
        sv.PartyTable(
            name=t.name, ids=t.ids, columns=columns if t.name == party else t.columns, label=t.label, classes=t.classes
        )
        for t in people.values()
    ]
    return sv.Parties.of(*tables)


@pytest.mark.parametrize(
    ("people", "algorithm", "words"),
    [
        (make_parties(rows=90, classes=3), CARD, "scorecard is for 2 classes; the label of 'bank' has 3"),
        (
            _with(make_parties(rows=90), "shop1", {"f0": np.ones(86), "f1": np.zeros(86)}),
            CARD,
            "no column of 'shop1' can be cut into two bins of at least 5 rows",
        ),
        (make_parties(rows=90), CARD.replace(least=40), "each bin of a scorecard has at least 40"),
        (
            _with(make_parties(rows=90), "shop1", {"image": np.zeros((86, 3, 3))}),
            CARD,
            "'shop1' has features of shape .*use splitnn for images",
        ),
    ],
    ids=["three classes", "constant columns", "too few rows", "images"],
)
def test_what_it_cannot_cut_is_refused(
    people: sv.Parties, algorithm: sv.Scorecard, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready_keys(monkeypatch)
    with pytest.raises(sv.InputError, match=words):
        _run(sv.Plain(), algorithm, people)


def test_one_constant_column_has_no_points(monkeypatch: pytest.MonkeyPatch) -> None:
    ready_keys(monkeypatch)
    people = make_parties(passive=1, rows=120)
    shop = people["shop1"]
    ran = _run(
        sv.Plain(), CARD.replace(monotone=True), _with(people, "shop1", {**shop.columns, "f2": np.ones(shop.rows)})
    )
    constant = card(ran, "shop1")["columns"][2]
    assert [one["points"] for one in constant["bins"]] == [0]
    assert any("1 of 3 columns have one bin" in note for note in ran.trained["shop1"].notes)


@pytest.mark.parametrize(
    "settings", [{"bins": 1}, {"least": 1}, {"pdo": 0}, {"base_odds": 0}, {"key_bits": 1024}, {"bottom": (4,)}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(sv.InputError, match=next(iter(settings))):
        sv.Scorecard(**settings)


@pytest.mark.parametrize("dp", [sv.DP(features=sv.Gaussian(epsilon=8.0)), sv.DP(labels=sv.Gaussian(epsilon=8.0))])
def test_noise_that_exact_counts_would_undo_is_refused(dp: sv.DP) -> None:
    with pytest.raises(sv.InputError, match="RandomisedResponse"):
        sv.Job(algorithm=CARD, protection=sv.Plain(dp=dp))


@pytest.mark.parametrize(
    ("protection", "words"),
    [
        (sv.Auto(offers=("bfv",)), "offer 'paillier' too"),
        (sv.Paillier(bits=3072), "give both the same"),
    ],
)
def test_protections_that_have_no_place_for_its_key_are_refused(protection: Protection, words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        sv.Job(algorithm=CARD, protection=protection)


def test_its_findings_say_what_counts_tell() -> None:
    for protection in (sv.Plain(), sv.BFV()):
        found = {(f.party, f.severity) for f in CARD.findings(protection, ["shop1"], "bank") if "bins" in f.learns}
        assert found == {("bank", "note"), ("shop1", "leak")}


def test_the_example_of_the_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ready_keys(monkeypatch)
    page = (Path(__file__).parents[2] / "docs" / "algorithms" / "scorecard.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(code, names)  # noqa: S102 - of our own page
    told = capsys.readouterr().out
    assert re.search(r"PAY_0 0\.\d+\n  up to .* points", told)
    assert re.search(r"\n\S+ \[-?\d+\.\d, .*\]\n$", told)  # the points of one column, on shares
