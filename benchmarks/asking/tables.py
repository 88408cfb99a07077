"""Tables that attacks ask about: arrays for twins in the clear, and the same rows as parties' tables for real jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import securevfl as sv
from securevfl.attacks.learners import standardise
from securevfl.data.sources import image_set
from securevfl.data.table import TEST, TRAIN, VALID

__all__ = ["TABLES", "Rows", "Table", "clothes", "credit"]

_CLIP = 5.0
_ASKER = "bank"
_LIKE_COATS = (2, 4, 6)
"""Pullovers, coats and shirts, which are hard to tell from tops and dresses."""


@dataclass(frozen=True)
class Rows:
    """Which rows of a table train, validate and test; numbers of rows."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray

    @property
    def all(self) -> np.ndarray:
        """In this order."""
        return np.concatenate([self.train, self.valid, self.test])


@dataclass(frozen=True, eq=False)
class Table:
    """A table that is split among parties, standardised.

    Attributes:
        name: for results.
        own: the asker's columns, (n, d).
        passive: party → its columns; names in order, as computing parties have them.
        label: honest classes, 0 or 1, (n,).
    """

    name: str
    own: np.ndarray
    passive: Mapping[str, np.ndarray]
    label: np.ndarray

    @property
    def others(self) -> np.ndarray:
        """The passive parties' columns side by side."""
        return np.hstack(list(self.passive.values()))

    @property
    def whole(self) -> np.ndarray:
        """All columns, the asker's first."""
        return np.hstack([self.own, self.others])

    def draw_rows(self, train: int, valid: int, test: int, seed: int) -> Rows:
        """Rows of each fold, by chance."""
        order = np.random.default_rng([seed, 5]).permutation(len(self.label))
        return Rows(order[:train], order[train : train + valid], order[train + valid : train + valid + test])

    def spread(self, per_column: np.ndarray) -> dict[str, float]:
        """Party → mean of a figure of each passive column."""
        found, start = {}, 0
        for party, columns in self.passive.items():
            found[party] = round(float(per_column[start : start + columns.shape[1]].mean()), 4)
            start += columns.shape[1]
        return found

    def parties(
        self,
        rows: Rows,
        *,
        label: np.ndarray | None = None,
        classes: int = 2,
        own: np.ndarray | None = None,
        names: np.ndarray | None = None,
    ) -> sv.Parties:
        """The same rows as tables of parties.

        Args:
            rows: that all parties hold.
            label: of each row of the table, in place of the honest one.
            classes: of `label`.
            own: the asker's columns of each row of the table, in place of its true ones.
            names: identifier of each row of the table; made up unless given.
        """
        label = self.label if label is None else label
        own = self.own if own is None else own
        at = rows.all
        ids = [f"p{row:06d}" for row in at] if names is None else names[at].tolist()
        fold = np.repeat(np.array([TRAIN, VALID, TEST], np.int8), [len(rows.train), len(rows.valid), len(rows.test)])
        bank = sv.PartyTable(
            name=_ASKER,
            ids=ids,
            columns={f"own{j}": own[at, j] for j in range(own.shape[1])},
            label=label[at].astype(np.int64),
            classes=tuple(str(k) for k in range(classes)),
            label_name="label",
            fold=fold,
        )
        others = [
            sv.PartyTable(name=party, ids=ids, columns={f"{party}{j}": x[at, j] for j in range(x.shape[1])})
            for party, x in self.passive.items()
        ]
        return sv.Parties.of(bank, *others)


def credit() -> Table:
    """The UCI credit table with its three parties: 5, 6 and 12 columns, 30,000 rows; clients who default."""
    people = sv.datasets.default_credit(overlap=1.0, seed=0)
    order = sorted(people.active.ids)
    columns = {}
    for party, table in people.items():
        place = {one: i for i, one in enumerate(table.ids)}
        at = np.array([place[one] for one in order])
        values = [
            np.unique(np.asarray(v), return_inverse=True)[1] if _is_text(v) else v for v in table.columns.values()
        ]
        numbers = np.column_stack([np.asarray(v, np.float64)[at] for v in values])
        columns[party] = standardise(numbers).clip(-_CLIP, _CLIP)
    bank = people.active
    place = {one: i for i, one in enumerate(bank.ids)}
    label = np.asarray(bank.label)[[place[one] for one in order]].astype(np.int64)
    own = columns.pop(bank.name)
    return Table("credit", own, columns, label)


def _is_text(values: object) -> bool:
    return np.asarray(values).dtype.kind not in "fiub"


def clothes() -> Table:
    """Fashion-MNIST in 16 means of 7 × 7 pixels, 20,000 rows: the asker has the top row of four, `middle` the next and
    `hem` the two others; pullovers, coats and shirts among the other classes. Neighbouring blocks are alike, so that
    own columns tell much. No rule was shaped on it."""
    pixels, kinds, _, _ = image_set("fashion_mnist", None)
    x = pixels[:20000].astype(np.float64).reshape(-1, 4, 7, 4, 7).mean(axis=(2, 4))
    label = np.isin(kinds[:20000], _LIKE_COATS).astype(np.int64)
    block = standardise(x.reshape(len(x), 16)).clip(-_CLIP, _CLIP)
    return Table("clothes", block[:, :4], {"hem": block[:, 8:], "middle": block[:, 4:8]}, label)


TABLES = {"credit": credit, "clothes": clothes}
"""Name → its loader."""
