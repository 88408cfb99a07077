"""Counts of the day against ten obvious lines, over restarts; limits and tokens against clocks that are given."""

from __future__ import annotations

import json
import math
import stat
import tempfile
from collections import Counter
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.servers import JOB

from securevfl.errors import InputError
from securevfl.run.model_parts import ModelPart
from securevfl.serving import Buckets, DailyCounts, ModelRecord, ModelShelf, ServingPolicy, TokenFile, make_token
from securevfl.serving.daily import DAY
from securevfl.serving.policy import RULES, Refusal

PEOPLE = [f"person-{i}" for i in range(4)]
MIDNIGHT = 20_000 * DAY


def counts(folder: Path, policy: ServingPolicy, clock: list[float]) -> DailyCounts:
    return DailyCounts(folder, "shop", policy, now=lambda: clock[0])


def rule(refusal: Refusal | None) -> str:
    return "" if refusal is None else refusal.rule


steps = st.lists(
    st.tuples(
        st.sampled_from(["ask", "restart"]),
        st.lists(st.sampled_from(PEOPLE), min_size=1, max_size=3, unique=True),
        st.floats(0, DAY / 3),
        st.booleans(),
    ),
    max_size=25,
)


@settings(max_examples=40)
@given(steps, st.integers(1, 4), st.integers(2, 12), st.integers(1, 5))
def test_the_days_counts_are_those_of_a_list(
    script: list[tuple[str, list[str], float, bool]], most: int, day: int, releases: int
) -> None:
    policy = ServingPolicy(scores_per_record=most, rows_per_day=day, epsilon_per_record=float(releases))
    clock, kept = [MIDNIGHT], list[tuple[int, str, bool]]()
    with tempfile.TemporaryDirectory() as folder:
        mine = counts(Path(folder), policy, clock)
        for what, names, later, new in script:
            clock[0] += later
            if what == "restart":
                mine = counts(Path(folder), policy, clock)
                continue
            today = [(name, fresh) for when, name, fresh in kept if when == clock[0] // DAY]
            scored = Counter(name for name, _ in today)
            released = Counter(name for name, fresh in today if fresh)
            expected = ""
            if len(today) + len(names) > day:
                expected = "rows_per_day"
            elif any(scored[name] >= most for name in names):
                expected = "scores_per_record"
            elif new and any(released[name] >= releases for name in names):
                expected = "epsilon_per_record"
            found = mine.find_refusal(names, [new] * len(names), float)
            assert rule(found) == expected
            if found is None:
                mine.take(names, [new] * len(names))
                kept += [(int(clock[0] // DAY), name, new) for name in names]
            else:
                assert RULES[found.rule] == found.is_temporary
                assert 0 < found.wait <= DAY


def test_a_minutes_rows_and_what_never_passes(tmp_path: Path) -> None:
    clock = [MIDNIGHT]
    mine = counts(tmp_path, ServingPolicy(rows_per_minute=3, min_batch=2, max_batch=3, epsilon_per_record=1.0), clock)
    assert rule(mine.find_refusal(PEOPLE[:1], [True], float)) == "min_batch"
    assert rule(mine.find_refusal(PEOPLE, [True] * 4, float)) == "max_batch"
    assert rule(mine.find_refusal(PEOPLE[:2], [True] * 2, lambda times: math.inf)) == "no_noise"
    mine.take(PEOPLE[:2], [True] * 2)
    clock[0] += 20
    found = mine.find_refusal(PEOPLE[2:], [True] * 2, float)
    assert found is not None
    assert (found.rule, found.is_temporary, found.wait) == ("rows_per_minute", True, 40)
    again = counts(tmp_path, mine.policy, clock)
    assert rule(again.find_refusal(PEOPLE[2:], [True] * 2, float)) == "rows_per_minute", "a restart reset the minute"
    clock[0] += 40
    assert again.find_refusal(PEOPLE[2:], [True] * 2, float) is None


def test_a_clock_that_is_put_back_gives_no_second_day(tmp_path: Path) -> None:
    clock = [MIDNIGHT + 1]
    mine = counts(tmp_path, ServingPolicy(scores_per_record=1), clock)
    mine.take(PEOPLE[:1], [False])
    clock[0] -= DAY
    assert rule(mine.find_refusal(PEOPLE[:1], [False], float)) == "scores_per_record"
    again = counts(tmp_path, mine.policy, clock)
    assert rule(again.find_refusal(PEOPLE[:1], [False], float)) == "scores_per_record"


def test_the_file_names_nobody_and_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    clock = [MIDNIGHT]
    mine = counts(tmp_path, ServingPolicy(scores_per_record=1), clock)
    mine.take(PEOPLE[:2], [True, False])
    (file,) = tmp_path.glob("counts-*.jsonl")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not any(name.encode() in path.read_bytes() for path in tmp_path.iterdir() for name in PEOPLE)
    with file.open("ab") as torn:
        torn.write(b'{"time": 1728000')
    again = counts(tmp_path, mine.policy, clock)
    assert rule(again.find_refusal(PEOPLE[:1], [False], float)) == "scores_per_record"
    again.take(PEOPLE[2:3], [False])
    assert all(json.loads(line) for line in file.read_bytes().splitlines())
    file.write_bytes(b"nonsense\n" + file.read_bytes())
    with pytest.raises(InputError, match=r"line 1 of .* is damaged"):
        counts(tmp_path, mine.policy, clock)


@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 4)), max_size=40),
    st.floats(0.1, 10),
    st.integers(1, 6),
)
def test_a_bucket_never_gives_more_than_rate_and_burst(asked: list[tuple[float, int]], rate: float, burst: int) -> None:
    clock, given_out = [0.0], list[tuple[float, int]]()
    buckets: Buckets[str] = Buckets(rate, burst, now=lambda: clock[0])
    for later, tokens in asked:
        clock[0] += later
        wait = buckets.take("client", tokens)
        if tokens > burst:
            assert math.isinf(wait)
        elif wait:
            at = clock[0]
            clock[0] += wait * (1 + 1e-9) + 1e-9
            assert buckets.seconds_until("client", tokens) == 0, "what it was told to wait was too short"
            clock[0] = at
        else:
            given_out.append((clock[0], tokens))
    for start, _ in given_out:
        for end, _ in given_out:
            total = sum(tokens for when, tokens in given_out if start <= when <= end)
            assert total <= burst + rate * max(end - start, 0) + 1e-6


