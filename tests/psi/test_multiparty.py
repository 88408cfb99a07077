"""Intersection of several sets: exact, in one order for all, and silent about every smaller intersection."""

from __future__ import annotations

import hmac
import itertools
import secrets
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_psi import IdentifierError, MalformedError, PSIError, SetSizeError, chunks, okvs
from securevfl_psi.circle import Circle, PairwiseKeys
from securevfl_psi.multiparty import Follower, Leader

NAMES = ("lead", "b", "c", "d", "e")


def _circle(count: int, **other: object) -> Circle:
    return Circle(**{"names": NAMES[:count], "nonce": secrets.token_bytes(16), "rules_tag": "v1", **other})


def _seeds(circle: Circle) -> dict[str, dict[str, bytes]]:
    keys = {name: PairwiseKeys(circle, name) for name in circle.names}
    public = {name: key.public_key for name, key in keys.items()}
    return {name: key.derive_seeds({n: p for n, p in public.items() if n != name}) for name, key in keys.items()}


def _hear(leader: Leader, party: Follower, name: str, blinded: Sequence[np.ndarray], sizes: tuple[int, int]) -> None:
    table = party.encode_table()
    answers = party.evaluate(iter(blinded), sizes[0])
    leader.receive_answer(name, answers, table.seed, chunks.split(table.slots), sizes[1])


def _run(
    sets: Sequence[Sequence[str]], party: type[Follower] = Follower, leader: type[Leader] = Leader
) -> tuple[Leader, dict[str, Follower], np.ndarray, dict[str, dict[str, bytes]]]:
    circle = _circle(len(sets))
    seeds = _seeds(circle)
    parties = {n: party(ids, n, circle, seeds[n]) for n, ids in zip(circle.names[1:], sets[1:], strict=True)}
    lead = leader(sets[0], circle, seeds["lead"])
    blinded = list(lead.blind_set())
    for (name, member), ids in zip(parties.items(), sets[1:], strict=True):
        _hear(lead, member, name, blinded, (len(sets[0]), len(ids)))
    return lead, parties, lead.intersect(), seeds


ids = st.sets(st.one_of(st.sampled_from(["", "a", "é", "日本", "🎈", "e\u0301"]), st.text(max_size=2)), max_size=8)


@settings(max_examples=30)
@given(st.lists(ids, min_size=2, max_size=5), st.randoms())
def test_all_find_the_same_common_rows_in_the_same_order(sets: list[set[str]], random: object) -> None:
    tables = [random.sample(sorted(one), len(one)) for one in sets]  # type: ignore[attr-defined]
    lead, parties, rows, _ = _run(tables)
    common = [tables[0][row] for row in rows]
    assert sorted(common) == sorted(set.intersection(*sets))
    for (name, party), table in zip(parties.items(), tables[1:], strict=True):
        own = party.find_common_rows(lead.announce_rows(name), len(rows))
        assert own.dtype == np.int64
        assert [table[row] for row in own] == common


@pytest.mark.parametrize(
    "sets",
    [
        [[], [], []],
        [["a"], [], ["a"]],
        [[], ["a"], ["a"]],
        [["a"], ["a"], ["a"]],
        [["a", "b"], ["b", "c"], ["c", "a"]],
        [[str(i) for i in range(200)]] * 4,
        [[str(i) for i in range(300)], [str(i) for i in range(150, 160)], [str(i) for i in range(155, 500)]],
    ],
)
def test_awkward_shapes(sets: list[list[str]]) -> None:
    _, _, rows, _ = _run(sets)
    assert {sets[0][row] for row in rows} == set.intersection(*map(set, sets))


def test_large_sets_travel_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 7)
    sets = [[str(i) for i in range(30)], [str(i) for i in range(5, 40)], [str(i) for i in range(50)]]
    lead, parties, rows, _ = _run(sets)
    assert sorted(rows.tolist()) == list(range(5, 30))
    assert [sets[1][i] for i in parties["b"].find_common_rows(lead.announce_rows("b"), 25)] == [
        sets[0][i] for i in rows
    ]


def test_the_order_of_the_common_rows_is_not_that_of_a_table() -> None:
    ordered = [str(i) for i in range(60)]
    orders = [_run([ordered, ordered])[2].tolist() for _ in range(2)]
    assert list(range(60)) not in orders
    assert orders[0] != orders[1]


