"""One suite for all pools, and what is particular to processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
from securevfl_crypto.errors import OverflowRefused, PoolError, TaskFailed, WorkerLost
from securevfl_crypto.pools import LocalPool, Pool, ProcessPool, check_pool, open_pool
from securevfl_crypto.pools.messages import pack_arguments, read_answer, unpack_arguments

TASKS = "securevfl_pool_tasks"


@pytest.fixture(scope="module", params=["local", "process:2", "ray"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    if request.param == "ray":
        yield request.getfixturevalue("ray_cluster").pool
        return
    with open_pool(request.param) as opened:
        yield opened


def test_arguments_cross_as_they_are(pool: Pool) -> None:
    given = (b"", b"\x00\xff" * 40_000, "/data/ä\udcff", "", 0, -1, 255, 1 << 200, -(1 << 63))
    future = pool.submit(f"{TASKS}:join", *given)
    assert future.result(60) == repr(given).encode()


def test_many_tasks_end_with_their_own_answers(pool: Pool) -> None:
    futures = [pool.submit(f"{TASKS}:double", bytes([n])) for n in range(64)]
    assert [future.result(60) for future in futures] == [bytes([n, n]) for n in range(64)]


def test_more_bytes_than_a_pipe_holds(pool: Pool) -> None:
    data = os.urandom(3 << 20)
    assert pool.submit(f"{TASKS}:double", data).result(60) == data + data


def test_an_error_of_ours_comes_back_as_it_was(pool: Pool) -> None:
    with pytest.raises(OverflowRefused, match=r"^7 bits; 5 fit") as caught:
        pool.submit(f"{TASKS}:refuse", "7 bits; 5 fit").result(60)
    assert caught.value.args == ("7 bits; 5 fit",)
    assert caught.value.__notes__ == [f"in the task {TASKS}:refuse"]


@pytest.mark.parametrize(
    ("task", "arguments", "words"),
    [
        ("divide", (0,), r"securevfl_pool_tasks:divide ended with ZeroDivisionError: .*zero"),
        ("divide", (), r"securevfl_pool_tasks:divide ended with TypeError: .*missing 1 required"),
        ("leave", (), r"securevfl_pool_tasks:leave ended with SystemExit: gone"),
    ],
)
def test_another_error_comes_back_with_its_words(pool: Pool, task: str, arguments: tuple[int, ...], words: str) -> None:
    with pytest.raises(TaskFailed, match=words):
        pool.submit(f"{TASKS}:{task}", *arguments).result(60)
    assert pool.submit(f"{TASKS}:double", b"on").result(60) == b"onon"


def test_a_task_that_returns_something_else_is_named(pool: Pool) -> None:
    with pytest.raises(PoolError, match=r"'securevfl_pool_tasks:no_bytes' returned a int; a task returns bytes"):
        pool.submit(f"{TASKS}:no_bytes").result(60)


def test_what_a_task_prints_is_no_answer(pool: Pool) -> None:
    assert pool.submit(f"{TASKS}:prints", "words").result(60) == b"words"


@pytest.mark.parametrize(
    "task",
    [
        "os:system",
        "subprocess:run",
        "builtins:eval",
        "numpy:load",
        "xsecurevfl:run",
        "securevfl_pool_tasks",
        "securevfl_pool_tasks:",
        ":join",
        "securevfl_pool_tasks:os.system",
        "securevfl_pool_tasks:a:b",
        "securevfl_pool_tasks..x:join",
        " securevfl_pool_tasks:join",
        "",
    ],
)
def test_only_functions_of_our_packages_are_named(pool: Pool, task: str) -> None:
    with pytest.raises(PoolError, match=r"unknown form|pools run only functions of installed packages"):
        pool.submit(task, "echo no")


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (f"{TASKS}:signal", "defines no function 'signal'"),
        (f"{TASKS}:Path", "defines no function 'Path'"),  # imported there, not its own
        ("securevfl_pool_tasks:OverflowRefused", "defines no function"),
        (f"{TASKS}:nothing", "defines no function 'nothing'"),
        ("securevfl_absent:run", "cannot be imported here"),
        ("securevfl_crypto.pools.base:import_module", "defines no function"),
    ],
)
def test_what_a_module_does_not_define_is_not_run(pool: Pool, task: str, words: str) -> None:
    with pytest.raises(PoolError, match=words):
        pool.submit(task, "os").result(60)


@pytest.mark.parametrize("argument", [None, 1.5, True, ["a"], lambda: b"", Path("x"), bytearray(b"x")])
def test_nothing_but_bytes_text_and_numbers_crosses(pool: Pool, argument: object) -> None:
    with pytest.raises(PoolError, match=r"argument 2 of the task .* is a .*; expected bytes, str or int"):
        pool.submit(f"{TASKS}:join", b"", argument)  # type: ignore[arg-type]


@pytest.mark.parametrize("cpus", [0, -1, 1000])
def test_more_cores_than_there_are_are_refused(pool: Pool, cpus: int) -> None:
    with pytest.raises(PoolError, match=rf"requests {cpus} cores; expected 1 to {pool.workers}, "):
        pool.submit(f"{TASKS}:pid", cpus=cpus)


@pytest.mark.parametrize("text", ["local", "process:1"])
def test_a_closed_pool_takes_no_task_and_closes_twice(text: str) -> None:
    opened = open_pool(text)
    opened.close()
    opened.close()
    with pytest.raises(PoolError, match="a closed pool"):
        opened.submit(f"{TASKS}:pid")


@pytest.mark.parametrize("text", ["", "process", "process:", "process:0", "process:-1", "process:two", "process:²",
                                  "process:1025", "local:1", "threads:2", "Process:2",
                                  "ray:", "ray:head", "ray:head:0", "ray:ray://10.0.0.1:1", "ray::6379"])  # fmt: skip
def test_a_pool_that_does_not_exist_is_refused(text: str) -> None:
    for read in (check_pool, open_pool):
        with pytest.raises(PoolError, match=r'expected "local"|as HOST:PORT'):
            read(text)


def test_the_toolkit_hands_on_the_pools() -> None:
    with open_pool(check_pool("local")) as opened:
        assert isinstance(opened, LocalPool)
        assert opened.submit(f"{TASKS}:pid").result() == str(os.getpid()).encode()


@pytest.mark.parametrize("data", [b"b", pack_arguments([b"abc"])[:-1], b"q" + bytes(8), b"b" + b"\xff" * 8])
def test_damaged_messages_are_refused(data: bytes) -> None:
    with pytest.raises(PoolError, match="a message between a pool and its worker"):
        unpack_arguments(data)


@pytest.mark.parametrize(
    "answer",
    [
        pack_arguments([]),
        pack_arguments([0]),
        pack_arguments([0, "text"]),
        pack_arguments([1, "x"]),
        pack_arguments([2, b""]),
    ],
)
def test_answers_in_another_form_are_refused(answer: bytes) -> None:
    with pytest.raises(PoolError, match="unknown form"):
        read_answer("securevfl_x:y", answer)


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "securevfl_crypto.pools.base:load_task",
        "securevfl_absent:E",
        "securevfl.errors:UnknownNameError",
        "securevfl_crypto.errors:__builtins__",
    ],
)
def test_an_answer_names_an_error_of_ours_or_becomes_a_failed_task(name: str) -> None:
    with pytest.raises(Exception, match="words") as caught:
        read_answer("securevfl_x:y", pack_arguments([1, name, "words"]))
    assert type(caught.value).__module__.startswith("securevfl")


# Processes


def test_tasks_of_processes_run_at_once_elsewhere_and_without_the_script(tmp_path: Path) -> None:
    with ProcessPool(2) as pool:
        meetings = [pool.submit(f"{TASKS}:meet", str(tmp_path), 2) for _ in range(2)]
        assert [future.result(60) for future in meetings] == [b"met"] * 2
        assert sorted(int(path.name) for path in tmp_path.iterdir()) == pool.pids
        assert os.getpid() not in pool.pids
        assert pool.submit(f"{TASKS}:threads").result(60) == b"1 1"
        assert pool.submit(f"{TASKS}:threads", cpus=2).result(60) == b"2 1"
        assert pool.submit(f"{TASKS}:main_module").result(60) == b""  # the script is not imported


def test_a_task_of_two_cores_runs_alone(tmp_path: Path) -> None:
    started, over = tmp_path / "started", tmp_path / "over"
    with ProcessPool(2) as pool:
        small = pool.submit(f"{TASKS}:wait_for", str(started), str(over))
        wide = pool.submit(f"{TASKS}:pid", cpus=2)
        later = pool.submit(f"{TASKS}:pid")
        _until(started.exists)
        assert not wide.running()
        assert not later.running()  # in their order: a wide task is not passed for ever
        over.touch()
        assert [small.result(60), bool(wide.result(60)), bool(later.result(60))] == [b"waited", True, True]


def test_a_killed_worker_is_replaced_and_its_task_runs_again(tmp_path: Path) -> None:
    with ProcessPool(2) as pool:
        futures = [pool.submit(f"{TASKS}:die_once", str(tmp_path / str(n))) for n in range(2)]
        futures += [pool.submit(f"{TASKS}:double", bytes([n])) for n in range(8)]
        assert [future.result(60) for future in futures] == [b"done"] * 2 + [bytes([n, n]) for n in range(8)]


def test_a_task_that_kills_its_worker_ends_with_an_error_that_names_it(tmp_path: Path) -> None:
    with ProcessPool(1, retries=1) as pool:
        with pytest.raises(WorkerLost, match=r"securevfl_pool_tasks:die lost its worker 2 times, .* SIGKILL"):
            pool.submit(f"{TASKS}:die", str(tmp_path / "log")).result(60)
        assert (tmp_path / "log").read_bytes() == b".."
        assert pool.submit(f"{TASKS}:double", b"on").result(60) == b"onon"


def test_closing_ends_processes_and_gives_up_tasks(tmp_path: Path) -> None:
    started = tmp_path / "started"
    before = threading.enumerate()
    pool = ProcessPool(1)
    running = pool.submit(f"{TASKS}:wait_for", str(started), str(tmp_path / "never"))
    waiting = pool.submit(f"{TASKS}:pid")
    _until(started.exists)
    (worker,) = pool.pids
    pool.close()
    with pytest.raises(PoolError, match="cancelled: its pool was closed"):
        running.result(0)
    with pytest.raises(CancelledError):
        waiting.result(0)
    assert pool.pids == []
    assert not Path(f"/proc/{worker}").exists()  # neither alive nor a zombie
    assert not set(threading.enumerate()) - set(before)


def test_a_waiting_task_can_be_cancelled(tmp_path: Path) -> None:
    started, over = tmp_path / "started", tmp_path / "over"
    with ProcessPool(1) as pool:
        first = pool.submit(f"{TASKS}:wait_for", str(started), str(over))
        second = pool.submit(f"{TASKS}:die", str(tmp_path / "log"))
        assert second.cancel()
        over.touch()
        assert first.result(60) == b"waited"
        assert pool.submit(f"{TASKS}:double", b"on").result(60) == b"onon"
        assert not (tmp_path / "log").exists()


def test_workers_end_with_the_process_that_started_them_however_it_ends(tmp_path: Path) -> None:
    started = tmp_path / "started"
    script = tmp_path / "opens.py"  # without a guard for __main__: workers do not import it
    script.write_text(
        "from securevfl_crypto.pools import ProcessPool\n"
        "pool = ProcessPool(1)\n"
        f"task = pool.submit('{TASKS}:wait_for', {str(started)!r}, {str(tmp_path / 'never')!r})\n"
        f"import pathlib, time\nwhile not pathlib.Path({str(started)!r}).exists(): time.sleep(0.005)\n"
        "print(*pool.pids, flush=True)\n"
        "task.result()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment) as opener:
        assert opener.stdout is not None
        worker = int(opener.stdout.readline())
        assert _alive(worker)
        opener.send_signal(signal.SIGKILL)
        opener.wait(30)
    _until(lambda: not _alive(worker))


def _alive(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)
