"""The demo: one table of real clients, split among three organisations, trained under several protections."""

from __future__ import annotations

from pathlib import Path

from securevfl.cut import BFV, CKKS, Paillier, Plain, find_protection
from securevfl.data import datasets
from securevfl.experiments.comparison import compare
from securevfl.party import Job
from securevfl.party_context import Observer
from securevfl.privacy import DP, Gaussian
from securevfl.run.result import Result
from securevfl.training import find_algorithm

__all__ = ["DEMO_ROWS", "DRAWS", "demo", "demo_jobs"]

DEMO_ROWS = 9_000
"""Clients in the short demo; the table has 30,000."""

DRAWS = 3
"""Runs of each job with differential privacy: a single draw of the noise is not reliable. The table is public."""


def demo_jobs(
    *, full: bool, every: bool = False, seed: int = 0, bits: int = 2048, epsilon: float = 8.0
) -> dict[str, Job]:
    """The federated jobs: first on secret shares, the default of three parties; then plain, sealed by CKKS, and plain
    with differential privacy on labels.

    Args:
        full: batches and epochs for the whole table.
        every: add BFV, Paillier, and differential privacy on features and labels.
        seed: of all that is learned.
        bits: size of the Paillier key.
        epsilon: privacy budget of one row, for each kind of release.
    """
    size = 256 if full else 128
    plain = Job(
        algorithm=find_algorithm("splitnn").from_values({"hidden": 16, "top": [16], "lr": 0.005, "cut_lr": size / 256}),
        epochs=8 if full else 6,
        batch_size=size,
        seed=seed,
        protection=Plain(),
    )
    labels = DP(labels=Gaussian(epsilon=epsilon))
    everything = DP(features=Gaussian(epsilon=epsilon), labels=Gaussian(epsilon=epsilon))
    jobs = {
        "shares": plain.replace(protection=find_protection("shares")()),
        "plain": plain,
        "ckks": plain.replace(protection=CKKS()),
        "dp-labels": plain.replace(protection=Plain(dp=labels)),
    }
    more = {  # made even where they are left out, so that a bad option is refused
        "bfv": plain.replace(protection=BFV()),
        "paillier": plain.replace(protection=Paillier(bits=bits)),
        "dp": plain.replace(protection=Plain(dp=everything)),
    }
    return jobs | more if every else jobs


def demo(
    *,
    full: bool = False,
    every: bool = False,
    seed: int = 0,
    bits: int = 2048,
    epsilon: float = 8.0,
    command: str = "",
    observer: Observer | None = None,
    ledgers: str | Path | None = None,
) -> Result:
    """Bank, network and retailer train a credit-default model: on shares, plain, sealed, and with noise.

    Args:
        full: the whole table instead of `DEMO_ROWS` clients.
        every: also BFV, Paillier, and noise on features and labels.
        seed: of the data split and of all that is learned.
        bits: size of the Paillier key.
        epsilon: privacy budget of one row, for each kind of release of the DP run.
        command: what makes the report again, for the report.
        observer: hears how it goes on.
        ledgers: folder for the ledgers while the runs go on, ``PARTY.jsonl`` each; without ledgers by now.
    """
    parties = datasets.default_credit(overlap=0.85, seed=seed, rows=None if full else DEMO_ROWS)
    return compare(
        demo_jobs(full=full, every=every, seed=seed, bits=bits, epsilon=epsilon),
        parties,
        name="credit",
        title="Credit default, learned together by a bank, a network and a retailer",
        command=command,
        observer=observer,
        draws=DRAWS,
        ledgers=ledgers,
    )
