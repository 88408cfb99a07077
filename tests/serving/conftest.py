"""A trained model for all tests of serving."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from support.servers import trained

from securevfl.run.model_parts import ModelPart


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, ModelPart]:
    """Each party's part of a plain model."""
    return trained(tmp_path_factory.mktemp("model"))
