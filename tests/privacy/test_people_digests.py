"""Digests of people: the same in each way of computing them, and an index that finds each."""

from __future__ import annotations

from hashlib import blake2b, blake2s
from pathlib import Path

import numpy as np
import pytest

from securevfl.data import Names
from securevfl.privacy import OpenedValues, ResultBook
from securevfl.privacy import result_lines as lines
from securevfl.privacy.people_digests import DIGEST, PeopleIndex, digest_people

SECRET = bytes(range(32))
OLD_KEY = "d700723db2a7ac12e3a442dd9ebbe0254c79bc993e6f37499a57f8f7789faa61"
OLD = """\
4b5a94fd25352959039aa546cb0b9a87 {"line":"results","party":"shop","after":""}
95b06da891be648ffaa515e2ff4430ed {"line":"people","people":"dee6acef5e3c9feeea3149e8",\
"digests":"eAEBJADb/17RjSniBpH/RKhoO+/4O+hpGyc/MoRJGzSoiqjaNxS+xCXWtEPOEV8="}
f0749462f0393fc20ab24a5bc500dc28 {"line":"run","run":"8787afd4d32809a8","asker":"bank",\
"people":"dee6acef5e3c9feeea3149e8"}
b112527ada566281e6bb9412d9ccf414 {"line":"answered","run":"8787afd4d32809a8","rows":"eAFjYGBgYAJiAAAQAAM=","numbers":3}
edeb1474b65e05f3b185456ced102b3f {"line":"people","people":"6b5d717edcd67965fee41df4",\
"digests":"eAEBGADn/zSoiqjaNxS+xCXWtOhMivigG+D5QruLyaVMDgA="}
df385fe2d64c6116c21273875b5bc95a {"line":"run","run":"2578d30ba934cb51","asker":"bank",\
"people":"6b5d717edcd67965fee41df4"}
a990c2cc99ef99573e8875524fb127ca {"line":"answered","run":"2578d30ba934cb51","rows":"eAFjYGBgYARiAAAMAAI=","numbers":1}
"""
"""A book of a version that digested people by keyed BLAKE2b: ann 3, bob 0, eve 3 + 1, zoë 1."""


def reference(name: str) -> bytes:
    """The digest of one person, from its definition."""
    key = blake2b(key=SECRET, digest_size=32, person=b"securevfl people").digest()
    raw = name.encode()
    message = key[16:] + bytes([min(len(raw), 255)]) + raw
    return blake2s(message + bytes(max(64 - len(message), 0)), salt=key[:8], person=key[8:16]).digest()[:12]


def names_of_all_kinds(count: int) -> list[str]:
    """Names of 0 to 300 bytes, some of them not ASCII, all different."""
    draw = np.random.default_rng(count)
    lengths = draw.choice([0, 3, 8, 36, 46, 47, 48, 63, 64, 65, 254, 255, 300], count)
    letters = ("x", "é", "\0", "日")
    made = [f"{letters[k % 4] * int(length)}{k}" for k, length in enumerate(lengths.tolist())]
    return [*made, "", "0", "\0", "a", "a\0"]


@pytest.mark.parametrize("count", [0, 1, 100, 2040, 2048, 9000])
def test_digests_do_not_depend_on_how_they_are_computed(count: int) -> None:
    names = names_of_all_kinds(count)
    found = digest_people(names, SECRET)
    assert found.shape == (len(names), DIGEST)
    assert [row.tobytes() for row in found] == [reference(name) for name in names]
    kept = Names.from_texts(["before", *names, "behind"])
    assert np.array_equal(digest_people(kept[1:-1], SECRET), found)
    assert len({row.tobytes() for row in found}) == len(names)


def test_digests_of_equal_lengths() -> None:
    names = [f"customer-{number:08d}" for number in range(20_000)]
    found = digest_people(Names.from_texts(names), SECRET)
    assert [found[k].tobytes() for k in (0, 8191, 8192, 19_999)] == [
        reference(names[k]) for k in (0, 8191, 8192, 19_999)
    ]


def test_digests_depend_on_the_key() -> None:
    assert not np.array_equal(digest_people(["ann"], SECRET), digest_people(["ann"], bytes(32)))


