"""The gate's cells of two parties that compute: they pass, and fail where a pad is missing that no result shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from securevfl_crypto.two import dealing

if TYPE_CHECKING:
    from benchmarks.gate import cells, judge, measure
else:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1]))
        from benchmarks.gate import cells, judge, measure

ROWS = 1300
CELL = cells.Cell("credit", "logistic_regression, two", "shares of two, helper", epochs=6)


def _lines() -> list[str]:
    return list(judge.shares_tell_nothing(measure.measure(CELL, rows=ROWS, tests=2, every_party=False)))


def test_cells_of_two_are_in_both_matrices() -> None:
    for matrix in (cells.CELLS, cells.QUICK):
        names = {cell.protection for cell in matrix if cell.algorithm.endswith(", two")}
        assert names == {name for name in cells.PROTECTIONS if name.startswith("shares of two")}
        assert len({cell.name for cell in matrix}) == len(matrix)
    assert {cell.epochs for cell in cells.CELLS if cell.algorithm.endswith(", two")} == {1, 8}


def test_nothing_is_got_of_rows_that_two_parties_use() -> None:
    told = []
    for _ in range(5):  # pads are drawn anew by the system, and luck ranks few rows now and then
        told = _lines()
        if not told:
            break
    assert not told


@pytest.mark.parametrize("missing", ["angles", "pads", "rows"])
def test_a_missing_pad_fails_the_gate(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Both the helper and the party draw zeros in place of it, so that all results stay right."""
    if missing == "angles":
        monkeypatch.setattr(
            dealing.Drawer, "draw_angles", lambda drawer, count: drawer.draw_words(count).astype(np.int64) * 0
        )
    else:
        name = "draw_words" if missing == "pads" else "mask_rows"
        honest = getattr(dealing.Drawer, name)
        monkeypatch.setattr(dealing.Drawer, name, lambda *given: honest(*given) * np.uint64(0))
    assert any("not uniform" in line or "gets" in line or "ranks" in line for line in _lines())
