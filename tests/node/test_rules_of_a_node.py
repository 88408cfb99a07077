"""What a daemon does with entries, processes and files that go wrong: one agreement's trouble is no other's."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from securevfl_net.durable import lock_folder
from securevfl_net.entrance import name_entrance
from securevfl_net.errors import DiskFull
from securevfl_net.exit_codes import CODES, ExitClass, classify_exit
from support.processes import PythonProcess
from support.small_nodes import RUNS, SmallNode, shown_as

from securevfl.node import daemon
from securevfl.node.child import describe_signal
from securevfl.node.node_file import NodeEntry, write_entry
from securevfl.node.record import read_records

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="parties run as processes on Unix alone")

PERSON = "a person must act"
LIMIT = 120.0


def _play(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), LIMIT))


# --- exit codes


def test_a_node_follows_the_table_of_exit_codes(tmp_path: Path) -> None:
    node = SmallNode(tmp_path, jobs=100)
    ends = {f"code-{one.number}": (f"exit {one.number}", one.kind) for one in CODES}
    ends |= {f"signal-{int(one)}": (f"kill -{int(one)} $$; sleep 60", classify_exit(-one)) for one in (9, 6, 11, 15)}
    ends["unknown"] = ("exit 64", ExitClass.ACT)

    async def work() -> None:
        for name, (act, _) in ends.items():
            node.add(name, act)
        again = [name for name, (_, kind) in ends.items() if kind == ExitClass.AGAIN]
        async with node.run():
            await node.until(lambda: all(len(node.starts(name)) >= 2 for name in again))
            await node.until(lambda: "running" not in {node.stages()[name] for name in ends if name not in again})
            stages = node.stages()
            for name, (_, kind) in ends.items():
                if kind == ExitClass.AGAIN:
                    assert stages[name] in ("starts again", "running"), name
                else:
                    assert stages[name] == ("finished" if kind == ExitClass.DONE else PERSON), name
                    assert len(node.starts(name)) == 1, name
            assert node.row("code-8")["code"] == 8
            assert node.row("signal-9")["reason"] in ("it was ended by SIGKILL", "")

    _play(work)


def test_a_process_that_ends_in_a_loop_is_started_ever_more_rarely_and_others_have_its_place(tmp_path: Path) -> None:
    node = SmallNode(tmp_path, jobs=1)

    async def work() -> None:
        node.add("loops", "echo 'PeerSilent: shop is away' >&2; exit 75")
        async with node.run():
            await node.until(lambda: len(node.starts("loops")) >= 1)
            node.add("good", "sleep 0.1; exit 0")
            await node.until(lambda: node.stages().get("good") == "finished")
            await node.until(lambda: node.row("loops")["reason"] == "PeerSilent: shop is away")
            before, began = len(node.starts("loops")), time.monotonic()
            await asyncio.sleep(1.0)
            # pauses of 0.02 · 2ᵏ seconds: without them it would be started a hundred times
            assert len(node.starts("loops")) - before < 12, time.monotonic() - began

    _play(work)


def test_served_models_start_again_and_trained_ones_are_not_trained_anew(tmp_path: Path) -> None:
    node = SmallNode(tmp_path, jobs=1)

    async def work() -> None:
        act = '[ "$3" = party ] && exit 0\n' + RUNS
        node.add("late", act, serve=True)
        async with node.run():
            await node.until(lambda: node.stages().get("late") == "serving" and len(node.starts("late")) == 2)
            os.kill(node.row("late")["process"], signal.SIGKILL)
            await node.until(lambda: len(node.starts("late")) == 3)
        async with node.run():
            await node.until(lambda: node.stages().get("late") == "serving" and len(node.starts("late")) == 4)
        assert node.starts("late") == ["party", "serve", "serve", "serve"]

    _play(work)


# --- entries


def test_the_same_agreement_twice_needs_a_person_and_the_first_keeps_its_callers(tmp_path: Path) -> None:
    """The second one may have another state folder: a copy of the party's, perhaps."""
    node = SmallNode(tmp_path)

    async def work() -> None:
        node.add("first", RUNS, number="one")
        async with node.run() as daemon:
            await node.until(lambda: node.stages().get("first") == "running")
            (door,) = daemon.front.doors.values()
            node.add("copy", RUNS, number="one", state=str(tmp_path / "copied"))
            await node.until(lambda: node.stages().get("copy") == PERSON)
            assert "'first' takes part in this agreement as 'bank' already" in node.row("copy")["reason"]
            assert list(daemon.front.doors.values()) == [door]
            assert node.starts("copy") == []
            (node.folder / "agreements" / "first.toml").unlink()
            await node.until(lambda: node.stages() == {"copy": "running"})
            assert len(daemon.front.doors) == 1

    _play(work)


