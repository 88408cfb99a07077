"""What is counted before two parties open it; keys that are replaced on the way; other kinds of targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import make_parties

import securevfl as sv
from securevfl.data import Parties
from securevfl.errors import PartyFailed, PolicyError
from securevfl.party_context import Observer
from securevfl.privacy import ResultBook
from securevfl.transport import Message
from securevfl.transport.memory import MemoryChannel

PAIR = sv.Shares(computing=2)


def _job(**more: Any) -> sv.Job:
    settings: dict[str, Any] = {"algorithm": sv.LogisticRegression(), "protection": PAIR, "epochs": 2, "keep": "last"}
    settings["batch_size"] = 64
    return sv.Job(**(settings | more))


@pytest.fixture(scope="module")
def people() -> Parties:
    return make_parties(1, 200)


class _Listens(Observer):
    """Keeps the steps that the passive party sent."""

    listening = True

    def __init__(self) -> None:
        self.sent: list[str] = []

    def message_passed(self, party: str, peer: str, way: str, message: Message) -> None:
        if party == "shop1" and way == "sent":
            self.sent.append(message.what)


def test_what_cannot_be_counted_is_not_answered(
    people: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = sv.simulate(_job(), people).model()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    heard = _Listens()
    monkeypatch.setattr("securevfl.privacy.result_book.append_synced", full)
    with pytest.raises(PartyFailed, match="No space"):
        sv.predict(model, people, results=tmp_path, observers=dict.fromkeys(people, heard))
    # Keys, and weights whose summands are drawn anew: nothing of a row.
    assert not {"shares/ahead", "shares/open predictions"} & set(heard.sent)
    monkeypatch.undo()
    sv.predict(model, people, results=tmp_path, observers=dict.fromkeys(people, heard))
    assert {"shares/ahead", "shares/open predictions"} <= set(heard.sent)
    assert ResultBook(tmp_path / "shop1.results.jsonl").count_opened(people["shop1"].ids, "bank").max() == 1


def test_a_row_is_answered_as_often_as_its_owner_allows(people: Parties, tmp_path: Path) -> None:
    job = _job(policies={"shop1": sv.Policy(max_results=2)})
    result = sv.simulate(job, people, results=tmp_path)  # one number of each row that tests or validates
    sv.predict(result.model(), people, results=tmp_path)
    with pytest.raises(PolicyError, match="of 180 rows, 54 have had as many numbers"):
        sv.predict(result.model(), people, results=tmp_path)


def test_metrics_are_counted_against_the_asker(people: Parties, tmp_path: Path) -> None:
    sv.simulate(_job(), people, results=tmp_path)
    assert ResultBook(tmp_path / "shop1.results.jsonl").metric_sets("bank") == 2


def test_keys_that_are_replaced_on_the_way_are_refused(people: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stands in between cannot put keys of its own in their place, of base transfers or of BFV."""
    send, seen = MemoryChannel.send, []

    async def replaced(channel: MemoryChannel, message: Message) -> int:
        if message.what == "shares/two key":
            seen.append(message)
            changed = {name: np.array(array) ^ np.uint8(1) for name, array in message.arrays.items()}
            message = replace(message, arrays=changed)
        return await send(channel, message)

    monkeypatch.setattr(MemoryChannel, "send", replaced)
    with pytest.raises(sv.ProtocolError, match="is not signed by") as caught:
        sv.simulate(_job(), people)
    assert seen
    assert not any(e.kind.value == "secret share" for ledger in caught.value.ledgers for e in ledger.iter_entries())


def test_three_classes_are_learned_one_against_the_rest() -> None:
    found = sv.simulate(_job(epochs=6), make_parties(1, 400, classes=3))
    run = found.record.runs[-1]
    assert set(run.epochs[-1].valid) == {"accuracy", "log_loss"}
    assert run.test["accuracy"] > 0.45
    (scores,) = found.scores.values()
    assert scores.shape[1] == 3
    assert set(np.unique(scores.round(6))) <= {0.0, 1.0}  # the class alone


def test_a_number_is_learned(people: Parties) -> None:
    amounts = 100 + 10 * np.asarray(people.active.columns["f0"])
    numeric = Parties.of(replace(people.active, label=amounts, classes=()), *people.passive)
    run = sv.simulate(_job(task="regression", epochs=6), numeric).record.runs[-1]
    assert np.isfinite(run.epochs[-1].valid["huber"])
    assert run.test["r2"] > 0.5
