"""Tables beyond memory: their columns and their encoded features are mapped files without a name, and train alike."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import securevfl as sv
from securevfl.align.result import shared_order
from securevfl.data import FeatureEncoder, Parties, PartyTable, Storage, encodings, features, from_arrow
from securevfl.data.permuted import Permuted
from securevfl.errors import InputError
from securevfl.run.simulation import join_parties

MAPPED = Storage(above=0)


def _is_mapped(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return type(array.obj if isinstance(array, memoryview) else array).__name__ == "mmap"


def _party(name: str, rows: int, storage: Storage, seed: int) -> PartyTable:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows) * 7 + 3
    columns: dict[str, Any] = {
        "id": [f"c{i}" for i in rng.permutation(rows)],
        "x": x,
        "y": np.exp(3 * rng.normal(size=rows)),
        "town": rng.choice(["Oslo", "Rome", "Kyiv"], rows),
    }
    options: dict[str, Any] = {"name": name, "id": "id", "categorical": ["town"], "storage": storage}
    if name == "bank":
        columns["late"] = (x > 3).astype(int)
        options["label"] = "late"
    return from_arrow(pa.table(columns), **options)


@given(st.integers(0, 40), st.integers(1, 50), st.integers(1, 200), st.integers(1, 13), st.integers(0, 1 << 30))
def test_rows_are_put_in_any_order(wanted: int, count: int, bucket: int, step: int, seed: int) -> None:
    """Beside indexing at once; some rows wanted twice, others not at all, stretches of one row and of many."""
    rng = np.random.default_rng(seed)
    source = rng.normal(size=(count, 3)).astype(np.float32)
    rows = rng.integers(0, count, wanted)
    out = np.full((wanted, 3), np.nan, dtype=np.float32)
    permuted = Permuted(out, rows, count, bucket=bucket)
    for at in range(0, count, step):
        permuted.add(at, source[at : at + step])
    permuted.finish()
    np.testing.assert_array_equal(out, source[rows])


@pytest.mark.parametrize("scale", ["standard", "quantile"])
def test_mapped_tables_are_encoded_like_those_in_memory(scale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "_ROWS", 100)
    there, mapped = (_party("bank", 1_234, storage, 0) for storage in (Storage(), MAPPED))
    rows = np.random.default_rng(1).permutation(1_234)[:900]
    encoders = [FeatureEncoder.fit(table, rows, scale=scale) for table in (there, mapped)]
    assert encoders[0].state() == encoders[1].state()
    one, two = (encoder.transform(table, rows) for encoder, table in zip(encoders, (there, mapped), strict=True))
    np.testing.assert_array_equal(one, two)
    assert (_is_mapped(one), _is_mapped(two), two.flags.writeable) == (False, True, True)
    assert all(_is_mapped(mapped.columns[name]) for name in ("x", "y"))
    np.testing.assert_array_equal(encoders[0].transform(there), encoders[1].transform(mapped))


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60), st.integers(1, 9))
def test_a_fit_in_one_pass_is_that_of_all_values_at_once(values: list[float], step: int) -> None:
    """Mean and deviation within 1e-12 of the largest magnitude, and constant columns exactly."""
    whole = np.array(values)
    found = encodings.Standard.fit(whole[at : at + step] for at in range(0, len(whole), step))
    size = max(np.abs(whole).max(), 1e-300)
    assert abs(found.mean - whole.mean()) <= 1e-12 * size
    assert abs(found.deviation - (0.0 if (whole == whole[0]).all() else whole.std())) <= 1e-7 * size
    assert (found.deviation == 0) >= bool((whole == whole[0]).all())


def test_ranks_of_a_random_part_are_near_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    table = _party("bank", 20_000, Storage(), 0)
    rows = np.arange(20_000)
    exact = FeatureEncoder.fit(table, rows, scale="quantile").transform(table, rows)
    monkeypatch.setattr(features, "_RANKED", 5_000)
    near = FeatureEncoder.fit(table, rows, scale="quantile").transform(table, rows)
    from scipy.special import ndtr

    worst = np.abs(ndtr(near[:, :2]) - ndtr(exact[:, :2])).max()
    assert 0 < worst < np.sqrt(np.log(2 / 1e-6) / (2 * 5_000))


def test_nobody_else_can_open_the_file_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[os.stat_result] = []
    reserve = os.posix_fallocate

    def watched(file: int, offset: int, size: int) -> None:
        held.append(os.fstat(file))
        assert not list(tmp_path.iterdir())
        reserve(file, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", watched)
    array = Storage(above=0, folder=str(tmp_path)).allocate((100, 3), np.float32)
    array[:] = 7
    assert (stat.S_IMODE(held[0].st_mode), held[0].st_nlink) == (0o600, 0)
    assert held[0].st_dev == tmp_path.stat().st_dev
    assert (array == 7).all()
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(InputError, match=r"no room for 1,200 bytes.*No space left.*spill_folder"):
        Storage(above=0, folder=str(tmp_path)).allocate((100, 3), np.float32)
    with pytest.raises(InputError, match="spill_above is -1"):
        Storage(above=-1)


def test_training_resuming_and_predicting_with_mapped_tables(tmp_path: Path) -> None:
    """The same scores and the same losses as in memory; a run that broke off goes on, whatever its tables are in."""
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, top=(4,)), protection=sv.Plain(), epochs=2, batch_size=64)
    longer = job.replace(epochs=2)
    results = {}
    for name, storage in (("memory", Storage()), ("mapped", MAPPED)):
        parties = Parties.of(_party("bank", 300, storage, 0), _party("shop", 300, storage, 1))
        aligned = join_parties(parties, job)
        results[name] = sv.simulate(longer, parties, aligned=aligned, checkpoints=tmp_path / name)
        predicted = sv.predict(results[name].model(), parties, aligned=aligned)
        results[f"{name} predicted"] = predicted
    one, two = results["memory"], results["mapped"]
    for key in one.scores:
        np.testing.assert_array_equal(one.scores[key], two.scores[key])
    np.testing.assert_array_equal(results["memory predicted"].probabilities, results["mapped predicted"].probabilities)
    assert results["memory predicted"].ids == results["mapped predicted"].ids
    parties = Parties.of(_party("bank", 300, MAPPED, 0), _party("shop", 300, MAPPED, 1))
    again = sv.simulate(longer, parties, aligned=join_parties(parties, job), checkpoints=tmp_path / "memory")
    for key in one.scores:
        np.testing.assert_array_equal(one.scores[key], again.scores[key])


def test_the_common_order_is_that_of_the_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside ten obvious lines; with texts of several lengths, and where the first 64 bits are alike."""
    import hashlib

    import securevfl_psi as psi

    texts = [f"c{i}" for i in range(300)] + ["Århus", "x" * 200]
    rows = np.random.default_rng(0).permutation(302)[:250]

    def slow() -> list[int]:
        keys = [hashlib.sha256(f"securevfl order 5 {texts[row]}".encode()).digest() for row in rows]
        return [row for _, row in sorted(zip(keys, rows.tolist(), strict=True))]

    assert shared_order(texts, rows, 5).tolist() == slow()
    assert shared_order(psi.Identifiers.of_texts(texts), rows.tolist(), 5).tolist() == slow()
    plain = hashlib.sha256

    class Alike:
        def __init__(self, data: bytes) -> None:
            self._digest = plain(data).digest()

        def digest(self) -> bytes:
            return bytes(8) + self._digest

    monkeypatch.setattr(hashlib, "sha256", Alike)
    assert shared_order(texts, rows, 5).tolist() == slow()
