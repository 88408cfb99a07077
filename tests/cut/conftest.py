"""Settings of the cut's tests."""

from __future__ import annotations

import pytest
from support.keys import ready_keys
from support.processes import fork_workers


@pytest.fixture(autouse=True)
def _ready(monkeypatch: pytest.MonkeyPatch) -> None:
    ready_keys(monkeypatch)
    fork_workers(monkeypatch)
