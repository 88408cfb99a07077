"""A scorecard on shares by all parties' programs: what crosses and what is opened, the same bins and nearly the same
scores as the plain path, what is kept, and who is refused."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from securevfl_crypto.replicated import Computing, Opening
from securevfl_crypto.ring import decode_words
from support.helpers import make_parties, ready_keys
from support.servers import PATIENCE, put, scores_of, unlabelled

import securevfl as sv
from securevfl.algorithms.scorecard import binned_roles, binning
from securevfl.data import Parties
from securevfl.run import Result, context_building
from securevfl.run.model_parts import ModelPart
from securevfl.serving import ServeActive, ServePassive, ServingContext
from securevfl.serving.helper import ServeHelper
from securevfl.shares import NetworkShape, coordinator, sharing
from securevfl.shares.scorecard import course, evidence, layout, programs
from securevfl.shares.scorecard.card_network import CardNetwork
from securevfl.shares.scorecard.evidence import LOG_ERROR
from securevfl.shares.shared_model import SharedModel
from securevfl.testing.shared_reference import SharedReference
from securevfl.testing.trial import roles_begun
from securevfl.transport import Kind, MemoryHub

CARD = sv.Scorecard(bins=5, least=10, key_bits=2048)
EPOCHS = 3
NAMES = ("bank", "shop1", "shop2")


def _job(protection: sv.Shares | None = None, algorithm: sv.Scorecard = CARD, **more: Any) -> sv.Job:
    plan: dict[str, Any] = {"epochs": EPOCHS, "batch_size": 32, "seed": 1, "keep": "last", "patience": None} | more
    return sv.Job(algorithm=algorithm, protection=protection or sv.Shares(), **plan)


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(2, 300)


@pytest.fixture(scope="module")
def ran(people: Parties) -> Result:
    return sv.simulate(_job(), people)


@pytest.fixture(scope="module")
def parted(people: Parties) -> Result:
    return sv.simulate(_job(sv.Shares(model="parts")), people)


@pytest.fixture(scope="module")
def two() -> Parties:
    return make_parties(1, 300)


def _noted(left: str = "shares") -> sv.Shares:
    return sv.Shares(computing=("bank", "shop1", "notary"), model=left)  # type: ignore[arg-type]


def _kept(result: Result, name: str) -> Any:
    return result.model().parts[name]["parts"]["shares"]


def _whole(result: Result, what: str) -> np.ndarray:
    """What two computing parties could open together, which no two may: weights of evidence, or coefficients."""

    def of(name: str) -> Sequence[np.ndarray]:
        return [one.numpy().view(np.uint64) for one in _kept(result, name)["regression"][what]]

    return decode_words(np.asarray(sum([*of(NAMES[0]), of(NAMES[1])[1]])))


def _gap(result: Result, predicted: sv.Prediction) -> float:
    scores = dict(zip(predicted.ids, predicted.probabilities[:, 1], strict=True))
    (own,) = result.scores.values()
    return max(abs(scores[name] - value) for name, value in zip(result.test_ids, own[:, 1], strict=True))


def _entries(result: Result) -> dict[str, list[Any]]:
    (ledgers,) = [found for key, found in result.ledgers.items() if key != "alignment"]
    return {name: list(ledger.iter_entries()) for name, ledger in ledgers.items()}


def test_a_scorecard_trains_on_shares_and_nobody_encrypts_a_label(ran: Result) -> None:
    run = ran.record.runs[-1]
    assert set(run.test) == {"accuracy", "log_loss", "auc", "ks"}
    assert run.test["auc"] > 0.85
    assert [set(epoch.valid) for epoch in run.epochs] == [{"accuracy", "log_loss", "auc"}] * EPOCHS
    assert any("their weights of evidence stayed on shares: 12 rounds" in note for note in run.notes)
    assert sum("15 bins of 3 columns, cut by its own rows" in note for note in run.notes) == 3
    assert not run.points  # nothing of the card is opened


def test_nothing_is_opened_but_the_metrics_the_bit_and_the_predictions(ran: Result) -> None:
    for name, entries in _entries(ran).items():
        kinds = {(entry.kind, entry.cipher) for entry in entries if entry.what.startswith("shares/")}
        assert kinds <= {(Kind.CONTROL, "none"), (Kind.PUBLIC_KEY, "none"), (Kind.SHARE, "masked")}, kinds
        assert not any(entry.what.startswith("scorecard/") for entry in entries)
        opened = Counter(e.what for e in entries if e.way == "received" and "open" in e.what)
        useful = {"shares/open useful": 2}
        alone = {"shares/open metrics": 2 * EPOCHS, "shares/open predictions": 2} if name == "bank" else {}
        assert opened == {**useful, **alone}


def test_training_rows_are_dealt_once_whatever_the_number_of_epochs(ran: Result, people: Parties) -> None:
    longer = sv.simulate(_job(epochs=EPOCHS + 2), people)
    count = [sum(e.what == "shares/input" for e in _entries(one)["shop1"]) for one in (ran, longer)]
    assert count[0] == count[1]


class _Plain:
    """The plain path on the same rows: its roles, for their bins, weights of evidence and batches."""

    def __init__(self, people: Parties) -> None:
        with pytest.MonkeyPatch.context() as patch, roles_begun() as begun:
            ready_keys(patch)
            self.result = sv.simulate(_job().replace(protection=sv.Plain()), people, baselines=())
        self.roles: dict[str, Any] = {role.site.name: role for role in begun}

    def columns(self, rows: np.ndarray) -> list[torch.Tensor]:
        with torch.no_grad():
            return [self.roles[name].half.bottom(self.roles[name].features(rows)).double() for name in NAMES]

    @property
    def evidence(self) -> np.ndarray:
        return np.concatenate([one.woe for name in NAMES for one in self.roles[name].found])


@pytest.fixture(scope="module")
def plain(people: Parties) -> _Plain:
    return _Plain(people)


def test_bins_are_those_of_the_plain_path_and_evidence_is_within_its_bound(ran: Result, plain: _Plain) -> None:
    for name in NAMES:
        kept = _kept(ran, name)["cuts"]
        assert len(kept) == 3
        for mine, cut in zip(kept, plain.roles[name].cuts, strict=True):
            np.testing.assert_array_equal(mine.numpy(), cut)
    np.testing.assert_allclose(_whole(ran, "evidence"), plain.evidence, atol=2 * LOG_ERROR + 2**-15)


def test_coefficients_are_those_of_the_same_steps_on_the_plain_evidence(ran: Result, plain: _Plain) -> None:
    """Coefficients within 0.02 of floating point, and log-odds of the test rows within 0.05 of it before rounding."""
    bank = plain.roles["bank"]
    reference = SharedReference(
        NetworkShape((3, 3, 3), (), (), 2), sharing.optimiser_of(sv.Shares()), batch_size=32, seed=1
    )
    for epoch in range(1, EPOCHS + 1):
        for rows in bank.batches(epoch):
            reference.step(plain.columns(rows), bank.labels(rows).double()[:, None])
    wanted = torch.cat([one.detach() for one in reference.weights.values()]).numpy()
    np.testing.assert_allclose(_whole(ran, "layer 0"), wanted, atol=0.02)
    logits = reference(plain.columns(bank.table.split.test)).detach().numpy()[:, 0].clip(-8, 8)
    (scores,) = ran.scores.values()
    np.testing.assert_allclose(np.log(scores[:, 1] / scores[:, 0]), logits, atol=0.05 + 2**-4)


def test_it_ranks_as_the_plain_path_does(ran: Result, plain: _Plain) -> None:
    auc = [one.record.runs[-1].test["auc"] for one in (ran, plain.result)]
    assert abs(auc[0] - auc[1]) < 0.02  # of 45 test rows; see benchmarks.scorecard for the credit table


def test_the_model_predicts_after_saving_and_shares_of_two_runs_do_not(
    ran: Result, people: Parties, tmp_path: Path
) -> None:
    model = sv.Model.load(ran.model().save(tmp_path), ran.model().job)
    predicted = sv.predict(model, people)
    assert _gap(ran, predicted) < 0.016  # logits are rounded at 2^-4, each time by chance
    opened = {e.what for ledger in predicted.ledgers.values() for e in ledger.iter_entries() if "open" in e.what}
    assert opened == {"shares/open predictions"}
    other = sv.simulate(_job(), people).model()
    mixed = sv.Model(job=model.job, parts={**model.parts, "shop2": other.parts["shop2"]})
    with pytest.raises(sv.ProtocolError, match="hold different summands at 'loaded shares'"):
        sv.predict(mixed, people)


def test_points_of_all_parties_add_up_to_the_score(parted: Result, people: Parties) -> None:
    """``600 + 20 / ln 2 · (ln odds − ln 50)`` of the log-odds that the run opened, which are rounded at 2^-4."""
    run, model = parted.record.runs[-1], parted.model()
    predicted = sv.predict(model, people)
    assert _gap(parted, predicted) < 0.016
    tested = [row for row, one in enumerate(predicted.ids) if one in set(parted.test_ids)]  # bins end at training rows
    total = np.full(len(tested), float(run.base_points or 0))
    for name in people:
        card = model.parts[name]["scorecard"]
        assert {tuple(one) for one in card["columns"]} == {("column", "units", "bins")}
        place = {one: row for row, one in enumerate(people[name].ids)}
        rows = [place[predicted.ids[row]] for row in tested]
        for column in card["columns"]:
            ends = np.array([one["up to"] for one in column["bins"][:-1]], dtype=float)
            points = np.array([one["points"] for one in column["bins"]])
            values = np.asarray(people[name].columns[column["column"]])[rows]
            total += points[np.searchsorted(ends * (1 + 1e-9 * np.sign(ends)), values)]
            assert sum(one["rows"] for one in column["bins"]) == parted.record.runs[-1].rows_trained
    odds = np.log(predicted.probabilities[tested, 0] / predicted.probabilities[tested, 1])
    inside = np.abs(odds) < 7.9  # beyond, answers are clipped
    wanted = 600 + 20 / math.log(2) * (odds - math.log(50))
    np.testing.assert_allclose(total[inside], wanted[inside], atol=20 / math.log(2) * (2**-4 + 0.002))
    explained = sv.explain(model, people, [predicted.ids[row] for row in tested])
    assert explained.players == ("bank", "shop1 + shop2")  # an answer does not tell them apart
    np.testing.assert_allclose(explained.sums[inside], -odds[inside], atol=2**-4 + 0.002)


def test_points_are_opened_to_their_party_alone_and_are_all_that_is_left(parted: Result, people: Parties) -> None:
    for name, entries in _entries(parted).items():
        mine = [e for e in entries if e.way == "received" and e.what == "shares/open part"]
        sizes = sorted(shape for e in mine for shape in e.shapes.values())
        assert sizes == sorted([[3], [3], [32], [15 + (name == "bank")]])
        kept = _kept(parted, name)
        assert set(kept) == {"regression", "cuts"}
        assert set(kept["regression"]) == {"handed out"}
    told = {one.party: one for one in CARD.findings(sv.Shares(model="parts"), ["shop1", "shop2"], "bank")
            if "points of its own bins" in one.learns}  # fmt: skip
    assert {name: one.severity for name, one in told.items()} == {"bank": "leak", "shop1": "leak", "shop2": "leak"}
    assert "what counts by bin tell" in told["shop1"].learns


def test_the_report_shows_points_without_evidence_those_that_differ_most_first(parted: Result) -> None:
    from securevfl.report import render_report

    run = parted.record.runs[-1]
    assert set(run.points) == set(NAMES)
    spread = [max(b.points for b in one.bins) - min(b.points for b in one.bins) for one in run.points["shop1"]]
    assert spread == sorted(spread, reverse=True)
    assert all(b.woe is None for one in run.points["shop1"] for b in one.bins)
    page = render_report(parted.record)
    assert "Points of the scorecard" in page
    assert "points alone were opened" in page


def test_findings_tell_nothing_of_counts(ran: Result) -> None:
    found = CARD.findings(sv.Shares(), ["shop1", "shop2"], "bank")
    assert not any("bin" in one.learns for one in found)
    assert {one.severity for one in found if one.party != "bank"} <= {"ok"}
    assert not any("exact, of sealed labels" in note for note in ran.record.runs[-1].notes)


@pytest.mark.parametrize(("left", "warned"), [("parts", True), ("shares", False)])
def test_points_of_many_bins_are_equations_and_the_report_warns(people: Parties, left: Any, warned: bool) -> None:
    """60 columns of five bins at one party, and fewer than 200 training rows."""
    shop = people["shop1"]
    noise = np.random.default_rng(0).normal(size=(60, shop.rows))
    wide = replace(shop, columns={f"f{k}": column for k, column in enumerate(noise)})
    tables = Parties.of(people.active, wide, *[one for one in people.passive if one.name != "shop1"])
    notes = sv.simulate(_job(sv.Shares(model=left), epochs=1), tables).record.runs[-1].notes
    assert any("got points of 241 independent bins" in note for note in notes) is warned


@pytest.mark.parametrize("left", ["shares", "parts"])
def test_four_parties_of_which_one_only_deals(left: Any) -> None:
    people = make_parties(3, 300)
    found = sv.simulate(_job(sv.Shares(model=left)), people)
    assert found.record.runs[-1].test["auc"] > 0.65
    kept = _kept(found, "shop3")
    assert set(kept) == {"regression", "cuts"}
    assert set(kept["regression"]) == ({"handed out"} if left == "parts" else set())
    assert _gap(found, sv.predict(found.model(), people)) < 0.016


@pytest.mark.parametrize("left", ["shares", "parts"])
def test_two_parties_and_a_notary_train_and_serve(two: Parties, tmp_path: Path, left: str) -> None:
    job = _job(_noted(left))
    ran = sv.simulate(job, two)
    entries = _entries(ran)["notary"]
    assert not any(e.what == "shares/input" and e.way == "sent" for e in entries)
    assert {e.what for e in entries if e.way == "received" and "open" in e.what} == {"shares/open useful"}
    model = ran.model()
    wanted = sv.predict(model, two)
    assert _gap(ran, wanted) < 0.016
    folder = model.save(tmp_path / "model")
    tables = unlabelled(two)

    def place(name: str) -> ServingContext:
        at = ServingContext(name=name, active="bank", passive=("shop1",), coordinator="notary", job=job,
                   load=lambda: tables[name], folder=tmp_path / name)  # fmt: skip
        put(at, ModelPart.load(folder, name, job))
        return at

    async def score() -> tuple[tuple[str, ...], np.ndarray]:
        hub = MemoryHub(["bank", "shop1", "notary"])
        bank = ServeActive(hub["bank"], place("bank"))
        others = [
            ServePassive(hub["shop1"], place("shop1"), once=True),
            ServeHelper(hub["notary"], place("notary"), once=True),
        ]
        tasks = [asyncio.ensure_future(one.run()) for one in (bank, *others)]
        try:
            async with asyncio.timeout(PATIENCE):
                await bank.wait_for_session()
                assert not bank.problem
                names = tuple(sorted(bank.common_customers))
                found = scores_of(await bank.scores(names))
                await bank.finish()
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return names, found

    names, scores = asyncio.run(score())
    expected = dict(zip(wanted.ids, wanted.probabilities, strict=True))
    assert set(names) == set(expected)
    assert np.abs(scores - np.array([expected[name] for name in names])).max() < 0.016


class _Stops(sv.Observer):
    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        if epoch == 2:
            raise RuntimeError("the power failed")


@pytest.mark.parametrize("noted", [False, True])
def test_a_restart_goes_on_with_the_evidence_that_was_counted_first(
    people: Parties, two: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: bool
) -> None:
    table, job = (two, _job(_noted())) if noted else (people, _job())
    whole = sv.simulate(job, table)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, table, checkpoints=tmp_path, observer=_Stops())
    counted = Counter[str]()
    compute = evidence.compute_evidence

    async def noticed(*given: Any, **more: Any) -> Any:
        counted["times"] += 1
        return await compute(*given, **more)

    monkeypatch.setattr(course, "compute_evidence", noticed)
    found = sv.simulate(job, table, checkpoints=tmp_path)
    assert not counted
    (one,), (other,) = whole.scores.values(), found.scores.values()
    np.testing.assert_allclose(one, other, atol=0.03)
    sv.simulate(job, table)
    assert counted["times"] == 3


def test_loaded_evidence_is_drawn_anew_before_it_is_used(
    people: Parties, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of a resume, and of the kept model, which is restored for the test: the same values, other summands."""
    loaded: list[tuple[np.ndarray, np.ndarray]] = []
    freshen = SharedModel.refresh_shares

    async def watched(model: SharedModel) -> None:
        stale, network = model.stale, model.network
        assert isinstance(network, CardNetwork)
        before = None if network.evidence is None else network.evidence.mine.copy()
        await freshen(model)
        if stale and before is not None and network.evidence is not None:
            loaded.append((before, network.evidence.mine.copy()))

    monkeypatch.setattr(SharedModel, "refresh_shares", watched)
    with pytest.raises(sv.PartyFailed):
        sv.simulate(_job(), people, checkpoints=tmp_path, observer=_Stops())
    loaded.clear()
    sv.simulate(_job(), people, checkpoints=tmp_path)
    assert len(loaded) == 2 * 3
    for three in (loaded[:3], loaded[3:]):
        assert not any((before == after).any() for before, after in three)
        np.testing.assert_array_equal(sum(one[0] for one in three), sum(one[1] for one in three))