def test_a_state_folder_is_one_agreements_whatever_its_path(tmp_path: Path) -> None:
    node = SmallNode(tmp_path)
    (tmp_path / "first").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "first")

    async def work() -> None:
        node.add("first", RUNS)
        node.add("second", RUNS, state=str(tmp_path / "second" / ".." / "link" / "state"))
        async with node.run():
            await node.until(lambda: node.stages() == {"first": "running", "second": PERSON})
            assert "is the state folder of 'first' as well" in node.row("second")["reason"]

    _play(work)


def test_an_editor_ends_nothing(tmp_path: Path) -> None:
    """It empties the file before it writes it, or puts another one in its place."""
    node = SmallNode(tmp_path)

    async def work() -> None:
        entry = node.add("late", RUNS)
        path = node.folder / "agreements" / "late.toml"
        whole = path.read_text()
        async with node.run() as daemon:
            await node.until(lambda: node.stages().get("late") == "running")
            process = node.row("late")["process"]
            path.write_text("")
            await node.until(lambda: "late" in daemon.roster.faults)
            path.write_text(whole + "# a remark\n")
            await node.until(lambda: "late" not in daemon.roster.faults)
            for _ in range(20):
                path.rename(tmp_path / "away")
                await daemon._look()
                (tmp_path / "away").rename(path)
                await daemon._look()
            write_entry(node.folder, entry)
            await asyncio.sleep(0.05)
            assert node.row("late")["process"] == process
            assert node.row("late")["stage"] == "running"
            assert "removed" not in dict(node.said)
            os.kill(process, signal.SIGKILL)  # nothing of it sticks
            await node.until(lambda: len(node.starts("late")) == 2)

    _play(work)


def test_an_entry_whose_files_are_not_there_yet_starts_when_they_are(tmp_path: Path) -> None:
    node = SmallNode(tmp_path)

    async def work() -> None:
        node.add("late", "exit 0")
        (tmp_path / "late" / "own").rename(tmp_path / "own")
        async with node.run():
            await node.until(lambda: node.stages().get("late") == PERSON)
            assert node.row("late")["code"] == 2
            await asyncio.sleep(0.2)
            assert [event for event, _ in node.said].count("person") == 1, "it says so once"
            (tmp_path / "own").rename(tmp_path / "late" / "own")
            await node.until(lambda: node.stages().get("late") == "finished")

    _play(work)


def test_a_folder_of_entries_that_cannot_be_read_ends_nothing(tmp_path: Path) -> None:
    node = SmallNode(tmp_path)

    async def work() -> None:
        node.add("late", RUNS)
        node.add("done", "exit 6")
        async with node.run():
            await node.until(lambda: node.stages() == {"late": "running", "done": PERSON})
            (node.folder / "agreements").rename(tmp_path / "unmounted")
            await node.until(lambda: "trouble" in dict(node.said))
            await asyncio.sleep(0.1)
            assert node.stages() == {"late": "running", "done": PERSON}
            (tmp_path / "unmounted").rename(node.folder / "agreements")
            await asyncio.sleep(0.1)
            assert node.stages() == {"late": "running", "done": PERSON}
            assert [len(node.starts(name)) for name in ("late", "done")] == [1, 1]
            assert [event for event, _ in node.said].count("trouble") == 1

    _play(work)


