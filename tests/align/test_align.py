"""Alignment: exact, in one order for all, verified by all; and ended by any disagreement."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest
import securevfl_psi as psi
from securevfl_psi.blinding import ChunkQueue
from securevfl_psi.cpace import Comparison
from support.helpers import low_overlap_parties, make_parties

import securevfl as sv
from securevfl.align import EXCHANGES
from securevfl.data import LabelBook, PartyTable
from securevfl.privacy import Link
from securevfl.run.simulation import align_parties, join_parties
from securevfl.transport import Kind, MemoryHub

JOB = sv.Job(protection=sv.Plain(), seed=3)
T = TypeVar("T")


def _table(name: str, ids: list[str], *, label: bool = False) -> PartyTable:
    n = len(ids)
    return PartyTable(
        name=name,
        ids=ids,
        columns={f"x_{name}": np.arange(float(n))},
        label=np.arange(n) % 2 if label else None,
        classes=(0, 1) if label else (),
    )


@pytest.mark.parametrize("passive", [1, 2, 4])
def test_all_parties_hold_the_same_rows_in_the_same_order(passive: int) -> None:
    people = make_parties(passive=passive)
    aligned = align_parties(people, JOB)
    common = set.intersection(*(set(table.ids) for table in people.values()))
    orders = [[people[name].ids[row] for row in found.rows] for name, found in aligned.parties.items()]
    assert set(orders[0]) == common
    assert len(orders[0]) == len(common)
    assert all(order == orders[0] for order in orders)
    assert orders[0] != sorted(orders[0])
    for name, found in aligned.parties.items():
        assert set(found.verified_by) == set(people) - {name}
        assert found.digest == aligned.parties["bank"].digest != ""
    active = aligned.parties["bank"]
    assert len(active.pairwise) == (1 if passive == 1 else 0)  # with more, nobody learns a pairwise intersection
    for table in people.passive:
        if passive == 1:
            assert active.pairwise[table.name] == len(set(table.ids) & set(people.active.ids))
        assert aligned.parties[table.name].pairwise == {}


def test_the_order_depends_on_the_seed_and_not_on_the_tables_order() -> None:
    ids = [f"i{n}" for n in range(30)]
    one = align_parties(sv.Parties.of(_table("a", ids, label=True), _table("b", ids)), JOB)
    shuffled = sv.Parties.of(_table("a", ids[::-1], label=True), _table("b", ids[5:] + ids[:5]))
    two = align_parties(shuffled, JOB)
    other = align_parties(shuffled, JOB.replace(seed=4))
    names = [shuffled["a"].ids[row] for row in two.parties["a"].rows]
    assert [ids[row] for row in one.parties["a"].rows] == names
    assert [shuffled["a"].ids[row] for row in other.parties["a"].rows] != names


def test_identifiers_are_normalised_the_same_way() -> None:
    one, two = [f" id{n} " for n in range(20)], [f"ｉd{n}" for n in range(20)]
    assert align_parties(sv.Parties.of(_table("a", one, label=True), _table("b", two)), JOB).common_rows == 20


def test_an_empty_intersection_is_an_error_that_gives_the_sizes() -> None:
    left, right = [f"l{n}" for n in range(12)], [f"r{n}" for n in range(15)]
    with pytest.raises(
        sv.AlignmentError, match=r"no row is common to all parties \(12 rows at 'a'; in common: 0 with b\)"
    ):
        align_parties(sv.Parties.of(_table("a", left, label=True), _table("b", right)), JOB)


def test_pairwise_overlaps_without_a_global_one_are_empty_too() -> None:
    b, c = [f"x{n}" for n in range(10)], [f"y{n}" for n in range(10)]
    people = sv.Parties.of(_table("a", b + c, label=True), _table("b", b), _table("c", c))
    with pytest.raises(sv.AlignmentError, match="20 rows at 'a'; 10 at b, 10 at c"):
        align_parties(people, JOB)


def test_too_few_common_rows_are_refused_by_default() -> None:
    few = [f"x{n}" for n in range(5)]
    with pytest.raises(sv.PolicyError, match="5 common rows; the policy demands at least 10"):
        align_parties(sv.Parties.of(_table("a", few, label=True), _table("b", few)), JOB)


def test_identifiers_that_double_once_normalised_are_the_users_mistake() -> None:
    with pytest.raises(sv.InputError, match="'b': 1 identifiers occur more than once after normalisation"):
        align_parties(sv.Parties.of(_table("a", ["x", "y"], label=True), _table("b", ["x", " x"])), JOB)


def test_a_party_with_other_rows_than_it_says_is_found_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose rows are shifted by one: the intersection looks right, its receipt is not."""
    original = psi.DHServer.find_proven_rows

    def shifted(self: psi.DHServer, proofs: np.ndarray) -> np.ndarray:
        return np.roll(original(self, proofs), 1)

    monkeypatch.setattr(psi.DHServer, "find_proven_rows", shifted)
    with pytest.raises(
        sv.AlignmentError, match="do not have the same common rows in the same order; nothing was trained"
    ):
        sv.simulate(JOB.replace(epochs=1), make_parties(passive=1))


