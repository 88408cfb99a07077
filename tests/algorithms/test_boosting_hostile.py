"""What a passive party of boosting refuses, and what it is not told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from securevfl_crypto.sums import SumHolder
from support.forests import job, run
from support.helpers import low_overlap_parties, ready_keys

import securevfl as sv
from securevfl.algorithms.boosting.answering import TreeAnswers
from securevfl.algorithms.boosting.bins import fit_bins
from securevfl.algorithms.boosting.categories import NUMBER, pack_sets
from securevfl.algorithms.boosting.trees import OwnSplits, Tree, read_splits, read_trees, write_splits, write_trees
from securevfl.privacy import Link

ROWS = 8


class Asks:
    """The active party's end of a link: it says what it was given to say, whatever it hears."""

    peer = "bank"

    def __init__(self, *said: tuple[dict[str, Any], dict[str, np.ndarray]]) -> None:
        self.said, self.heard = list(said), list[str]()

    async def receive(self, kind: object, step: str, *arrays: str) -> Any:
        meta, found = self.said.pop(0)
        return SimpleNamespace(meta=meta, arrays=found)

    async def send(self, kind: object, step: str, **rest: Any) -> None:
        self.heard.append(step)


def told(link: Asks, **changes: Any) -> list[OwnSplits]:
    x = np.arange(ROWS, dtype=np.float64)[:, None]
    bins, config = fit_bins(x, 8), sv.Boosting(**{"depth": 2, **changes})
    forest = SimpleNamespace(trees=[])
    role: Any = SimpleNamespace(
        upstream=link,
        bins=bins,
        codes=bins.encode_rows(x).astype(np.int16),
        config=config,
        protection=sv.Plain(),
        site=SimpleNamespace(seed=0),
        holder=None,
        equations=0,
        forest=forest,
    )
    asyncio.run(TreeAnswers(role).run())
    return forest.trees


def do(what: str, **more: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    return {"do": what, **more}, {}


BEGIN = (do("tree"), ({}, {"g": np.ones((ROWS, 2), dtype=np.int64)}))
END = do("end")


def sums(*nodes: int) -> tuple[tuple[dict[str, Any], dict[str, np.ndarray]], ...]:
    place = np.arange(ROWS, dtype=np.int32) % len(nodes)
    return do("sums", nodes=len(nodes)), ({}, {"nodes": np.array(nodes, dtype=np.int64), "place": place})


def splits(*bins: int) -> tuple[tuple[dict[str, Any], dict[str, np.ndarray]], ...]:
    table = np.array([[0, 0, one, 0] for one in bins], dtype=np.int64)
    return do("split"), ({}, {"splits": table, "sets": pack_sets([NUMBER] * len(bins))})


@pytest.mark.parametrize("leaves", [0, 4])
def test_no_more_splits_are_answered_than_a_tree_of_the_job_has(leaves: int) -> None:
    """Else one tree would tell all thresholds of a column."""
    (tree,) = told(Asks(*BEGIN, *sums(0), *splits(0), *sums(1), *splits(1, 2), END), leaves=leaves)
    assert len(tree) == 3
    link = Asks(*BEGIN, *sums(0), *splits(0, 1), *splits(2, 3), END)
    with pytest.raises(sv.ProtocolError, match="chose 4 splits; a tree of the job has 3"):
        told(link, leaves=leaves)
    assert link.heard.count("boost/sides") == 1


def test_no_more_nodes_are_summed_than_a_tree_of_the_job_has() -> None:
    told(Asks(*BEGIN, *sums(0), *sums(1, 2), END))
    link = Asks(*BEGIN, *sums(0), *sums(1, 2), *sums(3), END)
    with pytest.raises(sv.ProtocolError, match="sums of 4 nodes; a tree of the job has 3"):
        told(link)
    assert link.heard.count("boost/sums") == 2


@pytest.mark.parametrize(("depth", "leaves", "most"), [(1, 0, 1), (3, 0, 7), (12, 2, 3), (6, 4, 7), (3, 99, 7)])
def test_trees_have_as_many_nodes_as_their_settings_allow(depth: int, leaves: int, most: int) -> None:
    assert sv.Boosting(depth=depth, leaves=leaves).most_summed == most


@pytest.mark.parametrize("nodes", ["hidden", "shown"])
def test_hidden_nodes_have_no_numbers_either(nodes: str) -> None:
    """From numbers a passive party would learn which of its splits follows which other one."""
    numbers, send = list[int](), Link.send

    async def watched(self: Link, kind: Any, step: str, **rest: Any) -> None:
        if step == "boost/splits":
            numbers.extend(rest["splits"][:, 0].tolist())
        await send(self, kind, step, **rest)

    with mock.patch.object(Link, "send", watched):
        run(job(sv.Plain(), nodes=nodes, merge=4), low_overlap_parties(1, rows=200, overlap=1.0))
    assert numbers
    assert any(numbers) == (nodes == "shown")


def test_trees_of_negative_sizes_are_refused() -> None:
    """Sizes add up, and yet one tree would have nodes of another."""
    splits = write_splits([OwnSplits([0, 0], [0.5, 1.5], [False, False], [NUMBER, NUMBER])])
    with pytest.raises(sv.InputError, match="damaged"):
        read_splits(splits | {"sizes": torch.tensor([3, -1])}, columns=1)
    one = Tree(0)
    one.add_leaf()
    state = write_trees([one]) | {"sizes": torch.tensor([2, -1]), "outputs": torch.tensor([0, 0])}
    with pytest.raises(sv.InputError, match="damaged"):
        read_trees(state, owners=1, outputs=1, columns=1)


@pytest.mark.parametrize("nodes", ["hidden", "shown"])
def test_sealed_sums_that_need_not_add_up_are_refused(nodes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the clear they are held against the node's; sealed, the bin that is left out makes them so."""
    ready_keys(monkeypatch)
    honest = SumHolder.compute_sums

    def some(self: Any, batch: Any, codes: np.ndarray, bins: Any, node: Any, count: int) -> Any:
        codes = codes.copy()
        codes[:, 0] = np.where(codes[:, 0] == 0, -1, codes[:, 0])
        return honest(self, batch, codes, bins, node, count, complete=False)

    monkeypatch.setattr(SumHolder, "compute_sums", some)
    with pytest.raises(sv.ProtocolError, match="does not leave out one bin of each column"):
        run(job(sv.Paillier(bits=2048), nodes=nodes, merge=4), low_overlap_parties(1, rows=60, width=2, overlap=1.0))
