"""The day book of several processes: real ones race for a limit and are killed at any write; nothing counts too low."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import traceback
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from securevfl.errors import InputError
from securevfl.serving import DailyCounts, ServingPolicy, day_book
from securevfl.serving.day_book import DAY, CountedBatch
from securevfl.serving.policy import Refusal

NOON = 20_000.5 * DAY
LIMIT = 20
POINTS = ("before a write", "in a write", "after a write", "before a sync", "after a sync")


def counts(folder: Path, policy: ServingPolicy, now: Callable[[], float] = lambda: NOON, **more: object) -> DailyCounts:
    return DailyCounts(folder, "shop", policy, now=now, **more)  # type: ignore[arg-type]


def spawn(work: Callable[[], None]) -> int:
    """Run this in another process; returns its number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        number = os.fork()
    if number:
        return number
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def wait_for(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def die_at(point: str, at: int) -> None:
    """Let this process be killed at a point of its `at`-th write, from 1."""
    writes, original, original_sync = [0], day_book.append_data, day_book.sync_file

    def reach(here: str) -> None:
        if here == point and writes[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def append(path: Path, data: bytes) -> None:
        writes[0] += 1
        reach("before a write")
        if point == "in a write" and writes[0] == at:
            original(path, data[: len(data) // 2])
            reach(point)
        original(path, data)
        reach("after a write")

    def sync(path: Path) -> None:
        reach("before a sync")
        original_sync(path)
        reach("after a sync")

    day_book.append_data, day_book.sync_file = append, sync  # type: ignore[assignment]


def race(folder: Path, start: int, given_out: Path, end: tuple[str, int] | None, returned: bool) -> None:
    """One process: take until the limit is reached, and write down what was given, as the last thing."""
    mine = counts(folder, ServingPolicy(scores_per_record=LIMIT))
    if end is not None:
        die_at(*end)
    os.read(start, 1)  # until all are there
    handle = os.open(given_out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while not isinstance(found := mine.take(["p"], [False]), Refusal):
        if returned:
            returned = False
            mine.take_back(found)
            continue
        mine.sync()
        os.write(handle, b".")


ends = st.none() | st.tuples(st.sampled_from(POINTS), st.integers(1, 8))


@settings(max_examples=12, deadline=None)
@example([None, None], [False, False])
@example([None] * 4, [False] * 4)
@example([("in a write", 2), None, None], [False] * 3)
@example([("after a write", 1), ("after a sync", 3), None], [True, False, True])
@given(st.lists(ends, min_size=2, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4))
def test_processes_share_a_limit_exactly_and_a_kill_counts_nothing_too_low(
    killed: list[tuple[str, int] | None], returned: list[bool]
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder, given_out = Path(temporary) / "days", Path(temporary) / "given"
        given_out.touch()
        ours, theirs = os.pipe()
        started = []
        for end, back in zip(killed, returned, strict=False):

            def work(end: tuple[str, int] | None = end, back: bool = back) -> None:
                os.close(theirs)
                race(folder, ours, given_out, end, back)

            started.append(spawn(work))
        os.close(theirs)
        os.close(ours)
        codes = [wait_for(one) for one in started]
        assert all(code in (0, -signal.SIGKILL) for code in codes)
        assert all(code == 0 for code, end in zip(codes, killed, strict=True) if end is None)
        mine = counts(folder, ServingPolicy(scores_per_record=LIMIT))
        while not isinstance(mine.take(["p"], [False]), Refusal):
            given_out.write_bytes(given_out.read_bytes() + b".")
        found, died = given_out.stat().st_size, sum(code != 0 for code in codes)
        assert LIMIT - died <= found <= LIMIT, "a kill costs one at most, and gives nobody more"
        assert mine.rows == LIMIT


def test_another_process_sees_the_minute_the_day_and_the_releases(tmp_path: Path) -> None:
    """Each limit of two books of one folder is that of one."""
    policies = {
        "rows_per_minute": ServingPolicy(rows_per_minute=2),
        "rows_per_day": ServingPolicy(rows_per_day=2),
        "epsilon_per_record": ServingPolicy(epsilon_per_record=2.0),
    }
    for rule, policy in policies.items():
        one, other = counts(tmp_path / rule, policy), counts(tmp_path / rule, policy)
        first = one.take(["p"], [True], float)
        second = other.take(["p"], [True], float)
        assert isinstance(first, CountedBatch)
        assert isinstance(second, CountedBatch)
        for each in (one, other):
            found = each.take(["p"], [True], float)
            assert isinstance(found, Refusal)
            assert found.rule == rule
        other.take_back(first)  # the session broke off before anything left
        assert one.find_refusal(["p"], [True], float) is None
        assert one.rows == other.rows == 1
        assert one.most_released() == other.most_released() == 1


def test_askers_have_counts_of_their_own(tmp_path: Path) -> None:
    policy = ServingPolicy(scores_per_record=1)
    bank, insurer = (counts(tmp_path, policy, asker=asker) for asker in ("bank", "insurer"))
    assert isinstance(bank.take(["p"], [False]), CountedBatch)
    assert insurer.find_refusal(["p"], [False]) is None
    assert (bank.rows, insurer.rows) == (1, 0)
    assert isinstance(counts(tmp_path, policy, asker="bank").take(["p"], [False]), Refusal)


def test_what_was_counted_today_belongs_to_the_organisation_that_is_entered_later(tmp_path: Path) -> None:
    policy = ServingPolicy(scores_per_record=1, rows_per_day=3)
    assert isinstance(counts(tmp_path, policy, asker="bank").take(["p", "q"], [False] * 2), CountedBatch)
    entered = counts(tmp_path, policy, asker="Big Bank", organisations={"bank": "Big Bank"})
    assert entered.rows == 2
    assert entered.find_refusal(["p"], [False]) is not None
    assert isinstance(entered.take(["r"], [False]), CountedBatch)
    assert entered.find_refusal(["s"], [False]) is not None


def test_midnight_passes_for_one_process_before_the_other(tmp_path: Path) -> None:
    """The one whose clock is behind neither loses the day that ends, nor reopens it for the other."""
    clocks = [[NOON], [NOON]]
    policy = ServingPolicy(scores_per_record=1, rows_per_minute=1)
    ahead, behind = (counts(tmp_path, policy, lambda clock=clock: clock[0]) for clock in clocks)
    clocks[0][0] = clocks[1][0] = 20_001 * DAY - 90
    assert isinstance(behind.take(["p"], [False]), CountedBatch)
    clocks[0][0], clocks[1][0] = 20_001 * DAY + 1, 20_001 * DAY - 1
    assert isinstance(ahead.take(["p"], [False]), CountedBatch)
    found = behind.take(["p"], [False])
    assert isinstance(found, Refusal)
    assert found.rule == "scores_per_record"
    clocks[1][0] = 20_001 * DAY + 2
    found = behind.take(["q"], [False])
    assert isinstance(found, Refusal)
    assert found.rule == "rows_per_minute"
    again = counts(tmp_path, policy, lambda: 20_001 * DAY + 2)
    assert isinstance(again.take(["p"], [False]), Refusal)
    clocks[0][0] = 20_002 * DAY + 1
    assert ahead.rows == 0
    assert [file.name for file in sorted(tmp_path.glob("counts-*"))] == ["counts-2024-10-05.jsonl"]


# Counts of an earlier version.


def keep_old_counts(folder: Path, times: int, key: bytes = b"k" * 32, day: str = "2024-10-04") -> None:
    """As an earlier version kept them, in the state folder."""
    import hmac

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "people.key").write_bytes(key)
    who = hmac.digest(key, b"p", "sha256").hex()[:24]
    line = json.dumps({"time": NOON - 1, "scored": [who], "released": [who]}, separators=(",", ":"))
    for second in range(times):
        with (folder / f"counts-{day}.jsonl").open("a") as file:
            file.write(line.replace(str(NOON - 1), str(NOON - 3600 - second)) + "\n")


def test_old_counts_are_taken_over_once_even_those_of_several_folders(tmp_path: Path) -> None:
    policy = ServingPolicy(scores_per_record=6, epsilon_per_record=100.0)
    keep_old_counts(tmp_path / "one", 2)
    keep_old_counts(tmp_path / "two", 3, key=b"l" * 32)
    kept = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    running = counts(tmp_path / "days", policy)
    assert isinstance(running.take(["q"], [False]), CountedBatch)
    first = counts(tmp_path / "days", policy, older=tmp_path / "one")
    assert first.most_released() == 2
    assert not list((tmp_path / "one").glob("counts-*"))
    for name, content in kept.items():  # a state folder is restored from a back-up
        (tmp_path / "one" / name).write_bytes(content)
    counts(tmp_path / "days", policy, older=tmp_path / "one")
    second = counts(tmp_path / "days", policy, older=tmp_path / "two")
    assert isinstance(second.take(["p"], [False]), CountedBatch)
    for each in (running, first, second, counts(tmp_path / "days", policy)):
        assert each.rows == 7
        assert isinstance(each.take(["p"], [False]), Refusal), "2 + 3 + 1 scores were counted"
    assert not isinstance(running.take(["q"], [False]), Refusal)


def test_old_counts_of_a_day_that_is_over_count_nothing_and_those_of_a_day_ahead_do(tmp_path: Path) -> None:
    policy = ServingPolicy(scores_per_record=1)
    keep_old_counts(tmp_path / "one", 2, day="2024-10-03")
    mine = counts(tmp_path / "days", policy, older=tmp_path / "one")
    assert isinstance(mine.take(["p"], [False]), CountedBatch)
    keep_old_counts(tmp_path / "two", 2, day="2024-10-05")  # the clock was put back
    mine = counts(tmp_path / "ahead", policy, older=tmp_path / "two")
    assert isinstance(mine.take(["p"], [False]), Refusal)


def test_a_lost_key_and_a_file_that_shrinks_are_refused_with_the_cure(tmp_path: Path) -> None:
    policy = ServingPolicy(scores_per_record=3)
    mine = counts(tmp_path, policy)
    mine.take(["p"], [False])
    (file,) = tmp_path.glob("counts-*.jsonl")
    older = file.read_bytes()
    mine.take(["p"], [False])
    file.write_bytes(older)
    with pytest.raises(InputError, match=r"is gone, or older than it was.*restore the file"):
        mine.take(["p"], [False])
    (tmp_path / "people.key").unlink()
    with pytest.raises(InputError, match=r"people\.key is missing.*delete the folder"):
        counts(tmp_path, policy)


# Memory.


def test_memory_does_not_grow_with_batches(tmp_path: Path) -> None:
    """Without a limit per person nothing of a batch stays in memory, and with a limit a minute one minute's batches."""
    clock = [NOON]

    def grown(policy: ServingPolicy, people: int) -> int:
        mine = counts(tmp_path / str(people) / str(policy.rows_per_minute), policy, lambda: clock[0])

        def ask(first: int, last: int) -> None:
            for number in range(first, last):
                clock[0] += 0.1
                assert isinstance(mine.take([f"customer-{number % people}"], [False]), CountedBatch)

        ask(0, 1000)
        tracemalloc.start()
        ask(1000, 4000)
        found = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return found

    assert grown(ServingPolicy(), 4000) < 30_000
    assert grown(ServingPolicy(rows_per_minute=1000), 4000) < 60_000
    assert grown(ServingPolicy(scores_per_record=5000), 1000) < 60_000
    assert grown(ServingPolicy(scores_per_record=5000), 4000) < 200 * 3000, "200 bytes a person at most"