def test_a_lost_match_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party drops the last common row: receipts, or the lists that are compared, differ."""
    for kind, name, passive in (
        (psi.DHServer, "find_proven_rows", 1),
        (psi.multiparty.Follower, "find_common_rows", 2),
    ):
        original = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda *given, original=original: original(*given)[:-1])
        with pytest.raises(sv.AlignmentError):
            align_parties(make_parties(passive=passive), JOB)


def test_parties_with_other_rules_do_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = itertools.chain(["v1/NFC"], itertools.repeat("v1/NFKC/strip"))
    monkeypatch.setattr(psi.IdRules, "tag", lambda self: next(tags))
    with pytest.raises(sv.ProtocolError, match="runs with rules"):
        align_parties(make_parties(passive=1), JOB)


def test_identifiers_leave_only_blinded() -> None:
    people = make_parties()
    aligned = align_parties(people, JOB)
    kinds = {e.kind for ledger in aligned.ledgers.values() for e in ledger.entries if e.way == "sent"}
    assert kinds == {Kind.CONTROL, Kind.PUBLIC_KEY, Kind.BLINDED_SET, Kind.INTERSECTION, Kind.STATISTIC}
    told = [e for e in aligned.ledgers["bank"].entries if e.way == "sent" and e.what == "psi/rows"]
    assert {e.peer: e.shapes["tokens"] for e in told} == {key: [aligned.common_rows, 16] for key in ("shop1", "shop2")}


def test_the_seeds_of_two_passive_parties_do_not_pass_the_active_one() -> None:
    """Whoever knew them could decode pairwise intersections."""
    aligned = align_parties(make_parties(passive=2), JOB)
    sent = [e.peer for e in aligned.ledgers["shop1"].entries if e.way == "sent" and e.what == "psi/seed"]
    assert sorted(sent) == ["bank", "shop2"]


def test_a_party_may_refuse_that_pairwise_intersections_are_learned() -> None:
    strict = sv.Policy(pairwise_intersections=False)
    people = _with_two_and_a_book()
    with pytest.raises(sv.PolicyError, match="pairwise intersection with 'b', which the policy forbids"):
        align_parties(people, JOB.replace(policies={"b": strict}))
    without = sv.Parties.of(replace(people["a"], book=None), people["b"], people["c"])
    assert align_parties(without, JOB.replace(policies={"b": strict})).common_rows == 12


def _with_two_and_a_book() -> sv.Parties:
    ids = [f"i{n}" for n in range(12)]
    book = LabelBook(tuple(f"k{n}" for n in range(4)), np.array([0, 1, 0, 1]))
    bank = replace(_table("a", ids, label=True), book=book)
    return sv.Parties.of(bank, _table("b", [*ids, "k0"]), _table("c", [*ids, "k1", "k2"]))


def _with_book(*, own: int = 72, extra: int = 30) -> sv.Parties:
    """The active party holds 0 … own - 1 and knows the labels of the `extra` after; b holds the even ones of all, c
    every third."""
    everyone = [f"i{n:03d}" for n in range(own + extra)]
    label = np.arange(own + extra) % 2
    book = LabelBook(tuple(everyone[own:]), label[own:])
    fold = np.zeros(own, dtype=np.int8)
    fold[[0, 4]], fold[[6, 2]] = 1, 2
    bank = PartyTable(
        name="a", ids=everyone[:own], columns={"x": np.arange(float(own))}, label=label[:own], classes=(0, 1)
    )
    bank = replace(bank, book=book, fold=fold)
    return sv.Parties.of(bank, _table("b", everyone[::2][::-1]), _table("c", [*everyone[::3], "stranger"]))


def test_a_label_book_names_rows_that_two_parties_know() -> None:
    people = _with_book()
    aligned = align_parties(people, JOB)
    bank = people["a"]
    assert bank.book is not None
    known = [*bank.ids, *bank.book.ids]
    common = {bank.ids[row] for row in aligned.parties["a"].rows}
    assert common == {f"i{n:03d}" for n in range(0, 72, 6)}  # no row of the book is common to all
    held_out = {"i000", "i004", "i006", "i002"}
    for name in "bc":
        mine = aligned.parties["a"].labelled[name]
        theirs = aligned.parties[name].labelled[name]
        assert [known[row] for row in mine] == [people[name].ids[row] for row in theirs]
        assert {known[row] for row in mine} == (set(known) & set(people[name].ids)) - common - held_out
        assert not set(theirs) & set(aligned.parties[name].rows)
        assert list(aligned.parties[name].labelled) == [name]


def test_the_join_in_the_clear_finds_what_the_protocol_finds() -> None:
    for people in (_with_book(), make_parties(passive=2), low_overlap_parties(2, rows=120)):
        one, two = align_parties(people, JOB), join_parties(people, JOB)
        for name, found in one.parties.items():
            other = two.parties[name]
            assert np.array_equal(found.rows, other.rows)
            assert set(found.verified_by) == set(other.verified_by)
            some = {key: rows.tolist() for key, rows in found.labelled.items() if len(rows)}
            assert some == {key: rows.tolist() for key, rows in other.labelled.items() if len(rows)}
        assert two.protocol != one.protocol


def test_a_join_has_the_same_errors() -> None:
    with pytest.raises(sv.AlignmentError, match="no row is common to all"):
        join_parties(sv.Parties.of(_table("a", ["x"], label=True), _table("b", ["y"])), JOB)
    with pytest.raises(sv.InputError, match="occur more than once after normalisation"):
        join_parties(sv.Parties.of(_table("a", ["x", "y"], label=True), _table("b", ["x", " x"])), JOB)


def test_without_a_book_nothing_is_labelled() -> None:
    people = _with_book()
    aligned = align_parties(sv.Parties.of(replace(people["a"], book=None), people["b"], people["c"]), JOB)
    assert not any(found.labelled for found in aligned.parties.values())


def test_a_book_that_repeats_the_table_is_the_users_mistake() -> None:
    book = LabelBook(("Ｘ0", "i1"), np.array([0, 1]))
    bank = replace(_table("a", ["X0", "y"], label=True), book=book)
    with pytest.raises(sv.InputError, match="occur more than once after normalisation"):
        align_parties(sv.Parties.of(bank, _table("b", ["X0"])), JOB)


def test_labelled_rows_in_another_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The passive party shifts the labelled rows only: labels would go to other people."""
    original = psi.DHServer.find_proven_rows

    def shifted(self: psi.DHServer, proofs: np.ndarray) -> np.ndarray:
        rows = original(self, proofs)
        return np.concatenate([rows[:12], np.roll(rows[12:], 1)])

    monkeypatch.setattr(psi.DHServer, "find_proven_rows", shifted)
    with pytest.raises(sv.AlignmentError, match="nothing was trained"):
        align_parties(_with_book(), JOB)


