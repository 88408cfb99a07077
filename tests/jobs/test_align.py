"""Alignment: exact, in one order for all, verified by all; and ended by any disagreement."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import securevfl_psi as psi
from helpers import parties

import securevfl as sv
from securevfl.data import PartyTable
from securevfl.jobs.simulation import align_parties
from securevfl.transport import Kind

JOB = sv.Job(seed=3)


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
    people = parties(passive=passive)
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
    for table in people.passive:
        assert active.pairwise[table.name] == len(set(table.ids) & set(people.active.ids))
        assert aligned.parties[table.name].pairwise == {}


def test_the_order_depends_on_the_seed_and_not_on_the_tables_order() -> None:
    ids = [f"i{n}" for n in range(30)]
    one = align_parties(sv.Parties.of(_table("a", ids, label=True), _table("b", ids)), JOB)
    shuffled = sv.Parties.of(_table("a", ids[::-1], label=True), _table("b", ids[5:] + ids[:5]))
    two = align_parties(shuffled, JOB)
    other = align_parties(shuffled, replace(JOB, seed=4))
    names = [shuffled["a"].ids[row] for row in two.parties["a"].rows]
    assert [ids[row] for row in one.parties["a"].rows] == names
    assert [shuffled["a"].ids[row] for row in other.parties["a"].rows] != names


def test_identifiers_are_normalised_the_same_way() -> None:
    one, two = [f" id{n} " for n in range(20)], [f"ｉd{n}" for n in range(20)]
    assert align_parties(sv.Parties.of(_table("a", one, label=True), _table("b", two)), JOB).common == 20


def test_an_empty_intersection_is_an_error_that_gives_the_sizes() -> None:
    left, right = [f"l{n}" for n in range(12)], [f"r{n}" for n in range(15)]
    with pytest.raises(
        sv.AlignmentError, match=r"no row is held by all parties \(12 rows at 'a'; in common: 0 with b\)"
    ):
        align_parties(sv.Parties.of(_table("a", left, label=True), _table("b", right)), JOB)


def test_pairwise_overlaps_without_a_global_one_are_empty_too() -> None:
    b, c = [f"x{n}" for n in range(10)], [f"y{n}" for n in range(10)]
    people = sv.Parties.of(_table("a", b + c, label=True), _table("b", b), _table("c", c))
    with pytest.raises(sv.AlignmentError, match="10 with b, 10 with c"):
        align_parties(people, JOB)


def test_too_few_common_rows_are_refused_by_default() -> None:
    few = [f"x{n}" for n in range(5)]
    with pytest.raises(sv.PolicyError, match="5 common rows; the policy goes on with at least 10"):
        align_parties(sv.Parties.of(_table("a", few, label=True), _table("b", few)), JOB)


def test_identifiers_that_double_once_normalised_are_the_users_mistake() -> None:
    with pytest.raises(sv.InputError, match="'b': 1 identifiers are doubled once normalised"):
        align_parties(sv.Parties.of(_table("a", ["x", "y"], label=True), _table("b", ["x", " x"])), JOB)


def test_a_party_with_other_rows_than_it_says_is_found_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender whose rows are shifted by one: the intersection looks right, its digest is not."""
    original = psi.Sender.rows

    def shifted(self: psi.Sender, positions: np.ndarray) -> np.ndarray:
        rows = original(self, positions)
        return np.roll(rows, 1)

    monkeypatch.setattr(psi.Sender, "rows", shifted)
    with pytest.raises(
        sv.AlignmentError, match="do not have the same common rows in the same order; nothing was trained"
    ):
        sv.simulate(replace(JOB, epochs=1), parties(passive=1))


def test_a_lost_match_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The passive party drops the last common row: sizes and digests differ."""
    original = psi.Sender.rows
    monkeypatch.setattr(psi.Sender, "rows", lambda self, positions: original(self, positions)[:-1])
    with pytest.raises(sv.AlignmentError):
        align_parties(parties(passive=2), JOB)


def test_parties_with_other_rules_do_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = iter(["v1/NFC", *["v1/NFKC/strip"] * 50])
    monkeypatch.setattr(psi.IdRules, "tag", lambda self: next(tags))
    with pytest.raises(sv.ProtocolError, match="runs with rules"):
        align_parties(parties(passive=1), JOB)


def test_identifiers_leave_only_blinded() -> None:
    people = parties()
    aligned = align_parties(people, JOB)
    kinds = {e.kind for ledger in aligned.ledgers.values() for e in ledger.entries if e.way == "sent"}
    assert kinds == {Kind.CONTROL, Kind.BLINDED_SET, Kind.INTERSECTION, Kind.STATISTIC}
    told = [e for e in aligned.ledgers["bank"].entries if e.way == "sent" and e.kind is Kind.INTERSECTION]
    assert {e.peer: e.shapes["positions"] for e in told} == {key: [aligned.common] for key in ("shop1", "shop2")}
