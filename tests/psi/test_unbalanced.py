"""A small set against a published filter: exact, within its time and its budget, and closed to hostile bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_psi.errors import BudgetError, ExpiredError, IdentifierError, MalformedError, PSIError, SetSizeError
from securevfl_psi.unbalanced import Filter, FilterClient, FilterServer, FilterTerms

NOW = 1_800_000_000
DAY = 86_400


def _terms(**other: object) -> FilterTerms:
    defaults = {"server": "registry", "rules_tag": "v1", "not_before": NOW, "expires": NOW + DAY}
    return FilterTerms(**{**defaults, **other})  # type: ignore[arg-type]


def _ask(server: FilterServer, data: bytes, ids: list[str], client: str = "clinic", now: int = NOW) -> list[int]:
    asker = FilterClient(ids, Filter.from_bytes(data), rules_tag="v1", now=now)
    answers = server.answer_queries(client, asker.key_id, asker.blind_set(), len(ids), now=now)
    return asker.find_common_rows(answers).tolist()


names = st.sets(st.one_of(st.sampled_from(["", "a", "é", "e\u0301", "🎈"]), st.text(max_size=3)), max_size=12)


@settings(max_examples=30)
@given(names, names)
def test_the_rows_are_those_of_a_set_intersection(small: set[str], large: set[str]) -> None:
    server = FilterServer(_terms())
    ids = sorted(small)
    rows = _ask(server, server.publish(sorted(large)), ids)
    assert {ids[row] for row in rows} == small & large
    assert rows == sorted(rows)


def test_one_filter_serves_many_sessions_and_clients() -> None:
    server = FilterServer(_terms(max_queries=10))
    data = server.publish([str(i) for i in range(2000)])
    assert _ask(server, data, ["5", "x", "1999"]) == [0, 2]
    assert _ask(server, data, ["y", "5"], now=NOW + DAY - 1) == [1]
    assert _ask(server, data, [str(i) for i in range(1995, 2005)], client="other") == [0, 1, 2, 3, 4]
    assert (server.remaining_queries("clinic"), server.remaining_queries("other"), server.remaining_queries("new")) == (
        5,
        0,
        10,
    )


def test_the_filter_has_the_stated_size() -> None:
    server = FilterServer(_terms())
    data = server.publish([str(i) for i in range(20_000)])
    assert 8 * len(data) / 20_000 == pytest.approx(41.58, abs=0.1)


@pytest.mark.parametrize("now", [0, NOW - 1, NOW + DAY, 2 * NOW])
def test_outside_its_time_neither_side_uses_a_filter(now: int) -> None:
    server = FilterServer(_terms())
    data = server.publish(["a"])
    with pytest.raises(ExpiredError, match=f"it is {now}"):
        FilterClient(["a"], Filter.from_bytes(data), rules_tag="v1", now=now)
    with pytest.raises(ExpiredError):
        server.answer_queries("clinic", server.key_id, [], 0, now=now)
    assert server.remaining_queries("clinic") == 1000


def test_the_budget_is_of_each_client_and_over_all_sessions() -> None:
    server = FilterServer(_terms(max_queries=3))
    data = server.publish(["a"])
    _ask(server, data, ["a", "b"])
    with pytest.raises(BudgetError, match="it may ask 1 more"):
        _ask(server, data, ["c", "d"])
    assert _ask(server, data, ["a"]) == [0]
    with pytest.raises(BudgetError):
        _ask(server, data, ["z"])
    with pytest.raises(BudgetError, match="lets a client ask 3"):
        FilterClient(list("abcd"), Filter.from_bytes(data), rules_tag="v1", now=NOW)
    assert _ask(server, data, ["a"], client="other") == [0]


def test_queries_count_before_the_points_are_looked_at() -> None:
    """A client that sends rubbish, or does not fetch its answer, does not get its queries back."""
    server = FilterServer(_terms(max_queries=3))
    answers = server.answer_queries("clinic", server.key_id, [np.zeros((2, 32), np.uint8)], 2, now=NOW)
    assert server.remaining_queries("clinic") == 1
    with pytest.raises(MalformedError, match="small order"):
        next(answers)
    with pytest.raises(BudgetError):
        server.answer_queries("clinic", server.key_id, [], 2, now=NOW)
    with pytest.raises(MalformedError):
        server.answer_queries("clinic", server.key_id, [], -5, now=NOW)
    assert server.remaining_queries("clinic") == 1
    more = server.answer_queries("clinic", server.key_id, [np.full((2, 32), 9, np.uint8)], 1, now=NOW)
    with pytest.raises(MalformedError):
        list(more)


def test_more_points_than_announced_are_not_answered() -> None:
    server = FilterServer(_terms())
    points = np.arange(1, 65, dtype=np.uint8).reshape(2, 32)
    with pytest.raises(SetSizeError, match="more than the 1"):
        list(server.answer_queries("clinic", server.key_id, [points], 1, now=NOW))


def test_a_filter_is_bound_to_its_key_and_its_terms() -> None:
    one, other = FilterServer(_terms()), FilterServer(_terms())
    data = one.publish(["a", "b"])
    assert one.key_id != other.key_id
    client = FilterClient(["a"], Filter.from_bytes(data), rules_tag="v1", now=NOW)
    with pytest.raises(MalformedError, match="another key"):
        other.answer_queries("clinic", client.key_id, client.blind_set(), 1, now=NOW)
    # A filter whose expiry, or key id, somebody changed on the way finds nothing.
    longer = data.replace((NOW + DAY).to_bytes(8, "big"), (NOW + 9 * DAY).to_bytes(8, "big"))
    assert longer != data
    assert _ask(one, longer, ["a", "b"]) == []
    renamed = data.replace(one.key_id, other.key_id)
    assert _ask(other, renamed, ["a", "b"]) == []


def test_each_filter_has_its_own_key() -> None:
    server = FilterServer(_terms())
    server.publish(["a"])
    with pytest.raises(PSIError, match="its own key"):
        server.publish(["a", "b"])


def test_a_server_continues_from_its_bytes() -> None:
    server = FilterServer(_terms(max_queries=5))
    data = server.publish(["a", "é"])
    _ask(server, data, ["é", "b"], client="klinik ü")
    again = FilterServer.from_bytes(server.to_bytes())
    assert again.to_bytes() == server.to_bytes()
    assert (again.terms, again.key_id) == (server.terms, server.key_id)
    assert again.remaining_queries("klinik ü") == 3
    assert _ask(again, data, ["a", "c"], client="klinik ü") == [0]
    with pytest.raises(PSIError, match="twice"):
        again.publish([])
    with pytest.raises(BudgetError):
        _ask(again, data, ["a", "c"], client="klinik ü")


def test_other_rules_and_bad_identifiers_are_refused() -> None:
    server = FilterServer(_terms())
    data = Filter.from_bytes(server.publish(["a"]))
    with pytest.raises(PSIError, match="use its rules"):
        FilterClient(["a"], data, rules_tag="v2", now=NOW)
    with pytest.raises(IdentifierError):
        FilterClient(["a", "a"], data, rules_tag="v1", now=NOW)
    with pytest.raises(IdentifierError):
        FilterServer(_terms()).publish(["a", "a"])
    with pytest.raises(MalformedError, match="name of 2000 bytes"):
        server.answer_queries("x" * 2000, server.key_id, [], 0, now=NOW)


def test_steps_are_taken_once() -> None:
    server = FilterServer(_terms())
    client = FilterClient(["a"], Filter.from_bytes(server.publish(["a"])), rules_tag="v1", now=NOW)
    with pytest.raises(PSIError, match="out of order"):
        client.find_common_rows([])
    blinded = list(client.blind_set())
    client.find_common_rows(server.answer_queries("clinic", client.key_id, blinded, 1, now=NOW))
    with pytest.raises(PSIError, match="second time"):
        client.find_common_rows(server.answer_queries("clinic", client.key_id, blinded, 1, now=NOW))


@pytest.mark.parametrize(
    "other",
    [
        {"expires": NOW},
        {"not_before": -1},
        {"expires": 1 << 63},
        {"expires": NOW + 0.5},
        {"max_queries": 0},
        {"max_queries": 1 << 32},
        {"bits": 0},
        {"bits": 57},
        {"server": "x" * 1025},
    ],
)
def test_terms_are_checked(other: dict[str, object]) -> None:
    with pytest.raises(PSIError):
        _terms(**other)


@settings(max_examples=200)
@given(st.binary(max_size=120))
def test_any_bytes_are_a_filter_or_an_error(tail: bytes) -> None:
    start = FilterServer(_terms()).publish([])
    for data in (tail, b"PSIF\x01" + tail, start[:37] + tail, start[:-21] + tail):
        try:
            Filter.from_bytes(data)
        except MalformedError:
            continue


@settings(max_examples=200)
@given(st.binary(max_size=120))
def test_any_bytes_are_a_state_or_an_error(tail: bytes) -> None:
    for data in (tail, b"PSIK\x01" + tail, b"PSIK\x01" + bytes(32) + b"\x01" + tail):
        try:
            FilterServer.from_bytes(data)
        except MalformedError:
            continue


def test_truncated_and_longer_bytes_are_errors() -> None:
    server = FilterServer(_terms())
    data = server.publish(["a", "b"])
    _ask(server, data, ["a"])
    for reader, whole in ((Filter.from_bytes, data), (FilterServer.from_bytes, server.to_bytes())):
        for size in range(len(whole)):
            with pytest.raises(MalformedError):
                reader(whole[:size])
        with pytest.raises(MalformedError):
            reader(whole + b"\0")
        with pytest.raises(MalformedError, match="bytes were expected"):
            reader(bytearray(whole))  # type: ignore[arg-type]
    with pytest.raises(MalformedError, match="flag"):
        FilterServer.from_bytes(server.to_bytes()[:37] + b"\x02" + server.to_bytes()[38:])


def test_a_filter_larger_than_allowed_is_refused() -> None:
    data = FilterServer(_terms(bits=1)).publish([str(i) for i in range(3000)])
    with pytest.raises(SetSizeError, match="at most 2999"):
        Filter.from_bytes(data, max_items=2999)
