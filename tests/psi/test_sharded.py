"""Sets in shards: the hash and the plan, files, and whole runs, exact whatever happens to a worker or a party."""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from securevfl_crypto.pools import LocalPool, Pool, ProcessPool
from securevfl_psi import IdRules, Terms
from securevfl_psi.column import Identifiers
from securevfl_psi.endpoint import run_in_process
from securevfl_psi.errors import (
    ConnectionLost,
    DisagreementError,
    IdentifierError,
    PeerRefused,
    PSIError,
    SetSizeError,
    ShardError,
    SmallIntersectionError,
)
from securevfl_psi.okvs import MAX_KEYS, scale_fractions, slots_for
from securevfl_psi.sharded import (
    IdBatch,
    ShardPlan,
    bucket_hashes,
    bucket_of,
    in_batches,
    overflow_exponent,
    padded_size,
    shard_bits,
)
from securevfl_psi.sharded.reading import normalised_batch, of_arrow
from securevfl_psi_cli.shards import worker
from securevfl_psi_cli.shards.files import read_result, read_shard
from securevfl_psi_cli.shards.leading import SHARD_CONTEXT, ShardedRun, Source, lead_run
from securevfl_psi_cli.shards.partition import part_path, partition_rows, read_part
from securevfl_psi_cli.shards.shard import ShardSession, sort_shard
from securevfl_psi_cli.shards.state import RunState, Settings
from securevfl_psi_cli.shards.worker import WorkerLine

KEY = bytes(range(64))
RULES = IdRules()
Outcome = ShardedRun | PSIError

# the hash


def test_the_bucket_hash_is_sha512_of_the_key_in_hexadecimal_and_the_text() -> None:
    texts = ["ann", "böb", "x" * 300, "0"]
    found = bucket_hashes(Identifiers.of_texts(texts), KEY)
    for text, value in zip(texts, found.tolist(), strict=True):
        assert value == int(hashlib.sha512((KEY.hex() + text).encode()).hexdigest()[:16], 16)
        assert bucket_of(text, KEY, 7) == value >> 57
    assert found[0] == 0x73F18E3F2BD94F0F  # the known answer of docs/psi-shards.md
    with pytest.raises(ShardError, match="64 are needed"):
        bucket_hashes(Identifiers.of_texts(["a"]), b"short")


# the plan


def test_shards_are_as_few_as_hold_a_million_each() -> None:
    assert [shard_bits(n) for n in (0, 1, 1 << 20, (1 << 20) + 1, 10**8, 10**9)] == [0, 0, 0, 1, 7, 10]
    with pytest.raises(ShardError, match="rows"):
        shard_bits(1 << 40)


@pytest.mark.parametrize(("rows", "bits"), [(10**8, 7), (10**6, 4), (1000, 3), (50, 4), (1, 2), (10**9, 16)])
def test_a_shard_is_filled_up_until_an_overflow_is_out_of_the_question(rows: int, bits: int) -> None:
    size, mean = padded_size(rows, bits), rows / 2**bits
    assert size == rows or size >= mean + 8 * (mean * (1 - 2**-bits)) ** 0.5
    assert overflow_exponent(rows, bits, size) <= -40
    if mean >= 10**5:
        assert size <= mean * 1.02  # and it costs no more than two percent


def test_the_bound_of_an_overflow_holds_where_it_can_be_counted() -> None:
    # 20 identifiers in 4 shards: the exact probability, by the binomial law and the union over shards
    from math import comb, log2

    for size in range(8, 20):
        tail = 4 * sum(comb(20, k) * 0.25**k * 0.75 ** (20 - k) for k in range(size + 1, 21))
        assert log2(tail) <= overflow_exponent(20, 2, size) + 1e-9


def test_a_set_that_does_not_fit_is_refused_with_the_cure() -> None:
    plan = ShardPlan(bits=2, own=1000, peer=10)
    plan.require_fits(np.array([plan.own_pad, 1, 0, 0]))
    with pytest.raises(ShardError, match="half as many shards"):
        plan.require_fits(np.array([1, plan.own_pad + 1, 0, 0]))


