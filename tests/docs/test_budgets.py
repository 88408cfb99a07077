"""All methods of an experiment take the same steps for the network that is judged; what trains before comes on top."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from securevfl.training import find_algorithm

FILES = sorted((Path(__file__).parents[2] / "examples" / "experiments").glob("*.toml"))
ON_TOP = {"risa": "self_training", "fedda": "first"}
"""Algorithm → its setting for the epochs of what trains before the network that is judged."""
TREES = {"boosting", "boosted_residual", "hybrid_tree"}
PRIVATE = "protected"
"""There every epoch spends ε, of a budget that all methods share: so it counts the first epochs, too."""


def _judged(method: dict[str, Any], epochs: int) -> int:
    """Epochs of the network that is judged."""
    name = method["algorithm"]
    total = method.get("job", {}).get("epochs", epochs)
    if name not in ON_TOP:
        return int(total)
    usual = find_algorithm(name)()
    return int(total - method.get("settings", {}).get(ON_TOP[name], getattr(usual, ON_TOP[name])))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_judged_networks_take_the_same_steps(file: Path) -> None:
    content = tomllib.loads(file.read_text("utf-8"))
    if content.get("name") == PRIVATE:
        pytest.skip("every epoch spends ε")
    epochs = content["job"]["epochs"]
    found = {
        m.get("label", m["algorithm"]): _judged(m, epochs) for m in content["method"] if m["algorithm"] not in TREES
    }
    assert set(found.values()) == {epochs}, {name: count for name, count in found.items() if count != epochs}


def test_first_epochs_count_as_on_top() -> None:
    assert _judged({"algorithm": "risa", "settings": {"self_training": 5}, "job": {"epochs": 15}}, 10) == 10
    assert _judged({"algorithm": "risa", "settings": {"self_training": 5}}, 10) == 5
    assert _judged({"algorithm": "fedda"}, 10) == 5
    assert _judged({"algorithm": "risa"}, 10) == 10
