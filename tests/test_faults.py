"""The matrix of faults: its rule, its judges on runs made up to break them, and its page."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from benchmarks.faults import asked, cells, course, expected, jobs, known, links
else:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1]))
        from benchmarks.faults import asked, cells, course, expected, jobs, known, links


def test_every_job_fault_and_phase_is_a_cell_or_impossible() -> None:
    found = cells.cells()
    assert len(found) == len(set(found))
    assert {(c.kind, c.phase, c.fault) for c in found} == {
        (kind, phase, fault)
        for kind in jobs.KINDS
        for phase in expected.PHASES
        for fault in expected.FAULTS
        if (fault, phase) != ("folder restored", "consent")
    }
    names = {f"{algorithm} {protection}" for algorithm in jobs.ALGORITHMS for protection in jobs.PROTECTIONS}
    missing = {name for name in names if name not in jobs.KINDS}
    assert missing == {text.partition(",")[0] for text in cells.impossible() if "every phase" in text}
    quick = cells.quick_cells()
    assert {(c.kind, c.phase, c.fault) for c in quick} <= {(c.kind, c.phase, c.fault) for c in found}
    assert {c.phase for c in quick} == set(expected.PHASES)


def test_the_first_cells_have_every_fault_at_every_phase() -> None:
    first = cells.cells()[: len(cells.cells()) // len(cells.PLACES)]
    assert len({(c.kind, c.phase, c.fault) for c in first}) == len(first)
    assert {c.place for c in first} == set(cells.PLACES)


def _told(codes: dict[str, list[int]], **texts: str) -> course.Told:
    return course.Told(happened=True, ended=True, codes=codes, texts={"bank": "", "shop1": "", "shop2": ""} | texts)


def _judge(told: course.Told, folder: Path, fault: str = "program killed") -> list[str]:
    reference = asked.Reference(folder, ["bank", "shop1", "shop2"], exact=False, alike=False)
    found = asked.judge(folder, "serving", fault, "shop1", "bank", told, reference)
    return sorted({line.partition(":")[0] for line in found})


def test_a_run_past_its_deadline_is_stuck(tmp_path: Path) -> None:
    told = _told({"bank": [], "shop1": [-9], "shop2": []})
    told.ended = False
    assert _judge(told, tmp_path) == ["stuck"]


def test_an_exit_that_no_supervisor_restarts_is_found(tmp_path: Path) -> None:
    told = _told({"bank": [5], "shop1": [-9, 75], "shop2": [75]}, bank="PeerEnded: 'shop1' ended the job")
    assert _judge(told, tmp_path) == ["ends"]


def test_a_message_that_names_another_party_is_found(tmp_path: Path) -> None:
    told = _told({"bank": [5], "shop1": [75], "shop2": [75]}, bank="ProtocolError: 'shop2' broke the protocol")
    assert _judge(told, tmp_path) == ["cause", "ends"]
    both = _told({"bank": [5], "shop1": [75], "shop2": [75]}, bank="'shop1' or 'shop2' broke the protocol")
    assert _judge(both, tmp_path) == ["cause", "ends"]


def test_an_accepted_older_folder_is_found(tmp_path: Path) -> None:
    told = _told({"bank": [75], "shop1": [-9, 75], "shop2": [75]})
    (tmp_path / "answers.json").write_text('{"answers": {}, "failed": []}')
    assert "accepted" in _judge(told, tmp_path, "folder restored")
    # Refused as the copy of start 2, and started again, as start 3.
    (tmp_path / "shop1.out").write_text("--- start\nParked: two processes of 'shop1' are start 2 of one state folder")
    assert "accepted" not in _judge(told, tmp_path, "folder restored")


def test_exit_codes_are_read_from_the_table() -> None:
    assert expected.starts_again(75)
    assert expected.starts_again(-9)
    assert not any(map(expected.starts_again, (0, 2, 3, 5, 8)))


def test_what_remains_covers_its_classes_alone() -> None:
    remains = [{"cells": "link cut+serving", "broken": "cause", "sentence": "x"}]
    found = {"name": "splitnn plain, serving, link cut, first point, party 1", "broken": ["cause: x"]}
    assert known.find_remaining(found, remains)
    assert not known.find_remaining(found | {"broken": ["cause: x", "model: y"]}, remains)
    assert not known.find_remaining(found | {"name": "splitnn plain, training, link cut"}, remains)


@contextmanager
def _linked() -> Iterator[tuple[links.Links, links.Link, socket.socket, socket.socket]]:
    """A proxy, and both ends of a connection through it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        every = links.Links()
        link = every.add("shop1", "bank", int(server.getsockname()[1]))
        stopped = threading.Event()

        def pump() -> None:
            while not stopped.is_set():
                every.run_once(0.01)

        thread = threading.Thread(target=pump)
        near = socket.create_connection(("127.0.0.1", link.port), timeout=30)
        thread.start()
        far, _ = server.accept()
        far.settimeout(30)
        try:
            yield every, link, near, far
        finally:
            stopped.set()
            thread.join(30)
            near.close()
            far.close()
            every.close()


