"""What all tests of processes share."""

from __future__ import annotations

from functools import partial

import pytest
from securevfl_net.gate.settings import Timing
from support.forking import load_libraries

from securevfl.transport import network_mesh


@pytest.fixture(scope="session", autouse=True)
def _libraries() -> None:
    """Loaded before parties are forked: each would load them again."""
    load_libraries()


@pytest.fixture(autouse=True)
def _short_farewell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party that is done waits two seconds, and not ten, for peers that are gone; also in processes that it forks."""
    monkeypatch.setattr(network_mesh, "Timing", partial(Timing, farewell=2.0))