def test_no_people_have_no_digests() -> None:
    assert digest_people([], SECRET).shape == (0, DIGEST)
    index = PeopleIndex()
    assert index.place(np.empty((0, DIGEST), np.uint8)).tolist() == []
    assert index.find(digest_people(["ann"], SECRET)).tolist() == [-1]


def test_the_index_finds_what_a_dictionary_finds() -> None:
    draw = np.random.default_rng(3)
    # Few first bytes, so that digests meet in a slot, and eight equal bytes, so that only the last four differ.
    pool = draw.integers(0, 256, (600, DIGEST), dtype=np.uint8)
    pool[:300, 0] = draw.integers(0, 3, 300)
    pool[:300, 1:8] = 7
    index, known = PeopleIndex(), dict[bytes, int]()
    for turn in range(60):
        some = pool[draw.integers(0, 600, int(draw.integers(1, 40)))]
        if turn == 0:
            some = pool[:20]  # a first list in which nobody appears twice
        before = index.find(some).tolist()
        assert before == [known.get(row.tobytes(), -1) for row in some]
        places = index.place(some).tolist()
        for row, place, had in zip(some, places, before, strict=True):
            assert had in (-1, place)
            assert known.setdefault(row.tobytes(), place) == place
        assert index.find(some).tolist() == places
    assert len(set(known.values())) == len(known)
    everyone = index.to_array()
    assert len(everyone) == len(index) >= len(known)
    assert all(everyone[place].tobytes() == raw for raw, place in known.items())


def test_a_first_list_with_a_person_twice_gives_both_rows_one_position() -> None:
    index = PeopleIndex()
    twice = digest_people(["ann", "bob", "ann"], SECRET)
    places = index.place(twice).tolist()
    assert places[0] == places[2] != places[1]
    assert index.find(twice).tolist() == places


@pytest.mark.parametrize("rows", [[0], [5, 6, 7], list(range(3000)), [1, 3], [2, 1], [4, 4], []])
def test_rows_are_packed_and_unpacked(rows: list[int]) -> None:
    packed = lines.pack_rows(np.array(rows, np.int64))
    assert lines.unpack_rows(packed).tolist() == rows
    assert len(rows) < 3000 or len(packed) < 10


@pytest.mark.parametrize("text", ["5:", ":5", "5:0", "-1:4", "1:2:3", f"0:{1 << 40}", f"{1 << 40}:1", "x:1"])
def test_rows_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"rows|int|unpack"):
        lines.unpack_rows(text)


def old_book(folder: Path) -> Path:
    path = folder / "shop.results.jsonl"
    path.write_text(OLD, encoding="utf-8")
    path.with_suffix(".key").write_bytes(bytes.fromhex(OLD_KEY))
    return path


def test_a_book_of_an_earlier_version_is_read_and_goes_on(tmp_path: Path) -> None:
    path, names = old_book(tmp_path), ("ann", "bob", "eve", "zoë")
    assert ResultBook(path, party="shop").count_opened(names, "bank").tolist() == [3, 0, 4, 1]
    opened = OpenedValues("shop", 10, names, asker="bank", allowed=10, book=ResultBook(path, party="shop"))
    opened.count_opening(np.arange(4), 2)
    book = ResultBook(path, party="shop")
    assert book.count_opened(names, "bank").tolist() == [5, 2, 6, 3]
    with book.locked():
        book._compact(path)
    again = ResultBook(path, party="shop")
    assert again.count_opened(("zoë", "dan", "ann"), "bank").tolist() == [3, 0, 5]
    assert again.running("bank") == 8 + 8
    assert b"blake2b" in path.read_bytes().splitlines()[0]


def test_a_new_book_says_how_it_digests(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    book = ResultBook(path)
    book.add(book.begin_run(("ann",), "bank"), np.array([0]), 1)
    assert b'"digests":"blake2s"' in path.read_bytes().splitlines()[0]
    with book.locked():
        book._compact(path)
    assert b'"digests":"blake2s"' in path.read_bytes().splitlines()[0]
    assert ResultBook(path).count_opened(("ann",), "bank").tolist() == [1]
