"""Peers that do not keep to the protocol: what they send is refused, and what they hear says little."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from securevfl_psi.dh import DHServer
from securevfl_psi.endpoint import Endpoint, run_in_process
from securevfl_psi.errors import (
    DisagreementError,
    MalformedError,
    PeerRefused,
    PSIError,
    RowsDifferError,
    SetSizeError,
    SmallIntersectionError,
)
from securevfl_psi.oblivious import OTClient, row_count
from securevfl_psi.oblivious import OTServer as Answering
from securevfl_psi.oblivious.base import TRANSFERS, Chooser
from securevfl_psi.terms import PROTOCOLS, Protocol
from securevfl_psi.wire import HEADER_BYTES, FrameWriter, Kind
from support.psi_ends import BANK, SHOP, Hostile, ends, points, replaced, terms, until

LOW_ORDER = bytes(32)
NOT_CANONICAL = (2**255 - 19).to_bytes(32, "little")


# Frames that do not fit


@pytest.mark.parametrize(
    ("kind", "payload", "match"),
    [
        (Kind.POINTS, LOW_ORDER + bytes(64), "small order"),
        (Kind.POINTS, NOT_CANONICAL * 3, "not below 2\\^255"),
        (Kind.POINTS, b"x" * 31, "multiple of 32"),
        (Kind.POINTS, b"", "multiple of 32"),
        (Kind.FINISHED, b"", "never gets now"),
        (Kind.COUNT, bytes(8), "never gets now"),
        (Kind.PROOFS, bytes(16), "never gets now"),
        (Kind.RECEIPT, bytes(32), "never gets now"),
        (Kind.SHARE, bytes(32), "never gets now"),
        (Kind.HELLO, b"{}", "never gets now"),
    ],
)
def test_frames_that_do_not_fit_end_the_run(kind: Kind, payload: bytes, match: str) -> None:
    bank, shop = ends(BANK, SHOP)
    frame = until(bank, shop, Kind.POINTS)
    forged = frame[:5] + bytes([kind]) + frame[6:12] + len(payload).to_bytes(4, "big") + frame[16:]
    if kind == Kind.HELLO:
        forged = forged[:16] + bytes(8) + forged[24:]
    with pytest.raises(MalformedError, match=match):
        shop.feed(forged[:HEADER_BYTES] + payload)


def test_a_point_that_comes_twice_is_refused() -> None:
    bank, shop = ends(BANK, SHOP)
    frame = until(bank, shop, Kind.POINTS)
    point = frame[HEADER_BYTES : HEADER_BYTES + 32]
    with pytest.raises(MalformedError, match="twice"):
        shop.feed(replaced(frame, point * 3))


def test_more_points_than_announced_are_refused() -> None:
    bank, shop = ends(BANK, SHOP)
    frame = until(bank, shop, Kind.POINTS)
    with pytest.raises(SetSizeError, match="4 rows or more; 3 were announced"):
        shop.feed(replaced(frame, frame[HEADER_BYTES:] + b"\x09" + bytes(31)))


def test_a_recorded_run_cannot_be_replayed() -> None:
    bank, shop = ends(BANK, SHOP)
    old = until(shop, bank, Kind.TOKENS)
    bank, shop = ends(BANK, SHOP)
    until(shop, bank, Kind.TOKENS)
    with pytest.raises(MalformedError, match="another session"):
        bank.feed(old)


def test_what_one_party_sends_cannot_be_sent_back() -> None:
    bank, shop = ends(BANK, SHOP)
    shop.feed(bank.next_frame() or b"")
    bank.feed(shop.next_frame() or b"")
    own = bank.next_frame() or b""
    with pytest.raises(MalformedError, match="direction"):
        bank.feed(own[:8] + (1).to_bytes(4, "big") + own[12:])
    mine = terms("receiver")
    with pytest.raises(DisagreementError, match="name 'bank'"):
        mine.accept_hello(mine.encode_hello(3))


def test_a_payload_one_byte_too_long_is_refused_by_its_header() -> None:
    frame = FrameWriter().write(Kind.HELLO, bytes(4096))
    with pytest.raises(MalformedError, match="4097 bytes is announced; at most 4096"):
        Endpoint(["a"], terms("receiver")).feed(frame[:12] + (4097).to_bytes(4, "big") + frame[16:HEADER_BYTES])


# Sets that come in crumbs


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("side", ["receiver", "sender"])
def test_a_set_cannot_be_sent_row_by_row(protocol: Protocol, side: str) -> None:
    """Frames of one row cost their reader half a millisecond and 450 bytes each: hours and gigabytes at 2^24."""
    other = "sender" if side == "receiver" else "receiver"
    if protocol == "unsafe_salted_hash" and side == "receiver":
        return  # it sends no set
    asks = protocol == "dh" and side == "receiver"
    target = Endpoint([] if asks else ["ann"], terms(other, protocol, learns="receiver"))
    bad = Hostile(side, target, 1 << 24, learns="receiver")
    if protocol == "ot":
        bad.begin_transfer(side)
        kind, row = (Kind.TOKENS, bytes(11)) if side == "sender" else (Kind.ROWS, bytes(64))
    elif protocol == "unsafe_salted_hash" or (protocol == "dh" and side == "sender"):
        kind, row = Kind.TOKENS, bytes(16)
    else:
        kind, row = Kind.POINTS, points(1)
    with pytest.raises(MalformedError, match="chunk of 1 rows where 32768 are due"):
        bad.send(kind, row)


def test_answers_cannot_come_row_by_row_nor_after_the_last() -> None:
    for first, error in (
        (points(3), "3 rows or more; 2 were announced"),
        (points(1), "chunk of 1 rows where 2 are due"),
    ):
        bad = Hostile("sender", Endpoint(["ann", "bob"], terms("receiver")), 2)
        bad.heard(Kind.POINTS)
        bad.send(Kind.TOKENS, bytes(range(32)))
        with pytest.raises(MalformedError, match=error):
            bad.send(Kind.ANSWERS, first)


def _asked(protocol: Protocol, ids: list[str], least: int = 0) -> Hostile:
    """A receiver that has all tokens of the sender and may now prove."""
    target = Endpoint(ids, terms("sender", protocol, min_intersection=least))
    bad = Hostile("receiver", target, len(ids) if protocol == "ot" else 1)
    if protocol == "dh":
        bad.send(Kind.POINTS, points(1))
    elif protocol == "ot":
        bad.transfer([f"x{k}" for k in range(len(ids))], len(ids))
    bad.heard(Kind.TOKENS)
    return bad


@pytest.mark.parametrize("protocol", ["dh", "ot", "unsafe_salted_hash"])
def test_proofs_cannot_come_one_by_one(protocol: Protocol) -> None:
    bad = _asked(protocol, [f"i{k}" for k in range(9)])
    bad.send(Kind.COUNT, (2).to_bytes(8, "big"))
    with pytest.raises(MalformedError, match="chunk of 1 rows where 2 are due"):
        bad.send(Kind.PROOFS, bytes(16))


@pytest.mark.parametrize("protocol", ["dh", "ot", "unsafe_salted_hash"])
@pytest.mark.parametrize(
    ("count", "proofs", "match"),
    [
        (b"", b"", "a COUNT of 0 bytes; expected 8"),
        (bytes(16), b"", "a COUNT of 16 bytes; expected 8"),
        (b"\xff" * 8, b"", "at most 3 are possible"),
        ((4).to_bytes(8, "big"), b"", "4 common rows; at most 3 are possible"),
        ((2).to_bytes(8, "big"), bytes(31), "multiple of 16"),
        ((2).to_bytes(8, "big"), bytes(32), "a proof appears twice"),
        ((1).to_bytes(8, "big"), bytes(16), "1 of 1 proofs belong to no row"),
    ],
)
def test_forged_proofs_are_refused(protocol: Protocol, count: bytes, proofs: bytes, match: str) -> None:
    bad = _asked(protocol, ["a", "b", "c"])

    def prove() -> None:
        bad.send(Kind.COUNT, count)
        bad.send(Kind.PROOFS, proofs)

    with pytest.raises(MalformedError, match=match):
        prove()


@pytest.mark.parametrize("protocol", ["dh", "ot", "unsafe_salted_hash"])
def test_proofs_before_all_tokens_are_refused(protocol: Protocol) -> None:
    """Rows whose tokens were not made yet have no proof, and bytes that were not written must not pass for one."""
    bad = Hostile("receiver", Endpoint(["a", "b"], terms("sender", protocol)), 1)
    if protocol == "dh":
        bad.send(Kind.POINTS, points(1))
    elif protocol == "ot":
        bad.transfer(["x"], 2)
    with pytest.raises(MalformedError, match="before the peer had all tokens"):
        bad.send(Kind.COUNT, (1).to_bytes(8, "big"))


def _echoed(bank: Endpoint, proofs: bytes) -> bytes:
    """A receipt over what the receiver sent, as whoever found no row could compute it."""
    assert bank._talk is not None
    tag = bank._talk.session.dst if bank.terms.protocol in ("dh", "ot") else bank.terms.salt + bank._talk.session.dst
    return hashlib.sha512(b"securevfl-psi receipt" + tag + (2).to_bytes(8, "big") + proofs).digest()[:32]


@pytest.mark.parametrize("protocol", ["dh", "ot", "unsafe_salted_hash"])
@pytest.mark.parametrize("forged", [bytes(32), b"", bytes(31), "echo"])
def test_forged_receipts_are_refused(protocol: Protocol, forged: bytes | str) -> None:
    """Neither made up nor made of what the receiver sent."""
    bank, shop = ends(["ann", "bob"], ["ann", "bob", "eve"], protocol)
    proofs = until(bank, shop, Kind.PROOFS)
    shop.feed(proofs)
    receipt = until(shop, bank, Kind.RECEIPT)
    payload = forged if isinstance(forged, bytes) else _echoed(bank, proofs[HEADER_BYTES:])
    with pytest.raises((RowsDifferError, MalformedError), match=r"same common rows|expected 32"):
        bank.feed(replaced(receipt, payload))
    with pytest.raises(PSIError, match="no result"):
        _ = bank.result


def test_a_receipt_is_of_the_rows_that_were_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that finds other rows than those, by a fault or on purpose, cannot give it."""
    original = DHServer.find_proven_rows
    monkeypatch.setattr(DHServer, "find_proven_rows", lambda self, proofs: np.roll(original(self, proofs), 1))
    bank, shop = ends(BANK, SHOP)
    with pytest.raises(RowsDifferError, match="same common rows in the same order"):
        run_in_process(bank, shop)
    with pytest.raises(PSIError, match="no result"):
        _ = bank.result


