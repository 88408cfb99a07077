"""What a party's saved part of a model holds: weights and encodings; no label, no row, nothing of another party's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import low_overlap_parties
from support.small_algorithms import SETTINGS, SEVERAL, make

import securevfl as sv
from securevfl.data import Parties
from securevfl.run import Model
from securevfl.run.simulation import Aligned, join_parties, run_parties
from securevfl.testing.parties import make_label_owners
from securevfl.testing.trial import roles_begun
from securevfl.training import Algorithm
from securevfl.training.role import Role

FEW = 40
"""More numbers than this along one axis are rows: networks and encodings of these tests are smaller."""
KINDS = [*(make(name) for name in SETTINGS), SEVERAL]


def leaves(tree: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every array, and every list of plain values as one, with where it stands."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from leaves(value, f"{path}/{key}")
    elif isinstance(tree, torch.Tensor):
        yield path, tree.detach().numpy()
    elif isinstance(tree, np.ndarray):
        yield path, tree
    elif isinstance(tree, list | tuple):
        if all(isinstance(value, int | float) for value in tree):
            yield path, np.array(tree)
        else:
            for i, value in enumerate(tree):
                yield from leaves(value, f"{path}/{i}")


def as_columns(array: np.ndarray) -> Iterator[np.ndarray]:
    """Everything in an array that could be one number of each row."""
    if array.dtype != object and array.size:
        for axis in range(array.ndim):
            yield from np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis]).astype(np.float64)


def holds(part: Mapping[str, Any], wanted: np.ndarray) -> list[str]:
    """Where a saved part holds these numbers in this order, all of them or a stretch of `FEW`."""
    found, wanted = [], wanted.astype(np.float64)
    for path, array in leaves(part):
        for column in as_columns(array):
            if len(column) < FEW:
                continue
            windows = np.lib.stride_tricks.sliding_window_view(column, FEW)
            if any((windows == wanted[start : start + FEW]).all(axis=1).any() for start in range(len(wanted) - FEW)):
                found.append(path)
    return found


def trained(algorithm: Algorithm) -> tuple[dict[str, Mapping[str, Any]], list[Role], sv.Job, Parties, Aligned]:
    people = (
        make_label_owners(2, 2)
        if algorithm.many_owners
        else low_overlap_parties(1 if algorithm.most_passive else 2, rows=330)
    )
    job = sv.Job(protection=sv.Plain(), algorithm=algorithm, epochs=algorithm.least_epochs + 2, batch_size=32, seed=3)
    aligned = join_parties(people, job)
    with roles_begun() as roles:
        ran = run_parties(job, people, aligned, run="saved")
    return {name: t.model for name, t in ran.trained.items() if t.model}, roles, job, people, aligned


@pytest.mark.parametrize("algorithm", KINDS, ids=lambda algorithm: algorithm.name)
def test_a_saved_part_holds_no_rows(algorithm: Algorithm, tmp_path: Path) -> None:
    parts, roles, job, _, _ = trained(algorithm)
    Model(job=job, parts=parts).save(tmp_path)
    saved = Model.load(tmp_path, job).parts
    labels = [role.table.y.numpy() for role in roles if role.table.y is not None]
    columns = [role.table.x.numpy()[:, j] for role in roles for j in range(role.table.x.shape[1])]
    for name, part in saved.items():
        assert [path for path, array in leaves(part) if max(array.shape, default=0) > FEW] == [], name
        assert [path for values in (*labels, *columns) for path in holds(part, values)] == [], name
        rows = {row.tobytes() for role in roles for row in role.table.x.numpy() if role.table.x.shape[1] > 1}
        for path, array in leaves(part):
            flat = [np.ascontiguousarray(row, dtype=np.float32).tobytes() for row in _vectors(array)]
            assert rows.isdisjoint(flat), (name, path)


def _vectors(array: np.ndarray) -> Iterator[np.ndarray]:
    if array.dtype != object and array.ndim and array.size:
        yield from array.reshape(-1, array.shape[-1])


def test_the_search_finds_labels_and_features() -> None:
    """A search that cannot find says nothing."""
    _, roles, _, _, _ = trained(make("risa"))
    active = next(role for role in roles if role.table.y is not None)
    y, x = active.table.y, active.table.x
    assert y is not None
    part = {"memory": active.remember(), "more": {"x": x[17:90]}}
    assert "/memory/y" in holds(part, y.numpy())
    assert holds(part, x.numpy()[:, 1]) == ["/more/x"]
    assert y.numpy()[:50].tobytes() != np.zeros(50, dtype=np.int64).tobytes()


@pytest.mark.parametrize("evidential", [True, False])
def test_risa_tells_each_party_of_its_own_rows_only(evidential: bool) -> None:
    algorithm = make("risa", evidential=evidential, confidence=0.6, uncertainty=0.4)
    people = low_overlap_parties(2, rows=330)
    job = sv.Job(protection=sv.Plain(), algorithm=algorithm, epochs=6, batch_size=32, seed=3)
    with roles_begun() as roles:
        run_parties(job, people, join_parties(people, job), run="told")
    active, *passive = sorted(roles, key=lambda role: role.site.role)
    chosen = active.chosen  # type: ignore[attr-defined]
    table = active.table
    trains = {name: np.intersect1d(chosen, table.rows_only_at(name)) for name in table.rest}
    for name in table.labelled:
        assert 0 < len(trains[name]) < len(table.rows_only_at(name)), "or this test would show nothing"
    for role in passive:
        told, name = role.chosen, role.site.name  # type: ignore[attr-defined]
        knows = np.concatenate([np.arange(table.aligned_count), table.rows_only_at(name)])
        assert np.array_equal(told[np.isin(told, knows)], chosen[np.isin(chosen, knows)]), "its own, in their places"
        lacks = np.setdiff1d(np.arange(table.total_count), knows)
        others = told[np.isin(told, lacks)]
        assert len(others) == len(chosen) - np.isin(chosen, knows).sum()
        assert np.array_equal(others, lacks[: len(others)]), "the first numbers, whichever rows train"