def test_a_restart_with_another_table_is_refused(people: Parties, tmp_path: Path) -> None:
    with pytest.raises(sv.PartyFailed):
        sv.simulate(_job(), people, checkpoints=tmp_path, observer=_Stops())
    cut = binning.cut_points
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binned_roles, "cut_points", lambda x, bins, least: [one + 1 for one in cut(x, bins, least)])
        with pytest.raises(sv.InputError, match="other bins than this party's training rows give"):
            sv.simulate(_job(), people, checkpoints=tmp_path)


def test_a_party_that_cuts_smaller_bins_than_the_job_says_is_refused_by_all(
    people: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one row in a bin, its points would tell that row's label."""
    cut = binned_roles.CardRole.cut_columns

    def finely(role: Any, x: np.ndarray) -> np.ndarray:
        found = cut(role, x)
        if role.site.name == "shop1":
            role.cuts[1] = np.sort(x[:, 1])[[0, len(x) // 2]]
        return found

    monkeypatch.setattr(binned_roles.CardRole, "cut_columns", finely)
    words = r"refuses to train: a bin has fewer than 10 training rows.*Nothing was opened"
    with pytest.raises(sv.PolicyError, match=words) as caught:
        sv.simulate(_job(sv.Shares(model="parts")), people)
    assert not any(e.what.startswith("shares/open") for ledger in caught.value.ledgers for e in ledger.iter_entries())


def test_other_rows_of_a_batch_at_one_party_are_noticed(two: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    """An active party that told a coordinator other places would choose other targets in each epoch."""
    receive = sharing.receive_epoch

    async def swapped(*given: Any) -> Any:
        train, score, places = await receive(*given)
        if places:
            places[0] = places[0][::-1].copy()
        return train, score, places

    monkeypatch.setattr(coordinator, "receive_epoch", swapped)
    with pytest.raises(sv.ProtocolError, match="hold different summands at 'input'"):
        sv.simulate(_job(_noted()), two)


@pytest.mark.parametrize("receiver", ["notary", "shop1"])
def test_bins_that_parties_were_told_differently_are_noticed(
    two: Parties, monkeypatch: pytest.MonkeyPatch, receiver: str
) -> None:
    """As many cells in all, other columns: a coordinator has none to compare with, a data party its own."""
    receive = layout.receive_layout

    async def other(link: Any, *given: Any) -> layout.CardLayout:
        found = await receive(link, *given)
        return layout.CardLayout((found.bins[0], (5, 6, 7))) if link.me == receiver else found

    monkeypatch.setattr(programs, "receive_layout", other)
    words = "do not count alike" if receiver == "notary" else r"tells bins \(5, 6, 7\) of the columns of 'shop1'"
    with pytest.raises(sv.ProtocolError, match=words) as caught:
        sv.simulate(_job(_noted(), CARD.replace(bins=6)), two)
    assert not any(e.what == "shares/input" for ledger in caught.value.ledgers for e in ledger.iter_entries())


@pytest.mark.parametrize(
    ("bins", "columns"),
    [
        (np.array([5, 6]), np.array([1, 1])),
        (np.array([5, 0]), np.array([1, 1])),
        (np.array([5, 5]), np.array([1, 2])),
        (np.array([5, 5]), np.array([1, 0, 1])),
        (np.array([5, 5]), np.array([3, -1])),
        (np.array([5.0, 5.0]), np.array([1, 1])),
        (np.array([[5, 5]]), np.array([1, 1])),
    ],
    ids=["many bins", "none", "more columns", "more parties", "negative", "reals", "shape"],
)
def test_bins_that_the_job_does_not_allow_are_refused(bins: np.ndarray, columns: np.ndarray) -> None:
    class Chief:
        peer = "bank"

        async def receive(self, *expected: object) -> SimpleNamespace:
            return SimpleNamespace(arrays={"bins": bins, "columns": columns})

        async def send(self, *given: object, **more: object) -> None: ...

    with pytest.raises(sv.ProtocolError, match=r"'bank' tells (the )?(bins|columns)"):
        asyncio.run(layout.receive_layout(Chief(), 2, 5))  # type: ignore[arg-type]
    if bins.ndim > 1 or bins.dtype != np.int64 or bins.min() < 1 or bins.max() > 5:
        with pytest.raises(sv.ProtocolError, match="'bank' tells bins"):
            asyncio.run(layout.send_layout([3], [Chief()], [], 5))  # type: ignore[list-item]


def test_each_party_lets_be_opened_what_the_job_is_for_and_no_more(
    people: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared: list[dict[str, Opening]] = []
    begun = Computing.__init__

    def noted(engine: Computing, *given: Any, **more: Any) -> None:
        declared.append(dict(more.get("openings", {})))
        begun(engine, *given, **more)

    monkeypatch.setattr(Computing, "__init__", noted)
    job = _job(sv.Shares(model="parts"))
    with pytest.raises(sv.PartyFailed):
        sv.simulate(job, people, checkpoints=tmp_path, observer=_Stops())
    sv.simulate(job, people, checkpoints=tmp_path)
    assert len(declared) == 6
    usual = {"targets", "range", "final range", "useful", "metrics", "predictions"}
    for number, one in enumerate(declared):
        assert set(one) == usual | {"bins", "part 0", "part 1", "part 2"}
        assert one["bins"] == Opening(int(number < 3), None, 1)  # not again in a restart
        assert [one[f"part {place}"] for place in range(3)] == [
            Opening(1, (place,), 15 + (place == 0)) for place in range(3)
        ]


@pytest.fixture
def between_organisations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parties that do not know that one person runs them all."""

    def built(*given: Any, **more: Any) -> Any:
        return context_building.build_context(*given, **{**more, "simulated": False})

    monkeypatch.setattr("securevfl.run.simulated_parties.build_context", built)


def test_rules_of_rows_and_use_hold_between_organisations(people: Parties, between_organisations: None) -> None:
    with pytest.raises(sv.PolicyError, match=r"needs 400 and 200: align more common rows"):
        sv.simulate(_job(), people)
    policies = {name: sv.Policy(few_rows=True) for name in people}
    job = _job(sv.Shares(few_rows=True), policies=policies)
    coins = np.random.default_rng(3).integers(0, 2, len(people.active.ids))
    active = replace(people.active, label=coins)
    with pytest.raises(sv.PolicyError, match=r"refuses to answer.*does not predict better") as caught:
        sv.simulate(job, Parties.of(active, *people.passive))
    entries = [e for ledger in caught.value.ledgers for e in ledger.iter_entries()]
    assert not any(e.what == "shares/open predictions" for e in entries)


def test_without_metrics_the_last_epoch_is_kept(people: Parties) -> None:
    found = sv.simulate(_job(sv.Shares(metrics="none")), people)
    assert not any(e.what == "shares/open metrics" for entries in _entries(found).values() for e in entries)
    assert found.record.runs[-1].test["auc"] > 0.8


def test_a_party_without_columns_but_the_label_trains_too(people: Parties) -> None:
    active = replace(people.active, columns={})
    found = sv.simulate(_job(sv.Shares(model="parts")), Parties.of(active, *people.passive))
    assert found.record.runs[-1].test["auc"] > 0.7
    card = found.model().parts["bank"]["scorecard"]
    assert card["columns"] == []
    assert card["points to begin with"] != 0


def test_one_constant_column_has_no_points(people: Parties) -> None:
    shop = people["shop1"]
    changed = replace(shop, columns={**shop.columns, "f2": np.ones(shop.rows)})
    tables = Parties.of(people.active, changed, *[one for one in people.passive if one.name != "shop1"])
    found = sv.simulate(_job(sv.Shares(model="parts")), tables)
    constant = found.model().parts["shop1"]["scorecard"]["columns"][2]
    assert [one["points"] for one in constant["bins"]] == [0]
    assert any("1 of 3 columns have one bin" in note for note in found.record.runs[-1].notes)


@pytest.mark.parametrize(
    ("algorithm", "protection", "words"),
    [
        (CARD, sv.Shares(dp=sv.DP(model=sv.Gaussian(epsilon=3.0))), r"exact counts of labels.*logistic_regression"),
        (CARD, sv.Shares(dp=sv.DP(features=sv.Gaussian(epsilon=3.0))), r"on shares nothing of a row is sent"),
    ],
    ids=["noise on the model", "noise on features"],
)
def test_what_has_no_place_on_shares_is_refused(algorithm: sv.Scorecard, protection: sv.Shares, words: str) -> None:
    with pytest.raises(sv.InputError, match=words):
        _job(protection, algorithm)


def test_labels_may_be_drawn_before_they_are_counted(people: Parties) -> None:
    drawn = sv.Shares(dp=sv.DP(labels=sv.RandomisedResponse(epsilon=2.0)))
    assert sv.simulate(_job(drawn), people).record.runs[-1].test["auc"] > 0.6
