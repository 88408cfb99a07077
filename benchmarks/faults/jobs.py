"""The jobs of the matrix: each algorithm under each protection, on tables of some tens of rows."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import securevfl as sv
from securevfl.agreement import ServingTerms
from securevfl.errors import InputError
from securevfl.party_context import PartySecret
from securevfl.testing.company import Company, create_company
from securevfl.testing.parties import make_parties
from securevfl.training import find_algorithm

__all__ = ["ALGORITHMS", "KINDS", "PROTECTIONS", "JobKind", "create_parties", "explain_no_job"]

ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    "splitnn": {"hidden": 4, "top": [], "bottom": [3]},
    "logistic_regression": {},
    "boosting": {"depth": 2, "bins": 8},
}
PROTECTIONS: Mapping[str, Any] = {
    "plain": sv.Plain(),
    "noise": sv.Plain(dp=sv.DP(features=sv.Gaussian(epsilon=30.0))),
    "bfv": sv.BFV(),
    "ckks": sv.CKKS(),
    "paillier": sv.Paillier(bits=2048),
    "shares": sv.Shares(few_rows=True, useful="off"),
}
_EXACT = {("splitnn", "plain"), ("logistic_regression", "plain"), ("boosting", "plain"), ("boosting", "paillier")}


@dataclass(frozen=True)
class JobKind:
    """One job.

    Attributes:
        algorithm, protection: their names.
        issued: whether an authority issues the parties' certificates; otherwise the agreement pins them.
    """

    algorithm: str
    protection: str
    job: sv.Job = field(compare=False, repr=False)
    issued: bool = False

    @property
    def name(self) -> str:
        """The job in a few words."""
        return f"{self.algorithm} {self.protection}{' issued' * self.issued}"

    @property
    def is_exact(self) -> bool:
        """Whether two runs from the same secrets give the same model to the last bit. Under the other protections each
        attempt draws fresh masks or noise.
        """
        return (self.algorithm, self.protection) in _EXACT

    @property
    def passive(self) -> int:
        """How many passive parties: shares compute at three parties."""
        return 2 if self.protection == "shares" else 1

    @property
    def rows(self) -> int:
        """How many rows each table has."""
        return {"shares": 120, "plain": 60, "noise": 60}.get(self.protection, 40)


def _make_kind(algorithm: str, protection: str) -> JobKind:
    options = dict(ALGORITHMS[algorithm])
    if algorithm == "splitnn" and protection == "shares":
        del options["bottom"]
    job = sv.Job(
        algorithm=find_algorithm(algorithm).from_values(options),
        protection=PROTECTIONS[protection],
        epochs=2,
        batch_size=16,
        seed=3,
        valid=0.2,
        test=0.2,
    )
    return JobKind(algorithm, protection, job)


def explain_no_job(algorithm: str, protection: str) -> str:
    """Why there is no such job, in the package's own words; empty where there is one."""
    try:
        _make_kind(algorithm, protection)
    except InputError as error:
        return str(error)
    return ""


KINDS: Mapping[str, JobKind] = {
    kind.name: kind
    for algorithm in ALGORITHMS
    for protection in PROTECTIONS
    if not explain_no_job(algorithm, protection)
    for kind in (_make_kind(algorithm, protection),)
}
"""Name → each job that the package accepts."""


def create_parties(kind: JobKind, folder: Path) -> Company:
    """Everything that the parties of a job need, in a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    people = make_parties(passive=kind.passive, rows=kind.rows)
    most = "unlimited" if kind.algorithm == "boosting" and kind.protection != "shares" else 1_000_000  # it opens sums
    policy = sv.Policy(max_results=most, few_rows=kind.protection == "shares", useful="off")
    company = create_company(
        folder,
        people,
        kind.job,
        policies=dict.fromkeys(people, policy),
        serving=ServingTerms(asks=("bank",)),
        authority=kind.issued,
        attempts=1000,
        reconnect=20,
        gather=86_400,
    )
    company.store_secrets({name: PartySecret.from_seed(1, name) for name in company.names})
    return company
