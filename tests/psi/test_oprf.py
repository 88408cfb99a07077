"""The oblivious pseudo-random function: both sides compute the same function, and hostile arrays are refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_psi import IdentifierError, MalformedError, PSIError, SetSizeError, chunks, oprf
from securevfl_psi.group import Scalar, hash_to_group

P = 2**255 - 19
DST = b"test"


def _run(ids: list[str], key: Scalar, length: int = 16) -> np.ndarray:
    client = oprf.OPRFClient(ids, DST, length=length)
    server = oprf.OPRFServer(DST, key, length=length)
    return client.compute_outputs(server.evaluate(client.blind_set(), len(ids)))


def _points(*numbers: int) -> np.ndarray:
    return np.frombuffer(b"".join(u.to_bytes(32, "little") for u in numbers), dtype=np.uint8).reshape(-1, 32)


@settings(max_examples=25)
@given(st.lists(st.text(max_size=6), unique=True, max_size=10), st.integers(1, 64))
def test_client_and_server_compute_the_same_function(ids: list[str], length: int) -> None:
    key = Scalar()
    mine = _run(ids, key, length)
    assert len({row.tobytes() for row in mine}) == len(ids) or length < 8
    assert mine.shape == (len(ids), length)
    assert (mine == oprf.OPRFServer(DST, key, length=length).compute_outputs(ids)).all()
    assert (mine == _run(ids, key, length)).all(), "the blind has no influence"


def test_the_function_is_the_one_described() -> None:
    """k·H1(x) by OpenSSL's X25519 on RFC 9380's point, H2 as framed in RFC 9497, section 3.3.1."""
    secret, x, tag = bytes(range(32)), "é".encode(), DST
    point = X25519PublicKey.from_public_bytes(hash_to_group([x], tag).tobytes())
    element = X25519PrivateKey.from_private_bytes(secret).exchange(point)
    framed = len(tag).to_bytes(2, "big") + tag + b"\x00\x02" + x + b"\x00\x20" + element + b"Finalize"
    expected = hashlib.sha512(framed).digest()
    assert oprf.OPRFServer(DST, Scalar(secret), length=64).compute_outputs(["é"]).tobytes() == expected


def test_another_key_domain_or_identifier_gives_another_output() -> None:
    key = Scalar()
    outputs = [
        oprf.OPRFServer(DST, key).compute_outputs(["a"]),
        oprf.OPRFServer(DST, key).compute_outputs(["b"]),
        oprf.OPRFServer(b"other", key).compute_outputs(["a"]),
        oprf.OPRFServer(DST).compute_outputs(["a"]),
    ]
    assert len({out.tobytes() for out in outputs}) == 4


def test_two_clients_blind_differently() -> None:
    one, other = (np.concatenate(list(oprf.OPRFClient(["a", "b"], DST).blind_set())) for _ in range(2))
    assert not (one == other).all(axis=1).any()


def test_several_servers_evaluate_one_blinded_set() -> None:
    client = oprf.OPRFClient(["a", "b", "c"], DST, servers=("one", "two"))
    blinded = list(client.blind_set())
    for name in ("two", "one"):
        server = oprf.OPRFServer(DST)
        assert (
            client.compute_outputs(server.evaluate(blinded, 3), name) == server.compute_outputs(["a", "b", "c"])
        ).all()
    with pytest.raises(PSIError, match="second time"):
        client.compute_outputs([], "one")
    with pytest.raises(PSIError, match="not one of the servers"):
        client.compute_outputs([], "three")


def test_sets_larger_than_a_chunk_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 4)
    ids = [str(i) for i in range(11)]
    client, server = oprf.OPRFClient(ids, DST), oprf.OPRFServer(DST)
    sent: list[int] = []

    def wire() -> Iterator[np.ndarray]:
        for chunk in client.blind_set():
            sent.append(len(chunk))
            yield chunk

    answers = server.evaluate(wire(), 11)
    assert sent == [], "nothing is computed before it is asked for"
    first = next(answers)
    assert sent == [4], "one chunk is answered before the next is made"
    outputs = client.compute_outputs([first, *answers])
    assert sent == [4, 4, 3]
    assert (outputs == server.compute_outputs(ids)).all()


def test_steps_are_taken_once_and_in_order() -> None:
    client, server = oprf.OPRFClient(["a"], DST), oprf.OPRFServer(DST)
    with pytest.raises(PSIError, match="out of order"):
        client.compute_outputs([])
    blinded = list(client.blind_set())
    with pytest.raises(PSIError, match="twice"):
        client.blind_set()
    server.evaluate(blinded, 1)
    with pytest.raises(PSIError, match="twice"):
        server.evaluate(blinded, 1)


SMALL = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    P - 1,
]


@pytest.mark.parametrize("u", SMALL)
def test_points_of_small_order_are_refused_on_both_sides(u: int) -> None:
    """The constants are of small order: OpenSSL's X25519 refuses them too."""
    with pytest.raises(ValueError, match=r"."):
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(u.to_bytes(32, "little")))
    with pytest.raises(MalformedError, match="small order"):
        chunks.check_points(_points(9, u), "the set")
    with pytest.raises(MalformedError, match="small order"):
        list(oprf.OPRFServer(DST).evaluate([_points(9, u)], 2))
    client = oprf.OPRFClient(["a", "b"], DST)
    list(client.blind_set())
    with pytest.raises(MalformedError, match="small order"):
        client.compute_outputs([_points(9, u)])


