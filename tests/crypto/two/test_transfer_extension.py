"""The extension of transfers: pads against a slow reference, the check of the chooser, and what is refused."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import secrets
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.errors import MalformedError, ReusedError
from securevfl_crypto.transfer import TransferChooser, TransferGiver, extension
from securevfl_crypto.transfer.extension import COLUMNS, MOST, SUMS, column_bytes
from securevfl_crypto.transfer.row_hash import PART, RowHash

TAG = b"session"


def ends(
    tag: bytes = TAG, paths: tuple[str | None, str | None] = (None, None)
) -> tuple[TransferChooser, TransferGiver]:
    chooser = TransferChooser(tag, path=paths[0])
    giver = TransferGiver(tag, chooser.first_message, path=paths[1])
    chooser.take_answer(giver.answer)
    return chooser, giver


class Known:
    """Both ends, over base keys that the test has: what a chooser that deviates knows, and what a giver looks at."""

    def __init__(self) -> None:
        self.chooser, self.giver = ends()
        self.pairs = [(secrets.token_bytes(16), secrets.token_bytes(16)) for _ in range(COLUMNS)]
        self.delta = delta_bits(self.giver)
        zeros, ones = [a for a, _ in self.pairs], [b for _, b in self.pairs]
        chosen = [pair[bit] for pair, bit in zip(self.pairs, self.delta.tolist(), strict=True)]
        self.chooser._streams = extension._Streams(zeros), extension._Streams(ones)
        self.giver._streams = extension._Streams(chosen)
        self._of_chooser = extension._Streams(zeros), extension._Streams(ones)
        self._of_giver = extension._Streams(chosen)

    def choose(self, choices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Columns and hashes as sent, the columns t_i, and the choices with those that hide their hash."""
        (columns, sums), _ = self.chooser.choose(choices)
        own, other = (streams.next_columns(columns.shape[1]) for streams in self._of_chooser)
        return columns, sums, own, (columns ^ own ^ other)[0]

    def giver_columns(self, size: int) -> np.ndarray:
        """What the giver's keys expand to."""
        return self._of_giver.next_columns(size)


