"""Small work runs on one thread, and the process has its threads back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import ThreadpoolController

import securevfl as sv
from securevfl.run.threads import CELLS, ROWS, learning_threads, tree_threads


@pytest.fixture
def two() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with ThreadpoolController().limit(limits=2, user_api="openmp"):
        yield
    torch.set_num_threads(before)


def _openmp() -> set[int]:
    return {one["num_threads"] for one in ThreadpoolController().select(user_api="openmp").info()}


def test_small_batches_take_one_thread_of_torch(two: None) -> None:
    with learning_threads(CELLS):
        assert torch.get_num_threads() == 2
    with learning_threads(CELLS - 1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(KeyError), learning_threads(1):
        raise KeyError
    assert torch.get_num_threads() == 2


def test_the_last_of_runs_that_overlap_gives_the_threads_back(two: None) -> None:
    first, second = ExitStack(), ExitStack()
    first.enter_context(learning_threads(1))
    second.enter_context(learning_threads(1))
    first.close()
    assert torch.get_num_threads() == 1
    second.close()
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("rows", "most"), [(0, 1), (ROWS - 1, 1), (2 * ROWS - 1, 1), (2 * ROWS, 2), (9 * ROWS, 2)])
def test_trees_take_a_thread_for_so_many_rows(two: None, rows: int, most: int) -> None:
    with tree_threads(rows):
        assert _openmp() == {most}
    assert _openmp() == {2}


def _tables(wide: int) -> sv.Parties:
    rng = np.random.default_rng(3)
    ids = np.array([f"c{i}" for i in range(120)])
    x = rng.normal(size=(120, wide))
    label = (x[:, 0] > 0).astype(np.int64)
    bank = sv.PartyTable(name="bank", ids=ids, columns={"x": x}, label=label, label_name="y", classes=("no", "yes"))
    return sv.Parties.of(bank, sv.PartyTable(name="shop", ids=ids, columns={"z": rng.normal(size=120)}))


@pytest.mark.parametrize(("wide", "threads"), [(3, 1), (CELLS // 32, 2)])
def test_a_job_and_its_baselines_are_run_so(
    two: None, monkeypatch: pytest.MonkeyPatch, wide: int, threads: int
) -> None:
    seen: list[int] = []
    trees: list[set[int]] = []

    class Hears(sv.Observer):
        def epoch(self, *_: object, **__: object) -> None:
            seen.append(torch.get_num_threads())

    fit = HistGradientBoostingClassifier.fit

    def heard(self: HistGradientBoostingClassifier, *given: object, **more: object) -> HistGradientBoostingClassifier:
        trees.append(_openmp())
        return fit(self, *given, **more)

    monkeypatch.setattr(HistGradientBoostingClassifier, "fit", heard)
    job = sv.Job(algorithm=sv.SplitNN(hidden=4, top=(4,)), protection=sv.Plain(), epochs=1, batch_size=32)
    sv.simulate(job, _tables(wide), baselines=("alone_boosted",) if wide == 3 else (), observer=Hears())
    assert set(seen) == {threads}
    assert trees == ([{1}] if wide == 3 else [])
    assert torch.get_num_threads() == 2