def test_both_have_to_want_the_same_number_of_shards() -> None:
    assert ShardPlan.agree(9, 9, None, None).bits == 0
    assert ShardPlan.agree(9, 9, None, 3).bits == ShardPlan.agree(9, 9, 3, None).bits == 3
    with pytest.raises(DisagreementError, match="4 shards, the peer 8"):
        ShardPlan.agree(9, 9, 2, 3)
    with pytest.raises(ShardError):
        ShardPlan.agree(9, 9, None, 40)


@pytest.mark.parametrize("count", [1, 3, (1 << 24) - 1, 1 << 24, (1 << 24) + 1, (1 << 29) + 7, (1 << 32) - 1, 1 << 43])
def test_products_of_sizes_above_2_24_do_not_overflow(count: int) -> None:
    fractions = [0, 1, (1 << 20) - 1, 1 << 20, (1 << 39) + 12345, (1 << 40) - 1, *range(1, 1 << 40, (1 << 40) // 50)]
    found = scale_fractions(np.array(fractions, dtype=np.uint64), count)
    assert found.tolist() == [fraction * count >> 40 for fraction in fractions]
    assert slots_for(MAX_KEYS) < 1 << 31


# reading and cutting


def test_arrow_columns_are_read_over_their_own_bytes() -> None:
    for kind in (pa.string(), pa.large_string()):
        array = pa.array(["zero", "Ann", "böb", "", "eve"], type=kind)[1:]
        found = of_arrow(array, 0)
        assert isinstance(found, Identifiers)
        assert list(found) == ["Ann", "böb", "", "eve"]
    assert list(of_arrow(pa.array([4, 5]), 0)) == ["4", "5"]
    assert list(of_arrow(pa.array(["a", "b", "a"]).dictionary_encode(), 0)) == ["a", "b", "a"]
    with pytest.raises(IdentifierError, match="row 102, 104 is null"):
        of_arrow(pa.array(["a", "b", None, "c", None]), 100)
    fast = normalised_batch(of_arrow(pa.array(["ANN", "bob"]), 0), IdRules(casefold=True), 0)
    slow = normalised_batch([" ANN", "bob"], IdRules(casefold=True), 0)
    assert list(fast.ids) == list(slow.ids) == ["ann", "bob"]
    with pytest.raises(IdentifierError, match=r"row 1 is empty.*counted from row 50"):
        normalised_batch(["a", " "], RULES, 50)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cn"]), min_size=1, max_size=9), max_size=40))
def test_every_row_is_in_its_shard_once(texts: list[str]) -> None:
    ids = Identifiers.of_texts(texts)
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "parts"
        cut = [IdBatch(np.arange(s, min(s + 7, len(texts))), ids.slice_rows(s, s + 7)) for s in range(0, len(texts), 7)]
        counts = partition_rows(cut, KEY, 2, folder)
        found = {}
        for shard in range(4):
            rows, hashes, column = read_part(part_path(folder, shard))
            assert counts[shard] == len(rows)
            for row, value, text in zip(rows.tolist(), hashes.tolist(), column, strict=True):
                assert bucket_of(text, KEY, 2) == shard == value >> 62
                found[row] = text
    assert [found[row] for row in range(len(texts))] == texts


def _settings(tmp: Path, name: str = "bank", bits: int = 1, tag: bytes = b"t" * 16, rows: int = 50) -> Settings:
    peer, role = ("shop", "receiver") if name == "bank" else ("bank", "sender")
    return Settings(
        name=name,
        peer=peer,
        role=role,  # type: ignore[arg-type]
        protocol="dh",
        learns="both",
        form="NFKC",
        strip=True,
        casefold=False,
        squeeze=False,
        numeric=False,
        columns=1,
        tag=tag.hex(),
        key=KEY.hex(),
        bits=bits,
        own=rows,
        peer_rows=rows,
        own_pad=padded_size(rows, bits),
        peer_pad=padded_size(rows, bits),
        source="",
    )


def _state(folder: Path, ids: Sequence[str], **more: Any) -> RunState:
    given = _settings(folder, rows=len(ids), **more)
    folder.mkdir(exist_ok=True)
    partition_rows(in_batches(ids, RULES, 7), KEY, given.bits, folder / "parts")
    state = RunState.begin(folder, given)
    for shard in range(given.shards):
        sort_shard(str(folder), shard)
    return state


def test_a_sorted_shard_is_the_same_however_it_came_and_however_often_it_is_sorted(tmp_path: Path) -> None:
    ids = [f"id{i}" for i in range(60)]
    one, other = _state(tmp_path / "a", ids), _state(tmp_path / "b", ids[::-1])
    for shard in range(2):
        (rows, here), (swapped, there) = (read_shard(s.shard_file(shard), b"t" * 16, shard) for s in (one, other))
        assert list(here) == list(there) == [ids[row] for row in rows] == [ids[::-1][row] for row in swapped]
        before = one.shard_file(shard).read_bytes()
        assert sort_shard(str(tmp_path / "a"), shard) == len(rows).to_bytes(8, "big")
        assert one.shard_file(shard).read_bytes() == before


def test_identifiers_that_come_twice_are_named_with_their_rows(tmp_path: Path) -> None:
    with pytest.raises(IdentifierError, match="'b' in rows 1 and 20"):
        _state(tmp_path / "run", ["a", "b", *(f"c{i}" for i in range(18)), "b"])


@pytest.mark.parametrize("damage", ["cut", "byte", "shard", "run", "gone"])
def test_a_file_that_is_not_the_one_that_was_written_is_refused(tmp_path: Path, damage: str) -> None:
    state = _state(tmp_path / "run", [f"id{i}" for i in range(60)])
    path = state.shard_file(0)
    data = bytearray(path.read_bytes())
    if damage == "byte":
        data[-1] ^= 1
    if damage == "shard":
        data = bytearray(state.shard_file(1).read_bytes())
    path.write_bytes(data[:-3] if damage == "cut" else data)
    if damage == "gone":
        path.unlink()
    tag = b"u" * 16 if damage == "run" else b"t" * 16
    with pytest.raises(ShardError, match=r"delete it|cannot be read"):
        read_shard(path, tag, 0)


# one session


def _sessions(tmp_path: Path, ids: Sequence[str], **other: Any) -> tuple[RunState, RunState]:
    return _state(tmp_path / "bank", ids), _state(tmp_path / "shop", ids, name="shop", **other)


def test_a_session_of_another_shard_or_another_run_is_refused(tmp_path: Path) -> None:
    ids = [f"id{i}" for i in range(50)]
    bank, shop = _sessions(tmp_path, ids)
    with pytest.raises(DisagreementError, match="context"):
        run_in_process(ShardSession(bank, 0).end, ShardSession(shop, 1).end)
    elsewhere = _state(tmp_path / "old", ids, name="shop", tag=b"o" * 16)
    with pytest.raises(DisagreementError, match="context"):
        run_in_process(ShardSession(bank, 0).end, ShardSession(elsewhere, 0).end)


def test_tokens_of_a_shard_are_as_long_as_the_whole_run_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand shards have a thousand times the pairs in which two tokens can be equal by chance."""
    asked: list[int] = []

    def width(client: int, server: int, shards: int = 1) -> int:
        asked.append(shards)
        return 16

    monkeypatch.setattr("securevfl_psi.oblivious.common.token_bytes", width)
    bank, shop = _sessions(tmp_path, [f"id{i}" for i in range(50)])
    for state in (bank, shop):
        state.settings = replace(state.settings, protocol="ot", bits=10)
    run_in_process(ShardSession(bank, 0).end, ShardSession(shop, 0).end)
    assert asked == [1024, 1024]


def test_a_shard_of_another_size_than_planned_is_refused(tmp_path: Path) -> None:
    bank, shop = _sessions(tmp_path, [f"id{i}" for i in range(50)])
    shop.settings = replace(shop.settings, own_pad=shop.settings.own_pad - 1)
    with pytest.raises(SetSizeError, match="the agreed plan has"):
        run_in_process(ShardSession(bank, 0).end, ShardSession(shop, 0).end)


def test_the_size_of_a_shard_is_not_seen(tmp_path: Path) -> None:
    bank, shop = _sessions(tmp_path, [f"id{i}" for i in range(50)])
    sessions = [(ShardSession(bank, shard), ShardSession(shop, shard)) for shard in range(2)]
    sizes = {len(read_shard(bank.shard_file(shard), bank.settings.run_tag, shard)[0]) for shard in range(2)}
    assert len(sizes) == 2  # they differ, or this shows nothing
    for here, there in sessions:
        run_in_process(here.end, there.end)
    assert {there.end.result.peer_size for _, there in sessions} == {bank.settings.own_pad}


def test_a_shard_run_twice_gives_the_same_rows_and_another_digest(tmp_path: Path) -> None:
    bank, shop = _sessions(tmp_path, [f"id{i}" for i in range(50)])
    files, digests = [], []
    for _ in range(2):
        for shard in range(2):
            here, there = ShardSession(bank, shard), ShardSession(shop, shard)
            run_in_process(here.end, there.end)
            here.save_result(), there.save_result()
        files.append([state.result_path(shard).read_bytes() for state in (bank, shop) for shard in range(2)])
        digests.append(bank.read_digests())
        assert (digests[-1] == shop.read_digests()).all()
    assert files[0] == files[1]
    assert not (digests[0] == digests[1]).all(axis=1).any()


# whole runs


class _Twice:
    """A pool that runs every task twice, as one does whose worker was lost after its work was done."""

    workers = 1

    def __init__(self) -> None:
        self._pool = LocalPool()

    def submit(self, task: str, /, *arguments: bytes | str | int, cpus: int = 1) -> Future[bytes]:
        if task.endswith("sort_shard"):
            self._pool.submit(task, *arguments).result()
        return self._pool.submit(task, *arguments)

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> _Twice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ports(count: int) -> int:
    """A port with as many free ones after it."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as door:
            first = door.getsockname()[1]
        if first + count > 65535:
            continue
        try:
            for offset in range(1, count + 1):
                socket.create_server(("127.0.0.1", first + offset)).close()
        except OSError:
            continue
        return int(first)


def _source(ids: Sequence[str]) -> Source:
    return Source(
        batches=lambda: in_batches(ids, RULES, 100),
        rows=len(ids),
        digest=hashlib.sha256(repr(ids).encode()).hexdigest(),
    )


def _run(
    folder: Path,
    bank: Sequence[str],
    shop: Sequence[str],
    *,
    bits: tuple[int | None, int | None] = (2, None),
    pools: tuple[Callable[[], Pool], Callable[[], Pool]] = (LocalPool, LocalPool),
    timeout: float = 10.0,
    only: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[Outcome, Outcome]:
    """Both parties, each in a thread."""
    found: dict[int, Outcome] = {}
    first, socks = _ports(2), socket.socketpair()

    def go(number: int, ids: Sequence[str]) -> None:
        name, peer, role = (("bank", "shop", "receiver"), ("shop", "bank", "sender"))[number]
        options = {"protocol": "dh", **more, **((only or {}) if number else {})}
        key = options.pop("key", None)
        context = SHARD_CONTEXT + options.pop("context", "")
        terms = Terms(name=name, peer=peer, role=role, context=context, **options)  # type: ignore[arg-type]
        line = WorkerLine(listens=number == 0, host="127.0.0.1", port=first, timeout=timeout, deadline=60)
        with socks[number], pools[number]() as pool:
            try:
                found[number] = lead_run(
                    socks[number], terms, _source(ids), folder / name, pool, line, bits=bits[number], key=key
                )
            except PSIError as error:
                found[number] = error

    threads = [threading.Thread(target=go, args=one) for one in enumerate((bank, shop))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found[0], found[1]


def _common(run: Outcome, ids: Sequence[str]) -> list[str]:
    assert isinstance(run, ShardedRun), run
    return [ids[row] for rows in run.state.read_results() for row in rows.tolist()]


def _check(
    outcomes: tuple[Outcome, Outcome], bank: Sequence[str], shop: Sequence[str]
) -> tuple[ShardedRun, ShardedRun]:
    one, other = outcomes
    here, there = _common(one, bank), _common(other, shop)
    assert here == there
    assert len(set(here)) == len(here)
    assert set(here) == set(bank) & set(shop)
    assert isinstance(one, ShardedRun)
    assert isinstance(other, ShardedRun)
    assert one.count == other.count == len(here)
    assert one.verified
    assert other.verified
    assert one.digest == other.digest
    assert len(one.digest) == 32
    return one, other


BANK = [f"u{i}" for i in range(300)]
SHOP = [f"u{i}" for i in range(200, 450)]


@settings(max_examples=5, deadline=None)
@given(
    st.sets(st.text("ab9é", min_size=1, max_size=5), min_size=1, max_size=60),
    st.sets(st.text("ab9é", min_size=1, max_size=5), min_size=1, max_size=30),
    st.integers(0, 3),
)
def test_what_is_common_is_found_whatever_the_sets(bank: set[str], shop: set[str], bits: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        one, other = sorted(bank), sorted(shop, key=lambda text: text[::-1])
        _check(_run(Path(folder), one, other, bits=(bits, bits), min_intersection=0), one, other)


def test_ot_finds_the_same_and_auto_takes_one_of_them(tmp_path: Path) -> None:
    one, _ = _check(_run(tmp_path / "ot", BANK, SHOP, protocol="ot", bits=(1, None)), BANK, SHOP)
    assert one.protocol == "ot"
    two, _ = _check(_run(tmp_path / "auto", BANK, SHOP, protocol="auto", bits=(1, 1)), BANK, SHOP)
    assert two.protocol == "dh"
    assert "identifiers ask" in two.why


def test_identifiers_that_begin_alike_and_unequal_sets_fill_shards_alike(tmp_path: Path) -> None:
    bank = ["x" * 200 + str(i) for i in range(400)]
    one, other = _check(_run(tmp_path, bank, bank[:3], bits=(3, 3)), bank, bank[:3])
    assert (one.plan.shards, one.plan.peer_pad, other.plan.own_pad) == (8, 3, 3)  # most of the sender's are empty


def test_a_receiver_alone_may_learn(tmp_path: Path) -> None:
    one, other = _run(tmp_path, BANK, SHOP, learns="receiver")
    assert isinstance(one, ShardedRun)
    assert isinstance(other, ShardedRun)
    assert set(_common(one, BANK)) == set(BANK) & set(SHOP)
    assert (other.count, other.verified, _common(other, SHOP)) == (None, False, [])
    assert one.digest == other.digest


def test_two_runs_cut_the_sets_differently(tmp_path: Path) -> None:
    one, _ = _check(_run(tmp_path / "1", BANK, SHOP), BANK, SHOP)
    two, _ = _check(_run(tmp_path / "2", BANK, SHOP), BANK, SHOP)
    assert one.state.settings.key != two.state.settings.key
    assert one.digest != two.digest
    assert _common(one, BANK) != _common(two, BANK)  # of the same rows, in another order


def test_with_a_key_of_their_own_both_cut_as_they_are_told(tmp_path: Path) -> None:
    one, _ = _check(_run(tmp_path / "1", BANK, SHOP, key=KEY), BANK, SHOP)
    first = _common(one, BANK)
    assert first == sorted(first, key=lambda text: bucket_of(text, KEY, 64))
    for outcome in _run(tmp_path / "2", BANK, SHOP, only={"key": KEY}):
        assert isinstance(outcome, DisagreementError)
        assert "same key" in str(outcome)


# policies


@pytest.mark.parametrize(
    ("more", "kinds"),
    [
        ({"only": {"max_set_size": 299}}, (PeerRefused, SetSizeError)),
        ({"only": {"context": "other"}}, (DisagreementError, DisagreementError)),
        ({"only": {"rules": IdRules(casefold=True)}}, (DisagreementError, DisagreementError)),
        ({"bits": (1, 2)}, (DisagreementError, DisagreementError)),
        ({"min_intersection": 101}, (SmallIntersectionError, SmallIntersectionError)),
    ],
)
def test_a_run_against_a_partys_policy_ends_at_both(
    tmp_path: Path, more: dict[str, Any], kinds: tuple[type[PSIError], ...]
) -> None:
    for outcome, kind in zip(_run(tmp_path, BANK, SHOP, **more), kinds, strict=True):
        assert isinstance(outcome, kind | PeerRefused | ConnectionLost), outcome
    if "min_intersection" in more:
        assert not list((tmp_path / "bank").glob("result-*"))


def test_an_error_in_the_own_set_sends_nothing_of_it(tmp_path: Path) -> None:
    one, other = _run(tmp_path, [*BANK, "u7"], SHOP)
    assert isinstance(one, IdentifierError)
    assert "'u7' in rows 7 and 300" in str(one)
    assert isinstance(other, PeerRefused)
    assert "its own identifiers" in str(other)


# what goes wrong on the way


def test_tasks_that_run_twice_change_nothing(tmp_path: Path) -> None:
    _check(_run(tmp_path, BANK, SHOP, pools=(_Twice, _Twice)), BANK, SHOP)


class _Killing:
    """A process pool whose worker is killed while it runs the second shard."""

    def __init__(self) -> None:
        self._pool = ProcessPool(1)
        self.workers, self.killed, self._shards = 1, 0, 0

    def submit(self, task: str, /, *arguments: bytes | str | int, cpus: int = 1) -> Future[bytes]:
        future = self._pool.submit(task, *arguments)
        if task.endswith("run_shard"):
            self._shards += 1
            if self._shards == 2:
                for pid in self._pool.pids:
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1
        return future

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> _Killing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def test_a_killed_worker_costs_its_shard_and_nothing_else(tmp_path: Path) -> None:
    made: list[_Killing] = []

    def pool() -> Pool:
        made.append(_Killing())
        return made[0]

    _check(_run(tmp_path, BANK, SHOP, pools=(LocalPool, pool), timeout=30.0), BANK, SHOP)
    assert made[0].killed == 1


class _Dying(LocalPool):
    """A party that is lost when its third shard begins."""

    shards = 0

    def submit(self, task: str, /, *arguments: bytes | str | int, cpus: int = 1) -> Future[bytes]:
        if task.endswith("run_shard"):
            self.shards += 1
            if self.shards == 3:
                raise ConnectionLost("lost")
        return super().submit(task, *arguments, cpus=cpus)


def test_a_run_that_was_cut_off_goes_on_where_it_was_and_gives_the_same_files(tmp_path: Path) -> None:
    one, other = _run(tmp_path, BANK, SHOP, pools=(LocalPool, _Dying), timeout=0.7)
    assert isinstance(one, ConnectionLost | PeerRefused)
    assert isinstance(other, ConnectionLost)
    done = {path.name: path.read_bytes() for path in (tmp_path / "bank").glob("result-*")}
    assert len(done) == 2
    again, _ = _check(_run(tmp_path, BANK, SHOP), BANK, SHOP)
    assert again.resumed == 2
    for name, data in done.items():
        assert (tmp_path / "bank" / name).read_bytes() == data


class _Leaving:
    """A pool of processes at a party that is lost when its third shard begins; what runs by then ends."""

    def __init__(self) -> None:
        self._pool, self.workers, self._shards = ProcessPool(1), 1, 0

    def submit(self, task: str, /, *arguments: bytes | str | int, cpus: int = 1) -> Future[bytes]:
        self._shards += task.endswith("run_shard")
        if self._shards == 3:
            raise ConnectionLost("lost")
        return self._pool.submit(task, *arguments, cpus=cpus)

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> _Leaving:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def test_a_run_on_a_pool_goes_on_with_another_pool_and_gives_the_same_files(tmp_path: Path) -> None:
    one, other = _run(tmp_path, BANK, SHOP, pools=(LocalPool, _Leaving), timeout=2.0)
    assert isinstance(one, PSIError)
    assert isinstance(other, ConnectionLost)
    done = {path.name: path.read_bytes() for path in (tmp_path / "shop").glob("result-*")}
    assert done
    _, again = _check(_run(tmp_path, BANK, SHOP, pools=(LocalPool, lambda: ProcessPool(2)), timeout=30.0), BANK, SHOP)
    assert 1 <= again.resumed <= len(done)
    for name, data in done.items():
        assert (tmp_path / "shop" / name).read_bytes() == data


def test_a_result_that_was_damaged_or_is_anothers_is_run_again(tmp_path: Path) -> None:
    one, _ = _check(_run(tmp_path, BANK, SHOP), BANK, SHOP)
    before = [one.state.result_path(shard).read_bytes() for shard in range(4)]
    one.state.result_path(1).write_bytes(before[1][:-1])
    one.state.result_path(2).write_bytes(before[3])  # a shard repeated under another's name
    one.state.digest_path(0).unlink()
    again, _ = _check(_run(tmp_path, BANK, SHOP), BANK, SHOP)
    assert again.resumed == 1
    assert [again.state.result_path(shard).read_bytes() for shard in range(4)] == before


def test_digests_of_swapped_sessions_do_not_pass(tmp_path: Path) -> None:
    one, _ = _check(_run(tmp_path, BANK, SHOP), BANK, SHOP)
    tag = one.state.settings.run_tag
    from securevfl_psi_cli.shards.files import read_digest, write_digest

    first, second = (read_digest(one.state.digest_path(shard), tag, shard) for shard in range(2))
    write_digest(one.state.digest_path(0), tag, 0, second)
    write_digest(one.state.digest_path(1), tag, 1, first)
    again, _ = _check(_run(tmp_path, BANK, SHOP), BANK, SHOP)
    assert again.resumed == 2  # both swapped ones were run again


def test_another_table_begins_a_new_run(tmp_path: Path) -> None:
    one, _ = _check(_run(tmp_path, BANK, SHOP), BANK, SHOP)
    tag = one.state.settings.tag
    more = [*BANK, "u400"]
    two, _ = _check(_run(tmp_path, more, SHOP), more, SHOP)
    assert two.resumed == 0
    assert two.state.settings.tag != tag


def test_workers_out_of_step_find_each_other(tmp_path: Path) -> None:
    """The caller is told that it is behind; the one that listens leaves its shard to a caller that is ahead."""
    bank, shop = _sessions(tmp_path, [f"id{i}" for i in range(50)])
    first = _ports(1)
    lines = [WorkerLine(listens=side, host="127.0.0.1", port=first, timeout=5).to_text() for side in (True, False)]
    found: dict[str, list[bytes]] = {"bank": [], "shop": []}

    def go(name: str, line: str, places: Sequence[int]) -> None:
        for place in places:
            found[name].append(worker.run_shard(str(tmp_path / name), line, place % 2, place, 0))

    for places in ((1,), (0, 1)), ((0, 1), (1,)):
        for one in found.values():
            one.clear()
        threads = [
            threading.Thread(target=go, args=(name, line, mine))
            for name, line, mine in zip(("bank", "shop"), lines, places, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [bool(one) for side in found.values() for one in side].count(True) == 2
    assert len(read_result(bank.result_path(1), bank.settings.run_tag, 1)) > 0
    assert (bank.read_digests()[1] == shop.read_digests()[1]).all()
    assert bank.read_digests()[1].any()


def test_hostile_words_on_the_leading_connection_are_refused(tmp_path: Path) -> None:
    for said in (b"GET / HTTP/1.1\r\n\r\n" * 3, secrets.token_bytes(60), b""):
        here, there = socket.socketpair()
        with here, there:
            there.sendall(said)
            there.shutdown(socket.SHUT_WR)
            terms = Terms(name="bank", peer="shop", role="receiver", context=SHARD_CONTEXT)
            line = WorkerLine(listens=True, host="127.0.0.1", port=1, timeout=2)
            with pytest.raises(PSIError), LocalPool() as pool:
                lead_run(here, terms, _source(BANK), tmp_path / "run", pool, line)
    assert not list((tmp_path / "run").glob("*"))
