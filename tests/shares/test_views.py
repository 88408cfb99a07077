"""What each party receives over a whole training on shares: words that look like chance, in numbers and sizes that do
not depend on the data, tied to nobody's rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from securevfl_crypto.replicated import Dealt
from support.helpers import aligned, make_parties

import securevfl as sv
from securevfl.data import Parties
from securevfl.run.simulation import run_parties
from securevfl.transport import COORDINATOR, Message

ROWS, COMPUTING = 330, 3


class Ears(sv.Observer):
    """Keeps all that each party receives of training on shares, and which rows each batch has."""

    listening = True

    def __init__(self) -> None:
        self.received: dict[str, list[tuple[str, Message]]] = defaultdict(list)
        self.batches: dict[str, list[np.ndarray]] = defaultdict(list)
        self.tables: dict[str, Any] = {}

    def message_passed(self, party: str, peer: str, way: Literal["sent", "received"], message: Message) -> None:
        if way == "received" and message.what.startswith("shares/"):
            self.received[party].append((peer, message))

    def batch_begun(self, party: str, owner: str, epoch: int, rows: np.ndarray) -> None:
        self.batches[party].append(np.array(rows))

    def rows_numbered(self, party: str, owner: str, rows: Any) -> None:
        self.tables[party] = rows

    def words(self, party: str, step: str) -> np.ndarray:
        """All words that `party` received in one step of the protocol; counters in front of them left out."""
        found = [
            np.asarray(array).reshape(-1)
            for _, message in self.received[party]
            if message.what == step
            for name, array in message.arrays.items()
            if array.dtype == np.uint64 and (step, name) != ("shares/round", "0")
        ]
        return np.concatenate([np.empty(0, np.uint64), *found])

    def sizes(self, party: str) -> list[tuple[str, str, tuple[tuple[str, tuple[int, ...]], ...]]]:
        """Sender, step and shapes of each message."""
        return [
            (peer, m.what, tuple((str(a.dtype), tuple(a.shape)) for a in m.arrays.values()))
            for peer, m in self.received[party]
        ]


def _people(change: Literal["", "signs", "constant"] = "") -> Parties:
    """A bank, two that compute with it and a fourth; the same rows and shapes, with other numbers in them."""
    people = make_parties(3, ROWS)
    if not change:
        return people
    tables = []
    for table in people.values():
        columns = {
            name: np.where(np.arange(len(values)) % 2, 1.0, -1.0) if change == "constant" else -np.asarray(values)
            for name, values in table.columns.items()
        }
        tables.append(replace(table, columns=columns))
    return Parties.of(*tables)


def _heard(people: Parties) -> Ears:
    names = list(people)
    job = sv.Job(
        algorithm=sv.SplitNN(hidden=8, top=(3,), bottom=(4,)),
        protection=sv.Shares(computing=tuple(names[:COMPUTING])),
        epochs=2,
        batch_size=64,
        seed=3,
    )
    ears = Ears()
    run_parties(job, people, aligned(people, job), run="views", observers=dict.fromkeys([*names, COORDINATOR], ears))
    return ears


@pytest.fixture(scope="module")
def people() -> Parties:
    return _people()


@pytest.fixture(scope="module")
def ears(people: Parties) -> Ears:
    return _heard(people)


def _bound(freedom: int, level: float) -> float:
    """A value that chi-square exceeds with a probability below `level` (Laurent and Massart 2000, lemma 1)."""
    x = -math.log(level)
    return freedom + 2 * math.sqrt(freedom * x) + 2 * x


def _uneven(words: np.ndarray) -> Iterator[tuple[int, float]]:
    """Chi-square of each octet's place in words, over its 256 values."""
    for place, octets in enumerate(words.view(np.uint8).reshape(-1, 8).T):
        wanted = len(octets) / 256
        yield place, float(((np.bincount(octets, minlength=256) - wanted) ** 2).sum() / wanted)


@pytest.mark.parametrize("step", ["shares/round", "shares/input"])
def test_words_that_a_computing_party_receives_are_uniform_octet_by_octet(
    ears: Ears, people: Parties, step: str
) -> None:
    """Each of at most 48 statistics flakes with a probability below 1e-11."""
    tested = 0
    for party in list(people)[:COMPUTING]:
        words = ears.words(party, step)
        if len(words) < 256 * 5:  # seeds, or octets of comparisons, and no words
            continue
        tested += 1
        for place, value in _uneven(words):
            assert value < _bound(255, 1e-11), (party, step, place)
        assert len(np.unique(words)) == len(words), "a word came twice"
    assert tested >= 2