# What the leader sees of items that are not common. ------------------------------------------------------------------


class _Watching(Leader):
    """A leader that keeps, for each party, what it decodes at each item once its own mask is gone."""

    def receive_answer(
        self, name: str, evaluated: Iterable[np.ndarray], seed: bytes, slots: Iterable[np.ndarray], count: int
    ) -> None:
        before = self._sum.copy()
        super().receive_answer(name, evaluated, seed, slots, count)
        self.seen: dict[str, np.ndarray] = {**getattr(self, "seen", {}), name: before ^ self._sum}


class _NoShares(Follower):
    """The mutation: zero-sharing switched off."""

    def _compute_shares(self) -> np.ndarray:
        return np.zeros(len(self._digests), dtype=np.uint64)


class _SharesWithTheLeaderOnly(Follower):
    """A subtler one: the intersection is still right, but parties share nothing that the leader does not know."""

    def _compute_shares(self) -> np.ndarray:
        shares: np.ndarray = okvs.prf(self._seeds["lead"], self._digests).view(np.uint64)[:, 0].copy()
        return shares


def _evidence(columns: Mapping[str, np.ndarray], rows: np.ndarray) -> list[str]:
    """What tells these rows from random bits: for each xor of columns, a zero, a repetition, or a bit that leans.

    False alarms: a bit that leans by 6.5 standard deviations has probability 1e-10, and there are about 4,000 bits for
    each class of rows; zeros and repetitions of 64 bits are rarer.
    """
    found = []
    for size in range(1, len(columns) + 1):
        for names in itertools.combinations(columns, size):
            xor = np.bitwise_xor.reduce([columns[name][rows] for name in names])
            ones = np.unpackbits(xor.view(np.uint8).reshape(-1, 8), axis=1).mean(axis=0)
            if (xor == 0).any() or len(np.unique(xor)) < len(xor):
                found.append(f"{' ^ '.join(names)} vanishes or repeats")
            elif np.abs(ones - 0.5).max() > 6.5 * 0.5 / len(rows) ** 0.5:
                found.append(f"{' ^ '.join(names)} has a bit that leans")
    return found


def _view(party: type[Follower]) -> tuple[dict[str, np.ndarray], dict[tuple[str, ...], np.ndarray], np.ndarray]:
    """The leader's columns, its rows by which parties hold them too, and the intersection it finds."""
    subsets = [s for size in range(4) for s in itertools.combinations(("b", "c", "d"), size)]
    items = [f"{''.join(s)}-{i}" for i in range(120) for s in subsets]
    sets = [items] + [[x for x in items if name in x.split("-")[0]] for name in ("b", "c", "d")]
    lead, _, rows, seeds = _run(sets, party, _Watching)
    own = {f"share with {n}": okvs.prf(k, lead._digests).view(np.uint64)[:, 0] for n, k in seeds["lead"].items()}
    classes = {s: np.flatnonzero([x.split("-")[0] == "".join(s) for x in items]) for s in subsets}
    return {**lead.seen, **own}, classes, rows  # type: ignore[attr-defined]


def test_the_leaders_view_does_not_depend_on_smaller_intersections() -> None:
    columns, classes, rows = _view(Follower)
    everywhere = classes.pop(("b", "c", "d"))
    assert sorted(rows.tolist()) == everywhere.tolist()
    for held, where in classes.items():
        assert _evidence(columns, where) == [], f"items of {held}"
    assert len(_evidence(columns, everywhere)) == 1, "common items: one relation, that all shares vanish"


@pytest.mark.parametrize("mutation", [_NoShares, _SharesWithTheLeaderOnly])
def test_without_shares_between_the_parties_the_view_tells_who_holds_what(mutation: type[Follower]) -> None:
    columns, classes, _ = _view(mutation)
    assert _evidence(columns, classes[()]) == []
    for held in (("b",), ("c", "d")):
        assert _evidence(columns, classes[held])