@pytest.mark.parametrize("counts", [b"", bytes(7), b"\xff" * 8, b"\xff" * 16, bytes(24)])
def test_a_nonsensical_number_of_common_rows_ends_the_alignment(monkeypatch: pytest.MonkeyPatch, counts: bytes) -> None:
    _lying(monkeypatch, "bank", "psi/common", lambda _: np.frombuffer(counts, dtype=np.uint8))
    for people in (_renamed_with_book(), make_parties(passive=1), make_parties(passive=2)):
        with pytest.raises(sv.ProtocolError, match=r"COUNT of|are possible"):
            align_parties(people, JOB)


def _renamed_with_book() -> sv.Parties:
    people = _with_book()
    return sv.Parties.of(replace(people["a"], name="bank"), people["b"], people["c"])


@pytest.mark.parametrize("passive", [1, 2])
def test_a_set_larger_than_a_policy_accepts_is_refused(passive: int) -> None:
    people = make_parties(passive=passive)
    with pytest.raises(sv.ProtocolError, match="at most 20 are accepted: raise max_set_size"):
        align_parties(people, JOB.replace(policies={"shop1": sv.Policy(max_set_size=20)}))


def _lying(monkeypatch: pytest.MonkeyPatch, liar: str, step: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """A party whose arrays of one step are others."""
    original = Link.send

    async def lies(self: Link, kind: Kind, what: str, **more: object) -> None:
        if (self.me, what) == (liar, step):
            more |= {name: change(value) for name, value in more.items() if isinstance(value, np.ndarray)}
        await original(self, kind, what, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Link, "send", lies)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: np.array(3, dtype=a.dtype),
        lambda a: a[:0],
        lambda a: a[:-1],
        lambda a: a[:1],
        lambda a: np.concatenate([a, a[:1]]),
        lambda a: np.concatenate([a, a], axis=-1),
        lambda a: a.reshape(1, 1, *a.shape),
        lambda a: a.astype(np.float64),
    ],
    ids=["no dimension", "empty", "a row less", "one row", "a row more", "wide", "four dimensions", "other type"],
)
@pytest.mark.parametrize(
    ("passive", "liar", "step"),
    [
        (1, "bank", "psi/blinded"),
        (1, "shop1", "psi/tokens"),
        (1, "shop1", "psi/doubled"),
        (1, "bank", "psi/common"),
        (1, "bank", "psi/rows"),
        (1, "shop1", "psi/receipt"),
        (2, "bank", "psi/blinded"),
        (2, "shop1", "psi/doubled"),
        (2, "shop1", "psi/table"),
        (2, "shop1", "psi/slots"),
        (2, "bank", "psi/rows"),
        (2, "shop1", "psi/compare"),
        (2, "shop2", "psi/confirm"),
    ],
)
def test_arrays_of_another_form_end_the_alignment(
    monkeypatch: pytest.MonkeyPatch, passive: int, liar: str, step: str, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    """At once: a party that goes on to wait, or to keep what it cannot use, can be kept waiting for ever."""
    _lying(monkeypatch, liar, step, change)
    with pytest.raises((sv.ProtocolError, sv.AlignmentError, sv.PolicyError)):
        align_parties(make_parties(passive=passive, rows=40), JOB)


@pytest.mark.parametrize(("passive", "step"), [(1, "psi/blinded"), (1, "psi/rows"), (2, "psi/blinded")])
def test_rows_cannot_be_sent_one_by_one(monkeypatch: pytest.MonkeyPatch, passive: int, step: str) -> None:
    _lying(monkeypatch, "bank", step, lambda rows: rows[:1])
    with pytest.raises(sv.ProtocolError, match="a chunk of 1 rows where"):
        align_parties(make_parties(passive=passive), JOB)


@pytest.mark.parametrize("passive", [1, 2])
@pytest.mark.parametrize("strict", ["bank", "shop1"])
def test_each_party_demands_as_many_common_rows_as_it_likes(passive: int, strict: str) -> None:
    """The active party before it tells anybody."""
    job = JOB.replace(policies={strict: sv.Policy(min_intersection=10_000)})
    with pytest.raises(sv.PolicyError, match="at least 10000") as caught:
        align_parties(make_parties(passive=passive), job)
    ledgers = {ledger.party: ledger for ledger in caught.value.ledgers}
    assert strict == "shop1" or not any(entry.what == "psi/common" for entry in ledgers["bank"].entries)
    steps = {entry.what for entry in ledgers[strict].entries if entry.way == "sent"}
    assert not steps & {"psi/rows", "psi/receipt", "psi/compare", "psi/confirm"}


def _greeting_lies(monkeypatch: pytest.MonkeyPatch, liar: str, **changed: object) -> None:
    def change(array: np.ndarray) -> np.ndarray:
        fields = json.loads(array.tobytes()) | changed
        return np.frombuffer(json.dumps(fields).encode(), dtype=np.uint8)

    _lying(monkeypatch, liar, "psi/hello", change)


@pytest.mark.parametrize("passive", [1, 2])
@pytest.mark.parametrize("liar", ["bank", "shop1"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("context", "another"),
        ("rules", "another"),
        ("plan", "another"),
        ("version", 2),
        ("rows", -1),
        ("rows", 1.5),
        ("nonce", "00" * 15),
    ],
)
def test_greetings_that_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, passive: int, liar: str, key: str, value: object
) -> None:
    _greeting_lies(monkeypatch, liar, **{key: value})
    with pytest.raises(sv.ProtocolError, match="nonce is not 16 bytes" if key == "nonce" else str(value)):
        align_parties(make_parties(passive=passive), JOB)


