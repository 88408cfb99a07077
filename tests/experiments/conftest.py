"""Settings of the tests of experiments."""

from __future__ import annotations

import pytest
from support.processes import fork_workers


@pytest.fixture(autouse=True)
def _forked(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_workers(monkeypatch)