def hash_again(columns: np.ndarray, packed: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The hashes of a first batch of 150 whose columns were changed."""
    hashed = extension._ColumnHash(TAG, 0, 150, columns)
    return np.concatenate([hashed.hash_choices(packed)[None], hashed.hash_columns(own)])


def bits(count: int) -> np.ndarray:
    return np.frombuffer(secrets.token_bytes(count), dtype=np.uint8) & 1


def delta_bits(giver: TransferGiver) -> np.ndarray:
    return (giver._masks[:, 0] & 1).astype(np.uint8)


def check_pads(choices: np.ndarray, chosen: np.ndarray, zeros: np.ndarray, ones: np.ndarray) -> None:
    expected = np.where(choices[:, None] == 1, ones, zeros)
    assert np.array_equal(chosen, expected)
    assert chosen.dtype == zeros.dtype == ones.dtype == np.uint64
    assert (zeros != ones).all()


# Pads


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 700), st.integers(1, 5)), min_size=1, max_size=4))
def test_choosers_get_the_pads_of_their_choices_over_batches(batches: list[tuple[int, int]]) -> None:
    chooser, giver = ends()
    seen: set[int] = set()
    total = 0
    for count, words in batches:
        choices = bits(count)
        message, chosen = chooser.choose(choices, words)
        zeros, ones = giver.give(message, count, words)
        check_pads(choices, chosen, zeros, ones)
        assert chosen.shape == (count, words)
        seen |= {*zeros.ravel().tolist(), *ones.ravel().tolist()}
        total += 2 * count * words
    assert len(seen) == total  # no pad of any batch, choice or word came twice


@pytest.mark.parametrize("count", [1, 127, 128, 129, 2047, 2048, 2049, MOST])
def test_batches_of_all_sizes_take_16_bytes_a_transfer(count: int) -> None:
    chooser, giver = ends()
    choices = bits(count)
    message, chosen = chooser.choose(choices)
    check_pads(choices, chosen, *giver.give(message, count))
    assert sum(array.nbytes for array in message) <= 16 * (count + 127) + 128 * 16 + 129 * 16


@pytest.mark.parametrize("paths", [("cryptography", None), (None, "cryptography")])
def test_parties_on_different_paths_have_the_same_pads(paths: tuple[str | None, str | None]) -> None:
    chooser, giver = ends(paths=paths)
    choices = bits(3000)
    message, chosen = chooser.choose(choices, 2)
    check_pads(choices, chosen, *giver.give(message, 3000, 2))


@pytest.mark.parametrize("part", [64, PART])
def test_a_batch_is_what_the_protocol_defines(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """Against bits in Python: columns from the keys, rows bit by bit, and each pad by two blocks of AES."""
    monkeypatch.setattr(extension, "PART", part)
    known = Known()
    chooser, giver, keys = known.chooser, known.giver, known.pairs
    secret = known.delta.tolist()
    count, words = 150, 3
    choices = bits(count)
    message, chosen = chooser.choose(choices, words)
    zeros, ones = giver.give(message, count, words)
    size = column_bytes(count)
    assert size == 48

    def expand(key: bytes) -> int:
        stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        return int.from_bytes(stream.update(bytes(size)), "little")

    def hash_row(row: int, number: int) -> list[int]:
        def permute(block: int) -> int:
            return int.from_bytes(cipher.update(block.to_bytes(16, "little")), "little")

        inner = permute(row)
        blocks = [permute(inner ^ (number | block << 64)) ^ inner for block in range(2)]
        return [blocks[0] % 2**64, blocks[0] >> 64, blocks[1] % 2**64]

    columns = [int.from_bytes(column.tobytes(), "little") for column in message[0]]
    sent = {a ^ b ^ column for (a, b), column in zip(((expand(a), expand(b)) for a, b in keys), columns, strict=True)}
    assert len(sent) == 1  # the same choices in each column
    packed = sent.pop()
    assert [packed >> j & 1 for j in range(count)] == choices.tolist()
    key = extension._ColumnHash(TAG, 0, count, message[0]).row_key
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
    difference = sum(bit << i for i, bit in enumerate(secret))
    expanded = [expand(a) for a, _ in keys]
    for j in (0, 1, 127, 128, 149):
        row = sum((column >> j & 1) << i for i, column in enumerate(expanded))
        assert hash_row(row, j) == chosen[j].tolist()
        row ^= difference * int(choices[j])  # the giver's row of choice 0
        assert hash_row(row, j) == zeros[j].tolist()
        assert hash_row(row ^ difference, j) == ones[j].tolist()


def test_keys_of_a_batch_depend_on_all_that_it_consists_of() -> None:
    columns = np.frombuffer(secrets.token_bytes(COLUMNS * 32), dtype=np.uint8).reshape(COLUMNS, 32)
    other = columns.copy()
    other[127, 31] ^= 128
    found = [
        extension._ColumnHash(*arguments).row_key
        for arguments in [
            (TAG, 0, 100, columns), (b"x", 0, 100, columns), (TAG, 1, 100, columns), (TAG, 0, 99, columns),
            (TAG, 0, 100, other),
        ]
    ]  # fmt: skip
    assert len(set(found)) == 5


# The check


def polynomial(blocks: list[int], point: int) -> int:
    """GHASH's polynomial without its last step for the length, NIST SP 800-38D, algorithm 1: bit 0 is the highest."""

    def times(a: int, b: int) -> int:
        product = 0
        for i in range(127, -1, -1):
            product ^= b * (a >> i & 1)
            b = b >> 1 ^ 0xE1 << 120 if b & 1 else b >> 1
        return product

    total = 0
    for block in blocks:
        total = times(total ^ block, point)
    return times(total, point)


def test_the_hash_of_columns_is_the_polynomial_of_gcm() -> None:
    size = column_bytes(300)
    columns = np.frombuffer(secrets.token_bytes(COLUMNS * size), dtype=np.uint8).reshape(COLUMNS, size)
    hashed = extension._ColumnHash(TAG, 0, 300, columns)
    digest = hashlib.sha256(b"securevfl extended transfers 1" + len(TAG).to_bytes(8, "big") + TAG)
    digest.update(bytes(8) + (300).to_bytes(8, "big") + columns.tobytes())
    key = digest.digest()[:16]
    point = int.from_bytes(Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(bytes(16)), "big")  # noqa: S305
    data = columns[5].tobytes()
    right = polynomial([int.from_bytes(data[i : i + 16], "big") for i in range(0, size, 16)], point)
    assert int.from_bytes(hashed.hash_choices(columns[5]).tobytes(), "big") == right
    both = hashed.hash_columns(columns)
    assert np.array_equal(both[5] ^ both[6], hashed.hash_choices(columns[5] ^ columns[6]))


@pytest.mark.parametrize("claim", [0, 1])
@pytest.mark.parametrize("position", [0, 149, 383])
def test_a_column_with_other_choices_is_caught_unless_the_chooser_guessed_its_bit(claim: int, position: int) -> None:
    """An error in one column passes where the bit of Δ is what the chooser's hashes claim: with probability 1/2, and
    then this bit is what the chooser learns."""
    error = np.zeros(column_bytes(150), np.uint8)
    error[position // 8] = 1 << position % 8
    for column in (0, 63, 127):
        known = Known()
        columns, _, own, packed = known.choose(bits(150))
        columns[column] ^= error
        sums = hash_again(columns, packed, own)
        if claim:
            sums[1 + column] ^= extension._ColumnHash(TAG, 0, 150, columns).hash_choices(error)
        if known.delta[column] == claim:
            known.giver.give([columns, sums], 150)
        else:
            with pytest.raises(MalformedError, match="differ between columns"):
                known.giver.give([columns, sums], 150)


@pytest.mark.parametrize("others", [40, 64, 88])
@pytest.mark.parametrize("claimed", [0, 1])
def test_a_chooser_whose_columns_use_two_choice_vectors_is_caught(others: int, claimed: int) -> None:
    """Whichever of the two it hashes, the other columns pass with probability 2^-40 at most."""
    known = Known()
    columns, _, own, packed = known.choose(bits(150))
    other = np.frombuffer(secrets.token_bytes(columns.shape[1]), dtype=np.uint8)
    columns[:others] ^= packed ^ other
    with pytest.raises(MalformedError, match="differ between columns"):
        known.giver.give([columns, hash_again(columns, other if claimed else packed, own)], 150)


def test_rows_that_cancel_in_a_sum_of_rows_are_caught() -> None:
    """Two rows with the same error: a check by sums of rows alone could miss them, one of columns does not."""
    known = Known()
    columns, _, own, packed = known.choose(bits(150))
    error = np.frombuffer(secrets.token_bytes(COLUMNS), dtype=np.uint8) & 1
    columns[:, 0] ^= error * np.uint8(0b11)  # rows 0 and 1
    with pytest.raises(MalformedError, match="differ between columns"):
        known.giver.give([columns, hash_again(columns, packed, own)], 150)


@pytest.mark.parametrize("row", [0, 1, 128])
def test_wrong_hashes_are_caught_and_nothing_is_taken_afterwards(row: int) -> None:
    chooser, giver = ends()
    (columns, sums), _ = chooser.choose(bits(150))
    sums[row, 15] ^= 1
    assert delta_bits(giver).any()
    with pytest.raises(MalformedError, match="does not follow the protocol"):
        giver.give([columns, sums], 150)
    message, _ = chooser.choose(bits(150))
    with pytest.raises(ReusedError, match="failed its check"):
        giver.give(message, 150)


def test_a_batch_cannot_come_twice() -> None:
    chooser, giver = ends()
    message, _ = chooser.choose(bits(150))
    giver.give(message, 150)
    with pytest.raises(MalformedError, match="differ between columns"):
        giver.give(message, 150)


# What the giver sees


def deviation(values: np.ndarray, kinds: int = 256) -> float:
    """Of counts from uniform ones: χ² in standard deviations above its mean."""
    counts = np.bincount(values.ravel(), minlength=kinds)
    expected = counts.sum() / kinds
    return float((((counts - expected) ** 2).sum() / expected - (kinds - 1)) / np.sqrt(2 * (kinds - 1)))


def test_all_128_bits_of_a_givers_secret_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """176 secrets span all 128 dimensions, but for a chance of 2^-48; with fewer random bits in each they do not."""
    drawn: list[int] = []

    def chosen(tag: bytes, choices: np.ndarray, message: bytes, *, domain: bytes) -> SimpleNamespace:
        drawn.append(int.from_bytes(np.packbits(choices, bitorder="little").tobytes(), "little"))
        return SimpleNamespace(answer=b"", keys=[bytes(16)] * COLUMNS)

    monkeypatch.setattr(extension, "BaseChooser", chosen)
    for _ in range(176):
        giver = TransferGiver(TAG, b"")
        assert int.from_bytes(giver._shift[0].tobytes(), "little") == drawn[-1]
        assert np.array_equal(delta_bits(giver), [drawn[-1] >> i & 1 for i in range(COLUMNS)])
    echelon: dict[int, int] = {}
    for vector in drawn:
        while vector and (other := echelon.get(vector.bit_length())):
            vector ^= other  # noqa: PLW2901
        if vector:
            echelon[vector.bit_length()] = vector
    assert len(echelon) == 128


@pytest.mark.parametrize("choice", [0, 1])
def test_what_the_giver_receives_is_uniform(choice: int) -> None:
    """Columns as they are sent, with the giver's own streams removed, and with the choices removed that it guesses."""
    known = Known()
    columns, _, _, _ = known.choose(np.full(4000, choice, np.uint8))
    own = known.giver_columns(columns.shape[1])
    for view in (columns, columns ^ own, columns ^ own ^ np.uint8(255 * choice)):
        for column in (view[0], view[127], view):
            assert deviation(column) < 8
        assert deviation(view[:, :2]) < 8
        assert deviation(view[:, -16:]) < 8


def test_the_hash_of_choices_shows_no_guess() -> None:
    """For equal choices it is another number each time, and uniform: a guess of all choices predicts nothing."""
    chooser, _ = ends()
    found = []
    for _ in range(300):
        (columns, sums), _ = chooser.choose(np.ones(128, np.uint8))
        guess = np.zeros(columns.shape[1], np.uint8)
        guess[:16] = 255
        hashed = extension._ColumnHash(TAG, chooser._batch - 1, 128, columns).hash_choices(guess)
        found.append(sums[0] ^ hashed)
    assert len({row.tobytes() for row in found}) == 300
    assert deviation(np.stack(found)) < 8


def test_pads_are_uniform_and_no_two_are_related() -> None:
    chooser, giver = ends()
    message, _ = chooser.choose(bits(5000), 3)
    zeros, ones = giver.give(message, 5000, 3)
    for view in (zeros, ones, zeros ^ ones, zeros[1:] ^ zeros[:-1], zeros[:, :1] ^ zeros[:, 1:2]):
        for place in np.ascontiguousarray(view).view(np.uint8).reshape(-1, 8).T:
            assert deviation(place) < 8
    assert len(np.unique(zeros ^ ones)) == 15000  # Δ itself would be the same everywhere


def test_the_tweak_is_not_linear_in_the_row() -> None:
    """Rows and numbers with x ⊕ i = x' ⊕ i', which a chooser can look for, have unrelated pads."""
    hashed = RowHash(bytes(16))
    rows = np.zeros((256, 2), dtype=np.uint64)
    rows[:, 0] = np.arange(256, dtype=np.uint64)
    pads = np.empty((256, 2), dtype=np.uint64)
    hashed.hash_rows(rows, pads)
    assert len(np.unique(pads ^ rows, axis=0)) == len(np.unique(pads, axis=0)) == 256


# What is refused


@pytest.mark.parametrize(
    "choices",
    [np.zeros(3, np.int64), np.zeros((2, 2), np.uint8), np.array([0, 2], np.uint8), [0, 1], np.zeros(0, np.uint8)],
)
def test_choices_that_are_none(choices: np.ndarray) -> None:
    chooser, _ = ends()
    with pytest.raises(MalformedError):
        chooser.choose(choices)


@pytest.mark.parametrize(("count", "words"), [(0, 1), (MOST + 1, 1), (5, 0), (5, -1)])
def test_batches_and_pads_have_bounds(count: int, words: int) -> None:
    chooser, giver = ends()
    message, _ = chooser.choose(bits(5))
    with pytest.raises(MalformedError):
        giver.give(message, count, words)
    if count:
        with pytest.raises(MalformedError):
            chooser.choose(np.zeros(count, np.uint8), words)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("damage", ["type", "rows", "width", "rank", "list"])
def test_messages_of_other_shapes_are_refused(which: int, damage: str) -> None:
    chooser, giver = ends()
    message, _ = chooser.choose(bits(150))
    right = [array.copy() for array in message]
    array = message[which]
    message[which] = {
        "type": array.astype(np.int8), "rows": array[1:], "width": array[:, 1:], "rank": array[None],
        "list": array.tolist(),
    }[damage]  # fmt: skip
    with pytest.raises(MalformedError, match="is not uint8"):
        giver.give(message, 150)
    giver.give(right, 150)  # nothing was used up


def test_a_message_of_another_length_is_refused() -> None:
    chooser, giver = ends()
    message, _ = chooser.choose(bits(128))
    with pytest.raises(MalformedError, match="is not uint8"):
        giver.give(message, 129)
    with pytest.raises(MalformedError, match="differ between columns"):
        giver.give(message, 127)  # of the same shape, but the digest contains the count
    assert message[1].shape == (SUMS, 16)


def test_steps_come_once_and_in_their_order() -> None:
    chooser = TransferChooser(TAG)
    with pytest.raises(ReusedError, match="out of order"):
        chooser.choose(bits(3))
    giver = TransferGiver(TAG, chooser.first_message)
    with pytest.raises(MalformedError, match="4095 bytes"):
        chooser.take_answer(giver.answer[:-1])
    chooser.take_answer(giver.answer)
    with pytest.raises(ReusedError, match="answered before"):
        chooser.take_answer(giver.answer)


def test_sessions_with_other_tags_share_no_pads() -> None:
    chooser = TransferChooser(TAG)
    giver = TransferGiver(b"another", chooser.first_message)
    chooser.take_answer(giver.answer)
    message, _ = chooser.choose(bits(10))
    with pytest.raises(MalformedError, match="differ between columns"):
        giver.give(message, 10)


@pytest.mark.parametrize("which", [0, 1])
def test_ends_cannot_be_copied_or_stored(which: int) -> None:
    end = ends()[which]
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ReusedError, match="cannot be copied"):
            copied(end)


def test_a_fork_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    chooser, giver = ends()
    message, _ = chooser.choose(bits(3))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        found = 0
        for call in (lambda: chooser.choose(bits(3)), lambda: giver.give(message, 3)):
            try:
                call()
            except ReusedError as error:
                found += "copied by a fork" in str(error)
        os.write(write, bytes([found]))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1) == b"\x02"
    giver.give(message, 3)