def test_parties_that_plan_two_protocols_do_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    _greeting_lies(monkeypatch, "shop1", plan="joint, two at a time")
    with pytest.raises(sv.ProtocolError, match="'shop1' plans 'joint, two at a time', not 'joint, global only'"):
        align_parties(make_parties(passive=2), JOB)


@pytest.mark.parametrize("passive", [1, 2])
def test_nonces_are_fresh(monkeypatch: pytest.MonkeyPatch, passive: int) -> None:
    original, seen = Link.send, set()

    async def listens(self: Link, kind: Kind, what: str, **more: object) -> None:
        if what == "psi/hello":
            seen.add(json.loads(more["greeting"].tobytes())["nonce"])  # type: ignore[attr-defined]
        await original(self, kind, what, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Link, "send", listens)
    people = make_parties(passive=passive, rows=40)
    runs = {align_parties(people, JOB).parties["bank"].digest for _ in range(2)}
    assert len(seen) == 2 * len(people)
    assert len(runs) == 2


def test_the_smaller_set_asks_where_both_learn_the_same() -> None:
    ids = [f"i{n:03d}" for n in range(60)]
    bank, shop = _table("a", ids, label=True), _table("b", ids[20:50])
    for people, asks in ((sv.Parties.of(bank, shop), "b"), (sv.Parties.of(bank, replace(shop, name="c")), "c")):
        aligned = align_parties(people, JOB)
        points = {
            name for name in people for e in aligned.ledgers[name].entries if (e.what, e.way) == ("psi/rows", "sent")
        }
        assert points == {asks}
        assert aligned.parties["a"].pairwise == {asks: 30}
        assert {bank.ids[row] for row in aligned.parties["a"].rows} == set(ids[20:50])
    larger = sv.Parties.of(replace(bank, ids=ids[:30], columns={"x": np.arange(30.0)}, label=np.arange(30) % 2), shop)
    ledgers = align_parties(larger, JOB).ledgers
    assert any((e.what, e.way) == ("psi/rows", "sent") for e in ledgers["a"].entries)