def test_a_name_that_stands_for_another_agreement_begins_anew(tmp_path: Path) -> None:
    node = SmallNode(tmp_path)

    async def work() -> None:
        node.add("late", "exit 0", number="one", serve=True)
        (tmp_path / "late" / "act.sh").write_text('[ "$3" = party ] && exit 0\n' + RUNS)
        async with node.run() as daemon:
            await node.until(lambda: node.stages().get("late") == "serving")
            before = set(daemon.front.doors)
            node.add("late", RUNS, number="two", serve=True, memory=1.0)
            await node.until(lambda: node.stages().get("late") == "running" and len(node.starts("late")) == 3)
            assert node.starts("late") == ["party", "serve", "party"], "the new one is not trained"
            assert len(daemon.front.doors) == 1
            assert not before & set(daemon.front.doors)
        node.add("late", "exit 0", number="three", memory=2.0)  # between two lives of the daemon
        async with node.run():
            await node.until(lambda: node.stages().get("late") == "finished")
            assert node.starts("late")[-1] == "party"

    _play(work)


def test_an_entry_that_no_code_foresaw_ends_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = SmallNode(tmp_path)

    async def work() -> None:
        node.add("good", RUNS)
        node.add("odd", RUNS)
        os.mkfifo(node.folder / "agreements" / "pipe.toml")
        (node.folder / "agreements" / "folder.toml").mkdir()
        async with node.run():
            read = NodeEntry.read_files

            def fail(entry: NodeEntry) -> Any:
                if entry.name == "odd":
                    raise RecursionError("too deep")
                return read(entry)

            with monkeypatch.context() as patch:  # ends before the node, which patches the same
                patch.setattr(NodeEntry, "read_files", fail)
                await node.until(lambda: len(node.stages()) == 4)
                await node.until(lambda: node.stages()["good"] == "running")
                assert [node.stages()[name] for name in ("odd", "pipe", "folder")] == [PERSON] * 3
                assert (node.row("odd")["code"], node.row("odd")["reason"]) == (6, "RecursionError: too deep")
                assert "is no file" in node.row("pipe")["reason"]

    _play(work)


# --- the machine


@contextmanager
def _full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fail(folder: Path, records: object) -> None:
        raise DiskFull(28, "No space left on device", str(folder / "state.json"))

    with monkeypatch.context() as patched:
        patched.setattr(daemon, "write_records", fail)
        yield


