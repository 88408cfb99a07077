"""The result book: one count a person and asker that outlives jobs, crashes and a second process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import textwrap
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from securevfl_net.durable import append_synced
from support.processes import PythonProcess

from securevfl.errors import InputError, PolicyError
from securevfl.privacy import OpenedValues, PrivateKey, ResultBook

NAMES = ("ann", "bob", "eve")


def opened(path: Path, names: tuple[str, ...] = NAMES, *, asker: str = "bank", allowed: int = 10) -> OpenedValues:
    return OpenedValues("shop", 10, names, asker=asker, allowed=allowed, book=ResultBook(path, party="shop"))


def counts(path: Path, *names: str, asker: str = "bank") -> list[int]:
    return ResultBook(path).count_opened(names or NAMES, asker).tolist()


def test_a_book_remembers_people_over_runs_and_processes(tmp_path: Path) -> None:
    path = tmp_path / "shop.results.jsonl"
    first = opened(path)
    first.count_opening(np.array([0, 2]), 3)
    again = opened(path, ("eve", "dan"))
    assert again.before.tolist() == [3, 0]
    again.count_opening(np.array([0, 1]), 5)
    assert counts(path, "ann", "bob", "eve", "dan") == [3, 0, 8, 5]
    with pytest.raises(PolicyError, match="beside the 8 already answered"):
        first.count_opening(np.array([2]), 3)  # it sees what the other counted since
    assert not any(name in path.read_text() for name in (*NAMES, "dan"))


def test_each_asker_has_a_count_and_a_running_number(tmp_path: Path) -> None:
    path = tmp_path / "shop.results.jsonl"
    opened(path).count_opening(np.array([0, 1]), 2)
    opened(path, asker="Other Bank").count_opening(np.array([0]), 3)
    book = ResultBook(path)
    assert counts(path) == [2, 2, 0]
    assert counts(path, asker="Other Bank") == [3, 0, 0]
    assert [book.running(asker) for asker in ("bank", "Other Bank", "nobody")] == [4, 3, 0]
    assert book.askers == ["Other Bank", "bank"]


def test_nothing_is_written_before_something_is_counted(tmp_path: Path) -> None:
    opened(tmp_path / "shop.results.jsonl").check_plan(3)
    assert not (tmp_path / "shop.results.jsonl").exists()


def test_what_was_cut_off_as_it_was_written_did_not_leave(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    opened(path).count_opening(np.array([0]), 3)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert counts(path) == [3, 0, 0]
    assert path.read_bytes() == whole


def _cut(line: int) -> Callable[[bytes], bytes]:
    return lambda raw: b"".join(one for n, one in enumerate(raw.splitlines(keepends=True)) if n != line)


@pytest.mark.parametrize(
    "spoil",
    [
        *(_cut(n) for n in range(4)),
        lambda raw: raw.replace(b'"numbers":3', b'"numbers":1'),
        lambda raw: raw.replace(b'"numbers":2', b'"numbers":1'),  # of the last line
        lambda raw: raw.replace(b"answered", b"answerex", 1),
        lambda raw: raw.replace(b'"bank"', b'"tank"'),
        lambda raw: b"".join(sorted(raw.splitlines(keepends=True))),
        lambda raw: raw + raw.splitlines(keepends=True)[-1],
        lambda raw: b"\x00" * len(raw.splitlines()[0]) + raw[raw.index(b"\n") :],
    ],
)
def test_a_changed_moved_or_removed_line_is_refused(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "results.jsonl"
    book = opened(path)
    book.count_opening(np.array([0]), 3)
    book.count_opening(np.array([1]), 2)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(InputError, match=r"line \d of .* is damaged.* restore the file"):
        ResultBook(path)


def test_a_book_without_its_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    opened(path).count_opening(np.array([0]), 3)
    path.with_suffix(".key").unlink()
    with pytest.raises(InputError, match="cannot be read; restore it"):
        ResultBook(path)


def test_a_book_that_vanishes_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    book = opened(path)
    book.count_opening(np.array([0]), 3)
    path.unlink()
    with pytest.raises(InputError, match="is gone"):
        book.count_opening(np.array([0]), 3)


@pytest.mark.parametrize("put", ["over it", "in its place"])
def test_an_older_copy_is_refused_by_a_process_that_has_the_book_open(tmp_path: Path, put: str) -> None:
    path, other = tmp_path / "results.jsonl", tmp_path / "copy"
    book = opened(path, allowed=3)
    book.count_opening(np.array([0, 1]), 1)
    older = path.read_bytes()
    book.count_opening(np.array([0]), 2)
    newest = path.read_bytes()
    for _ in range(2):  # it stays refused
        if put == "over it":
            path.write_bytes(older)
        else:
            other.write_bytes(older)
            other.replace(path)
        with pytest.raises(
            InputError, match=r"older than it was: this process saw 4 numbers counted for 'bank'.* has 2"
        ):
            book.count_opening(np.array([1]), 1)
    path.unlink()
    with pytest.raises(InputError, match="is gone"):
        book.count_opening(np.array([1]), 1)
    path.write_bytes(newest)
    book.count_opening(np.array([1]), 1)
    with pytest.raises(PolicyError, match="max_results"):
        book.count_opening(np.array([0]), 1)


def test_a_book_of_another_party_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "results.jsonl").count_opening(np.array([0]), 3)
    with pytest.raises(InputError, match="is the book of 'shop', not of 'lab'"):
        ResultBook(tmp_path / "results.jsonl", party="lab")


def test_a_count_that_cannot_be_written_lets_nothing_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.jsonl"
    book = opened(path)
    book.count_opening(np.array([0]), 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("securevfl.privacy.result_book.append_synced", full)
    with pytest.raises(OSError, match="No space"):
        book.count_opening(np.array([0]), 1)
    monkeypatch.undo()
    assert book.numbers_per_row.tolist() == [1, 0, 0]
    book.count_opening(np.array([0]), 2)
    assert counts(path) == [3, 0, 0]


def test_what_is_counted_is_on_disk_when_the_call_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "results.jsonl", list[int]()

    def flushed(handle: int) -> None:
        if os.fstat(handle).st_ino == path.stat().st_ino:
            synced.append(path.stat().st_size)

    mine = opened(path)
    monkeypatch.setattr("securevfl_net.durable.flush_to_disk", flushed)
    for turn in range(2):
        mine.count_opening(np.array([turn]), 1)
        assert synced[-1] == path.stat().st_size
    ResultBook(path, party="shop").add_metrics("bank")
    assert synced[-1] == path.stat().st_size


def test_no_calendar_renews_what_was_answered(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    opened(path, allowed=2).count_opening(np.array([0]), 2)
    later = OpenedValues("shop", 10, NAMES, asker="bank", allowed=2, book=ResultBook(path), now=lambda: 4e9)
    assert later.fits_budget(np.array([0, 1]), 1).tolist() == [False, True]
    with pytest.raises(PolicyError, match="beside the 2 already"):
        later.count_opening(np.array([0]), 1)


# Two processes, and one that is killed.


def _ask_often(path: str, gate: object, answered: object) -> None:
    mine = opened(Path(path), tuple(map(str, range(50))), allowed=7)
    gate.wait()  # type: ignore[attr-defined]
    given = 0
    for _ in range(12):
        try:
            mine.count_opening(np.arange(50), 1)
            given += 1
        except PolicyError:
            break
    answered.put(given)  # type: ignore[attr-defined]


def test_two_processes_at_once_do_not_pass_the_bound_together(tmp_path: Path) -> None:
    path, fork = tmp_path / "results.jsonl", multiprocessing.get_context("fork")
    gate, answered = fork.Barrier(3), fork.Queue()
    askers = [fork.Process(target=_ask_often, args=(str(path), gate, answered)) for _ in range(3)]
    for one in askers:
        one.start()
    given = [answered.get(timeout=120) for _ in askers]
    for one in askers:
        one.join(60)
    assert sum(given) == 7
    assert set(counts(path, *map(str, range(50)))) == {7}


def test_killed_at_any_moment_nothing_was_answered_without_being_counted(tmp_path: Path) -> None:
    """The child says what it answered after it counted; the parent kills it in the middle."""
    path = tmp_path / "results.jsonl"
    program = textwrap.dedent(
        f"""
        import sys, numpy as np
        from pathlib import Path
        from securevfl.privacy import OpenedValues, ResultBook
        opened = OpenedValues("shop", 10, ("ann",), asker="bank", book=ResultBook(Path({str(path)!r}), party="shop"))
        while True:
            opened.count_opening(np.array([0]), 1)
            sys.stdout.write("x")
            sys.stdout.flush()
        """
    )
    with PythonProcess(["-c", program]) as child:
        assert child.stdout is not None
        child.stdout.read(20)
        os.kill(child.pid, signal.SIGKILL)
        answered = 20 + len(child.stdout.read())
    assert answered <= counts(path, "ann")[0] <= answered + 1


def test_killed_between_writing_and_answering_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.jsonl"

    def dies(file: Path, data: bytes) -> None:
        append_synced(file, data)
        raise KeyboardInterrupt

    book = opened(path)
    book.count_opening(np.array([1]), 1)
    monkeypatch.setattr("securevfl.privacy.result_book.append_synced", dies)
    with pytest.raises(KeyboardInterrupt):
        book.count_opening(np.array([0]), 1)
    assert counts(path) == [1, 1, 0]


# Grants.


def grant(book: ResultBook, results: int = 2, *, asker: str = "bank", until: int = 1000) -> None:
    book.add_grant(asker, results=results, reason="retrained model", until=until, by="Ada, privacy officer")


def test_a_grant_adds_to_the_bound_until_it_ends(tmp_path: Path) -> None:
    path, clock = tmp_path / "results.jsonl", [100.0]
    mine = OpenedValues(
        "shop", 10, NAMES, asker="bank", allowed=2, book=ResultBook(path, party="shop"), now=lambda: clock[0]
    )
    mine.count_opening(np.array([0]), 2)
    other = ResultBook(path, party="shop")
    grant(other)
    grant(other, 5, asker="Other Bank")
    assert [other.granted("bank", now) for now in (0.0, 999.0, 1000.0)] == [2, 2, 0]
    mine.count_opening(np.array([0]), 1)
    assert mine.allowed == 4
    clock[0] = 1000.0
    with pytest.raises(PolicyError, match="beside the 3 already"):
        mine.count_opening(np.array([0]), 1)


def test_only_grants_that_the_party_signed_count(tmp_path: Path) -> None:
    path, key = tmp_path / "results.jsonl", PrivateKey.generate()
    grant(ResultBook(path, party="shop"), 1)
    grant(ResultBook(path, party="shop", key=PrivateKey.generate()), 2)
    signed = ResultBook(path, party="shop", key=key)
    grant(signed, 4)
    assert signed.granted("bank", 0.0) == 4
    assert [one.results for one in ResultBook(path, party="shop", key=key).grants("bank")] == [4]
    assert [one.by for one in signed.grants("bank")] == ["Ada, privacy officer"]


@pytest.mark.parametrize(
    "wrong", [{"results": 0}, {"reason": " "}, {"by": "a\nb"}, {"asker": ""}, {"results": 1 << 40}]
)
def test_a_grant_says_what_for_and_by_whom(tmp_path: Path, wrong: dict[str, object]) -> None:
    given = {"asker": "bank", "results": 2, "reason": "why", "until": 5, "by": "Ada"} | wrong
    with pytest.raises(InputError, match="grant"):
        ResultBook(tmp_path / "results.jsonl").add_grant(given.pop("asker"), **given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="kept in a file"):
        ResultBook().add_grant("bank", results=2, reason="why", until=5, by="Ada")


# Compaction.


def test_a_large_book_becomes_one_count_a_person_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securevfl.privacy.result_book._LARGE", 3000)
    path = tmp_path / "results.jsonl"
    names = tuple(map(str, range(40)))
    mine, theirs = opened(path, names, allowed=1000), opened(path, names, asker="Other Bank", allowed=1000)
    grant(ResultBook(path, party="shop"), until=1 << 40)
    expected, draw = np.zeros(40, int), np.random.default_rng(2)
    sizes = []
    for turn in range(60):
        places = draw.choice(40, 9, replace=False)
        mine.count_opening(places, 2)
        expected[places] += 2
        sizes.append(path.stat().st_size)
        if turn % 10 == 0:
            theirs.count_opening(np.arange(40), 1)
    assert any(now < before for before, now in pairwise(sizes))
    assert b'"after":"' in path.read_bytes().splitlines()[0]
    assert mine.numbers_per_row.tolist() == counts(path, *names) == expected.tolist()
    assert counts(path, *names, asker="Other Bank") == [6] * 40
    book = ResultBook(path)
    assert (book.running("bank"), book.running("Other Bank")) == (60 * 9 * 2, 6 * 40)
    assert book.granted("bank", 0.0) == 2
    assert mine.before.tolist() == [0] * 40
    spoilt = path.read_bytes().replace(b'"running":', b'"running":1', 1)
    path.write_bytes(spoilt)
    with pytest.raises(InputError, match="is damaged"):
        ResultBook(path)


def test_runs_with_the_same_people_list_them_once(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    for _ in range(5):
        opened(path).count_opening(np.array([0]), 1)
    assert path.read_bytes().count(b'"line":"people"') == 1
    assert counts(path) == [5, 0, 0]


def test_sets_of_metrics_are_counted_for_each_asker_and_survive_a_compaction(tmp_path: Path) -> None:
    path = tmp_path / "shop.results.jsonl"
    book = ResultBook(path, party="shop")
    for _ in range(3):
        book.add_metrics("bank")
    book.add_metrics("Other Bank")
    opened(path).count_opening(np.array([0]), 1)
    with book.locked():
        book._compact(path)
    again = ResultBook(path, party="shop")
    assert [again.metric_sets(asker) for asker in ("bank", "Other Bank", "nobody")] == [3, 1, 0]
    assert counts(path) == [1, 0, 0]
    assert again.running("bank") == 1


# Memory of a process that lives for long.


def test_sessions_of_the_same_people_cost_no_memory_and_no_line(tmp_path: Path) -> None:
    path = tmp_path / "shop.results.jsonl"
    book = ResultBook(path, party="shop")

    def hold_sessions(count: int) -> None:
        for _ in range(count):
            names = tuple(f"customer-{number}" for number in range(1000))
            held = OpenedValues("shop", 10, names, asker="bank", book=book)
            held.count_opening(np.array([0, 999]), 1)

    hold_sessions(3)
    size = path.stat().st_size
    tracemalloc.start()
    hold_sessions(100)
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 150_000, "20 bytes a person and session were kept"
    assert path.read_bytes().count(b'"line":"run"') == 1
    assert path.stat().st_size - size < 100 * 200
    assert counts(path, "customer-0", "customer-1", "customer-999") == [103, 0, 103]


def test_the_runs_used_last_outlive_a_compaction_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "shop.results.jsonl"
    book, other = (ResultBook(path, party="shop") for _ in range(2))
    first, idle = (book.begin_run([name], "bank") for name in ("ann", "bob"))
    for number in range(100):
        book.add(book.begin_run([f"customer-{number}"], "bank"), np.array([0]), 1)
        book.add(first, np.array([0]), 1)
    assert len(book._mine) <= 64
    with other.locked():
        other._compact(path)
    book.add(first, np.array([0]), 1)
    with pytest.raises(InputError, match="begin it again"):
        book.add(idle, np.array([0]), 1)
    book.add(book.begin_run(["bob"], "bank"), np.array([0]), 1)
    assert counts(path) == [101, 1, 0]
