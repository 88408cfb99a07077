"""What each party receives while trees grow: words that look like chance, in messages whose number and sizes depend on
nothing but the shape of the table; and nothing is opened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from securevfl_crypto.replicated import Computing, deal_shares, run_three
from securevfl_crypto.replicated.keys import Streams
from securevfl_crypto.ring import MODULUS, encode_words
from support.shared_trees import BinnedTable

from securevfl.shares.trees import CellLayout, SharedCells, TreeRule, compute_gradients, grow_trees

ROWS = 80
LAYOUT = CellLayout((4, 3), (False, True), (0, 1), (0, 1))
RULE = TreeRule(depth=2, l2=1.0, min_hessian=1.0, min_gain=0.1, rate=0.3, gradient_bits=16, rows=ROWS)

Views = list[dict[tuple[int, str, str], list[np.ndarray]]]


def _tables() -> dict[str, tuple[BinnedTable, np.ndarray]]:
    """Tables of one shape, with labels that trees learn, that they cannot learn, and that are all alike."""
    table = BinnedTable.draw(LAYOUT, ROWS, 1)
    constant = BinnedTable(LAYOUT, np.zeros_like(table.bins))
    labels = (table.bins[0] > 1).astype(float)
    return {
        "learns": (table, labels),
        "other labels": (table, 1 - labels),
        "no column": (constant, labels),
        "nothing": (constant, np.zeros(ROWS)),
    }


def _views(table: BinnedTable, labels: np.ndarray) -> Views:
    """The messages that each party receives, by sender, label and type."""
    dealt = [
        deal_shares(words) for words in (table.cells, encode_words(labels[:, None]), encode_words(np.zeros((1, ROWS))))
    ]

    async def party(engine: Computing) -> None:
        z, y, f = (engine.read_dealt(one[engine.index]) for one in dealt)
        gradients = await compute_gradients(engine, "logistic", f, y, RULE)
        await grow_trees(engine, SharedCells(LAYOUT, z, engine.index), gradients, RULE)

    found: Views = []
    for wire in run_three(party, openings={}, record=True).wires:
        view: dict[tuple[int, str, str], list[np.ndarray]] = defaultdict(list)
        for source, label, (_, *arrays) in wire.received:
            for array in arrays:
                view[source, label, array.dtype.name].append(np.asarray(array).reshape(-1))
        found.append(view)
    return found


def _deviation(values: np.ndarray, kinds: int) -> float:
    """Of counts from uniform ones: χ² in standard deviations above its mean."""
    counts = np.bincount(values, minlength=kinds)
    expected = len(values) / kinds
    return float((((counts - expected) ** 2).sum() / expected - (kinds - 1)) / np.sqrt(2 * (kinds - 1)))


def _most_deviation(views: Views) -> float:
    found = []
    for view in views:
        for (_, _, kind), arrays in view.items():
            values = np.concatenate(arrays)
            if kind == "uint64":
                found += [_deviation(place, 256) for place in values.view(np.uint8).reshape(-1, 8).T]
            else:
                found.append(_deviation(values, MODULUS))
    return max(found)


def test_what_a_party_receives_looks_like_chance_for_all_tables() -> None:
    shapes = []
    for table, labels in _tables().values():
        views = _views(table, labels)
        assert _most_deviation(views) < 8
        assert {label for view in views for _, label, _ in view} == {"opening", "rows", "answers", "result", "reshare"}
        shapes.append([{key: [len(one) for one in arrays] for key, arrays in view.items()} for view in views])
    assert all(one == shapes[0] for one in shapes)


def test_messages_without_masks_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Streams.draw_split

    def draw(self: Streams, key: int | None, sizes: Sequence[int]) -> list[np.ndarray]:
        return [np.zeros_like(words) for words in real(self, key, sizes)]

    monkeypatch.setattr(Streams, "draw_split", draw)
    assert max(_most_deviation(_views(*one)) for one in _tables().values()) > 20
