"""What the tests of private set intersection share."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import BANK, SHOP


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bank.csv").write_text(BANK, encoding="utf-8")
    (tmp_path / "shop.csv").write_text(SHOP, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path