def test_leader_and_one_party_learn_the_intersection_with_the_others() -> None:
    """The documented collusion: with c's seed the leader finds its items that b holds, whether or not c does."""
    sets = [["all", "with b", "with c", "alone"], ["all", "with b"], ["all", "with c"]]
    lead, _, _, seeds = _run(sets, Follower, _Watching)

    def shared(seed: bytes) -> np.ndarray:
        return okvs.prf(seed, lead._digests).view(np.uint64)[:, 0]

    missing = lead.seen["b"] ^ shared(seeds["lead"]["b"]) ^ shared(seeds["c"]["b"])  # type: ignore[attr-defined]
    assert (missing == 0).tolist() == [True, True, False, False]


def test_shares_of_all_parties_vanish_together_only() -> None:
    circle = _circle(4)
    seeds = _seeds(circle)
    shares = [Follower(["x", "y"], n, circle, seeds[n])._compute_shares() for n in NAMES[1:4]]
    shares.append(Leader(["x", "y"], circle, seeds["lead"])._compute_shares())
    for size in range(1, 5):
        for some in itertools.combinations(shares, size):
            assert (np.bitwise_xor.reduce(some) == 0).all() == (size == 4)


# Hostile and misplaced messages. --------------------------------------------------------------------------------------


def _pair() -> tuple[Leader, Follower, list[np.ndarray]]:
    circle = _circle(3)
    seeds = _seeds(circle)
    leader = Leader(["x", "y"], circle, seeds["lead"])
    return leader, Follower(["y", "z", "x"], "b", circle, seeds["b"]), list(leader.blind_set())


def test_steps_are_taken_once_and_in_order() -> None:
    leader, party, blinded = _pair()
    with pytest.raises(PSIError, match="twice"):
        leader.blind_set()
    with pytest.raises(PSIError, match="follows encode_table"):
        party.find_common_rows([], 0)
    _hear(leader, party, "b", blinded, (2, 3))
    for name in ("b", "lead", "nobody"):
        with pytest.raises(PSIError, match="not one of the servers"):
            leader.receive_answer(name, [], bytes(32), [], 0)
    with pytest.raises(PSIError, match="missing: \\['c'\\]"):
        leader.intersect()
    with pytest.raises(PSIError, match="before intersect"):
        leader.announce_rows("b")
    for again in (party.encode_table, lambda: party.evaluate(blinded, 2)):
        with pytest.raises(PSIError, match="twice"):
            again()
    party.find_common_rows([], 0)
    with pytest.raises(PSIError, match="once"):
        party.find_common_rows([], 0)


def test_a_result_is_told_and_found_once() -> None:
    lead, parties, _, _ = _run([["a", "b"], ["b", "a"]])
    with pytest.raises(PSIError, match="twice"):
        lead.intersect()
    assert len(parties["b"].find_common_rows(lead.announce_rows("b"), 2)) == 2
    with pytest.raises(PSIError, match="twice"):
        lead.announce_rows("b")


@pytest.mark.parametrize(
    ("seed", "rows", "width", "count", "error"),
    [
        (32, okvs.slots_for(3) - 1, 8, 3, SetSizeError),
        (32, okvs.slots_for(3) + 1, 8, 3, SetSizeError),
        (32, okvs.slots_for(3), 8, 9, SetSizeError),
        (32, okvs.slots_for(3), 16, 3, MalformedError),
        (31, okvs.slots_for(3), 8, 3, MalformedError),
        (32, okvs.slots_for(3), 8, 2**40, SetSizeError),
        (32, okvs.slots_for(3), 8, -1, MalformedError),
    ],
)
def test_hostile_tables_are_refused(seed: int, rows: int, width: int, count: int, error: type[Exception]) -> None:
    leader, party, blinded = _pair()
    slots = np.zeros((rows, width), np.uint8)
    with pytest.raises(error):
        leader.receive_answer("b", party.evaluate(blinded, 2), bytes(seed), [slots], count)


def test_hostile_points_are_refused() -> None:
    leader, party, blinded = _pair()
    with pytest.raises(MalformedError, match="small order"):
        leader.receive_answer("b", [np.zeros((2, 32), np.uint8)], bytes(32), [], 3)
    bad = blinded[0].copy()
    bad[1] = 255
    with pytest.raises(MalformedError, match="coordinate"):
        list(party.evaluate([bad], 2))


