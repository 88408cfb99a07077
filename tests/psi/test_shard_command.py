"""Runs in shards from the command line's options: tables that are cut here, and tables that were cut beforehand."""

from __future__ import annotations

import hashlib
import io
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from securevfl_psi import IdRules
from securevfl_psi.errors import IdentifierError, InputError, PSIError, ShardError
from securevfl_psi.sharded import bucket_of
from securevfl_psi_cli.options import Options
from securevfl_psi_cli.party import Watch
from securevfl_psi_cli.shards.cut import cut_source, read_shard_key
from securevfl_psi_cli.shards.party import ShardedSummary, run_sharded
from securevfl_psi_cli.shards.source import parquet_batches
from securevfl_psi_cli.table import Missing

from tests.psi.test_sharded import BANK, KEY, SHOP, _ports

RULES = IdRules()
Outcome = ShardedSummary | PSIError


def cut(folder: Path, ids: list[str], bits: int, *, key: bytes = KEY) -> Path:
    """A table as Spark would write it, partitioned by a column ``shard``; two files in some folders."""
    shards: dict[int, list[str]] = {}
    for one in ids:
        shards.setdefault(bucket_of(one, key, bits), []).append(one)
    for shard, own in shards.items():
        inside = folder / f"shard={shard}"
        inside.mkdir(parents=True)
        half = len(own) // 2
        for number, some in enumerate((own[:half], own[half:])):
            if some:
                pq.write_table(pa.table({"customer": some, "x": [1.0] * len(some)}), inside / f"part-{number}.parquet")
    return folder


def whole(path: Path, ids: list[str]) -> Path:
    pq.write_table(pa.table({"customer": ids}), path)
    return path


def meet(tmp_path: Path, bank: Path, shop: Path, bank_only: dict[str, Any], **more: Any) -> tuple[Outcome, Outcome]:
    (tmp_path / "key").write_text(KEY.hex() + "\n")
    both: dict[str, Any] = {"column": "customer", "port": _ports(2), "wait": 10, "timeout": 10, "shards": "4"}
    both |= {"shard_key": tmp_path / "key", **more}
    one = Options(table=bank, name="bank", peer="shop", out=tmp_path / "bank.parquet", **both)
    other = Options(table=shop, name="shop", peer="bank", out=tmp_path / "shop.parquet", **both)
    found: dict[bool, Outcome] = {}

    def go(options: Options, listens: bool) -> None:
        try:
            found[listens] = run_sharded(options, Watch(), Console(file=io.StringIO()), listens=listens)
        except PSIError as error:
            found[listens] = error

    thread = threading.Thread(target=go, args=(replace(one, **bank_only), True))
    thread.start()
    go(other, False)
    thread.join()
    return found[True], found[False]


def ids_of(folder: Path) -> list[str]:
    """All identifiers of a table that was cut, in the order in which its rows count."""
    files = sorted(folder.rglob("*.parquet"))
    return [text for file in files for text in pq.read_table(file)["customer"].to_pylist()]


@pytest.mark.parametrize("both", [True, False], ids=["both are cut", "one is cut"])
def test_a_table_that_was_cut_beforehand_gives_what_one_gives_that_is_cut_here(tmp_path: Path, both: bool) -> None:
    bank = cut(tmp_path / "bank", BANK, 2)
    shop = cut(tmp_path / "shop", SHOP, 2) if both else whole(tmp_path / "shop.pq", SHOP)
    one, other = meet(tmp_path, bank, shop, {}, **({} if both else {"shards": "4"}))
    assert isinstance(one, ShardedSummary), one
    assert isinstance(other, ShardedSummary), other
    assert (one.common, one.verified, one.shards, one.digest) == (100, True, 4, other.digest)
    left, right = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("bank", "shop"))
    assert left["customer"].to_pylist() == right["customer"].to_pylist()
    assert set(left["customer"].to_pylist()) == set(BANK) & set(SHOP)
    for table, ids in (left, ids_of(bank)), (right, ids_of(shop) if both else SHOP):
        assert [ids[row] for row in table["row"].to_pylist()] == table["customer"].to_pylist()


