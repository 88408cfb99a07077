"""The parts of the PSI by oblivious transfer: code, points, base transfers, extension, and both ends over arrays."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.bits import bit_loops
from securevfl_crypto.engine.cpu import paths_of_this_cpu
from securevfl_crypto.transfer import edwards
from securevfl_psi import IdentifierError, MalformedError, PSIError, Session, SetSizeError, okvs, wire
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.oblivious import OTClient, OTServer, code, extension, row_count, token_bytes
from securevfl_psi.oblivious.base import TRANSFERS, Chooser, Giver
from securevfl_psi.oblivious.common import hashed_identifiers
from securevfl_psi.oblivious.extension import EXTRA, Decoder, Encoder

TAG = b"tag"


# The code


def test_the_generator_is_that_of_the_code() -> None:
    """By definition, in arithmetic of its own: every generator row has the zeros α, …, α^126 in GF(2^9), and even
    weight; the polynomial has degree 426 = 511 − 85."""
    polynomial = code.generator_polynomial()
    assert len(polynomial) == 427
    assert polynomial[0] == polynomial[-1] == 1

    def times(a: int, b: int) -> int:
        product = 0
        for bit in range(9):
            product ^= (a << bit) * (b >> bit & 1)
        for bit in range(17, 8, -1):
            product ^= (0b1000010001 << (bit - 9)) * (product >> bit & 1)
        return product

    power, powers = 1, []
    for _ in range(511):
        powers.append(power)
        power = times(power, 2)
    assert len(set(powers)) == 511
    rows = np.unpackbits(code.generator_rows(), axis=1, bitorder="little")
    for row in (rows[0], rows[79], np.bitwise_xor.reduce(rows[::7])):
        ones = np.flatnonzero(row[:511])
        for exponent in range(1, 127):
            assert np.bitwise_xor.reduce([powers[exponent * place % 511] for place in ones.tolist()]) == 0
        assert row.sum() % 2 == 0
        assert row.sum() >= code.DISTANCE
    assert 127 not in {exponent * 2**k % 511 for exponent in range(1, 127) for k in range(9)}  # no more zeros than due


def test_words_are_as_far_apart_as_they_must_be() -> None:
    """All sums of up to two rows, and random words: their weight is at least 128; the rows are independent."""
    rows = code.generator_rows()
    bits = np.unpackbits(rows, axis=1, bitorder="little")
    weights = (bits[:, None] ^ bits[None]).sum(axis=2)
    assert weights[~np.eye(80, dtype=bool)].min() >= code.DISTANCE
    words = np.frombuffer(secrets.token_bytes(10 * 4000), dtype=np.uint8).reshape(-1, 10)
    out = np.zeros((4000, 64), dtype=np.uint8)
    bit_loops().encode(words, code.code_tables(), out)
    assert np.unpackbits(out, axis=1).sum(axis=1).min() >= code.DISTANCE
    reduced = [int.from_bytes(row.tobytes(), "little") for row in rows]
    assert len({row & -row for row in reduced}) == 80  # a triangle: each begins at a place of its own


ORDER_8 = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"  # a point of order 8, as is well known


# Base transfers


def test_a_chooser_gets_the_keys_that_it_chose() -> None:
    choices = np.frombuffer(secrets.token_bytes(TRANSFERS), dtype=np.uint8) & 1
    giver = Giver(TAG)
    chooser = Chooser(TAG, choices, giver.message)
    pairs = giver.derive_keys(chooser.answer)
    assert chooser.keys == [pairs[choice][i] for i, choice in enumerate(choices.tolist())]
    assert not set(chooser.keys) & {pairs[1 - choice][i] for i, choice in enumerate(choices.tolist())}
    assert len({*pairs[0], *pairs[1]}) == 2 * TRANSFERS
    other = Giver(b"another session")
    other._secret, other.message = giver._secret, giver.message
    assert not {*pairs[0], *pairs[1]} & {key for keys in other.derive_keys(chooser.answer) for key in keys}


@pytest.mark.parametrize("order", [1, 2, 4, 8, "mixed"])
def test_messages_with_a_component_of_small_order_are_refused(order: int | str) -> None:
    """A giver that adds one to its message sees in each answer whether it was added there: all choices, and so s."""
    torsion = edwards.decompress(bytes.fromhex(ORDER_8), "it")
    point = torsion
    for _ in range({8: 0, 4: 1, 2: 2, 1: 3, "mixed": 0}[order]):
        point = point + point
    if order == "mixed":
        point = point + edwards.decompress(Giver(TAG).message, "it")
    with pytest.raises(MalformedError, match="small order"):
        Chooser(TAG, np.zeros(TRANSFERS, np.uint8), edwards.compress([point]))


def test_answers_that_are_none_are_refused() -> None:
    giver = Giver(TAG)
    answer = Chooser(TAG, np.ones(TRANSFERS, np.uint8), giver.message).answer
    neutral, torsion = (1).to_bytes(32, "little"), bytes.fromhex(ORDER_8)
    for bad in (neutral, torsion, giver.message):  # the last one's difference to the message is neutral
        with pytest.raises(MalformedError, match="small order"):
            giver.derive_keys(answer[:-32] + bad)
    with pytest.raises(MalformedError, match="16383 bytes; 16384"):
        giver.derive_keys(answer[:-1])
    with pytest.raises(MalformedError, match="no point"):
        giver.derive_keys(b"\xff" * 32 + answer[32:])


# The extension


def _dealt() -> tuple[np.ndarray, tuple[list[bytes], list[bytes]], list[bytes]]:
    """s, both keys of each column, and the chosen ones."""
    secret = np.frombuffer(secrets.token_bytes(64), dtype=np.uint8)
    pairs = [[secrets.token_bytes(16) for _ in range(512)] for _ in range(2)]
    bits = np.unpackbits(secret, bitorder="little")
    return secret, (pairs[0], pairs[1]), [pairs[bit][i] for i, bit in enumerate(bits.tolist())]


def _ends(count: int, path: str | None = None) -> tuple[Encoder, Decoder, np.ndarray]:
    secret, pairs, chosen = _dealt()
    words = np.frombuffer(secrets.token_bytes(16 * count), dtype=np.uint8).reshape(-1, 16)
    return Encoder(pairs, words, bit_loops(path)), Decoder(secret, chosen, count + EXTRA, bit_loops(path)), words


@pytest.mark.parametrize("path", [None, "cryptography"])
@pytest.mark.parametrize("count", [0, 431, 432, 433, 1500])
def test_rows_are_what_they_should_be(monkeypatch: pytest.MonkeyPatch, count: int, path: str | None) -> None:
    """Q = T ⊕ (C(D) ∧ s), and honest sums are right; in chunks of 512 rows."""
    monkeypatch.setattr(extension, "ROWS", 512)
    encoder, decoder, words = _ends(count, path)
    for rows in encoder.encode_rows():
        decoder.take_chunk(rows)
    decoder.check_answer(encoder.answer_challenge(decoder.draw_challenge()))
    expected = encoder.matrix[:count].copy()
    bit_loops().encode(words, code.code_tables() & decoder._secret, expected)
    assert np.array_equal(decoder.matrix[:count], expected)


@pytest.mark.parametrize("bits", [1, 40])
def test_rows_that_are_no_codewords_are_found(bits: int) -> None:
    """Found if s has a one where they deviate: where it has none, the deviation has no effect, and this is a guess."""
    passed = 0
    for _ in range(30):
        encoder, decoder, _ = _ends(400)
        touched = np.zeros(512, dtype=np.uint8)
        touched[:bits] = 1
        error = np.packbits(touched, bitorder="little")
        for rows in encoder.encode_rows():
            rows[7] ^= error
            decoder.take_chunk(rows)
        answer = encoder.answer_challenge(decoder.draw_challenge())
        guessed = not (decoder._secret & error).any()
        try:
            decoder.check_answer(answer)
            passed += 1
            assert guessed
        except MalformedError as refused:
            assert "is not made of codewords" in str(refused)  # noqa: PT017
            assert not guessed
    assert passed < 30 if bits == 1 else passed == 0


def test_sums_say_nothing_of_the_words() -> None:
    """The rows at the end hide them: sums over a set of zeros look like those of any other."""
    secret, pairs, chosen = _dealt()
    sums = []
    for _ in range(2):
        encoder = Encoder(pairs, np.zeros((300, 16), np.uint8), bit_loops())
        decoder = Decoder(secret, chosen, encoder.count, bit_loops())
        for rows in encoder.encode_rows():
            decoder.take_chunk(rows)
        sums.append(np.frombuffer(encoder.answer_challenge(bytes(32))[:400], dtype=np.uint8))
    ones = np.unpackbits(np.stack(sums)).mean()
    assert 0.45 < ones < 0.55
    assert not np.array_equal(*sums)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda rows: rows[:-1], "chunk of 91 rows where 92 are due|chunk of 479 rows"),
        (lambda rows: rows[:, :63], "not uint8"),
        (lambda rows: rows.astype(np.int16), "not uint8"),
        (lambda rows: np.concatenate([rows, rows]), "rows or more"),
        (lambda rows: rows.tobytes(), "not uint8"),
    ],
)
def test_malformed_rows_are_refused(damage: Callable[[np.ndarray], np.ndarray], match: str) -> None:
    encoder, decoder, _ = _ends(400)
    with pytest.raises(MalformedError, match=match):
        decoder.take_chunk(damage(next(encoder.encode_rows())))


def test_the_check_comes_once_and_in_its_place() -> None:
    encoder, decoder, _ = _ends(10)
    with pytest.raises(MalformedError, match="after 0 of 90 rows"):
        decoder.draw_challenge()
    for rows in encoder.encode_rows():
        decoder.take_chunk(rows)
    with pytest.raises(MalformedError, match="after the challenge"):
        decoder.check_answer(bytes(extension.ANSWER_BYTES))
    challenge = decoder.draw_challenge()
    with pytest.raises(MalformedError, match="31 bytes"):
        encoder.answer_challenge(challenge[:31])
    answer = encoder.answer_challenge(challenge)
    with pytest.raises(MalformedError, match="second challenge"):
        encoder.answer_challenge(challenge)
    with pytest.raises(MalformedError, match="sums of 2959 bytes"):
        decoder.check_answer(answer[:-1])
    for place in (0, 399, 400, 2959):
        changed = bytearray(answer)
        changed[place] ^= 0xFF
        with pytest.raises(MalformedError, match="is not made of codewords"):
            decoder.check_answer(bytes(changed))
    decoder.check_answer(answer)


# Both ends


def _session(nonce: bytes | None = None) -> Session:
    return Session(names=("bank", "shop"), nonce=nonce or secrets.token_bytes(16), rules_tag="v1", protocol="ot")


def _transfer(client: OTClient, server: OTServer) -> None:
    server.take_message(client.first_message)
    client.take_keys(server.make_choices())
    server.take_seed(client.seed)
    for rows in client.encode_rows():
        server.take_rows(rows)
    server.check_answer(client.answer_challenge(server.draw_challenge()))


def _intersect(mine: list[str], theirs: list[str], paths: tuple[str | None, str | None] = (None, None)) -> list[int]:
    session = _session()
    client = OTClient(mine, session, len(theirs), path=paths[0])
    server = OTServer(theirs, session, len(mine), path=paths[1])
    _transfer(client, server)
    for tokens in server.token_chunks():
        client.take_tokens(tokens)
    rows = client.find_common_rows()
    found = server.find_proven_rows(client.outputs.prove_rows(rows))
    client.outputs.require_receipt([rows], server.outputs.make_receipt([found]))
    assert [mine[row] for row in rows] == [theirs[row] for row in found]
    return rows.tolist()


@settings(max_examples=8, deadline=None)
@given(st.sets(st.text(min_size=1, max_size=90), max_size=30), st.sets(st.text(min_size=1, max_size=6), max_size=30))
def test_the_intersection_is_exact(mine: set[str], theirs: set[str]) -> None:
    one = sorted(mine, key=hash)
    other = sorted(theirs | set(one[::2]), key=hash)
    assert {one[row] for row in _intersect(one, other)} == mine & set(other)


def test_parties_on_different_paths_find_the_same() -> None:
    names = [path.name for path in paths_of_this_cpu()] + ["cryptography"]
    for one, other in zip(names, names[1:] + names[:1], strict=True):
        assert _intersect(["a", "b", "x" * 80], ["x" * 80, "c", "a"], (one, other)) == [0, 2]


def test_identifiers_hash_to_blake2s_at_any_length() -> None:
    """63, 64 and 65 bytes are on both sides of a block."""
    ids = ["", "a", *("x" * length for length in (63, 64, 65, 200))]
    found = hashed_identifiers(Identifiers.of_texts(ids), TAG, bit_loops())
    salt = hashlib.sha512(b"securevfl-psi identifiers" + TAG).digest()
    for text, digest in zip(ids, found, strict=True):
        right = hashlib.blake2s(text.encode(), salt=salt[:8], person=salt[8:16], node_offset=2)
        assert digest.tobytes() == right.digest()


def test_both_ends_make_the_same_outputs_and_others_no_path_to_them() -> None:
    """F at what is common is equal at both ends; at what is not, the client's matrix gives another value than the
    server's."""
    session = _session()
    client, server = OTClient(["a", "b"], session, 3), OTServer(["b", "c", "d"], session, 2)
    _transfer(client, server)
    list(server.token_chunks())
    encoder = client._encoder
    client.evaluate()
    assert np.array_equal(client.outputs._table[1], server.outputs._table[0])
    stranger = OTClient(["c", "d"], session, 3)
    stranger._encoder, stranger._seed, stranger._answered = encoder, client.seed, True
    stranger.evaluate()
    assert not (stranger.outputs._table == server.outputs._table[1:]).all(axis=1).any()


