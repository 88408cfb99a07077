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

__all__ = ["BUDGET", "DEMO_ROWS", "DRAWS", "demo", "demo_jobs"]

DEMO_ROWS = 11_000
"""Clients in the short demo; the table has 30,000. With 9,000, too few are common for an additive model at ε = 1."""

BUDGET = 1.0
"""ε of the additive model, over the labels and all parties' columns together."""

DRAWS = 3
"""Runs of each job with differential privacy: a single draw of the noise is not reliable. The table is public."""

# What a budget asks for: bounds, levels and directions from the meaning of the columns, not from their rows.
_AMOUNTS, _DELAYS = (-1e6, 1e6), (-2.0, 9.0)
_RANGES = (
    {"bank.LIMIT_BAL": (0.0, 1e6), "bank.AGE": (18.0, 100.0)}
    | {f"network.PAY_{month}": _DELAYS for month in (0, 2, 3, 4, 5, 6)}
    | {f"retailer.{kind}_AMT{month}": _AMOUNTS for kind in ("BILL", "PAY") for month in range(1, 7)}
)
_LEVELS = {
    "bank.SEX": ("1", "2"),
    "bank.EDUCATION": ("1", "2", "3", "4"),
    "bank.MARRIAGE": ("1", "2", "3"),
}
_RISING = tuple(f"network.PAY_{month}" for month in (0, 2, 3, 4, 5, 6))  # who pays later defaults more often


def demo_jobs(
    *, full: bool, every: bool = False, seed: int = 0, bits: int = 2048, epsilon: float = 8.0
) -> dict[str, Job]:
    """The federated jobs: a network and boosted trees, each on secret shares, the default of three parties, and plain;
    and an additive model on shares within a privacy budget.

    Args:
        full: batches, epochs and trees for the whole table.
        every: add CKKS, BFV, Paillier, and differential privacy on labels, and on features and labels.
        seed: of all that is learned.
        bits: size of the Paillier key.
        epsilon: privacy budget of one row, for each kind of release of the networks with differential privacy.
    """
    size = 256 if full else 128
    shares = find_protection("shares")
    network = Job(
        algorithm=find_algorithm("splitnn").from_values({"hidden": 16, "top": [16], "lr": 0.005, "cut_lr": size / 256}),
        epochs=8 if full else 5,
        batch_size=size,
        seed=seed,
        protection=Plain(),
    )
    trees = Job(
        algorithm=find_algorithm("boosting").from_values({"depth": 4, "lr": 0.1} if full else {"depth": 3, "lr": 0.2}),
        epochs=40 if full else 12,
        seed=seed,
        protection=Plain(),
    )
    additive = Job(
        algorithm=find_algorithm("additive").from_values({"ranges": _RANGES, "levels": _LEVELS, "rising": _RISING}),
        epochs=60 if full else 30,
        keep="last",
        seed=seed,
        protection=shares.from_values(
            {"metrics": "none", "dp": {"model": {"mechanism": "gaussian", "epsilon": BUDGET, "delta": 1e-5}}}
        ),
    )
    jobs = {
        "shares": network.replace(protection=shares()),
        "plain": network,
        "trees-shares": trees.replace(protection=shares()),
        "trees-plain": trees,
        "additive-dp": additive,
    }
    labels = DP(labels=Gaussian(epsilon=epsilon))
    everything = DP(features=Gaussian(epsilon=epsilon), labels=Gaussian(epsilon=epsilon))
    more = {  # made even where they are left out, so that a bad option is refused
        "ckks": network.replace(protection=CKKS()),
        "bfv": network.replace(protection=BFV()),
        "paillier": network.replace(protection=Paillier(bits=bits)),
        "dp-labels": network.replace(protection=Plain(dp=labels)),
        "dp": network.replace(protection=Plain(dp=everything)),
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
    """Bank, network and retailer train credit-default models: on shares, plain, and within a privacy budget.

    Args:
        full: the whole table instead of `DEMO_ROWS` clients.
        every: also CKKS, BFV, Paillier, noise on labels, and noise on features and labels.
        seed: of the data split and of all that is learned.
        bits: size of the Paillier key.
        epsilon: privacy budget of one row, for each kind of release of the networks with differential privacy.
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
