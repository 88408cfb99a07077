"""The speed of a machine: measured, kept, rounded, told, and weighed alike by both ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from securevfl_psi import UNTOLD, MalformedError, Speed, Terms
from securevfl_psi.speed import picoseconds
from securevfl_psi_cli import calibration
from securevfl_psi_cli.options import Options
from support.commands import run

STEPS = st.integers(0, 93)
SPEEDS = st.builds(Speed, STEPS, STEPS, STEPS, STEPS, st.integers(1, 256))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SECUREVFL_CACHE", str(tmp_path / "cache"))
    calibration.load_speed.cache_clear()
    yield tmp_path / "cache" / "speed.json"
    calibration.load_speed.cache_clear()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Speed]:
    """What the next measurements find, in order."""
    left: list[Speed] = []
    monkeypatch.setattr(calibration, "measure_speed", lambda: left.pop(0))
    return left


def test_it_is_measured_in_its_ranges() -> None:
    found = calibration.measure_speed()
    assert Speed.from_json(found.to_json(), "this machine") == found
    times = [picoseconds(step) / 1e6 for step in found.to_json()[:-1]]
    assert all(0.01 < time < 5000 for time in times), times
    assert found.product > found.look_up  # a scalar product is hundreds of times the work of a row


@given(st.floats(1e-10, 1.0))
def test_times_are_rounded_to_quarter_powers_of_two(seconds: float) -> None:
    told = Speed.from_seconds(seconds, 1e-6, 1e-6, 1e-6, cores=1000)
    assert told.cores == 256
    if 1e-9 < seconds < 9e-3:
        assert picoseconds(told.product) / 1e12 == pytest.approx(seconds, rel=0.1)


@pytest.mark.parametrize("step", range(0, 94, 4))
def test_whole_steps_are_powers_of_two(step: int) -> None:
    assert picoseconds(step) == 1000 << (step // 4)


@pytest.mark.parametrize(
    "value",
    [None, "fast", [50, 44, 41, 69], [50, 44, 41, 69, 1, 1], [50.0, 44, 41, 69, 1], [True, 44, 41, 69, 1],
     [-1, 44, 41, 69, 1], [94, 44, 41, 69, 1], [50, 44, 41, 69, 0], [50, 44, 41, 69, 257], {"product": 50}],
)  # fmt: skip
def test_a_peer_that_tells_something_else_is_refused(value: object) -> None:
    with pytest.raises(MalformedError, match="four whole numbers from 0 to 93"):
        Speed.from_json(value, "shop")
    bank = Terms(name="bank", peer="shop", role="receiver", protocol="auto", speed=UNTOLD)
    hello = json.loads(Terms(name="shop", peer="bank", role="sender", protocol="auto", speed=UNTOLD).encode_hello(5))
    with pytest.raises(MalformedError, match=r"'?shop'? tells"):
        bank.accept_hello(json.dumps(hello | {"speed": value}).encode(), 5)


def test_the_least_of_three_measurements_is_kept(cache: Path, measured: list[Speed]) -> None:
    measured += [Speed(55, 44, 41, 70, 2), Speed(53, 45, 42, 71, 2), Speed(54, 46, 43, 68, 2), Speed(1, 1, 1, 1, 2)]
    for expected in ((55, 44, 41, 70, 2), (53, 44, 41, 70, 2), (53, 44, 41, 68, 2), (53, 44, 41, 68, 2)):
        assert calibration.load_speed() == Speed(*expected)
        calibration.load_speed.cache_clear()  # as in the next process
    assert measured == [Speed(1, 1, 1, 1, 2)]  # three were enough
    assert json.loads(cache.read_text())["times"] == 3


def test_it_is_measured_anew_after_a_month_on_another_machine_and_where_the_file_is_broken(
    cache: Path, measured: list[Speed], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = Speed(60, 60, 60, 80, 1), Speed(50, 50, 50, 70, 1)
    known = {"machine": calibration._machine_key(), "speed": fast.to_json(), "times": 3, "day": calibration._today()}
    cache.parent.mkdir()
    for content in (
        known | {"day": calibration._today() - 31},
        known | {"day": calibration._today() + 2},  # a clock that was wrong
        known | {"machine": known["machine"] | {"cpu": "another"}},
        known | {"machine": known["machine"] | {"kernels": "manifest of another build"}},
        known | {"speed": [1, 2, 3]},
        known | {"times": "3"},
        [],
        "x" * 100_000,
    ):
        cache.write_text(json.dumps(content), encoding="ascii")
        measured.append(slow)
        assert calibration.load_speed() == slow, content
        calibration.load_speed.cache_clear()
    cache.write_text(json.dumps(known), encoding="ascii")
    assert calibration.load_speed() == fast
    calibration.load_speed.cache_clear()
    monkeypatch.setenv("SECUREVFL_CACHE", "/dev/null/cache")
    measured.append(slow)
    assert calibration.load_speed() == slow  # nowhere to keep it is no error


@given(SPEEDS, SPEEDS, st.integers(0, 1 << 24), st.integers(0, 1 << 24), st.sampled_from(["both", "receiver"]))
def test_both_ends_choose_alike_and_for_the_same_reason(
    one: Speed, other: Speed, rows: int, more: int, learns: str
) -> None:
    bank = Terms(name="bank", peer="shop", role="receiver", protocol="auto", speed=one, learns=learns, link=80.0)  # type: ignore[arg-type]
    shop = Terms(name="shop", peer="bank", role="sender", protocol="auto", speed=other, learns=learns)  # type: ignore[arg-type]
    first, _ = bank.accept_hello(shop.encode_hello(more), rows)
    second, _ = shop.accept_hello(bank.encode_hello(rows), more)
    assert (first.protocol, first.why, first.dst) == (second.protocol, second.why, second.dst)


PARTY = {"table": Path("t.csv"), "column": "id", "name": "bank", "peer": "shop"}
QUICK_CLIENT = Speed(product=60, encode=0, look_up=93, transfers=0, cores=1)
QUICK_SERVER = Speed(product=60, encode=93, look_up=0, transfers=0, cores=1)
"""`ot` is quick if the first encodes and the second looks up, and takes minutes the other way round."""


@pytest.mark.parametrize("rows", [(1 << 14, 1 << 15), (1 << 15, 1 << 14)])
def test_each_partys_figures_count_in_its_part(rows: tuple[int, int]) -> None:
    """The smaller set asks, whoever listens."""
    speeds = (QUICK_CLIENT, QUICK_SERVER) if rows[0] < rows[1] else (QUICK_SERVER, QUICK_CLIENT)
    for given_speeds, expected in ((speeds, "ot"), (speeds[::-1], "dh")):
        bank = Terms(name="bank", peer="shop", role="receiver", protocol="auto", speed=given_speeds[0])
        shop = Terms(name="shop", peer="bank", role="sender", protocol="auto", speed=given_speeds[1])
        assert bank.accept_hello(shop.encode_hello(rows[1]), rows[0])[0].protocol == expected
        assert shop.accept_hello(bank.encode_hello(rows[0]), rows[1])[0].protocol == expected


@pytest.mark.parametrize("tell", [True, False])
def test_the_command_measures_only_what_it_tells(tell: bool, cache: Path, measured: list[Speed]) -> None:
    found = Speed(60, 50, 40, 70, 7)
    measured.append(found)
    options = Options(**PARTY, protocol="auto", tell_speed=tell)
    assert options.terms_arguments("receiver")["speed"] == (found if tell else UNTOLD)
    assert measured == ([] if tell else [found])
    assert Options(**PARTY).terms_arguments("receiver")["speed"] == UNTOLD


def test_a_path_that_is_none_is_a_users_mistake_where_the_machine_is_measured_too(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECUREVFL_ENGINE", "abacus")
    (tmp_path / "t.csv").write_text("id\nann\n", encoding="utf-8")
    party = ("--id", "id", "--name", "bank", "--peer", "shop", "--port", "0", "--wait", "0.01", "--protocol", "auto")
    assert run("listen", str(tmp_path / "t.csv"), *party) == 2
    assert "EngineError" in capsys.readouterr().err


def test_a_hello_tells_the_rounded_figures_only_and_only_where_they_are_weighed() -> None:
    told = Speed(51, 44, 41, 69, 2)
    hello = json.loads(Terms(name="a", peer="b", role="sender", protocol="auto", speed=told).encode_hello(9))
    assert hello["speed"] == [51, 44, 41, 69, 2]
    for protocol in ("dh", "ot"):
        named = json.loads(Terms(name="a", peer="b", role="sender", protocol=protocol, speed=told).encode_hello(9))  # type: ignore[arg-type]
        assert "speed" not in named


def test_the_command_measures_and_shows_what_is_told(
    cache: Path, measured: list[Speed], capsys: pytest.CaptureFixture[str]
) -> None:
    measured.append(Speed(56, 48, 40, 64, 4))
    assert run("calibrate") == 0
    said = capsys.readouterr()
    text = said.out + said.err
    for words in ("16.4 µs", "4.1 µs", "1.02 µs", "65.5 µs", "speed.json"):
        assert words in text, text