def test_a_point_cannot_be_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent once, twice, four times, points would show by the count which of them are common."""
    monkeypatch.setattr("securevfl_psi.chunks.CHUNK", 2)
    bad = Hostile("receiver", Endpoint(["a"], terms("sender", "cardinality")), 3)
    two = points(2)
    bad.send(Kind.POINTS, two)
    with pytest.raises(MalformedError, match="appear twice"):
        bad.send(Kind.POINTS, two[32:])


@pytest.mark.parametrize(("ids", "rows", "count"), [(["a"], 2, 2), (["a", "b"], 1, 2), (["a"], 1, 1 << 40)])
def test_counts_that_cannot_be(ids: list[str], rows: int, count: int) -> None:
    bad = Hostile("receiver", Endpoint(ids, terms("sender", "cardinality")), rows)
    bad.send(Kind.POINTS, points(rows))
    with pytest.raises(MalformedError, match=f"{count} common identifiers among {len(ids)} and {rows}"):
        bad.send(Kind.COUNT, count.to_bytes(8, "big"))


def test_salted_hashes_of_two_sessions_cannot_be_joined() -> None:
    said = set()
    for _ in range(2):
        bad = Hostile("receiver", Endpoint(["a"], terms("sender", "unsafe_salted_hash")), 1)
        said.add(bad.heard(Kind.TOKENS))
    assert len(said) == 2


@pytest.mark.parametrize("protocol", ["dh", "ot", "cardinality", "unsafe_salted_hash"])
def test_a_sender_is_told_once_and_after_allpoints(protocol: Protocol) -> None:
    bad = Hostile("receiver", Endpoint(["a", "b"], terms("sender", protocol)), 1)
    if protocol != "unsafe_salted_hash":
        with pytest.raises(MalformedError, match="never gets now"):
            bad.send(Kind.COUNT, bytes(8))
    bank, shop = (Endpoint(["a", "b"], terms(role, protocol)) for role in ("receiver", "sender"))
    run_in_process(bank, shop)
    with pytest.raises(MalformedError, match="never gets now"):
        shop.feed(bank._writer.write(Kind.COUNT, bytes(8)))


def test_a_sender_of_an_intersection_gets_no_tokens() -> None:
    bad = Hostile("receiver", Endpoint(["a"], terms("sender")), 1)
    with pytest.raises(MalformedError, match="never gets now"):
        bad.send(Kind.TOKENS, bytes(16))


# Oblivious transfers


def test_a_set_that_is_no_set_of_codewords_gets_no_token() -> None:
    """A row with ones added would show in the tokens whether the secret has ones there."""
    bad = Hostile("receiver", Endpoint(["a", "b"], terms("sender", "ot")), 1)
    client = OTClient(["a"], bad.session, 2)
    bad.send(Kind.TRANSFERS, client.first_message)
    bad.send(Kind.SEED, client.seed)
    client.take_keys(bad.heard(Kind.TRANSFERS))
    for rows in client.encode_rows():
        bad.send(Kind.ROWS, (rows ^ np.uint8(0x55)).tobytes())
    answer = client.answer_challenge(bad.heard(Kind.SEED))
    with pytest.raises(MalformedError, match="is not made of codewords"):
        bad.send(Kind.SUMS, answer)
    assert bad.heard(Kind.REFUSED) == b"malformed"


@pytest.mark.parametrize(
    ("kind", "payload", "match"),
    [
        (Kind.TRANSFERS, bytes(31), "31 bytes; expected 32"),
        (Kind.TRANSFERS, (1).to_bytes(32, "little"), "small order"),
        (Kind.TRANSFERS, b"\xff" * 32, "no point"),
        (Kind.SEED, bytes(32), "never gets now: a TRANSFERS is due"),
        (Kind.ROWS, bytes(64), "never gets now: a TRANSFERS is due"),
        (Kind.SUMS, bytes(2960), "never gets now: a TRANSFERS is due"),
    ],
)
def test_transfers_that_do_not_begin_as_they_should(kind: Kind, payload: bytes, match: str) -> None:
    bad = Hostile("receiver", Endpoint(["a"], terms("sender", "ot")), 1)
    with pytest.raises(MalformedError, match=match):
        bad.send(kind, payload)


def test_sums_before_they_were_asked_for_are_refused() -> None:
    bad = Hostile("receiver", Endpoint(["a"], terms("sender", "ot")), 1)
    bad.begin_transfer("receiver")
    bad.send(Kind.ROWS, bytes(64 * row_count(1)))
    with pytest.raises(MalformedError, match="after the challenge"):
        bad.send(Kind.SUMS, bytes(2960))


def test_a_server_that_asks_before_it_has_all_rows_is_refused() -> None:
    """The sums of rows that are still to come would be known before the rows."""
    bad = Hostile("sender", Endpoint(["a"], terms("receiver", "ot")), 1)
    message = bad.heard(Kind.TRANSFERS)
    bad.send(Kind.TRANSFERS, Chooser(bad.session.dst, np.zeros(TRANSFERS, np.uint8), message).answer)
    with pytest.raises(MalformedError, match="before the server had all rows"):
        bad.send(Kind.SEED, bytes(32))


def test_a_secret_of_zeros_or_ones_matches_no_row_that_was_not_entered() -> None:
    """A server may choose its secret badly: it harms itself. It knows the function anyway, and tokens bind rows."""
    for bit in (0, 255):
        bad = Hostile("sender", Endpoint(["a", "b"], terms("receiver", "ot")), 3)
        server = Answering(["b", "c", "d"], bad.session, 2)
        message = bad.heard(Kind.TRANSFERS)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("securevfl_psi.oblivious.server.secrets", _Constant(bit))
            server.take_message(message)
        bad.send(Kind.TRANSFERS, server.make_choices())
        server.take_seed(bad.heard(Kind.SEED))
        server.take_rows(np.frombuffer(bad.heard(Kind.ROWS), dtype=np.uint8).reshape(-1, 64))
        bad.send(Kind.SEED, server.draw_challenge())
        server.check_answer(bad.heard(Kind.SUMS))
        for tokens in server.token_chunks():
            bad.send(Kind.TOKENS, tokens.tobytes())
        assert bad.heard(Kind.COUNT) == (1).to_bytes(8, "big")


class _Constant:
    def __init__(self, octet: int) -> None:
        self._octet = octet

    def token_bytes(self, size: int) -> bytes:
        return bytes([self._octet]) * size


# What the peer hears


def test_a_refusal_reaches_a_peer_that_has_heard_nothing_yet() -> None:
    """It replaces what waits to be sent, and so takes the number of the first of those."""
    bank, shop = Endpoint(["a", "b", "c"], terms("receiver")), Endpoint(["a"], terms("sender", max_set_size=2))
    with pytest.raises(SetSizeError):
        shop.feed(bank.next_frame() or b"")
    with pytest.raises(PeerRefused, match="larger than it accepts"):
        bank.feed(shop.next_frame() or b"")
    assert shop.next_frame() is None


def test_a_refusal_in_the_middle_reaches_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl_psi.chunks.CHUNK", 2)
    bank, shop = Endpoint(["a", "b", "c"], terms("receiver")), Endpoint(["a", "b", "c"], terms("sender"))
    shop.feed(bank.next_frame() or b"")
    bank.feed(shop.next_frame() or b"")
    frames = [bank.next_frame() or b"", bank.next_frame() or b""]
    with pytest.raises(MalformedError):  # the first could be answered, but the answer has not left yet
        shop.feed(frames[0] + frames[1][:-1] + b"\xff")
    with pytest.raises(PeerRefused, match="a message that the protocol does not allow"):
        bank.feed(shop.next_frame() or b"")


def test_a_peer_that_refused_is_told_no_more() -> None:
    """Proofs of common rows were still on their way out."""
    bank, shop = Endpoint(["ann"], terms("receiver")), Endpoint(["ann"], terms("sender"))
    until(bank, shop, Kind.COUNT)
    with pytest.raises(PeerRefused):
        bank.feed(shop._writer.write(Kind.REFUSED, b"policy"))
    assert bank.next_frame() is None


def test_proofs_are_sent_in_a_secret_order() -> None:
    """In any other they would show how their sender sorts its table."""
    ids = [f"i{k:03d}" for k in range(200)]
    orders = []
    for _ in range(2):
        bank, shop = ends(ids, ids)
        run_in_process(bank, shop)
        assert bank.result.rows is not None
        assert np.array_equal(bank.result.rows, shop.result.rows)
        assert np.abs(np.corrcoef(bank.result.rows, np.arange(200))[0, 1]) < 0.35
        orders.append(bank.result.rows.tolist())
    assert orders[0] != orders[1]


@pytest.mark.parametrize("protocol", ["dh", "ot", "cardinality", "unsafe_salted_hash"])
def test_a_sender_that_is_told_too_few_has_no_result(protocol: Protocol) -> None:
    bank = Endpoint(["ann", "bob"], terms("receiver", protocol))
    shop = Endpoint(["ann", "eve"], terms("sender", protocol, min_intersection=2))
    with pytest.raises(SmallIntersectionError):
        run_in_process(bank, shop)
    with pytest.raises(PSIError, match="no result"):
        _ = shop.result


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_receiver_that_finds_too_few_tells_nobody(protocol: Protocol) -> None:
    bank = Endpoint(["ann", "bob"], terms("receiver", protocol, min_intersection=2))
    shop = Endpoint(["ann", "eve"], terms("sender", protocol))
    with pytest.raises(SmallIntersectionError, match="1 common identifiers; the policy demands at least 2"):
        run_in_process(bank, shop)
    for end in (bank, shop):
        with pytest.raises(PSIError, match="no result"):
            _ = end.result
    exactly = Endpoint(["ann", "bob"], terms("receiver", protocol, min_intersection=1))
    run_in_process(exactly, Endpoint(["ann", "eve"], terms("sender", protocol)))
    assert exactly.result.count == 1


def test_an_end_is_done_when_all_was_sent_and_nothing_refused() -> None:
    bank, shop = Endpoint(["a"], terms("receiver")), Endpoint(["a"], terms("sender"))
    proofs = until(bank, shop, Kind.PROOFS)
    shop.feed(proofs)
    assert shop.result.verified
    assert not shop.done  # its receipt has not left
    bank.feed(shop.next_frame() or b"")
    assert shop.done
    assert bank.done
    with pytest.raises(PeerRefused):
        bank.feed(shop._writer.write(Kind.REFUSED, b"error"))
    assert not bank.done
    with pytest.raises(PSIError, match="no result"):
        _ = bank.result