@pytest.mark.parametrize("u", [P, P + 1, P + 9, 2**255 - 1, 2**255 + 9, 2**256 - 1])
def test_coordinates_that_are_not_canonical_are_refused(u: int) -> None:
    with pytest.raises(MalformedError, match="coordinate"):
        list(oprf.OPRFServer(DST).evaluate([_points(9, u)], 2))


def test_the_largest_canonical_coordinates_are_accepted() -> None:
    chunks.check_points(_points(P - 2, P - 3, 2**254, 2**64, 2), "the set")


@pytest.mark.parametrize(
    ("make", "count", "error"),
    [
        (lambda: [_points(9, 10)], 3, SetSizeError),
        (lambda: [_points(9, 10)], 1, SetSizeError),
        (lambda: [], 1, SetSizeError),
        (lambda: [], -1, MalformedError),
        (lambda: [], 2.0, MalformedError),
        (lambda: [], True, MalformedError),
        (lambda: [], 2**60, SetSizeError),
        (lambda: [_points(9, 9)], 2, MalformedError),
        (lambda: [_points(9, 10), _points(11, 9)], 4, MalformedError),
        (lambda: [_points(9)[:0], _points(9)], 1, MalformedError),
        (lambda: [np.zeros((2, 31), np.uint8)], 2, MalformedError),
        (lambda: [np.zeros((2, 32), np.float64)], 2, MalformedError),
        (lambda: [np.zeros(64, np.uint8)], 2, MalformedError),
        (lambda: [_points(9).tobytes()], 1, MalformedError),
        (lambda: [None], 1, MalformedError),
        (lambda: [np.zeros((chunks.CHUNK + 1, 32), np.uint8)], chunks.CHUNK + 1, MalformedError),
    ],
)
def test_hostile_sets_are_refused(make: Callable[[], list[np.ndarray]], count: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        list(oprf.OPRFServer(DST).evaluate(make(), count))


def test_a_point_twice_is_found_before_the_last_chunk_is_answered() -> None:
    answers = oprf.OPRFServer(DST).evaluate([_points(9, 10), _points(11, 9)], 4)
    assert len(next(answers)) == 2
    with pytest.raises(MalformedError, match="twice"):
        next(answers)


def test_too_few_answers_are_refused() -> None:
    client = oprf.OPRFClient(["a", "b"], DST)
    blinded = np.concatenate(list(client.blind_set()))
    with pytest.raises(SetSizeError, match="1 of 2"):
        client.compute_outputs(oprf.OPRFServer(DST).evaluate([blinded[:1]], 1))


def test_own_identifiers_are_checked() -> None:
    with pytest.raises(IdentifierError, match="doubled"):
        oprf.OPRFClient(["a", "a"], DST)
    with pytest.raises(IdentifierError):
        oprf.OPRFServer(DST).compute_outputs(["a", "a"])
    with pytest.raises(SetSizeError):
        oprf.OPRFClient(["a", "b"], DST, max_set_size=1)
    for length in (0, 65):
        with pytest.raises(PSIError):
            oprf.OPRFClient([], DST, length=length)


def test_gather_joins_what_split_cuts() -> None:
    array = np.arange(50, dtype=np.uint8).reshape(10, 5)
    parts = [array[:3], array[3:]]
    assert (chunks.join_chunks(parts, 10, 5, "it") == array).all()
    assert list(chunks.split(array[:0])) == []
    assert chunks.join_chunks([], 0, 5, "it").shape == (0, 5)
    for count in (9, 11):
        with pytest.raises(SetSizeError):
            chunks.join_chunks(parts, count, 5, "it")
    with pytest.raises(MalformedError):
        chunks.join_chunks([array.astype(np.int16)], 10, 5, "it")
