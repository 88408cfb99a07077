"""What parties of `ot` can do that deviate, beside what `test_hostile_peers` and `test_oblivious` refuse. Where
something works, `docs/psi.md` says so, and the test would notice if it became too modest."""

from __future__ import annotations

import hashlib
import random
import secrets
from types import SimpleNamespace

import numpy as np
import pytest
import securevfl_psi as psi
from securevfl_crypto.bits import bit_loops, byte_tables
from securevfl_crypto.transfer import edwards
from securevfl_psi import Session, okvs
from securevfl_psi.endpoint import Endpoint
from securevfl_psi.group import ORDER
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.oblivious import OTClient, OTServer, code, row_count, token_bytes
from securevfl_psi.oblivious.base import TRANSFERS, Giver
from securevfl_psi.oblivious.common import hashed_identifiers
from securevfl_psi.oblivious.extension import CHALLENGE_BYTES, Decoder
from securevfl_psi.wire import HEADER_BYTES, Kind
from support.psi_ends import Hostile, terms

SPACE = [f"+4179{number:07d}" for number in range(3_000)]


def _entering(ids: list[str], announced: int, bad: Hostile, peer: int) -> OTClient | None:
    """A client whose key-value store, for so many, holds all of these; None where they do not fit."""
    client = OTClient(ids[:announced], bad.session, peer)
    hashed = hashed_identifiers(Identifiers.of_texts(ids), bad.session.dst, bit_loops())
    seed = secrets.token_bytes(okvs.SEED_BYTES)
    places, bits = okvs.slot_positions(np.ascontiguousarray(hashed[:, :16]), seed, announced)
    size = okvs.slots_for(announced)
    slots = np.frombuffer(bytearray(secrets.token_bytes(16 * size)), dtype=np.uint64).reshape(size, 2)
    values = np.ascontiguousarray(hashed[:, 16:]).view(np.uint64)
    if not okvs._eliminate_core(places.T.astype(np.int64), bits, values, slots):
        return None
    client.__dict__["_store"] = okvs.SlotTable(seed, slots.view(np.uint8))
    return client


def test_a_client_can_enter_more_than_it_announced_but_not_prove_it() -> None:
    """A store for 5 has 97 slots, and so room for as many words."""
    known = SPACE[:60]
    bad = Hostile("receiver", Endpoint(SPACE[:100], terms("sender", "ot")), 5)
    client = _entering(known, 5, bad, 100)
    assert client is not None
    bad.send(Kind.TRANSFERS, client.first_message)
    bad.send(Kind.SEED, client.seed)
    client.take_keys(bad.heard(Kind.TRANSFERS))
    for rows in client.encode_rows():
        bad.send(Kind.ROWS, rows.tobytes())
    bad.send(Kind.SUMS, client.answer_challenge(bad.heard(Kind.SEED)))
    encoder = client._encoder
    assert encoder is not None
    matrix = encoder.matrix
    reader = OTClient(known, bad.session, 100)
    reader._compute_outputs(matrix, client.seed, 5, None)
    width = token_bytes(5, 100)
    heard = bad.heard(Kind.TOKENS)
    tokens = {heard[start : start + width] for start in range(0, len(heard), width)}
    own = [row[:width].tobytes() for row in reader.outputs.cut_tokens()]
    assert sum(token in tokens for token in own) == 60
    with pytest.raises(psi.SetSizeError, match="6 common rows; at most 5 are possible"):
        bad.send(Kind.COUNT, (6).to_bytes(8, "big"))


def test_no_client_can_enter_more_than_there_are_slots() -> None:
    bad = Hostile("receiver", Endpoint(SPACE[:100], terms("sender", "ot")), 5)
    assert okvs.slots_for(5) == 97
    assert _entering(SPACE[:98], 5, bad, 100) is None


def test_nothing_that_a_server_hears_can_be_searched() -> None:
    """It can compute the function at every identifier that there could be. Of what it heard, only the proofs of rows
    that it has itself are any of these outputs; and what it decodes of the encoded set tells those that are in it from
    others no more than it should: nowhere is the row that a member of the set would give."""
    draw = random.Random(7)
    victim = draw.sample(SPACE, 50)
    known = [*victim[:10], *(f"x{number}" for number in range(60))]
    bank = Endpoint(victim, terms("receiver", "ot"))
    shop = Endpoint(known, terms("sender", "ot"))
    heard: list[bytes] = []
    matrix = None
    while not (bank.done and shop.done):
        if frame := bank.next_frame():
            heard.append(frame[HEADER_BYTES:])
            shop.feed(frame)
        server = shop._talk._decoding.server if shop._talk is not None else None  # type: ignore[attr-defined]
        if server is not None and server._decoder is not None and server._decoder.is_complete:
            matrix, masked, seed = server._decoder.matrix, server._decoder.masked, server._seed
        if frame := shop.next_frame():
            bank.feed(frame)
    assert shop.result.count == 10
    assert matrix is not None
    assert server is not None
    session = server._session
    attacker = OTServer(SPACE, session, 50)
    attacker._compute_outputs(matrix, seed, 50, masked)
    pieces = {data[start : start + 16] for data in heard for start in range(0, len(data), 2)}
    hits = set()
    for name, row in zip(SPACE, attacker.outputs._table, strict=True):
        seen = {row[start : start + 16].tobytes() for start in (0, 16, 32)}
        seen |= {hashlib.sha256(name.encode()).digest()[:16], hashlib.blake2s(name.encode()).digest()[:16]}
        if seen & pieces:
            hits.add(name)
    assert hits == set(victim[:10])
    # Decoding what was sent without the secret: distances to a word of the code look alike for all.
    sent = np.frombuffer(b"".join(data for data in heard if len(data) == 64 * row_count(50)), np.uint8)
    slots = sent.reshape(-1, 64)[: okvs.slots_for(50)]
    hashed = hashed_identifiers(Identifiers.of_texts(SPACE), session.dst, bit_loops())
    places, bits = okvs.slot_positions(np.ascontiguousarray(hashed[:, :16]), seed, 50)
    rows = np.zeros((len(SPACE), 64), dtype=np.uint8)
    bit_loops().decode(places, bits, byte_tables(slots[-okvs.DENSE :]), slots, rows)
    bit_loops().encode(hashed[:, 16:], code.code_tables(), rows)
    weights = np.unpackbits(rows, axis=1).sum(axis=1)
    members = np.isin(SPACE, victim)
    assert abs(weights[members].mean() - 256) < 6 * 11.4 / 50**0.5
    assert abs(weights[~members].mean() - 256) < 1.5


