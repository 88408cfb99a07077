"""What is left of a model that was trained on shares: shares at all that computed, parties without data among them, or
each party's own part of it, as the job chooses; and predictions with either."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import parties

import securevfl as sv
from securevfl.data import Parties
from securevfl.jobs import Result
from securevfl.jobs.parts import PART


def _job(protection: sv.Shares, algorithm: sv.Algorithm | None = None) -> sv.Job:
    return sv.Job(algorithm=algorithm or sv.SplitNN(hidden=4, top=(3,)), protection=protection, epochs=1, batch_size=32)


@pytest.fixture(scope="module")
def two() -> Parties:
    return parties(1, 90)


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
    assert _gap(noted, predicted) < 0.01  # logits are rounded at 2^-8, each time by chance
    entries = list(predicted.ledgers["notary"].each_entry())
    sent = {entry.what for entry in entries if entry.way == "sent"}
    assert {"shares/key", "shares/confirm", "shares/round", "shares/open predictions"} <= sent
    assert "shares/input" not in sent
    received = [entry.what for entry in entries if entry.way == "received"]
    assert not any("open" in what for what in received)
    assert received.count("shares/epoch") == 1  # how many rows, and nothing of which


def test_two_predictions_have_other_keys_and_other_shares(noted: Result, two: Parties) -> None:
    one, other = (sv.predict(noted.model(), two).ledgers["notary"] for _ in range(2))
    for step in ("shares/key", "shares/round"):
        first, second = ({e.digest for e in ledger.each_entry() if e.what == step} for ledger in (one, other))
        assert first
        assert not first & second


def test_without_the_part_of_the_party_without_data_nothing_is_predicted(
    noted: Result, two: Parties, tmp_path: Path
) -> None:
    folder = noted.model().save(tmp_path)
    (folder / f"notary{PART}").unlink()
    with pytest.raises(sv.InputError, match="'notary', which has no data, computed on shares and holds a part"):
        sv.predict(sv.Model.load(folder, noted.model().job), two)


def test_shares_of_two_runs_do_not_predict_together(noted: Result, two: Parties) -> None:
    other = sv.simulate(noted.model().job, two).model()
    mixed = sv.Model(job=other.job, parts={**noted.model().parts, "notary": other.parts["notary"]})
    with pytest.raises(sv.ProtocolError, match="hold different summands at 'loaded shares'"):
        sv.predict(mixed, two)


def test_rows_of_one_party_are_not_scored_from_shares(two: Parties) -> None:
    model = sv.simulate(_job(_with_notary(two), sv.ZeroImputation(hidden=4, top=())), two).model()
    with pytest.raises(sv.InputError, match="no party can score rows by itself"):
        sv.predict(model, two, everyone=True)