def test_the_test_of_octets_can_fail(ears: Ears, people: Parties) -> None:
    """Numbers in fixed point, masks of 63 bits and repeated octets are seen among as many words."""
    words = ears.words(list(people)[1], "shares/round")
    plain = (np.random.default_rng(0).normal(size=len(words)) * 2**16).astype(np.int64).view(np.uint64)
    for wrong in (plain, words >> np.uint64(1), words & ~np.uint64(1)):
        assert any(value > _bound(255, 1e-11) for _, value in _uneven(wrong))


@pytest.mark.parametrize("change", ["signs", "constant"])
def test_numbers_and_sizes_of_messages_do_not_depend_on_the_data(
    ears: Ears, people: Parties, change: Literal["signs", "constant"]
) -> None:
    other = _heard(_people(change))
    for name in people:
        assert ears.sizes(name) == other.sizes(name)
    assert sum(len(ears.sizes(name)) for name in people) > 100


def test_a_party_that_only_deals_receives_no_share(ears: Ears, people: Parties) -> None:
    fourth = list(people)[COMPUTING]
    assert {what for _, what, _ in ears.sizes(fourth)} == {"shares/plan"}


def _held(ears: Ears, party: str, source: str, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that were trained on, and both summands of each that `party` was dealt, and their sum: (n, 3 width)."""
    batches = list(ears.batches[source])
    rows: list[np.ndarray] = []
    seen: list[np.ndarray] = []
    for peer, message in ears.received[party]:
        if peer != source or message.what != "shares/input":
            continue
        if not batches:
            break
        length = _length(ears, source, len(seen))
        taken: list[np.ndarray] = []
        while batches and sum(map(len, taken)) < length:
            taken.append(batches.pop(0))
        numbers = np.concatenate(taken)
        if len(numbers) != length:  # rows that are scored
            batches = [*taken, *batches]
            rows.append(np.arange(0))
            seen.append(np.empty((0, 3 * width)))
            continue
        parts = tuple(np.asarray(message.arrays[f"0{side}"]) for side in "ab")
        share = Dealt((length, width), parts).share()  # type: ignore[arg-type]
        words = np.hstack([share.mine, share.next, share.mine + share.next])
        rows.append(numbers)
        seen.append(words.view(np.int64) / 2.0**63)
    return np.concatenate(rows), np.concatenate(seen)


def _length(ears: Ears, source: str, number: int) -> int:
    """Rows in a message of `source`, as one that is dealt words sees."""
    for heard in ears.received.values():
        mine = [m for peer, m in heard if peer == source and m.what == "shares/input"]
        words = [a for a in mine[number].arrays.values() if a.dtype == np.uint64] if number < len(mine) else []
        if words:
            return len(words[0])
    raise AssertionError("nobody was dealt words")


def _explained(seen: np.ndarray, wanted: np.ndarray, rows: np.ndarray) -> float:
    """R² of least squares on half of the rows, over the other half; rows that came twice stay in one half."""
    half = rows % 2 == 0
    with_one = np.hstack([seen, np.ones((len(seen), 1))])
    weights = np.linalg.lstsq(with_one[half], wanted[half], rcond=None)[0]
    left = wanted[~half] - with_one[~half] @ weights
    total = wanted[~half] - wanted[half].mean(axis=0)
    return float(1 - (left**2).sum() / (total**2).sum())


def test_what_a_computing_party_is_dealt_explains_nobodys_features_or_labels(ears: Ears, people: Parties) -> None:
    names = list(people)
    active = people.active.name
    for party in names[:COMPUTING]:
        for source in names:
            if source == party:
                continue
            table = ears.tables[source]
            x = table.x.reshape(len(table.x), -1).numpy().astype(float)
            rows, seen = _held(ears, party, source, x.shape[1])
            assert len(rows) > 200
            assert _explained(seen, x[rows], rows) < 0.2  # nine deviations of what chance explains of unseen rows
            if source == active:
                y = table.y.numpy().astype(float)[:, None]
                assert _explained(seen, y[rows], rows) < 0.2  # nine deviations of what chance explains of unseen rows
            assert _explained(x[rows], x[rows], rows) > 0.99  # the regression finds what is there