def test_hostile_results_are_refused() -> None:
    def fresh() -> tuple[Follower, np.ndarray]:
        lead, parties, _, _ = _run([["x", "y"], ["y", "z", "x"]])
        return parties["b"], np.concatenate(list(lead.announce_rows("b")))

    party, tokens = fresh()
    with pytest.raises(MalformedError, match="twice"):
        party.find_common_rows([tokens[[0, 0]]], 2)
    party, tokens = fresh()
    with pytest.raises(MalformedError, match="1 tokens of no own row"):
        party.find_common_rows([np.concatenate([tokens, np.zeros((1, 16), np.uint8)])], 3)
    party, tokens = fresh()
    with pytest.raises(SetSizeError, match="at most 3"):
        party.find_common_rows([tokens], 4)
    party, tokens = fresh()
    with pytest.raises(SetSizeError, match="2 of 3"):
        party.find_common_rows([tokens], 3)
    party, tokens = fresh()
    with pytest.raises(MalformedError, match="uint8"):
        party.find_common_rows([tokens[:, :15]], 2)


def test_what_was_agreed_is_checked() -> None:
    for wrong in ({"names": ("a",)}, {"names": ("a", "a")}, {"nonce": b"short"}, {"version": "é"}, {"version": ""}):
        with pytest.raises(PSIError):
            _circle(3, **wrong)
    circle = _circle(3)
    seeds = _seeds(circle)
    with pytest.raises(PSIError, match="leader"):
        Follower([], "lead", circle, seeds["lead"])
    with pytest.raises(PSIError, match="not a party of this run"):
        Follower([], "d", circle, seeds["b"])
    with pytest.raises(PSIError, match="each other party needs one"):
        Follower([], "b", circle, seeds["c"])
    with pytest.raises(IdentifierError):
        Follower(["x", "x"], "b", circle, seeds["b"])
    with pytest.raises(SetSizeError):
        Leader(["x", "y"], circle, seeds["lead"], max_set_size=1)
    with pytest.raises(SetSizeError, match="at most"):
        Leader([], circle, seeds["lead"], max_set_size=1 << 29)


def test_the_two_ends_of_a_pair_agree_and_nobody_else() -> None:
    circle = _circle(4)
    seeds = _seeds(circle)
    for one, other in itertools.combinations(circle.names, 2):
        assert seeds[one][other] == seeds[other][one]
    assert len({seed for own in seeds.values() for seed in own.values()}) == 6


def test_a_seed_is_bound_to_names_keys_and_circle() -> None:
    """HKDF as RFC 5869 says, by two calls of HMAC."""
    circle = _circle(2)
    mine, theirs = PairwiseKeys(circle, "lead"), PairwiseKeys(circle, "b")
    parts = [b"zero shares", b"b", theirs.public_key, b"lead", mine.public_key]
    info = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    shared = mine._key.exchange(theirs._key.public_key())
    extracted = hmac.digest(circle.dst, shared, "sha256")
    assert mine.derive_seeds({"b": theirs.public_key})["b"] == hmac.digest(extracted, info + b"\x01", "sha256")


def test_hostile_public_keys_are_refused() -> None:
    circle = _circle(3)
    good = {name: PairwiseKeys(circle, name).public_key for name in ("b", "c")}
    for wrong in (
        {**good, "b": bytes(32)},
        {**good, "b": good["b"][:31]},
        {**good, "b": good["c"]},
        {**good, "b": "text"},
        {"b": good["b"]},
        {**good, "d": bytes(32)},
    ):
        with pytest.raises(MalformedError):
            PairwiseKeys(circle, "lead").derive_seeds(wrong)  # type: ignore[arg-type]
    keys = PairwiseKeys(circle, "lead")
    with pytest.raises(MalformedError, match="same public key"):
        keys.derive_seeds({**good, "b": keys.public_key})
    with pytest.raises(PSIError, match="twice"):
        keys.derive_seeds(good)


def test_another_circle_gives_other_seeds_and_tokens() -> None:
    circles = [_circle(2), _circle(2), _circle(2, rules_tag="v2")]
    assert len({circle.dst for circle in circles}) == 3
    assert len({Follower(["x"], "b", c, {"lead": bytes(32)})._digests.tobytes() for c in circles}) == 3