def test_a_leader_cannot_tell_two_parties_two_things(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each finds rows that it has, as many as the other: only the comparison between the two shows it."""
    original = psi.multiparty.Leader.announce_rows

    def drops(self: psi.multiparty.Leader, name: str) -> Iterator[np.ndarray]:
        assert self._rows is not None
        kept = self._rows
        self._rows = kept[1:] if name == "shop1" else kept[:-1]
        chunks = list(original(self, name))
        self._rows = kept
        return iter(chunks)

    def count(array: np.ndarray) -> np.ndarray:
        return np.frombuffer((int.from_bytes(array.tobytes(), "big") - 1).to_bytes(8, "big"), dtype=np.uint8)

    monkeypatch.setattr(psi.multiparty.Leader, "announce_rows", drops)
    _lying(monkeypatch, "bank", "psi/common", count)
    # The leader itself says nothing: what is left is what the two passive parties find.
    monkeypatch.setattr("securevfl_psi.cpace.Comparison.require_equal", _only_between_passive(Comparison.require_equal))
    with pytest.raises(sv.AlignmentError, match=r"'shop[12]' and 'shop[12]' do not have the same common rows"):
        align_parties(make_parties(passive=2), JOB)


def _only_between_passive(original: Callable[[Comparison, bytes], None]) -> Callable[[Comparison, bytes], None]:
    def checked(self: Comparison, confirmation: bytes) -> None:
        if b"bank" not in (self._name, self._peer):
            original(self, confirmation)

    return checked


def test_every_message_of_the_alignment_is_declared() -> None:
    declared = {(e.step, e.kind, e.sender, e.receiver) for e in EXCHANGES}
    seen = set()
    for people in (make_parties(passive=1), make_parties(passive=2), _with_book(), _with_smaller()):
        aligned = align_parties(people, JOB)
        role = {name: "active" if name == people.active.name else "passive" for name in people}
        for name, ledger in aligned.ledgers.items():
            seen |= {
                (e.what, e.kind, role[name], role[e.peer])
                for e in ledger.entries
                if e.way == "sent" and e.what.startswith("psi/")
            }
    assert seen <= declared
    assert {step for step, *_ in seen} == {step for step, *_ in declared}


def _with_smaller() -> sv.Parties:
    ids = [f"i{n}" for n in range(40)]
    return sv.Parties.of(_table("a", ids, label=True), _table("b", ids[:20]))


@pytest.mark.parametrize("window", [1, 1 << 12])
@pytest.mark.parametrize("kind", ["two", "three", "book"])
def test_no_window_of_a_channel_blocks_the_parties(monkeypatch: pytest.MonkeyPatch, window: int, kind: str) -> None:
    """Even where a channel holds one message: whoever sends keeps reading. More chunks than the window holds."""
    monkeypatch.setattr("securevfl_psi.chunks.CHUNK", 16)
    monkeypatch.setattr("securevfl.run.in_memory.MemoryHub", lambda names, **_: MemoryHub(names, window=window))
    monkeypatch.setattr("securevfl.run.in_memory.run_blocking", _with_deadline)
    ids = [f"i{n:04d}" for n in range(300)]
    people = {
        "two": sv.Parties.of(_table("a", ids, label=True), _table("b", ids[:240])),
        "three": sv.Parties.of(_table("a", ids, label=True), _table("b", ids[:240]), _table("c", ids[30:])),
        "book": _with_book(own=200, extra=100),
    }[kind]
    aligned = align_parties(people, JOB)
    clear = join_parties(people, JOB)
    for name, found in aligned.parties.items():
        assert np.array_equal(found.rows, clear.parties[name].rows)


def _with_deadline(main: Callable[[], Coroutine[None, None, T]]) -> T:
    async def within() -> T:
        return await asyncio.wait_for(main(), timeout=60)

    return asyncio.run(within())


def test_waiting_points_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party that is asked faster than it answers stops reading: its memory does not grow with the peer's set."""
    monkeypatch.setattr("securevfl_psi.chunks.CHUNK", 4)
    most = 0
    original = ChunkQueue.add_chunk

    def add(self: ChunkQueue, points: np.ndarray) -> None:
        nonlocal most
        original(self, points)
        most = max(most, len(self))

    monkeypatch.setattr(ChunkQueue, "add_chunk", add)
    monkeypatch.setattr("securevfl.run.in_memory.MemoryHub", lambda names, **_: MemoryHub(names, window=1 << 30))
    ids = [f"i{n:04d}" for n in range(400)]
    align_parties(sv.Parties.of(_table("a", ids, label=True), _table("b", ids)), JOB)
    assert 0 < most <= 4