def test_a_table_that_was_cut_is_not_cut_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise AssertionError("partitioned again")

    monkeypatch.setattr("securevfl_psi_cli.shards.leading.partition_rows", refused)
    one, _ = meet(tmp_path, cut(tmp_path / "bank", BANK, 2), cut(tmp_path / "shop", SHOP, 2), {})
    assert isinstance(one, ShardedSummary), one
    assert one.common == 100


def test_rows_of_another_shard_are_refused(tmp_path: Path) -> None:
    other_key = cut(tmp_path / "other", BANK, 2, key=bytes(64))
    one, other = meet(tmp_path, other_key, cut(tmp_path / "shop", SHOP, 2), {})
    assert isinstance(one, ShardError)
    assert "rows are of other shards" in str(one)
    assert "another key" in str(one)
    assert isinstance(other, PSIError)
    moved = cut(tmp_path / "moved", BANK, 2)
    (moved / "shard=1" / "part-0.parquet").rename(moved / "shard=2" / "part-7.parquet")
    one, _ = meet(tmp_path, moved, cut(tmp_path / "shop2", SHOP, 2), {})
    assert isinstance(one, ShardError)
    assert "whose bucket hash is for shard 1" in str(one)


def test_a_table_that_does_not_fit_is_refused_before_anybody_is_met(tmp_path: Path) -> None:
    bank = cut(tmp_path / "bank", BANK, 2)
    with pytest.raises(InputError, match=r"of shard [23]; 2 shards go from 0 to 1"):
        cut_source(bank, ("customer",), RULES, Missing.refuse, 1)
    with pytest.raises(InputError, match="'client'"):
        list(parquet_batches(bank / "shard=0" / "part-0.parquet", ("client",), RULES, Missing.refuse, 0))
    whole(bank / "more.parquet", ["u"])
    with pytest.raises(InputError, match="in no folder shard=NUMBER"):
        cut_source(bank, ("customer",), RULES, Missing.refuse, 2)
    (tmp_path / "bad").write_text("00" * 63)
    with pytest.raises(InputError, match="128 hexadecimal digits"):
        read_shard_key(tmp_path / "bad")
    with pytest.raises(InputError, match=r"cannot be read"):
        read_shard_key(tmp_path / "none")
    one, _ = meet(
        tmp_path, cut(tmp_path / "again", BANK, 2), whole(tmp_path / "s.pq", SHOP), {"shards": "auto"}, wait=1
    )
    assert isinstance(one, InputError)
    assert "the number of shards it was cut into" in str(one)


def test_doubled_identifiers_of_a_cut_table_are_told_with_their_rows(tmp_path: Path) -> None:
    bank = cut(tmp_path / "bank", [*BANK, "u7"], 2)
    rows = [row for row, text in enumerate(ids_of(bank)) if text == "u7"]
    one, _ = meet(tmp_path, bank, cut(tmp_path / "shop", SHOP, 2), {})
    assert isinstance(one, IdentifierError)
    assert f"'u7' in rows {rows[0]} and {rows[1]}" in str(one)


def test_the_page_cuts_a_table_that_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code runs; what it says for Spark gives the same shards, computed here from the same digits."""
    page = (Path(__file__).parents[2] / "docs/psi-shards.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(compile(block, "psi-shards.md", "exec"), known)  # noqa: S102  # the page's own code
    source = cut_source(tmp_path / "customers", ("email",), RULES, Missing.refuse, 7)
    assert source.cut is not None
    assert source.cut.counts.sum() == source.rows == 3
    assert "substring(sha2(concat(key, email), 512), 1, 4), 16, 10) as int), 16 - bits" in page
    for one in known["emails"]:
        digits = hashlib.sha512((known["key"].hex() + one).encode()).hexdigest()
        assert int(digits[:4], 16) >> (16 - 7) == bucket_of(one, known["key"], 7)