def test_a_torn_link_lets_a_part_through() -> None:
    with _linked() as (every, link, near, far):
        near.sendall(b"before")
        assert far.recv(100) == b"before"
        every.tear(link, 4)
        near.sendall(b"message")
        got = b""
        with suppress(ConnectionResetError):
            while data := far.recv(100):
                got += data
        assert got in (b"mess", b"")  # a reset may overtake what was not read


def test_a_held_link_lets_nothing_through_for_a_while() -> None:
    with _linked() as (every, link, near, far):
        every.hold(link, 0.5)
        began = time.monotonic()
        near.sendall(b"late")
        assert far.recv(100) == b"late"
        assert time.monotonic() - began >= 0.4


def test_a_half_closed_link_goes_one_way() -> None:
    with _linked() as (every, link, near, far):
        near.sendall(b"x")
        assert far.recv(1) == b"x"
        every.half_close(link, "shop1")
        assert far.recv(1) == b""
        near.sendall(b"lost")
        far.sendall(b"back")
        assert near.recv(4) == b"back"


def test_a_noisy_row_that_left_for_an_answer_and_was_not_counted_is_found(tmp_path: Path) -> None:
    told = _told({"bank": [75], "shop1": [-9, 75], "shop2": [75]})
    (tmp_path / "answers.json").write_text('{"answers": {}, "failed": []}')
    made = tmp_path / "shop1.made.jsonl"
    counts = tmp_path / "shop1.results.days" / "counts-2026-01-01.jsonl"
    counts.parent.mkdir(parents=True)
    made.write_text('["answers", [3, 4]]\n["answers", [3]]\n')
    for counted, broken in (("a b a", False), ("a b", True), ("a b c", True), ("", True)):
        lines = [f'{{"time": 1, "scored": [], "released": ["{who}"]}}\n' for who in counted.split()]
        counts.write_text("".join(lines))
        assert ("counts" in _judge(told, tmp_path)) is broken
    assert "counts" in _judge(told, tmp_path, "folder restored"), "they are beside the folder"
    released = [("a", ""), ("b", ""), ("a", ', "back": 1'), ("a", ""), ("a", "")]
    lines = [f'{{"time": 1, "scored": [], "released": ["{who}"]{more}}}\n' for who, more in released]
    for count, broken in ((5, False), (4, True)):  # one batch of these was taken back
        counts.write_text("".join(lines[:count]))
        assert ("counts" in _judge(told, tmp_path)) is broken


def test_a_revoked_party_must_be_refused_by_that_name(tmp_path: Path) -> None:
    (tmp_path / "answers.json").write_text('{"answers": {}, "failed": []}')
    codes = {"bank": [75], "shop1": [3], "shop2": [75]}
    told = _told(codes, shop1="PeerRefused: no connection with 'bank': it is on the list (revoked)")
    told.left = ["bank", "shop2"]
    found = _judge(told, tmp_path, "certificate revoked")
    assert not {"cause", "accepted", "exit class"} & set(found)
    told.texts["shop1"] = "PeerRefused: no connection with 'bank': the peer hung up"
    assert "cause" in _judge(told, tmp_path, "certificate revoked")
    told.codes["shop1"] = [75]
    assert "accepted" in _judge(told, tmp_path, "certificate revoked")
