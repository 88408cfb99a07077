"""What is left of a model that was trained on shares: shares at all that computed, parties without data among them, or
each party's own part of it, as the job chooses; and predictions with either."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from securevfl_crypto.ring import decode_words
from support.helpers import make_parties
from support.servers import PATIENCE, put, scores_of, unlabelled

import securevfl as sv
from securevfl.data import Parties
from securevfl.privacy import Finding
from securevfl.run import Result
from securevfl.run.model_parts import PART, ModelPart
from securevfl.serving import ServeActive, ServePassive, ServingContext
from securevfl.serving.helper import ServeHelper
from securevfl.shares.shared_model import SharedModel
from securevfl.transport import Kind, MemoryHub


def _job(protection: sv.Shares, algorithm: sv.Algorithm | None = None) -> sv.Job:
    return sv.Job(algorithm=algorithm or sv.SplitNN(hidden=4, top=(3,)), protection=protection, epochs=1, batch_size=32)


@pytest.fixture(scope="module")
def two() -> Parties:
    return make_parties(1, 90)


def _with_notary(two: Parties) -> sv.Shares:
    return sv.Shares(computing=(two.active.name, two.passive[0].name, "notary"))


@pytest.fixture(scope="module")
def noted(two: Parties) -> Result:
    return sv.simulate(_job(_with_notary(two)), two)


def _gap(result: Result, predicted: sv.Prediction) -> float:
    scores = dict(zip(predicted.ids, predicted.probabilities[:, 1], strict=True))
    (own,) = result.scores.values()
    return max(abs(scores[name] - value) for name, value in zip(result.test_ids, own[:, 1], strict=True))


def test_a_party_without_data_predicts_with_its_part_of_the_saved_model(
    noted: Result, two: Parties, tmp_path: Path
) -> None:
    folder = noted.model().save(tmp_path)
    assert sorted(file.name.removesuffix(PART) for file in folder.glob(f"*{PART}")) == sorted([*two, "notary"])
    model = sv.Model.load(folder, noted.model().job)
    predicted = sv.predict(model, two)
    assert _gap(noted, predicted) < 0.016  # logits are rounded at 2^-4, each time by chance
    entries = list(predicted.ledgers["notary"].iter_entries())
    sent = {entry.what for entry in entries if entry.way == "sent"}
    assert {"shares/key", "shares/confirm", "shares/round", "shares/open predictions"} <= sent
    assert "shares/input" not in sent
    received = [entry.what for entry in entries if entry.way == "received"]
    assert not any("open" in what for what in received)
    assert received.count("shares/epoch") == 1  # how many rows, and nothing of which


def test_two_predictions_have_other_keys_and_other_shares(noted: Result, two: Parties) -> None:
    one, other = (sv.predict(noted.model(), two).ledgers["notary"] for _ in range(2))
    for step in ("shares/key", "shares/round"):
        first, second = ({e.digest for e in ledger.iter_entries() if e.what == step} for ledger in (one, other))
        assert first
        assert not first & second


def test_without_the_part_of_the_party_without_data_nothing_is_predicted(
    noted: Result, two: Parties, tmp_path: Path
) -> None:
    folder = noted.model().save(tmp_path)
    (folder / f"notary{PART}").unlink()
    with pytest.raises(sv.InputError, match="'notary', which has no data, takes part in predictions and has a part"):
        sv.predict(sv.Model.load(folder, noted.model().job), two)


def test_a_bound_of_numbers_bounds_how_often_rows_are_predicted_with_a_model(two: Parties, tmp_path: Path) -> None:
    job = _job(_with_notary(two)).replace(policies={"shop1": sv.Policy(max_results=3)})
    model = sv.simulate(job, two, results=tmp_path).model()
    for _ in range(2):  # test rows were opened once in training
        sv.predict(model, two, results=tmp_path)
    with pytest.raises(sv.PolicyError, match=r"have had as many numbers as 'shop1'"):
        sv.predict(model, two, results=tmp_path)


def test_shares_of_two_runs_do_not_predict_together(noted: Result, two: Parties) -> None:
    other = sv.simulate(noted.model().job, two).model()
    mixed = sv.Model(job=other.job, parts={**noted.model().parts, "notary": other.parts["notary"]})
    with pytest.raises(sv.ProtocolError, match="hold different summands at 'loaded shares'"):
        sv.predict(mixed, two)


def test_rows_of_one_party_are_not_scored_from_shares(two: Parties) -> None:
    model = sv.simulate(_job(_with_notary(two), sv.ZeroImputation(hidden=4, top=())), two).model()
    with pytest.raises(sv.InputError, match="no party can score rows alone"):
        sv.predict(model, two, everyone=True)


NAMES = ("bank", "shop1", "shop2", "shop3")


@pytest.fixture(scope="module")
def four() -> Parties:
    return make_parties(3, 90)


@pytest.fixture(scope="module")
def parted(four: Parties) -> Result:
    return sv.simulate(_job(sv.Shares(model="parts")), four)


def _whole(shared: sv.Model) -> dict[str, np.ndarray]:
    """What the parts of two computing parties give together: all weights."""
    ours, theirs = (shared.parts[name]["parts"]["shares"] for name in NAMES[:2])
    return {
        name: decode_words(sum(part.numpy().view(np.uint64) for part in (*parts, theirs[name][1])))
        for name, parts in ours.items()
    }


def _own(model: sv.Model, name: str) -> dict[str, np.ndarray]:
    return {block: one.numpy() for block, one in model.parts[name]["parts"]["shares"]["handed out"].items()}


@pytest.mark.parametrize(
    "algorithm",
    [sv.SplitNN(hidden=4, top=(3,)), sv.SplitNN(hidden=4, top=(), bottom=(3,)), sv.LogisticRegression()],
    ids=["identity", "perceptrons", "logistic"],
)
def test_each_party_gets_its_part_and_together_they_are_the_model(four: Parties, algorithm: sv.Algorithm) -> None:
    wanted = _whole(sv.simulate(_job(sv.Shares(), algorithm), four).model())
    model = sv.simulate(_job(sv.Shares(model="parts"), algorithm), four).model()
    places = {layer: np.zeros(len(one), dtype=int) for layer, one in wanted.items()}
    for name in NAMES:
        assert set(model.parts[name]["parts"]["shares"]) == {"handed out"}  # no summand of anything else is left
        for block, weights in _own(model, name).items():
            layer, _, rows = block.partition(", rows ")
            first, last = map(int, rows.split(" to "))
            assert np.abs(weights - wanted[layer][first:last]).max() < 0.01, block  # last bits are cut at random
            places[layer][first:last] += 1
            below = layer.startswith("bottom") or (layer == "layer 0" and last < len(wanted[layer]))
            assert below or name == "bank", block
    assert all((count == 1).all() for count in places.values())  # each weight to one party


def test_nothing_else_is_opened_and_each_part_to_its_party_alone(parted: Result, four: Parties) -> None:
    (ledgers,) = [found for key, found in parted.ledgers.items() if key != "alignment"]
    got = {
        name: Counter(
            (e.what, tuple(sorted(map(tuple, e.shapes.values()))))
            for e in ledger.iter_entries()
            if e.way == "received" and e.what.startswith("shares/open")
        )
        for name, ledger in ledgers.items()
    }
    told = got["bank"] - Counter({one: n for one, n in got["bank"].items() if one[0] == "shares/open part"})
    assert {what for what, _ in told} == {"shares/open metrics", "shares/open useful", "shares/open predictions"}
    width = {name: 4 * len(table.columns) for name, table in four.items()}  # four units above its columns
    above = 4 + (4 + 1) * 3 + (3 + 1) * 1
    for name in NAMES:
        mine = [shapes for (what, shapes), n in got[name].items() for _ in range(n) if what == "shares/open part"]
        values = width[name] + (above if name == "bank" else 0)
        if name == "shop3":  # does not compute: a summand and a digest from each of the three
            assert mine == [tuple(sorted([(32,), (values,)]))] * 3
        else:  # a summand from one, its digest from another, each under a header of three counts
            assert sorted(mine) == sorted([((3,), (values,)), ((3,), (32,))])
        if name != "bank":
            computes = {"shares/open useful"} if name != "shop3" else set()
            assert {what for what, _ in got[name]} == {"shares/open part"} | computes


def test_a_part_is_opened_once(four: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    once = SharedModel.hand_out

    async def twice(model: SharedModel) -> None:
        await once(model)
        await once(model)

    monkeypatch.setattr(SharedModel, "hand_out", twice)
    with pytest.raises(sv.ProtocolError, match=r"'part 0' was declared to be opened 1 times") as caught:
        sv.simulate(_job(sv.Shares(model="parts")), four)
    banks = [ledger for ledger in caught.value.ledgers if ledger.party == "bank"]
    got = [e.what for ledger in banks for e in ledger.iter_entries() if e.way == "received"]
    assert got.count("shares/open part") <= 2


def test_summands_that_do_not_fit_together_are_found_by_a_party_that_does_not_compute(
    four: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "securevfl.shares.model_release._digest_words", lambda words: np.frombuffer(os.urandom(32), np.uint8)
    )
    with pytest.raises(sv.ProtocolError, match="hold different summands of this party's part of the model"):
        sv.simulate(_job(sv.Shares(model="parts")), four)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda one: one * 1000 + 100, sv.RangeError, "no product on shares wraps"),
        (lambda one: one[:-1], sv.InputError, "was expected"),
    ],
    ids=["range", "shape"],
)
def test_parts_that_cannot_be_dealt_are_found_by_their_owner(
    parted: Result, four: Parties, change: Callable[[Any], Any], error: type[Exception], words: str
) -> None:
    model = parted.model()
    (block, own), *_ = model.parts["shop2"]["parts"]["shares"]["handed out"].items()
    part = {**model.parts["shop2"], "parts": {"shares": {"handed out": {block: change(own)}}}}
    changed = sv.Model(job=model.job, parts={**model.parts, "shop2": part})
    with pytest.raises(error, match=words):
        sv.predict(changed, four)


def test_parts_predict_on_shares_and_nothing_else_of_a_row_is_opened(
    parted: Result, four: Parties, tmp_path: Path
) -> None:
    job = parted.model().job
    model = sv.Model.load(parted.model().save(tmp_path), job)
    predicted = sv.predict(model, four)
    assert _gap(parted, predicted) < 0.016
    kinds = {(e.what, e.kind) for ledger in predicted.ledgers.values() for e in ledger.iter_entries()}
    hidden = {Kind.CONTROL, Kind.PUBLIC_KEY, Kind.SHARE}
    assert {kind for what, kind in kinds if what.startswith(("shares/", "cut/"))} <= hidden
    opened = {what for what, _ in kinds if what.startswith("shares/open")}
    assert opened == {"shares/open predictions"}


def test_a_notary_gets_no_part_and_takes_part_in_predicting(two: Parties) -> None:
    protection = _with_notary(two).replace(model="parts")
    ran = sv.simulate(_job(protection), two)
    (ledgers,) = [found for key, found in ran.ledgers.items() if key != "alignment"]
    got = {e.what for e in ledgers["notary"].iter_entries() if e.way == "received" and "open" in e.what}
    assert got == {"shares/open useful"}
    assert ran.model().parts["notary"]["parts"]["shares"] == {"handed out": {}}
    assert _gap(ran, sv.predict(ran.model(), two)) < 0.016


def test_the_job_says_that_the_model_is_handed_out_and_findings_what_that_tells(parted: Result) -> None:
    job = parted.model().job
    assert job.digest != job.replace(protection=sv.Shares()).digest
    assert job.protection.title == "secret shares, model handed out"
    told = {one.party: one.severity for one in _of_parts(job.protection)}
    assert told == {"shop1": "leak", "shop2": "leak", "bank": "leak"}
    assert not _of_parts(sv.Shares())


def _of_parts(protection: sv.Shares) -> list[Finding]:
    found = sv.SplitNN().findings(protection, ["shop1", "shop2"], "bank")
    return [one for one in found if "weights of the reader's own columns" in one.learns]


@pytest.mark.parametrize("left", ["shares", "parts"])
def test_servers_of_two_parties_and_a_notary_score_together(two: Parties, tmp_path: Path, left: str) -> None:
    job = _job(_with_notary(two).replace(model=left))
    model = sv.simulate(job, two).model()
    wanted = sv.predict(model, two)
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
    (ledger,) = (tmp_path / "notary").glob("ledgers/*/notary.jsonl")
    lines = map(json.loads, ledger.read_text("utf-8").splitlines())
    told = [entry["shapes"]["rows"] for entry in lines if entry.get("what") == "serve/next"]
    assert told == [[0]] * len(told)  # how many rows there are stands elsewhere, and which nowhere
    assert len(told) > 3