def test_hashes_of_identifiers_are_freed_once_the_outputs_are_known() -> None:
    """32 bytes an identifier, a gigabyte at 2^25: nothing reads them afterwards."""
    session = _session()
    client, server = OTClient(["a", "b"], session, 3), OTServer(["b", "c", "d"], session, 2)
    hashed = client._hashed_ids, server._hashed_ids
    assert all(rows.nbytes == 32 * len(rows) for rows in hashed)
    _transfer(client, server)
    list(server.token_chunks())
    client.evaluate()
    for party, rows in zip((client, server), hashed, strict=True):
        assert not any(value is rows for value in vars(party).values())


@pytest.mark.parametrize("shards", [1, 2, 1024])
@pytest.mark.parametrize(
    ("client", "server"), [(1, 1), (1 << 12, 1 << 24), (1 << 20, 1 << 20), (1 << 24, 1 << 24), (0, 0), (1 << 32, 5)]
)
def test_tokens_are_long_enough_and_no_longer(client: int, server: int, shards: int) -> None:
    """Any two of a run's identifiers share one with 2^-40 at most, by the union bound over all pairs of all shards."""
    bits = 8 * token_bytes(client, server, shards)
    pairs = Fraction((client + server) * (client + server - 1), 2) * shards
    assert pairs / 2**bits <= Fraction(1, 2**40)
    if bits > 64:
        assert pairs / 2 ** (bits - 8) > Fraction(1, 2**40)


