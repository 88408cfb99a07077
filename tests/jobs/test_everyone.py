"""Scores for every customer of the active party: each row once, by the largest set that holds it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import securevfl as sv
from securevfl.algorithms.splitnn import Active
from securevfl.jobs.everyone import every_set
from securevfl.jobs.simulation import join_parties, run_parties
from securevfl.party import Alone
from securevfl.site import PartySecret
from securevfl.training import ActiveRole, Setting, Subsets
from securevfl.transport import Kind
from tests.helpers import parties

SMALL: dict[str, Any] = {"hidden": 4, "top": (4,), "bottom": (4,)}


class Zeros(sv.SplitNN):
    """SplitNN that may be scored with any parties: zeros in z stand for the columns of the others."""

    name: ClassVar[str] = "test_zeros"
    label: ClassVar[str] = "zeros"
    subsets: ClassVar[Subsets] = "any"


def _job(algorithm: sv.SplitNN, **options: Any) -> sv.Job:
    return sv.Job(algorithm=algorithm, epochs=2, batch_size=32, **options)


@cache
def _trained(algorithm: sv.SplitNN) -> tuple[sv.Model, sv.Parties]:
    """A model of three parties, and their tables."""
    job, people = _job(algorithm), parties(rows=120)
    ran = run_parties(job, people, join_parties(people, job), run="test")
    return sv.Model(job=job, parts={name: trained.model for name, trained in ran.trained.items()}), people


def _some(people: sv.Parties, *, bank: range, shop1: range, shop2: range) -> sv.Parties:
    """Rows of the tables, so that who holds what is known; the active party's labels are gone."""
    ids = {name: list(people["bank"].ids) for name in people}
    chosen = {"bank": bank, "shop1": shop1, "shop2": shop2}
    tables = []
    for name, rows in chosen.items():
        at = {one: row for row, one in enumerate(people[name].ids)}
        tables.append(people[name].take([at[ids[name][row]] for row in rows if ids[name][row] in at]))
    first = replace(tables[0], label=None, classes=(), label_name="", fold=None)
    return sv.Parties.of(first, *tables[1:], active="bank")
