"""The cells of the gate's matrix, and the data: the credit table, a number of it, and planted secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

import securevfl as sv
from securevfl.algorithms.field.few_shot_vfl import FewShotVFL
from securevfl.algorithms.field.mftl import MFTL
from securevfl.algorithms.field.party_dropout import PartyDropout
from securevfl.algorithms.field.plugvfl import PlugVFL
from securevfl.algorithms.field.sfhtl import SFHTL
from securevfl.algorithms.laser import LaserVFL
from securevfl.algorithms.residual import ResidualAtTheCut
from securevfl.data import LabelBook, hold_out, label_owners
from securevfl.privacy.mechanisms import Mechanism
from securevfl.transport import COORDINATOR

__all__ = ["ALGORITHMS", "CELLS", "PROTECTIONS", "QUICK", "Cell", "amount", "canaries", "credit", "planted"]

_TESTED_ROWS, _FILTERED_ROWS = 8200, 13_000
"""Of which 2,800 train: in a whole run a test finds an excess of 0.1 of AUC over what ε permits, or 0.2 for one row in
thirty. RISA trains on fewer of its rows."""

_SIZES = {"hidden": 16, "top": (16,), "lr": 0.005, "cut_lr": 1.0}
_BOTTOM = {"bottom": (16,)} | _SIZES

ALGORITHMS: Mapping[str, tuple[int, sv.Algorithm]] = {
    "splitnn, identity": (3, sv.SplitNN(**_SIZES)),
    "splitnn, frozen": (3, sv.SplitNN(bottom=sv.Frozen(16), **_SIZES)),
    "splitnn": (3, sv.SplitNN(**_BOTTOM)),
    "all_labels, identity": (3, sv.AllLabels(**_SIZES)),
    "all_labels": (3, sv.AllLabels(**_BOTTOM)),
    "entity_augmentation, identity": (3, sv.EntityAugmentation(**_SIZES)),
    "entity_augmentation": (3, sv.EntityAugmentation(**_BOTTOM)),
    "risa": (3, sv.RISA(self_training=3, confidence=0.8, drop_every=3, **_BOTTOM)),
    "ssl": (3, sv.SelfSupervised(pretraining=100, **_BOTTOM)),
    "zero_imputation": (3, sv.ZeroImputation(**_BOTTOM)),
    "zero_imputation, identity": (3, sv.ZeroImputation(**_SIZES)),
    "laser": (3, LaserVFL(**_BOTTOM)),
    "party_dropout": (3, PartyDropout(**_BOTTOM)),
    "plugvfl": (3, PlugVFL(**_BOTTOM)),
    "residual": (3, ResidualAtTheCut(**_BOTTOM)),
    "fedcvt": (2, sv.FedCVT(bottom=(16,), lr=0.005)),
    "few_shot_vfl": (3, FewShotVFL(bottom=(16,), lr=0.005, local_steps=100)),
    "mftl": (2, MFTL(bottom=(16,), lr=0.005)),
    "sfhtl": (3, SFHTL(bottom=(16,), lr=0.005)),
    "multi_vfl": (3, sv.MultiVFL(**_BOTTOM)),
    "fedda": (2, sv.FedDA(first=3, generator_steps=40, **_BOTTOM)),
    "fedhssl": (3, sv.FedHSSL(rounds=4, cross_steps=8, local_steps=8, aggregate=False, **_BOTTOM)),
    "apc_vfl": (3, sv.APCVFL(bottom=(16,), code=16, lr=0.005)),
    "distilled": (3, sv.Distilled(teacher_steps=40, folds=2, **_BOTTOM)),
    "logistic_regression": (3, sv.LogisticRegression(lr=0.05, cut_lr=1.0)),
    "logistic_regression, two": (2, sv.LogisticRegression(lr=0.05, cut_lr=1.0)),
    "scorecard": (3, sv.Scorecard(lr=0.02, key_bits=2048)),
    "additive": (2, sv.Additive(edges="declared", cuts={"bank.own": (-0.7, 0.0, 0.7), "shop.secret": (0.0,)})),
    "boosting": (3, sv.Boosting(depth=4, lr=0.2)),
    "boosting, shown": (3, sv.Boosting(depth=4, lr=0.2, nodes="shown")),
    "boosting, some rows": (3, sv.Boosting(depth=4, lr=0.2, rows=0.3, columns=0.5)),
    "boosting, shown, goss": (3, sv.Boosting(depth=4, lr=0.2, nodes="shown", goss=(0.1, 0.2))),
}
"""Name → number of parties and configuration."""


def _noise(**mechanisms: Mechanism) -> sv.cut.Protection:
    return sv.Plain(dp=sv.DP(**mechanisms))


PROTECTIONS: Mapping[str, sv.cut.Protection] = {
    "plain": sv.Plain(),
    "sealed": sv.Plain(fixed_point=True),  # the exact twin: what a sealed cut opens, see `measure.opened`
    "bfv": sv.BFV(),
    "shares": sv.Shares(),
    "shares, coordinator": sv.Shares(computing=("bank", "network", COORDINATOR)),
    "shares of two": sv.Shares(computing=2),
    "shares of two, helper": sv.Shares(computing=2, helper=COORDINATOR),
    "shares of two, noise": sv.Shares(computing=2, dp=sv.DP(model=sv.Gaussian(epsilon=4.0))),
    "shares of two, helper, noise": sv.Shares(
        computing=2, helper=COORDINATOR, dp=sv.DP(model=sv.Gaussian(epsilon=4.0))
    ),
    "exact sums": sv.Shares(computing=("bank", "shop", COORDINATOR), metrics="none"),
    "noisy sums": sv.Shares(
        computing=("bank", "shop", COORDINATOR), metrics="none", dp=sv.DP(model=sv.Gaussian(epsilon=1.0))
    ),
    "dp 0.5": _noise(features=sv.Gaussian(epsilon=0.5), labels=sv.Gaussian(epsilon=0.5)),
    "dp 1": _noise(features=sv.Gaussian(epsilon=1.0), labels=sv.Gaussian(epsilon=1.0)),
    "dp 8": _noise(features=sv.Gaussian(epsilon=8.0), labels=sv.Gaussian(epsilon=8.0)),
    "features 1": _noise(features=sv.Gaussian(epsilon=1.0)),
    "features 8": _noise(features=sv.Gaussian(epsilon=8.0)),
    "z 1": _noise(features=sv.JointNoise(epsilon=1.0, weight_bound=5.0, clip=2.0)),
    "response 0.2": _noise(labels=sv.RandomisedResponse(epsilon=0.2)),
    "response 1": _noise(labels=sv.RandomisedResponse(epsilon=1.0)),
    "response 8": _noise(labels=sv.RandomisedResponse(epsilon=8.0)),
}


@dataclass(frozen=True)
class Cell:
    """One job of the matrix.

    Attributes:
        data: ``"credit"``, ``"amount"``, ``"planted"`` or ``"canaries"``.
        algorithm: of `ALGORITHMS`.
        protection: of `PROTECTIONS`.
        seed: of data and job.
        epochs: of the job.
        noise: factor of the noise that the job draws: below 1 in a control, which has to fail.
    """

    data: str
    algorithm: str
    protection: str
    seed: int = 0
    epochs: int = 8
    noise: float = 1.0

    @property
    def name(self) -> str:
        """For messages."""
        less = "" if self.noise == 1 else f", noise × {self.noise:g}"
        once = ", one epoch" if self.epochs == 1 else ""
        return f"{self.data}, {self.algorithm}, {self.protection}{once}{less}, seed {self.seed}"

    @property
    def noisy(self) -> bool:
        """Whether noise is all that hides its secrets."""
        return self.secret and PROTECTIONS[self.protection].dp is not None

    @property
    def sealed(self) -> bool:
        """Whether it stands for a sealed cut."""
        return self.protection in ("sealed", "bfv")

    @property
    def secret(self) -> bool:
        """Whether its data hold secrets that nothing else tells."""
        return self.data in ("planted", "canaries")

    @property
    def numeric(self) -> bool:
        """Whether its target is a number."""
        return self.data == "amount"

    @property
    def job(self) -> sv.Job:
        """What runs."""
        protection = PROTECTIONS[self.protection]
        noisy = protection.dp is not None and protection.dp.labels is not None
        return sv.Job(
            task="regression" if self.numeric else "classification",
            target_range=_LIMITS if self.numeric and noisy else None,
            algorithm=ALGORITHMS[self.algorithm][1],
            protection=sv.Plain() if self.trees and self.sealed else protection,
            epochs=self.epochs,
            batch_size=128,
            seed=self.seed,
            steps=8 if self.algorithm == "multi_vfl" else None,
            keep="last" if self.algorithm == "additive" else "best",
        )

    @property
    def claimed(self) -> sv.Job:
        """What speaks for it: the sealed job, where its exact twin runs."""
        seal = sv.Paillier() if self.trees else sv.BFV()
        return self.job.replace(protection=seal) if self.protection == "sealed" else self.job

    @property
    def trees(self) -> bool:
        """Whether it grows trees: they compute in the same integers in the clear as sealed."""
        return self.algorithm.startswith("boosting")

    def parties(self, rows: int) -> sv.Parties:
        """Who takes part.

        Args:
            rows: of the credit table; more where noise is tested, so that a test has its power.
        """
        if self.noisy and self.algorithm != "additive":
            rows = max(rows, _FILTERED_ROWS if self.algorithm == "risa" else _TESTED_ROWS)
        if self.algorithm == "multi_vfl":
            return several(rows, self.seed)
        count = ALGORITHMS[self.algorithm][0]
        made = {"credit": credit, "amount": amount, "planted": planted, "canaries": canaries}
        return made[self.data](count, rows, self.seed)


def credit(parties: int, rows: int, seed: int) -> sv.Parties:
    """The credit table, half of the training clients common, labels of the others known to the bank."""
    return sv.datasets.limited_credit(overlap=0.5, seed=seed, rows=rows, parties=parties, labels="all")


_LIMITS = (0.0, 500_000.0)
"""What all parties know of a credit limit, in Taiwan dollars, where labels carry noise."""


def amount(parties: int, rows: int, seed: int) -> sv.Parties:
    """The credit table, of which the bank learns the credit limit, a number, instead of the default."""
    people = credit(parties, rows, seed)
    bank = people.active
    columns = dict(bank.columns)
    limits = np.asarray(columns.pop("LIMIT_BAL"), np.float64)
    bank = replace(bank, columns=columns, label=limits, label_name="LIMIT_BAL", classes=(), book=None)
    return sv.Parties.of(bank, *people.passive)


def several(rows: int, seed: int) -> sv.Parties:
    """The credit table among two label owners and three data owners."""
    whole = sv.datasets.default_credit(overlap=1.0, seed=seed, rows=rows)
    bank, columns, categorical = whole.active, {}, set()
    for table in whole.values():
        place = {one: i for i, one in enumerate(table.ids)}
        order = np.array([place[one] for one in bank.ids])
        columns |= {name: values[order] for name, values in table.columns.items()}
        categorical |= table.categorical
    names = list(columns)
    blocks = {"clinic": names[0::3], "lab": names[1::3], "shop": names[2::3]}
    table = replace(bank, name="all", columns=columns, categorical=frozenset(categorical), fold=None, book=None)
    held = hold_out(len(bank.ids), valid=0.1, test=0.2, seed=seed)
    return label_owners(table, blocks, held, owners=2, rows=len(bank.ids) // 3, scenario="iid", seed=seed)


def planted(parties: int, rows: int, seed: int) -> sv.Parties:
    """The credit table with secrets that nothing else tells: labels tossed by a coin; in front of each passive party's
    columns one tossed by a coin, and one that marks one client in thirty; each passive table sorted by the first."""
    people = credit(parties, rows, seed)
    names = sorted({one for table in people.values() for one in table.ids} | set(_booked(people)))
    draw = np.random.default_rng([seed, 7])
    coin = dict(zip(names, draw.integers(0, 2, len(names)), strict=True))
    bank = people.active
    book = bank.book
    if book is not None:
        book = LabelBook(ids=book.ids, label=np.array([coin[one] for one in book.ids], dtype=np.int64))
    bank = replace(bank, label=np.array([coin[one] for one in bank.ids], dtype=np.int64), book=book)
    return sv.Parties.of(bank, *(_marked(table, draw) for table in people.passive))


def _booked(people: sv.Parties) -> tuple[str, ...]:
    return () if people.active.book is None else people.active.book.ids


def _marked(table: sv.PartyTable, draw: np.random.Generator) -> sv.PartyTable:
    secret, rare = draw.integers(0, 2, len(table.ids)), draw.random(len(table.ids)) < 1 / 30
    order = np.argsort(secret, kind="stable")
    columns = {"secret": secret.astype(float), "rare": rare.astype(float), **table.columns}
    return replace(
        table,
        ids=[table.ids[i] for i in order],
        columns={name: np.asarray(values)[order] for name, values in columns.items()},
    )


def canaries(parties: int, rows: int, seed: int) -> sv.Parties:
    """Nothing but a coin in each table: one column at one passive party, and the labels. The strongest case for an
    audit: clipping takes nothing from it, and nothing else is in the way."""
    draw = np.random.default_rng([seed, 11])
    ids = [f"c{i:05d}" for i in range(rows)]
    bank = sv.PartyTable(
        name="bank", ids=ids, columns={"own": draw.normal(size=rows)}, label=draw.integers(0, 2, rows), classes=(0, 1)
    )
    shop = sv.PartyTable(name="shop", ids=ids, columns={"secret": 2.0 * draw.integers(0, 2, rows) - 1})
    return sv.Parties.of(bank, shop)


def _matrix(data: str, algorithms: Mapping[str, str], seeds: int) -> list[Cell]:
    return [
        Cell(data, algorithm, protection, seed)
        for seed in range(seeds)
        for algorithm, protections in algorithms.items()
        for protection in protections.split(", ")
    ]


_CUT = "plain, sealed, dp 0.5, dp 1, dp 8, response 0.2, response 1, response 8"
_WIDE = "plain, sealed, dp 1, dp 8, response 1"
_WHOLE = {
    "splitnn, identity": "plain, sealed, dp 0.5, dp 1, dp 8, response 1, response 8",
    "splitnn, frozen": "plain, sealed",
    "logistic_regression": _WIDE,
    "splitnn": _CUT,
    "all_labels": _WIDE,
    "all_labels, identity": "plain, sealed",
    "entity_augmentation": _WIDE,
    "entity_augmentation, identity": "plain, sealed",
    "risa": _WIDE,
    "ssl": _WIDE,
    "zero_imputation": _WIDE,
    "laser": "plain, sealed, dp 8",
    "party_dropout": "plain, sealed, dp 8",
    "plugvfl": "plain, sealed",
    "residual": "plain, sealed, features 8",
    "fedcvt": "plain, features 1, features 8, response 1",
    "fedda": "plain, dp 1, dp 8, response 1",
    "few_shot_vfl": "plain, features 8",
    "mftl": "plain, features 8",
    "sfhtl": "plain, features 8",
    "fedhssl": "plain, dp 1, dp 8, response 1",
    "apc_vfl": "plain, features 1, features 8",
    "distilled": _WIDE,
}
_CARDS = {"scorecard": "plain, sealed, response 1"}
_AMOUNTS = {
    "splitnn, identity": "plain, sealed",
    "splitnn": "plain, sealed, dp 1, dp 8",
    "zero_imputation": "plain, sealed",
}
_TREES = {
    "boosting": "plain, sealed",
    "boosting, shown": "plain, sealed",
    "boosting, some rows": "sealed",
    "boosting, shown, goss": "sealed",
}
_SHARES = dict.fromkeys(
    (
        "splitnn, identity",
        "splitnn, frozen",
        "splitnn",
        "logistic_regression",
        "zero_imputation",
        "zero_imputation, identity",
        "entity_augmentation",
        "entity_augmentation, identity",
        "all_labels",
        "all_labels, identity",
        "boosting",
        "scorecard",
    ),
    "shares",
)
_TWO = "logistic_regression, two"
_OF_TWO = ("shares of two", "shares of two, helper", "shares of two, noise", "shares of two, helper, noise")
_SEVERAL = {"multi_vfl": "plain, dp 1, dp 8"}
_CANARIES = {"splitnn, identity": "features 1, features 8, z 1", "splitnn": "features 1, features 8, dp 1, dp 8"}

_CONTROLS = [
    Cell("planted", "splitnn", "dp 1", noise=1e-6),
    Cell("canaries", "splitnn, identity", "features 1", noise=0.4),
    Cell("canaries", "additive", "noisy sums", noise=0.1),
]
"""Their noise is too small, by all of it, by three fifths and by nine tenths; where the gate does not find that, it
fails."""
_SUMS = {"additive": "exact sums, noisy sums"}

CELLS = [
    *_matrix("credit", _WHOLE, 3),
    *_matrix("credit", _SEVERAL, 3),
    *_matrix("credit", _CARDS, 3),
    *_matrix("credit", _TREES, 3),
    *_matrix("amount", _AMOUNTS, 3),
    *_matrix("planted", _WHOLE, 3),
    *_matrix("canaries", _CANARIES, 3),
    *_matrix("canaries", _SUMS, 3),
    *_matrix("credit", _SHARES, 3),
    *_matrix("planted", dict.fromkeys(("splitnn, identity", "splitnn"), "shares"), 3),
    *_matrix("amount", dict.fromkeys(("splitnn, identity", "splitnn"), "shares"), 3),
    Cell("planted", "all_labels, identity", "shares"),
    *(Cell("credit", "splitnn", "shares, coordinator", seed) for seed in range(3)),
    *(Cell("credit", _TWO, name, seed) for name in _OF_TWO for seed in range(3)),
    *(Cell("credit", _TWO, name, epochs=1) for name in _OF_TWO),
    Cell("credit", "splitnn", "bfv", epochs=2),
    Cell("credit", "splitnn, identity", "bfv", epochs=2),
    *_CONTROLS,
]
"""The whole size."""

QUICK = [
    *_matrix(
        "credit",
        {
            "splitnn, identity": "plain, sealed",
            "splitnn": "plain, sealed, dp 8",
            "logistic_regression": "plain, sealed",
            "entity_augmentation": "sealed",
            "risa": "sealed",
            "fedcvt": "plain",
            "fedda": "plain",
            "scorecard": "sealed",
            "boosting": "sealed",
            "boosting, shown": "sealed",
        },
        1,
    ),
    *_matrix(
        "planted",
        {
            "splitnn, identity": "plain, sealed, dp 0.5",
            "splitnn": "plain, dp 0.5, dp 8, response 0.2, response 1",
            "all_labels, identity": "sealed",
        },
        1,
    ),
    *_matrix("canaries", {"splitnn, identity": "features 1, z 1"} | _SUMS, 1),
    *_matrix("amount", {"splitnn, identity": "sealed", "splitnn": "plain, dp 1"}, 1),
    *_CONTROLS,
    Cell("credit", "splitnn, identity", "bfv", epochs=1),
    Cell("credit", "logistic_regression", "shares", epochs=2),
    *(Cell("credit", _TWO, name, epochs=4) for name in _OF_TWO),  # angles enough to be judged one by one
]
"""About two minutes on two cores."""
