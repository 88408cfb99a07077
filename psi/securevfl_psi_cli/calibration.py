"""How fast this machine computes `dh` and `ot`, measured and kept in a file, for `auto`; see `securevfl_psi.speed`."""

from __future__ import annotations

import json
import os
import platform
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from securevfl_crypto.engine import describe_kernels
from securevfl_crypto.engine.cpu import forced_path, thread_count
from securevfl_psi.dh import DHServer
from securevfl_psi.errors import MalformedError
from securevfl_psi.identifiers import Identifiers
from securevfl_psi.oblivious import OTClient, OTServer
from securevfl_psi.session import Session
from securevfl_psi.speed import Speed

__all__ = ["calibrate", "load_speed", "measure_speed"]

_PRODUCTS, _ROWS, _TURNS = 512, 1 << 12, 2
_DAYS = 30
_MOST_BYTES = 1 << 16
_ENOUGH = 3
"""After so many measurements the least of them is taken as it is."""


@lru_cache(maxsize=1)
def load_speed() -> Speed:
    """Return this machine's speed: from the file if it is known well enough, else measured now and put there.

    The file is ``speed.json`` in the folder ``SECUREVFL_CACHE``, by default ``securevfl`` in ``XDG_CACHE_HOME`` or
    ``~/.cache``. Measuring takes 0.4 CPU-seconds. The least time of three measurements counts, because other programs
    slow a measurement and never speed it up. After 30 days, on another CPU or with other kernels, this measures again.
    It goes on without a file that it cannot read or write. Within a process the answer stays the same.
    """
    known = _read_speed(_cache_file(), _machine_key())
    return known.speed if known is not None and known.enough else calibrate()[0]


def calibrate() -> tuple[Speed, Path | None]:
    """Measure once more; return the least so far, and the file that it is kept in, if there is one."""
    file, key = _cache_file(), _machine_key()
    known, found, times = _read_speed(file, key), measure_speed(), 1
    if known is not None and known.fresh:
        found, times = found.take_least(known.speed), known.times + 1
    return found, _write_speed(file, key, found, times)


def measure_speed() -> Speed:
    """Measure this machine: the least of two turns, in CPU time."""
    products = Identifiers.of_texts([f"calibration {number}" for number in range(_PRODUCTS)])
    rows = [Identifiers.of_texts([f"row {number}" for number in range(first, first + _ROWS)]) for first in (0, 99)]
    turns = []
    for _ in range(_TURNS):
        session = Session(names=("a", "b"), nonce=secrets.token_bytes(16), rules_tag="calibration")
        clock = _Clock()
        with clock.take("product", _PRODUCTS):
            list(DHServer(products, session).token_chunks())
        _run_transfer(rows[0], rows[1], session, clock)
        turns.append(clock.seconds)
    product, encode, look_up, transfers = (min(turn[kind] for turn in turns) for kind in _KINDS)
    return Speed.from_seconds(product, encode, look_up, transfers, cores=thread_count())


_KINDS = ("product", "encode", "look_up", "transfers")


class _Clock:
    def __init__(self) -> None:
        self.seconds = dict.fromkeys(_KINDS, 0.0)

    @contextmanager
    def take(self, kind: str, count: int) -> Iterator[None]:
        start = time.process_time()
        yield
        self.seconds[kind] += (time.process_time() - start) / count


def _run_transfer(ours: Identifiers, theirs: Identifiers, session: Session, clock: _Clock) -> None:
    client, server = OTClient(ours, session, len(theirs)), OTServer(theirs, session, len(ours))
    with clock.take("encode", len(ours)):
        seed = client.seed
    with clock.take("transfers", 2 * 512):  # both halves
        server.take_message(client.first_message)
        client.take_keys(server.make_choices())
    server.take_seed(seed)
    with clock.take("encode", len(ours)):
        rows = list(client.encode_rows())
    with clock.take("look_up", len(theirs)):
        server.prepare()
        for chunk in rows:
            server.take_rows(chunk)
        challenge = server.draw_challenge()
    with clock.take("encode", len(ours)):
        answer = client.answer_challenge(challenge)
        client.evaluate()
    with clock.take("look_up", len(theirs)):
        server.check_answer(answer)
        tokens = list(server.token_chunks())
    with clock.take("encode", len(ours)):
        for chunk in tokens:
            client.take_tokens(chunk)
        client.find_common_rows()


@dataclass(frozen=True)
class _Known:
    speed: Speed
    times: int
    day: int

    @property
    def fresh(self) -> bool:
        return 0 <= _today() - self.day < _DAYS

    @property
    def enough(self) -> bool:
        return self.fresh and self.times >= _ENOUGH


def _today() -> int:
    return int(time.time() // 86_400)


def _cache_file() -> Path | None:
    folder = os.environ.get("SECUREVFL_CACHE")
    if folder:
        return Path(folder) / "speed.json"
    try:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    except RuntimeError:  # no home
        return None
    return Path(base) / "securevfl" / "speed.json"


def _machine_key() -> dict[str, str]:
    """What the figures depend on: the CPU, its cores, and the kernels."""
    model = platform.processor() or platform.machine()
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {"cpu": model, "cores": str(thread_count()), "path": forced_path() or "", **describe_kernels()}


def _read_speed(file: Path | None, key: Mapping[str, str]) -> _Known | None:
    if file is None:
        return None
    try:
        with file.open("rb") as stream:
            stored = json.loads(stream.read(_MOST_BYTES))
        if stored["machine"] != dict(key):
            return None
        speed = Speed.from_json(stored["speed"], str(file))
        times, day = stored["times"], stored["day"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError, MalformedError):
        return None
    whole = all(isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in (times, day))
    return _Known(speed, times, day) if whole else None


def _write_speed(file: Path | None, key: Mapping[str, str], speed: Speed, times: int) -> Path | None:
    if file is None:
        return None
    content = {"machine": dict(key), "speed": speed.to_json(), "times": times, "day": _today()}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps(content), encoding="ascii")
        temporary.replace(file)
    except OSError:
        return None
    return file
