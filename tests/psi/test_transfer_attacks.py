"""What parties of `ot` can do that deviate, beside what `test_hostile_peers` and `test_oblivious` refuse. Where
something works, `docs/psi.md` says so, and the test would notice if it became too modest."""

from __future__ import annotations

import hashlib
import random
import secrets

import numpy as np
import pytest
import securevfl_psi as psi
from securevfl_crypto.bits import bit_loops, byte_tables
from securevfl_psi import okvs
from securevfl_psi.endpoint import Endpoint
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.oblivious import OTClient, OTServer, code, row_count, token_bytes
from securevfl_psi.oblivious.common import hashed_identifiers
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
