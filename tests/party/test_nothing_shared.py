"""Parties of a simulation share nothing that either could change or read of the other: what they know of each other
came in a message."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.helpers import low_overlap_parties
from support.small_algorithms import make

import securevfl as sv
from securevfl.config import Config
from securevfl.run.simulation import join_parties, run_parties
from securevfl.testing.trial import roles_begun

SKIPPED = {"site", "_site", "links", "_link", "upstream", "observer"}
"""Links are what parties share; everything behind them is a message."""


def memory(value: Any, seen: set[int], path: str = "") -> Iterator[tuple[int, str]]:
    """Where the numbers lie that an object can reach, and how it reaches them."""
    if id(value) in seen or isinstance(value, Config | type | str | bytes | int | float | None):
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if value.numel():
            yield value.data_ptr(), path
    elif isinstance(value, np.ndarray):
        if value.size and value.dtype != object:
            yield value.__array_interface__["data"][0], path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from memory(item, seen, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from memory(item, seen, f"{path}[…]")
    elif isinstance(value, torch.nn.Module):
        for name, tensor in value.state_dict().items():
            yield tensor.data_ptr(), f"{path}.{name}"
    elif type(value).__module__.startswith(("securevfl", "torch.optim")):
        for name, item in vars(value).items() if hasattr(value, "__dict__") else ():
            if name not in SKIPPED:
                yield from memory(item, seen, f"{path}.{name}")


@pytest.mark.parametrize("name", ["splitnn", "risa", "entity_augmentation", "fedcvt"])
def test_parties_reach_no_numbers_of_each_other(name: str) -> None:
    algorithm = make(name)
    people = low_overlap_parties(1 if algorithm.most_passive else 2, rows=200)
    job = sv.Job(protection=sv.Plain(), algorithm=algorithm, epochs=algorithm.least_epochs + 1, batch_size=32, seed=3)
    with roles_begun() as roles:
        run_parties(job, people, join_parties(people, job), run="shared")
    found = {role.site.name: dict(memory(role, set(), role.site.name)) for role in roles}
    assert all(len(places) >= 3 for places in found.values()), "features, split, weights at least"
    for one, other in itertools.combinations(found.values(), 2):
        assert [(one[at], other[at]) for at in set(one) & set(other)] == []


def test_a_shared_array_is_found() -> None:
    shared = np.arange(3)

    class Box:
        def __init__(self) -> None:
            self.rows = {"mine": [shared]}

    Box.__module__ = "securevfl.test"
    one, two = (dict(memory(Box(), set(), name)) for name in "ab")
    assert set(one) == set(two) != set()