def test_on_a_full_disk_what_runs_goes_on_and_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs a person is not forgotten either: each start of it may spend ε."""
    node = SmallNode(tmp_path, jobs=4)

    async def work() -> None:
        node.add("runs", RUNS)
        node.add("fails", f"while [ ! -e {tmp_path}/now ]; do sleep 0.05; done; exit 6")
        async with node.run():
            await node.until(lambda: set(node.stages().values()) == {"running"})
            process = node.row("runs")["process"]
            with _full_disk(monkeypatch):
                (tmp_path / "now").touch()
                node.add("new", RUNS)
                await node.until(lambda: node.stages().get("fails") == PERSON)
                await asyncio.sleep(0.2)
                assert node.stages() == {"runs": "running", "fails": PERSON, "new": "queued"}
                assert "disk full" in dict(node.said)["trouble"]
            await node.until(lambda: node.stages()["new"] == "running")
            assert node.row("runs")["process"] == process
            assert read_records(node.folder)["fails"].failed
        assert node.starts("fails") == ["party"]

    _play(work)


def test_a_state_folder_that_nobody_may_open_is_its_own_partys_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = SmallNode(tmp_path)

    def refuse(folder: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(folder))

    async def work() -> None:
        monkeypatch.setattr(daemon, "is_held", refuse)
        node.add("late", "echo 'InputError: state cannot be opened'; exit 2")
        async with node.run():
            await node.until(lambda: node.stages().get("late") == PERSON)
            assert node.row("late")["reason"] == "InputError: state cannot be opened"

    _play(work)


def test_an_agreement_whose_folder_is_in_use_waits_and_says_why(tmp_path: Path) -> None:
    """A copy of the node's folder, or a party that somebody started by hand."""
    node = SmallNode(tmp_path)

    async def work() -> None:
        node.add("late", RUNS)
        state = tmp_path / "late" / "state"
        state.mkdir()
        async with node.run():
            with lock_folder(state, "a test"):
                (tmp_path / "late" / "own").touch()
            await node.until(lambda: len(node.starts("late")) == 1)
            with lock_folder(state, "a test"):
                os.kill(node.row("late")["process"], signal.SIGKILL)
                await node.until(lambda: "is in use by another process" in node.row("late")["reason"])
                await asyncio.sleep(0.1)
                assert len(node.starts("late")) == 1
            await node.until(lambda: len(node.starts("late")) == 2)

    _play(work)


def test_a_node_killed_at_any_moment_forgets_nothing(tmp_path: Path) -> None:
    """Whatever its file said needs a person, or is trained, is so after the next start, and is not started again."""
    node, rng = SmallNode(tmp_path), random.Random(4)
    for k in range(8):
        act = ("exit 0", "exit 6", "sleep 0.1; exit 75", RUNS)[k % 4]
        node.add(f"a{k}", act)
    for _ in range(12):
        known = read_records(node.folder)
        settled = {name: len(node.starts(name)) for name, one in known.items() if one.failed or one.trained}
        process = PythonProcess(["-c", "import sys; from support.small_nodes import *; run_small_node(sys.argv[1])",
                                 str(tmp_path)])  # fmt: skip
        time.sleep(rng.uniform(0.05, 0.6))
        process.kill()
        process.communicate(60)
        found = read_records(node.folder)
        assert found.keys() >= known.keys()
        for name, count in settled.items():
            assert (found[name].failed, found[name].trained) == (known[name].failed, known[name].trained)
            assert len(node.starts(name)) == count, name

    async def finish() -> None:
        ends = {f"a{k}": (PERSON if k % 4 else "finished") for k in (0, 1, 4, 5)}
        async with node.run():
            await node.until(lambda: ends.items() <= node.stages().items())

    _play(finish)


def test_a_state_file_of_the_next_release_is_read(tmp_path: Path) -> None:
    """So that an operator can go back to the release before."""
    (tmp_path / "state.json").write_text(
        json.dumps({"format": 1, "more": 1, "agreements": {"late": {"trained": True, "more": 2}}})
    )
    assert read_records(tmp_path)["late"].trained


# --- callers and processes


def test_calls_that_came_to_nothing_do_not_keep_others_from_their_turn(tmp_path: Path) -> None:
    """Whoever knows an agreement's name, as a wiretapper does, can call; whom it calls waits for the peer in vain."""
    node = SmallNode(tmp_path, jobs=1, turn=1.0)

    async def work() -> None:
        node.add("called", shown_as("connecting"))
        async with node.run() as daemon:
            await node.until(lambda: node.stages().get("called") == "running")
            for name in ("one", "two"):
                node.add(name, "sleep 0.1; exit 0")
            entrance = next(iter(daemon.front.doors))

            async def call() -> None:
                while True:
                    daemon._note_call(entrance)
                    await asyncio.sleep(0.005)

            calling = asyncio.create_task(call())
            await node.until(lambda: all(node.stages().get(name) == "finished" for name in ("one", "two")))
            calling.cancel()
            assert len(node.starts("called")) < 4

    _play(work)