def test_sizes_of_messages_are_those_of_the_protocol() -> None:
    assert token_bytes(1 << 20, 1 << 20) == 11
    assert row_count(1000) == okvs.slots_for(1000) + EXTRA
    assert wire._MOST[wire.Kind.SUMS] == extension.ANSWER_BYTES
    assert wire._MOST[wire.Kind.ROWS] == extension.ROWS * 64
    assert wire._MOST[wire.Kind.TRANSFERS] == TRANSFERS * 32


def test_tokens_come_in_a_secret_order_and_parts_of_an_output_are_apart() -> None:
    """In their own order tokens would show how their maker sorts its table; a receipt of tokens could be forged."""
    names = [f"{i:03d}" for i in range(200)]
    session = _session()
    client, server = OTClient(names, session, 200), OTServer(names, session, 200)
    _transfer(client, server)
    sent = np.concatenate(list(server.token_chunks()))
    table = server.outputs._table
    place = {token.tobytes(): number for number, token in enumerate(sent)}
    order = [place[token.tobytes()] for token in table[:, : sent.shape[1]]]
    assert sorted(order) == list(range(200))
    assert np.abs(np.corrcoef(order, np.arange(200))[0, 1]) < 0.35
    parts = {table[row, start : start + 16].tobytes() for row in range(200) for start in (0, 16, 32)}
    assert len(parts) == 600