def test_buckets_are_forgotten_once_they_are_full() -> None:
    clock = [0.0]
    buckets: Buckets[int] = Buckets(1.0, 2, now=lambda: clock[0], most=100)
    for key in range(1000):
        clock[0] += 0.01
        buckets.take(key)
    assert len(buckets) <= 101
    emptied = 5000
    buckets.take(emptied)
    buckets.take(emptied)
    for key in range(6000, 6080):
        buckets.take(key)
    assert buckets.seconds_until(emptied) > 0, "the emptiest bucket was forgotten"


names = st.from_regex(r"[a-z][a-z0-9_-]{0,31}", fullmatch=True)


@settings(max_examples=15)
@given(
    st.lists(
        st.tuples(names, st.sets(st.sampled_from(["score", "status", "admin"]), min_size=1), st.integers(-3, 3)),
        min_size=1,
        max_size=4,
    ),
    st.text(max_size=80),
)
def test_tokens_open_what_their_file_says_and_nothing_else(made: list[tuple[str, set[str], int]], guess: str) -> None:
    today = date(2026, 6, 15)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.toml"
        tokens = [
            make_token(path, client, tuple(sorted(scopes)), expires=date.fromordinal(today.toordinal() + days))  # type: ignore[arg-type]
            for client, scopes, days in made
        ]
        file = TokenFile(path, today=lambda: today)
        content = path.read_text()
        for token, (client, scopes, days) in zip(tokens, made, strict=True):
            assert token not in content
            found = file.find_client(token)
            assert (found is None) == (days < 0)
            if found is not None:
                assert (found.name, set(found.scopes)) == (client, scopes)
            assert file.find_client(token + "x") is None
            assert file.find_client(token[:-1]) is None
            assert file.find_certificate_client(token.encode()) is None, "a token is no certificate"
        assert file.find_client(guess) is None
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_token_that_is_taken_out_stops_at_once(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    first, second = make_token(path, "one"), make_token(path, "two")
    file = TokenFile(path)
    assert file.find_client(first) is not None
    assert file.find_client(second) is not None
    sections = path.read_text().split("[[token]]")
    path.write_text("[[token]]" + sections[2])
    assert file.find_client(first) is None
    assert file.find_client(second) is not None
    path.chmod(0o622)
    path.write_text("[[token]]" + sections[2] + "\n")
    with pytest.raises(InputError, match="can be written by others"):
        file.find_client(second)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[token]]\nclient = "a"\nsha256 = "00"\n', "64 hexadecimal digits"),
        ('[[token]]\nclient = "A b"\nsha256 = "' + "0" * 64 + '"\n', "lower-case word"),
        ('[[token]]\nclient = "a"\nscopes = ["root"]\nsha256 = "' + "0" * 64 + '"\n', "root"),
        ('[[tokens]]\nclient = "a"\n', "tokens"),
        ("nonsense", "TOML"),
    ],
)
def test_a_token_file_with_mistakes_opens_nothing(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(InputError, match=words):
        TokenFile(path)


def test_a_shelf_serves_no_other_part_than_the_one_that_was_agreed(
    tmp_path: Path, plain: Mapping[str, ModelPart]
) -> None:
    """A part that was replaced on the disk after all had agreed is found by its digest, and the record stays."""
    shelf = ModelShelf(tmp_path, "bank", JOB)
    part = plain["bank"]
    shelf.put_part(part)
    good = ModelRecord.from_parts(part.run, {"bank": part.digest, "shop1": "0" * 64})
    shelf.commit(good)
    wrong = ModelRecord.from_parts(part.run, {"bank": "1" * 64, "shop1": "0" * 64})
    with pytest.raises(InputError, match="but the committed model names"):
        shelf.commit(wrong)
    assert ModelShelf(tmp_path, "bank", JOB).committed == good
    with pytest.raises(InputError, match="no part of run"):
        shelf.read_part("0" * 64)
    with pytest.raises(InputError, match="names no run"):
        shelf.read_part("../bank")
