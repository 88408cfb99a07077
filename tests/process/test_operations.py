"""Logs and metrics: what they hold is listed, and no value of anybody's data is in them."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import signal
import socket
import stat
import sys
import time
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families
from securevfl_net.link_state import LinkState
from support.helpers import make_parties

import securevfl as sv
from securevfl.process.log_fields import EVENTS, FIELDS, LogFields
from securevfl.process.logs import EventLog, LogNews, LogObserver, logging_to
from securevfl.process.metric_names import metric_family
from securevfl.process.metrics import TrainingMetrics, serve_metrics
from securevfl.process.operations import keep_to_quota, open_outputs, settle_collector, stop_on_signals
from securevfl.run.events import RunEvents

MARK = "MARKED-4711"
"""Stands for an identifier, and its digits for a feature value."""


@pytest.fixture
def log() -> EventLog:
    return EventLog(LogFields("bank", ["shop"]), agreement="00aa" * 4)


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_line_holds_what_is_listed_and_nothing_else(log: EventLog, tmp_path: Path) -> None:
    """Every field is offered the marked value, and every event it in its words and in fields that nobody listed."""
    file, words = tmp_path / "log.jsonl", io.StringIO()
    marked: dict[str, Any] = dict.fromkeys([*FIELDS, "peer", "row", "id", "value"], MARK)
    with logging_to(file, screen="text", stream=words):
        for event in (*EVENTS, MARK):
            LogNews(log).report_event(event, f"{event}: {MARK}", **marked)
            log.write(event, MARK, peers=[MARK, "shop"], rows=[4711.0], value=np.float32(4711), seconds=float("nan"))
        LogNews(log).report_event("waits", MARK, shop=MARK, **{MARK: MARK})
        log.write_error(sv.InputError(f"identifier {MARK!r} stands there twice"), 2)
        LogObserver(log).phase(MARK)
        logging.getLogger("uvicorn.error").warning("GET /predict?id=%s", MARK)
        try:
            raise ValueError(MARK)
        except ValueError:
            logging.getLogger("asyncio").exception("task failed: %s", MARK)
    assert MARK in words.getvalue()  # so the same events can show it
    text = file.read_text(encoding="utf-8")
    assert MARK not in text
    assert "4711" not in text
    known = {"time", "level", "event", "party", "peer", "peers", "left_out", *FIELDS}
    lines = _lines(file)
    assert all(set(line) <= known and line["event"] in EVENTS for line in lines)
    assert len(lines) == 2 * (len(EVENTS) + 1) + 5
    assert {"event": "error", "error": "InputError", "exit_code": 2}.items() <= lines[-4].items()
    assert {"event": "waits", "peers": ["shop"]}.items() <= lines[-5].items()


def test_what_is_listed_is_written(log: EventLog, tmp_path: Path) -> None:
    with logging_to(tmp_path / "log.jsonl", screen=None):
        LogNews(log).report_event("up", "shop is connected", peer="shop", resumed=True)
        LogNews(log).report_event("refused", "…", peer="shop", code="not-yet-valid")
        LogObserver(log).epoch(3, 0.5, {"auc": 0.7})
        log.write("stopping", signal="SIGTERM", exit_code=75)
    up, refused, epoch, stopping = _lines(tmp_path / "log.jsonl")
    assert {"event": "up", "party": "bank", "peer": "shop", "resumed": True, "level": "info"}.items() <= up.items()
    assert up["agreement"] == "00aa" * 4
    assert {"code": "not-yet-valid", "level": "warning"}.items() <= refused.items()
    assert epoch["epoch"] == 3
    assert not {0.5, 0.7} & set(epoch.values())
    assert {"signal": "SIGTERM", "exit_code": 75}.items() <= stopping.items()
    assert not any("left_out" in line for line in (up, refused, epoch, stopping))
    assert stat.S_IMODE((tmp_path / "log.jsonl").stat().st_mode) == 0o600


def test_the_first_epoch_lasts_from_the_start_of_training(log: EventLog, tmp_path: Path) -> None:
    """Not from the start of the process, which may have waited for its peers."""
    with logging_to(tmp_path / "log.jsonl", screen=None):
        observer = LogObserver(log)
        time.sleep(0.3)
        observer.phase("training")
        observer.epoch(1, 0.5, {})
    *_, epoch = _lines(tmp_path / "log.jsonl")
    assert epoch["seconds"] < 0.2


@pytest.mark.parametrize("dp", [None, sv.DP(features=sv.Gaussian(epsilon=8.0))])
def test_no_value_of_a_job_reaches_its_logs_and_metrics(tmp_path: Path, dp: sv.DP | None) -> None:
    """Marked identifiers and features: a whole job, with all that logs and metrics hear of it, and its failure."""
    people = make_parties(rows=120)
    marked = {
        name: replace(
            table,
            ids=np.array([f"{MARK}{one}" for one in table.ids], dtype=object),
        )
        for name, table in people.items()
    }
    tables = sv.Parties.of(*marked.values())
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, top=(4,)), protection=sv.Plain(dp=dp), epochs=2, batch_size=32)
    names = list(tables)
    observers: dict[str, sv.Observer] = {}
    metrics = {name: TrainingMetrics(name, sv.__version__) for name in names}
    for name in names:
        observers[name] = LogObserver(EventLog(LogFields(name, names)))
    with logging_to(tmp_path / "log.jsonl", screen=None):
        sv.simulate(job, tables, observers=observers)
        sv.simulate(job, tables, observers=dict(metrics))
        table = tables[names[0]]
        with pytest.raises(sv.InputError, match=MARK) as failed:
            sv.Parties.of(replace(table, ids=np.array([table.ids[0]] * len(table.ids), dtype=object)))
        EventLog(LogFields(names[0], names)).write_error(failed.value, 2)
    lines = _lines(tmp_path / "log.jsonl")
    assert sum(line["event"] == "epoch" for line in lines) == 2 * len(names)
    assert MARK not in (tmp_path / "log.jsonl").read_text(encoding="utf-8")
    with serve_metrics(metrics["bank"], 0) as port:
        shown = _scraped(port)
    assert MARK not in shown
    families = {one.name: one for one in text_string_to_metric_families(shown)}
    assert families["securevfl_steps"].samples[0].value > 2
    with serve_metrics(metrics["shop1"], 0) as port:
        epsilon = [line for line in _scraped(port).splitlines() if line.startswith("securevfl_epsilon{")]
    assert len(epsilon) == (0 if dp is None else 1)


def test_the_phase_of_a_candidate_has_its_name() -> None:
    fields = LogFields("bank", ["shop"])
    assert fields.filter_values({"phase": "candidate logistic_regression"}) == {
        "phase": "candidate logistic_regression"
    }
    assert fields.filter_values({"phase": f"candidate {MARK}"}) == {"left_out": 1}
    shown = metric_family("phase_seconds", {("candidate splitnn",): 2.0, (f"candidate {MARK}",): 2.0}).samples
    assert [one.labels for one in shown] == [{"phase": "candidate splitnn"}]


def _scraped(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        content: bytes = answer.read()
    return content.decode()


def test_metrics_are_what_prometheus_reads() -> None:
    metrics = TrainingMetrics("bank", "0.1.0")
    metrics.links_changed(
        {"shop": LinkState(connected=True, connections=3, sent=10, received=20, round_trip=0.25, silent=1.5)}
    )
    metrics.epsilon_spent("bank", {"activations": 2.5})
    metrics.report_event("attempt", "", attempt=1)
    metrics.report_event("refused", "", peer="shop", code="revoked")
    metrics.report_event("refused", "", peer="", code=MARK)
    metrics.phase("training")
    for step in range(3):
        metrics.step(1, step, 3)
    with serve_metrics(metrics, 0) as port:
        text = _scraped(port)
        with pytest.raises(sv.InputError, match="cannot be opened"), serve_metrics(TrainingMetrics("x", "0"), port):
            pass
        with socket.socket() as other, pytest.raises(ConnectionRefusedError):  # this address and no other
            other.connect(("127.0.0.2", port))
    found = {
        (sample.name.removeprefix("securevfl_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    expected = {
        ("info", "bank", "0.1.0"): 1,
        ("steps_total",): 3,
        ("step_seconds_count",): 3,
        ("epoch",): 1,
        ("attempts_total",): 1,
        ("parked_total",): 0,
        ("refused_total", "revoked"): 1,
        ("refused_total", "other"): 1,
        ("connected", "shop"): 1,
        ("reconnects_total", "shop"): 2,
        ("sent_bytes_total", "shop"): 10,
        ("received_bytes_total", "shop"): 20,
        ("round_trip_seconds", "shop"): 0.25,
        ("silent_seconds", "shop"): 1.5,
        ("blocked", "shop"): 0,
        ("epsilon", "activations"): 2.5,
    }
    assert expected.items() <= found.items()


def test_words_for_people_are_one_line(log: EventLog) -> None:
    words = io.StringIO()
    with logging_to(screen="text", stream=words):
        log.write("refused", "shop says: \x1b[31mfine\n12:00:00  bank is done")
    assert len(words.getvalue().splitlines()) == 1
    assert "\x1b" not in words.getvalue()


def test_a_log_that_cannot_be_written_is_said_once_and_ends_nothing(
    log: EventLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(sv.InputError, match="cannot be written"), logging_to(tmp_path / "none" / "log.jsonl"):
        pass
    with logging_to(Path("/dev/full"), screen=None):
        log.write("started")
        log.write("ended")
    assert capsys.readouterr().err.count("the log cannot be written") == 1
    before = logging.getLogger().handlers[:]
    with logging_to(tmp_path / "log.jsonl", screen=None):
        assert logging.getLogger().handlers != before
    assert logging.getLogger().handlers == before


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_once_in_good_order(number: signal.Signals, log: EventLog, tmp_path: Path) -> None:
    async def process() -> list[signal.Signals]:
        stopped = asyncio.Event()
        with stop_on_signals(stopped.set, log) as came:
            signal.raise_signal(number)
            await asyncio.wait_for(stopped.wait(), 60)
            await asyncio.sleep(0)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # another one ends it as ever
        return came

    with logging_to(tmp_path / "log.jsonl", screen=None):
        assert asyncio.run(process()) == [number]
    (line,) = _lines(tmp_path / "log.jsonl")
    assert (line["event"], line["signal"]) == ("stopping", number.name)


def test_what_an_operator_asks_for_is_there_as_long_as_it_runs(tmp_path: Path) -> None:
    with open_outputs("bank", ["shop"], "ab" * 32, files=[tmp_path / "log.jsonl"], screen=None, port=0) as at:
        for one in at.hearers:
            if isinstance(one, RunEvents):
                one.report_event("attempt", "attempt 1 begins", attempt=1)
                one.links_changed({"shop": LinkState(connected=True)})
        shown = _scraped(at.port)
    assert 'securevfl_connected{peer="shop"} 1.0' in shown
    assert "securevfl_attempts_total 1.0" in shown
    with pytest.raises(OSError, match="refused"):
        _scraped(at.port)
    listening, attempt = _lines(tmp_path / "log.jsonl")
    assert (listening["port"], attempt["attempt"], attempt["agreement"]) == (at.port, 1, "ab" * 8)


def test_torch_keeps_to_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: set_to[-1] if set_to else 64)
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    monkeypatch.setattr("securevfl.process.operations.usable_cores", lambda: 3)
    assert keep_to_quota() == 3


def test_the_collector_leaves_alone_what_was_there_and_no_garbage() -> None:
    class Held:
        def __init__(self) -> None:
            self.itself = self

    held = Held()
    gone = weakref.ref(held)
    try:
        settle_collector()
        settled = gc.get_freeze_count()
        assert settled > 10_000
        assert gone() is held
        del held
        gc.collect()
        assert gone() is not None, "a collection walked what had settled"
        settle_collector()  # with the next model
        assert gone() is None, "garbage from before stays for ever"
    finally:
        gc.unfreeze()