def test_padding_equals_nothing() -> None:
    session = _session()
    client = OTClient(["a", "b"], session, 40, pad_to=50)
    server = OTServer(["b", "c"], session, 50, pad_to=40)
    _transfer(client, server)
    tokens = list(server.token_chunks())
    assert sum(map(len, tokens)) == 40
    for part in tokens:
        client.take_tokens(part)
    assert client.find_common_rows().tolist() == [1]


def test_steps_cannot_be_taken_twice_or_out_of_order() -> None:
    session = _session()
    client, server = OTClient(["a"], session, 1), OTServer(["a"], session, 1)
    for early, match in (
        (lambda: next(client.encode_rows()), "take_keys comes first"),
        (client.evaluate, "answer_challenge comes first"),
        (server.make_choices, "take_message comes first"),
        (lambda: server.take_rows(np.zeros((1, 64), np.uint8)), "out of order"),
        (lambda: next(server.token_chunks()), "check_answer comes first"),
        (lambda: server.find_proven_rows(np.zeros((1, 16), np.uint8)), "before they are known"),
        (client.find_common_rows, "answer_challenge comes first"),
    ):
        with pytest.raises(PSIError, match=match):
            early()
    with pytest.raises(MalformedError, match="before the server had all rows"):
        client.answer_challenge(bytes(32))
    client = OTClient(["a"], session, 1)
    _transfer(client, server)
    for again in (
        lambda: server.take_message(client.first_message),
        lambda: client.take_keys(server.make_choices()),
        lambda: server.take_seed(bytes(32)),
        lambda: next(client.encode_rows()),
        server.draw_challenge,
        lambda: server.check_answer(b""),
        lambda: client.answer_challenge(bytes(32)),
    ):
        with pytest.raises(PSIError, match="twice"):
            again()


def test_sets_that_cannot_be_used() -> None:
    session = _session()
    for make in (OTClient, OTServer):
        with pytest.raises(IdentifierError, match="doubled"):
            make(["a", "a"], session, 1)
        with pytest.raises(SetSizeError, match="sets of 3 and 1; at most 2"):
            make(["a", "b", "c"], session, 1, max_set_size=2)
        with pytest.raises(SetSizeError, match="sets of 1 and 3; at most 2"):
            make(["a"], session, 3, max_set_size=2)
        with pytest.raises(SetSizeError, match="at most 268435456: cut the sets into shards"):
            make(["a"], session, 1 << 29, max_set_size=1 << 30, pad_to=(1 << 28) + 1)
        with pytest.raises(SetSizeError, match="pad_to=1"):
            make(["a", "b"], session, 1, pad_to=1)
