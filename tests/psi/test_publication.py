"""Unbalanced intersections of a joint run: what is kept serves again, and what deviates ends the run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import securevfl_psi as psi
from securevfl_psi import gcs, oprf, publication
from securevfl_psi.conversations.publishing import LookupClient, LookupParameters, LookupServer
from securevfl_psi.errors import MalformedError, SetSizeError
from securevfl_psi.group import Scalar
from securevfl_psi.publication import Offer, Publication, fingerprint_bits, max_filter_bytes
from securevfl_psi.wire import Frame, Kind

LARGE = [f"c{number}" for number in range(200)]
SMALL = ["c7", "x", "c150", "y", "c3"]
COMMON = {"c7", "c150", "c3"}
Change = Callable[[str, Frame], Frame]


class _Drawer(dict[str, bytes]):
    """A shelf in memory."""

    def load(self, name: str) -> bytes | None:
        return self.get(name)

    def save(self, name: str, data: bytes) -> None:
        self[name] = data

    def drop(self, name: str) -> None:
        self.pop(name, None)


def _ends(
    large: list[str], small: list[str], shelves: tuple[_Drawer | None, _Drawer | None] = (None, None), **terms: Any
) -> dict[str, psi.Joint]:
    """The bank is active and has the large set."""
    made = {}
    for name, ids, shelf in (("bank", large, shelves[0]), ("shop", small, shelves[1])):

        def order(rows: np.ndarray, ids: list[str] = ids) -> np.ndarray:
            return np.array(sorted(rows.tolist(), key=lambda row: hashlib.sha256(ids[row].encode()).digest()), np.int64)

        more = {"name": name, "active": "bank", "passive": ("shop",), "protocol": "unbalanced", "shelf": shelf}
        made[name] = psi.Joint(
            psi.Identifiers.of_texts(ids), psi.JointTerms(**more | terms), order=order, allow=lambda *_: None
        )
    return made


def _publish(ids: list[str], names: tuple[str, str]) -> Publication:
    rules = psi.IdRules().tag()
    making = Publication.publish_stepwise(
        psi.Identifiers.of_texts(ids), lambda nonce: psi.Session(names=names, nonce=nonce, rules_tag=rules), None
    )
    while True:
        try:
            next(making)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def _talk(ends: dict[str, psi.Joint], change: Change = lambda _, frame: frame) -> list[Kind]:
    """Moves frames until both have ended; returns the kinds that crossed, hellos left out."""
    kinds = []
    other = {"bank": "shop", "shop": "bank"}
    sending = {name: ends[name].send_script(other[name]) for name in ends}
    hearing = {name: ends[name].receive_script(other[name]) for name in ends}
    due: dict[str, Kind | None] = {name: next(script) for name, script in hearing.items()}
    waiting: dict[str, list[Frame]] = {"bank": [], "shop": []}
    idle = 0
    while hearing and idle < 20:
        idle += 1
        for name in ends:
            if (frame := next(sending[name], None)) is not None:
                waiting[other[name]].append(change(name, frame))
                kinds += [frame.kind] * (frame.kind is not Kind.HELLO)
                idle = 0
            try:
                if name in hearing and due[name] is None:
                    due[name] = next(hearing[name])
                elif name in hearing and waiting[name]:
                    frame = waiting[name].pop(0)
                    assert frame.kind == due[name]
                    due[name] = hearing[name].send(frame)
                    idle = 0
            except StopIteration:
                del hearing[name]
    if hearing:
        raise AssertionError(f"the parties wait for each other; {kinds}")
    return kinds


def _swap(kind: Kind, payload: bytes | Callable[[bytes], bytes]) -> Change:
    """Replaces the payload of the first frame of a kind."""
    left = [kind]

    def change(_: str, frame: Frame) -> Frame:
        if frame.kind not in left:
            return frame
        left.clear()
        return Frame(kind, payload(frame.payload) if callable(payload) else payload)

    return change


def _found(ends: dict[str, psi.Joint], large: list[str] = LARGE, small: list[str] = SMALL) -> list[str]:
    bank, shop = (end.result for end in ends.values())
    names = [large[row] for row in bank.rows]
    assert names == [small[row] for row in shop.rows]  # in one order
    assert bank.run == shop.run
    return names


def test_both_learn_the_rows_and_a_kept_filter_does_not_cross_again() -> None:
    shelves = (_Drawer(), _Drawer())
    ends = _ends(LARGE, SMALL, shelves)
    first = _talk(ends)
    assert set(_found(ends)) == COMMON
    assert Kind.FILTER in first
    kept = dict(shelves[0])
    ends = _ends(LARGE, ["c8", "c3"], shelves)
    again = _talk(ends)
    assert set(_found(ends, small=["c8", "c3"])) == {"c8", "c3"}
    assert again == [kind for kind in first if kind is not Kind.FILTER]
    assert shelves[0] == kept
    assert list(shelves[0]) == ["publication for shop"]
    assert list(shelves[1]) == ["filter of bank"]


@pytest.mark.parametrize("what", ["the same", "another row", "another order", "other rules", "damaged", "another peer"])
def test_a_publication_serves_again_only_the_same_set_and_peer(what: str) -> None:
    shelves = (_Drawer(), None)
    _talk(_ends(LARGE, SMALL, shelves))
    before = Publication.from_bytes(shelves[0]["publication for shop"])
    large = {"another row": [*LARGE[:-1], "z"], "another order": LARGE[::-1]}.get(what, LARGE)
    if what == "damaged":
        data = shelves[0]["publication for shop"]
        shelves[0]["publication for shop"] = data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]
    if what == "another peer":
        shelves[0]["publication for shop"] = _publish(LARGE, ("bank", "thief")).to_bytes()
        before = Publication.from_bytes(shelves[0]["publication for shop"])
    rules = {"rules": psi.IdRules(casefold=True)} if what == "other rules" else {}
    ends = _ends(large, SMALL, shelves, **rules)
    _talk(ends)
    assert set(_found(ends, large)) == COMMON
    after = Publication.from_bytes(shelves[0]["publication for shop"])
    assert (after.secret == before.secret) is (what == "the same")
    assert len(after.rest) == len(large)
    assert after.secret.hex() not in repr(after)


def test_a_proof_of_one_run_is_none_of_the_next_though_the_key_is_the_same() -> None:
    shelves = (_Drawer(), _Drawer())
    heard: list[bytes] = []

    def listen(_: str, frame: Frame) -> Frame:
        heard.extend([frame.payload] * (frame.kind is Kind.PROOFS))
        return frame

    _talk(_ends(LARGE, SMALL, shelves), listen)
    assert "publication for shop" in shelves[0]
    with pytest.raises(MalformedError, match="3 of 3 proofs belong to no row"):
        _talk(_ends(LARGE, SMALL, shelves), _swap(Kind.PROOFS, heard[0]))
    assert "publication for shop" not in shelves[0]  # so that the next run has another key


def test_one_who_lacks_the_points_makes_no_proof_and_reads_no_filter() -> None:
    """The attack: all identifiers are known, the filter and the offer are on the table, and the key is not."""
    shelves = (_Drawer(), _Drawer())
    _talk(_ends(LARGE, SMALL, shelves))
    bank = Publication.from_bytes(shelves[0]["publication for shop"])
    hashes = gcs.decode_golomb(shelves[1]["filter of bank"])
    for key, expected in ((Scalar(), 0), (Scalar(bank.secret), len(LARGE))):
        outputs = oprf.OPRFServer(bank.tag, key, length=48).compute_outputs(LARGE)
        assert hashes.contains(np.ascontiguousarray(outputs[:, :16])).sum() == expected
        assert (outputs[:, 16:] == bank.rest).all(axis=1).sum() == expected  # the proofs' half


def test_a_point_of_an_earlier_run_proves_its_row_and_no_more_rows_than_were_announced() -> None:
    """What a kept key costs: a client that asked 150 identifiers a week ago claims one of them without asking again.
    It could have asked. What it cannot do is claim more rows than it announces."""
    shelves = (_Drawer(), _Drawer())
    early = [f"c{number}" for number in range(150)]
    ends = _ends(LARGE, early, shelves)
    _talk(ends)
    looking = ends["shop"]._plan._part  # type: ignore[union-attr]
    assert isinstance(looking, LookupClient)
    known = looking._client.outputs  # type: ignore[union-attr]
    ends = _ends(LARGE, ["x", "y"], shelves)
    made: list[bytes] = []

    def claim(rows: int) -> Change:
        def change(name: str, frame: Frame) -> Frame:
            if name == "shop" and frame.kind is Kind.COUNT:
                tag = ends["shop"]._plan._part._how.tag  # type: ignore[union-attr]
                made.append(known.bind_to_run(tag).prove_rows(np.arange(rows)).tobytes())
                return Frame(Kind.COUNT, rows.to_bytes(8, "big"))
            return frame

        return change

    with pytest.raises(SetSizeError, match="announces 3 common rows; at most 2 are possible"):
        _talk(ends, claim(3))
    ends = _ends(LARGE, ["x", "y"], shelves)
    bank = ends["bank"]
    with pytest.raises(
        AssertionError, match="wait for each other"
    ):  # the claim goes through at the bank; the shop's own end made no proofs
        _talk(ends, claim(2))
    receiving = bank._plan._parts["shop"]._receiving  # type: ignore[union-attr]
    rows = receiving._rows(np.frombuffer(made[-1], np.uint8).reshape(-1, 16))
    assert {LARGE[row] for row in rows} == {"c0", "c1"}


@pytest.mark.parametrize(
    ("kind", "payload", "match"),
    [
        (Kind.OFFER, b"x" * 55, "offer of 55 bytes"),
        (Kind.OFFER, bytes(16) + (1 << 40).to_bytes(8, "big") + bytes(32), "filter of 1099511627776 bytes is offered"),
        (Kind.OFFER, bytes(56), "filter of 0 bytes is offered"),
        (Kind.WANTED, b"\2", "expected 0 or 1"),
        (Kind.WANTED, b"", "WANTED of 0 bytes"),
        (Kind.FILTER, lambda data: data[:-1], "bytes; expected"),
        (Kind.FILTER, lambda data: data[:-1] + bytes([data[-1] ^ 1]), "not the one that was offered"),
        (Kind.POINTS, bytes(32 * 5), "point"),
        (Kind.POINTS, lambda data: data[:32] * 5, "twice"),
        (Kind.POINTS, lambda data: data[:64], "chunk of 2 rows where 5 are due"),
        (Kind.ANSWERS, lambda data: data[:64], "chunk of 2 rows where 5 are due"),
        (Kind.ANSWERS, lambda data: data[:32] * 5, "twice"),
        (Kind.COUNT, (6).to_bytes(8, "big"), "announces 6 common rows; at most 5 are possible"),
        (Kind.PROOFS, bytes(48), "proof appears twice"),
        (Kind.PROOFS, bytes(range(48)), "3 of 3 proofs belong to no row"),
        (Kind.RECEIPT, bytes(32), "same common rows"),
    ],
)
def test_hostile_bytes_end_the_run(kind: Kind, payload: Any, match: str) -> None:
    with pytest.raises(psi.PSIError, match=match):
        _talk(_ends(LARGE, SMALL), _swap(kind, payload))


@pytest.mark.parametrize("wrong", ["count", "bits"])
def test_a_filter_of_another_size_than_announced_is_refused(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = publication.gcs.encode_golomb

    def encode(hashes: np.ndarray, bits: int) -> bytes:
        return real(hashes[:-1], bits) if wrong == "count" else real(hashes, bits - 1)

    monkeypatch.setattr(publication.gcs, "encode_golomb", encode)
    with pytest.raises(MalformedError, match="a filter of"):
        _talk(_ends(LARGE, SMALL))


def test_answers_in_another_order_match_nothing() -> None:
    ends = _ends(LARGE, SMALL)
    _talk(ends, _swap(Kind.ANSWERS, lambda data: data[32:] + data[:32]))
    assert [len(end.result.rows) for end in ends.values()] == [0, 0]


def test_a_false_positive_ends_the_run_and_the_next_one_has_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    shelves = (_Drawer(), _Drawer())
    for module in (publication, __import__("securevfl_psi.conversations.publishing", fromlist=["x"])):
        monkeypatch.setattr(module, "fingerprint_bits", lambda count: 1)
    strangers = [f"s{number}" for number in range(150)]
    with pytest.raises(MalformedError, match="proofs belong to no row"):
        _talk(_ends(LARGE, strangers, shelves))
    assert "publication for shop" not in shelves[0]


@pytest.mark.parametrize("sets", [(LARGE, []), ([*LARGE], ["x"]), (["a"], ["a"]), ([], [])])
def test_small_sets_and_empty_intersections(sets: tuple[list[str], list[str]]) -> None:
    ends = _ends(*sets)
    _talk(ends)
    assert set(_found(ends, *sets)) == set(sets[0]) & set(sets[1])


@pytest.mark.parametrize("count", [0, 1, 2, 255, 256, 257, 1000])
def test_a_filter_is_never_longer_than_its_count_allows(count: int) -> None:
    assert count << fingerprint_bits(count) <= 1 << 64
    for hashes in (np.zeros((count, 16), np.uint8), np.full((count, 16), 255, np.uint8)):
        data = gcs.encode_golomb(hashes, fingerprint_bits(count))
        assert len(data) <= max_filter_bytes(count)
        Offer.from_bytes(Offer(bytes(16), len(data), bytes(32)).to_bytes(), count)
    assert (fingerprint_bits(1 << 20), fingerprint_bits(1 << 24), fingerprint_bits((1 << 24) + 1)) == (44, 40, 39)


def test_what_a_publication_does_not_write_it_does_not_read() -> None:
    made = _publish(["a", "b"], ("bank", "shop"))
    data = made.to_bytes()
    assert Publication.from_bytes(data).to_bytes() == data
    for bad in (b"", data[:-1], data + b"x", b"PSIX" + data[4:], data[:100] + b"\xff" * 30 + data[130:]):
        with pytest.raises(MalformedError):
            Publication.from_bytes(bad)


def test_both_ends_are_of_the_names_that_were_authenticated() -> None:
    """A filter made for one client is none for another: the names are hashed with every identifier."""
    ends = _ends(LARGE, SMALL)
    _talk(ends)
    large, small = ends["bank"]._plan._parts["shop"], ends["shop"]._plan._part  # type: ignore[union-attr]
    assert isinstance(large, LookupServer)
    assert isinstance(small, LookupClient)
    one, other = (part._how for part in (large, small))
    assert isinstance(one, LookupParameters)
    assert one.session(bytes(16)) == other.session(bytes(16))
    assert one.session(bytes(16)).names == ("bank", "shop")
    assert one.tag == other.tag != one.session(bytes(16)).dst


def test_padding_to_one_size_is_refused() -> None:
    with pytest.raises(psi.PSIError, match="pad_to=300: it pads all parties to one size"):
        _ends(LARGE, SMALL, pad_to=300)


def test_a_large_set_is_published_in_steps_and_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "STEP", 64)
    ends = _ends(LARGE, SMALL)
    bank, shop = (ends[one].send_script(other) for one, other in (("bank", "shop"), ("shop", "bank")))
    hearing = ends["bank"].receive_script("shop")
    next(bank)
    next(hearing)
    assert next(shop) is None  # it waits for the plan
    assert not ends["shop"].is_busy("bank")
    script = ends["shop"].receive_script("bank")
    next(script)
    script.send(next(_ends(LARGE, SMALL)["bank"].send_script("shop")))  # type: ignore[arg-type]
    hello = next(shop)
    assert hello is not None
    hearing.send(hello)
    steps = 0
    while (frame := next(bank)) is None:
        assert ends["bank"].is_busy("shop")
        steps += 1
    assert (steps, frame.kind) == (4, Kind.OFFER)
    assert next(bank) is None  # it waits for the peer
    assert not ends["bank"].is_busy("shop")
    whole = _ends(LARGE, SMALL)
    _talk(whole)
    assert set(_found(whole)) == COMMON
