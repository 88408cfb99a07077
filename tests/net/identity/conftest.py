"""A folder in which parties make their certificates."""

from pathlib import Path

import pytest
from support.identity_parties import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
