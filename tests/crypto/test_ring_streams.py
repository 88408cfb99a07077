"""Streams: the same at both ends, each place once, and what a repeated place would give away."""

from __future__ import annotations

import copy
import os
import pickle
import secrets
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from securevfl_crypto import MalformedError, ReusedError
from securevfl_crypto.ring import Exchange, Stream, decode_words, encode_words
from support.ring_paths import NAMES, taken


@pytest.fixture(params=NAMES)
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every path of this machine."""
    with taken(request.param):
        yield request.param


KEY = bytes(range(32))


def _pair(label: str = "job 7: masks") -> tuple[Stream, Stream]:
    bank, shop = Exchange("bank"), Exchange("shop")
    return bank.shared_stream("shop", shop.public_key, label), shop.shared_stream("bank", bank.public_key, label)


@pytest.mark.usefixtures("path")
def test_both_ends_draw_the_same() -> None:
    one, other = _pair()
    assert (one.draw_words(0, (3, 4)) == other.draw_words(0, (3, 4))).all()
    assert (one.draw_octets(2**64 - 1, 9) == other.draw_octets(2**64 - 1, 9)).all()
    assert (one.draw_residues(5, 1000, 67) == other.draw_residues(5, 1000, 67)).all()


def test_a_place_is_the_keystream_from_its_counter_on() -> None:
    """Known answer: AES-256-CTR of `cryptography`, set up by hand (NIST SP 800-38A, F.5.5 gives the mode)."""
    for use in (0, 1, 2**64 - 1):
        counter = use.to_bytes(8, "big") + bytes(8)
        right = Cipher(algorithms.AES256(KEY), modes.CTR(counter)).encryptor().update(bytes(80))
        assert Stream(KEY).draw_octets(use, 80).tobytes() == right
        assert Stream(KEY).draw_words(use, 10).tolist() == np.frombuffer(right, "<u8").tolist()


@pytest.mark.usefixtures("path")
def test_residues_are_octets_without_those_that_would_bias() -> None:
    for modulus in (2, 66, 67, 255, 256):
        raw = Stream(KEY).draw_octets(3, 5000)
        right = [int(x) % modulus for x in raw if x < 256 // modulus * modulus]
        for count in (0, 1, 300, 2000):
            assert Stream(KEY).draw_residues(3, count, modulus).tolist() == right[:count]


@pytest.mark.usefixtures("path")
def test_residues_are_uniform() -> None:
    """χ² over 66 degrees of freedom; a plain `octet % 67` gives more than 10 000 here."""
    found = Stream(KEY).draw_residues(0, 200_000, 67)
    counts = np.bincount(found, minlength=67)
    assert len(counts) == 67
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 130


def test_a_place_serves_once() -> None:
    stream = Stream(KEY)
    for use in (0, 1, 5, 3, 2**64 - 1):
        stream.draw_words(use, 1)
    for use in (0, 1, 5, 3, 2**64 - 1):
        said = f"place {use} of a stream was used before"
        with pytest.raises(ReusedError, match=said):
            stream.draw_words(use, 1)
        with pytest.raises(ReusedError, match=said):
            stream.draw_octets(use, 1)
        with pytest.raises(ReusedError, match=said):
            stream.draw_residues(use, 1, 67)
    stream.draw_words(2, 1)
    stream.draw_words(4, 0)  # also where nothing was drawn
    with pytest.raises(ReusedError):
        stream.draw_words(4, 1)


def test_counting_upwards_keeps_no_list() -> None:
    stream = Stream(KEY)
    for use in range(1000):
        stream.draw_octets(use, 1)
    assert stream._below == 1000
    assert not stream._beyond


def test_what_a_repeated_place_would_give_away() -> None:
    """A process restarts, derives the same key again and counts from 0 again, and its batch has changed: the peer that
    receives the masked words subtracts, and reads the change of the secret in the clear. With a fresh exchange the
    difference is uniform."""
    before, after = encode_words(np.array([0.5, -3.0, 7.25])), encode_words(np.array([0.5, 2.0, 7.0]))
    sent = before - Stream(KEY).draw_words(0, 3)
    again = after - Stream(KEY).draw_words(0, 3)
    assert decode_words(again - sent).tolist() == [0.0, 5.0, -0.25]
    fresh = [secret - _pair()[0].draw_words(0, 3) for secret in (before, after)]
    assert (np.abs(decode_words(fresh[1] - fresh[0])) > 100).any()


def test_what_repeated_shares_of_zero_would_give_away() -> None:
    """The same with the share of zero that hides a product: P2 receives P0's summand of x w twice, once for x and once
    for x + 1 at a known row. The difference is w₀ + w₁; P2 holds w₂, and with it all of w."""
    draw = Stream.with_fresh_key()
    x, w = encode_words(np.array([4.0, -1.0, 9.5])), encode_words(np.array([0.75, -2.0, 3.0]))
    x1, x2, w1, w2 = (draw.draw_words(use, 3) for use in range(4))
    w0 = w - w1 - w2

    def summand(value: np.ndarray, zero: np.ndarray) -> np.ndarray:
        x0 = value - x1 - x2
        return np.asarray(x0 * (w0 + w1) + x1 * w0 + zero)

    difference = summand(x + np.uint64(1), Stream(KEY).draw_words(0, 3)) - summand(x, Stream(KEY).draw_words(0, 3))
    assert decode_words(difference + w2).tolist() == [0.75, -2.0, 3.0]
    stream = Stream(KEY)
    first = summand(x, stream.draw_words(0, 3))
    with pytest.raises(ReusedError):
        summand(x + np.uint64(1), stream.draw_words(0, 3))
    assert (summand(x + np.uint64(1), stream.draw_words(1, 3)) - first + w2 != w).all()


def test_incarnations_names_and_labels_have_streams_of_their_own() -> None:
    bank, shop, third = Exchange("bank"), Exchange("shop"), Exchange("third")
    seen = {
        bank.shared_stream("shop", shop.public_key, "masks").draw_octets(0, 32).tobytes(),
        bank.shared_stream("shop", shop.public_key, "zeros").draw_octets(0, 32).tobytes(),
        bank.shared_stream("third", shop.public_key, "zeros of another").draw_octets(0, 32).tobytes(),
        bank.shared_stream("third", third.public_key, "masks").draw_octets(0, 32).tobytes(),
        Exchange("bank").shared_stream("shop", shop.public_key, "masks").draw_octets(0, 32).tobytes(),
        Stream.with_fresh_key().draw_octets(0, 32).tobytes(),
        Stream.with_fresh_key().draw_octets(0, 32).tobytes(),
    }
    assert len(seen) == 7
    one, other = (
        shop.shared_stream("bank", bank.public_key, "other"),
        bank.shared_stream("shop", shop.public_key, "other"),
    )
    assert (one.draw_octets(0, 32) == other.draw_octets(0, 32)).all()
    unnamed = Exchange("bank").shared_stream("shop, bank", shop.public_key, "masks")
    assert unnamed.draw_octets(0, 32).tobytes() not in seen


@pytest.mark.parametrize("name", ["agent", "third"])  # before and after the shop's in the order of names
def test_parties_that_know_each_other_by_other_names_share_no_stream(name: str) -> None:
    """Both keys and the label are right, but one of the two was told that it talks to somebody else."""
    bank, shop = Exchange("bank"), Exchange("shop")
    mine = bank.shared_stream("shop", shop.public_key, "masks").draw_octets(0, 32)
    theirs = shop.shared_stream(name, bank.public_key, "masks").draw_octets(0, 32)
    assert mine.tobytes() != theirs.tobytes()


def test_a_stream_is_derived_once() -> None:
    bank, shop = Exchange("bank"), Exchange("shop")
    bank.shared_stream("shop", shop.public_key, "masks")
    with pytest.raises(ReusedError, match="'masks' with 'shop' was made before"):
        bank.shared_stream("shop", shop.public_key, "masks")


def test_bad_public_keys_are_refused() -> None:
    bank = Exchange("bank")
    for key, said in ((b"short", "not 32 bytes"), (bytes(32), "small order"), (bank.public_key, "own name or public")):
        with pytest.raises(MalformedError, match=said):
            bank.shared_stream("shop", key, "masks")
    with pytest.raises(MalformedError, match="own name"):
        bank.shared_stream("bank", Exchange("shop").public_key, "masks")


def test_streams_are_not_copied() -> None:
    for thing in (Stream(KEY), Exchange("bank")):
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(ReusedError, match="cannot be copied"):
                way(thing)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_does_not_repeat_the_parents_stream() -> None:
    """In a process of its own, without threads, because a fork of this one could hang."""
    code = (
        "import os, sys\n"
        "from securevfl_crypto import ReusedError\n"
        "from securevfl_crypto.ring import Stream\n"
        "stream = Stream(bytes(32))\n"
        "child = os.fork()\n"
        "if child:\n"
        "    stream.draw_words(0, 1)\n"
        "    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "try:\n"
        "    stream.draw_words(0, 1)\n"
        "except ReusedError as error:\n"
        "    os._exit(7 if 'fork' in str(error) else 8)\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 7


def test_bad_arguments_are_refused() -> None:
    for key in (b"", bytes(31), "a" * 32, bytearray(32)):
        with pytest.raises(MalformedError, match="32 bytes are needed"):
            Stream(key)  # type: ignore[arg-type]
    stream = Stream(secrets.token_bytes(32))
    for use in (-1, 2**64, 1.0, np.uint64(3)):
        with pytest.raises(MalformedError, match="place"):
            stream.draw_words(use, 1)  # type: ignore[arg-type]
    with pytest.raises(MalformedError, match="a size of -1"):
        stream.draw_words(0, (2, -1))
    with pytest.raises(MalformedError, match="a size of -3"):
        stream.draw_octets(0, -3)
    for modulus in (0, 1, 257):
        with pytest.raises(MalformedError, match="2 to 256"):
            stream.draw_residues(0, 1, modulus)
    stream.draw_words(0, 1)  # a refused call uses no place