def test_a_useful_call_brings_an_agreement_forward(tmp_path: Path) -> None:
    node = SmallNode(tmp_path, jobs=1)

    async def work() -> None:
        node.add("runs", f"while [ ! -e {tmp_path}/now ]; do sleep 0.05; done; exit 0")
        async with node.run() as daemon:
            await node.until(lambda: node.stages().get("runs") == "running")
            for name in ("one", "two"):
                node.add(name, RUNS)
                await node.until(lambda name=name: name in node.stages())  # type: ignore[misc]
            daemon._note_call(daemon.roster.hosted["two"].entrance)
            (tmp_path / "now").touch()
            await node.until(lambda: node.stages()["two"] == "running")
            assert node.stages()["one"] == "queued"

    _play(work)


def test_a_process_that_takes_no_callers_holds_few_of_them(tmp_path: Path) -> None:
    """Connections on their way to a process count against all that this user may have on their way."""
    node = SmallNode(tmp_path)

    async def work() -> None:
        node.add("stuck", RUNS)
        async with node.run() as daemon:
            await node.until(lambda: node.stages().get("stuck") == "running")
            (entrance,) = daemon.front.doors
            assert entrance == name_entrance(bytes.fromhex(daemon.roster.hosted["stuck"].digest), "bank")
            where, held = daemon.front.addresses[0], []
            for _ in range(150):
                reader, writer = await asyncio.open_connection(where.host, where.port)
                writer.write(b"D" + bytes.fromhex(entrance.partition(".")[0]))
                held.append((reader, writer))
                await asyncio.sleep(0)
            await node.until(lambda: daemon.front.handed + sum(daemon.front.refused.values()) == 150)
            assert 16 <= daemon.front.handed <= 64
            for _, writer in held:
                writer.close()

    _play(work)


def test_ctrl_c_at_the_nodes_terminal_asks_each_process_once(tmp_path: Path) -> None:
    """A terminal interrupts its whole group; a party that is asked twice ends at once, as it must."""
    node = SmallNode(tmp_path)

    async def work() -> None:
        node.add("late", RUNS)
        async with node.run():
            await node.until(lambda: node.stages().get("late") == "running")
            assert os.getpgid(node.row("late")["process"]) != os.getpgid(0)

    _play(work)


def test_a_party_ends_as_after_sigterm_when_its_node_is_gone() -> None:
    ours, theirs = socket.socketpair()
    script = (
        "import signal, sys, time\n"
        "from securevfl.process.door import follow_node\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
        "follow_node(int(sys.argv[1]))\n"
        "print('follows', flush=True)\n"
        "time.sleep(60)\n"
    )
    with theirs, ours:
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "follows\n"
        theirs.close()
        ours.send(b"\1")  # a caller is no end
        time.sleep(0.2)
        assert process.poll() is None
        ours.close()
        assert process.wait(30) == 75
        process.stdout.close()


def test_the_reason_is_of_the_last_process_and_no_terminal_obeys_it(tmp_path: Path) -> None:
    node = SmallNode(tmp_path)
    act = "[ -e second ] && kill -9 $$\ntouch second\nprintf 'PeerRefused: \\033[2Jshop \\302\\233says no\\n'; exit 75"

    async def work() -> None:
        node.add("late", act)
        reasons: list[str] = []
        async with node.run():
            await node.until(lambda: reasons.append(node.row("late").get("reason", "")) or len(node.starts("late")) > 3)
        told = [words for event, words in node.said if event == "ended"]
        assert "PeerRefused: ·[2Jshop ·says no" in told[0]
        assert "it was ended by SIGKILL" in told[1]
        assert not any("PeerRefused" in words for words in told[1:])

    _play(work)


def test_signals_have_names() -> None:
    assert describe_signal(-9) == "it was ended by SIGKILL"
    assert describe_signal(75) == ""
    assert describe_signal(-64 - 30) == "it was ended by signal 94"
