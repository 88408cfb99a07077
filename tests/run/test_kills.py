"""A run that SIGKILL ends at a random moment and that goes on; `benchmarks.kills` does it two hundred times."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.kills import Workplace, killed, whole


@pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")
@pytest.mark.parametrize("protection", ["plain", "plain-dp"])
def test_a_killed_run_goes_on_and_counts_what_was_released(protection: str, tmp_path: Path) -> None:
    cell = ("splitnn", protection)
    reference = whole(Workplace(tmp_path / "whole", cell))
    place = Workplace(tmp_path / "killed", cell)
    notes = killed(place, reference["seconds"], random.Random(3), damage=False)
    assert notes["code"] == 0, (place.folder / "output").read_text()
    found = place.result()
    if protection == "plain":
        np.testing.assert_array_equal(found["scores"], reference["scores"])
    else:
        made = place.made()
        assert made
        assert all(found["times"][key] >= count for key, count in made.items())