def test_a_recorded_encoded_set_fits_no_other_session() -> None:
    """Keys are made of the session's tag, and rows hide behind keys that were used once."""
    session = Hostile("receiver", Endpoint(["a", "b"], terms("sender", "ot")), 2)
    recorded = OTClient(["a", "b"], session.session, 2)
    recorded.take_keys(_choices(session, recorded))
    old = [rows.copy() for rows in recorded.encode_rows()]
    again = Hostile("receiver", Endpoint(["a", "b"], terms("sender", "ot")), 2)
    client = OTClient(["a", "b"], again.session, 2)
    client.take_keys(_choices(again, client))
    list(client.encode_rows())
    for rows in old:
        again.send(Kind.ROWS, rows.tobytes())
    answer = client.answer_challenge(again.heard(Kind.SEED))
    with pytest.raises(psi.MalformedError, match="is not made of codewords"):
        again.send(Kind.SUMS, answer)


def _choices(bad: Hostile, client: OTClient) -> bytes:
    bad.send(Kind.TRANSFERS, client.first_message)
    bad.send(Kind.SEED, client.seed)
    return bad.heard(Kind.TRANSFERS)


def _session() -> Session:
    return Session(names=("bank", "shop"), nonce=secrets.token_bytes(16), rules_tag="v1", protocol="ot")


def test_nobody_knows_the_challenge_before_the_rows_are_sent() -> None:
    """Who knew it could send rows that are no codewords, and whose errors cancel in all of the sums. Every octet of
    eight challenges varies, but for a chance of 2^-51."""
    decoder = Decoder(np.zeros(64, np.uint8), [bytes(16)] * TRANSFERS, 0, bit_loops())
    drawn = np.array([list(decoder.draw_challenge()) for _ in range(8)])
    assert drawn.shape == (8, CHALLENGE_BYTES)
    assert (np.ptp(drawn, axis=0) > 0).all()


def test_all_512_bits_of_a_servers_secret_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that guessed s would compute the function at every identifier. 560 secrets span all 512 dimensions, but
    for a chance of 2^-48; with fewer random bits in each they span no more than these."""
    drawn: list[int] = []

    def chosen(tag: bytes, choices: np.ndarray, message: bytes) -> SimpleNamespace:
        drawn.append(int.from_bytes(np.packbits(choices, bitorder="little").tobytes(), "little"))
        return SimpleNamespace(keys=[])

    def kept(secret: np.ndarray, *more: object) -> None:
        assert int.from_bytes(secret.tobytes(), "little") == drawn[-1]

    monkeypatch.setattr("securevfl_psi.oblivious.server.Chooser", chosen)
    monkeypatch.setattr("securevfl_psi.oblivious.server.Decoder", kept)
    session = _session()
    for _ in range(560):
        OTServer([], session, 0).take_message(bytes(32))
    echelon: dict[int, int] = {}
    for vector in drawn:
        while vector and (other := echelon.get(vector.bit_length())):
            vector ^= other  # noqa: PLW2901
        if vector:
            echelon[vector.bit_length()] = vector
    assert len(echelon) == 512


def test_no_answer_makes_two_keys_of_the_base_transfers_equal() -> None:
    """A server answers with half of the client's point, 512 times: the products a·B and a·(B − A) differ in their signs
    alone, which their coordinate does not show. What keeps the keys apart are the number and the choice."""
    giver = Giver(b"tag")
    point = edwards.decompress(giver.message, "it")
    half = None
    for bit in bin((ORDER + 1) // 2)[2:]:
        half = half + half if half else None
        if bit == "1":
            half = half + point if half else point
    assert half is not None
    assert edwards.compress([half + half]) == giver.message
    zeros, ones = giver.derive_keys(edwards.compress([half]) * TRANSFERS)
    assert len({*zeros, *ones}) == 2 * TRANSFERS


def test_each_part_of_an_output_depends_on_the_identifier_itself() -> None:
    """Also where an encoded set decodes to one row everywhere: its tokens, proofs and receipts are all different."""
    server = OTServer(SPACE[:9], _session(), 5)
    server._compute_outputs(np.zeros((row_count(5), 64), np.uint8), bytes(okvs.SEED_BYTES), 5, None)
    for start in (0, 16, 32):
        assert len(np.unique(server.outputs._table[:, start : start + 16], axis=0)) == 9


def test_padding_looks_like_identifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and words of rows that fill the set are all different and of random octets, as are those of identifiers."""
    taken: list[np.ndarray] = []
    monkeypatch.setattr(okvs, "encode_table", lambda keys, words, by: taken.extend([keys, words]))
    _ = OTClient(["a"], _session(), 1, pad_to=40)._store
    keys, words = taken
    for part in (keys, words[:, :10]):
        assert len(np.unique(part, axis=0)) == 40
        assert (np.ptp(part, axis=0) > 0).all()
