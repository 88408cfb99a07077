"""What a role is given and what it gives back: the plan, the party's numbered rows, the history of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, overload

import numpy as np
import torch

from securevfl.data import FeatureEncoder, PreparedLine
from securevfl.privacy import Reading, Spent
from securevfl.training.calibration import FEWEST_TO_CHOOSE, Calibration
from securevfl.training.objectives import LossOfNumber
from securevfl.training.split import Split
from securevfl.training.state import State, as_list
from securevfl.transport import fits, to_device

__all__ = ["FEWEST_TO_CHOOSE", "Epoch", "Features", "Keep", "NumberedRows", "Numbers", "Plan", "Trained"]

Keep = Literal["best", "last", "auto"]
"""Which epoch's weights a run keeps; see `Plan.keep`."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long and on what to train; every party has the same.

    Attributes:
        epochs: most epochs.
        batch_size: nominal rows in a batch; the loss of a batch is the sum over its rows divided by this.
        patience: epochs without a gain on the validation rows after which training stops, or None for never.
        steps: batches in an epoch, drawn from one random order of the rows after the other; None for one pass.
        keep: which epoch's weights are kept: of the ``"best"`` on the validation rows, of the ``"last"``, or
            ``"auto"``: of the best where there are at least `FEWEST_TO_CHOOSE` validation rows, else of the last.
        valid_every: epochs from one validation to the next; the last epoch validates whatever it is.
        eval_rows: rows scored at a time outside training.
        device: where plain tensors live, ``"cpu"`` or ``"cuda"``.
        number: how a numeric target is learned; None where classes are.
        several: whether a row can have several labels.
        heaviest: how much a row of one class counts at most, as far as the job says it.
    """

    epochs: int
    batch_size: int
    patience: int | None
    steps: int | None = None
    keep: Keep = "best"
    valid_every: int = 1
    eval_rows: int = 2048
    device: str = "cpu"
    number: LossOfNumber | None = None
    several: bool = False
    heaviest: float = 1.0

    def validates_after(self, epoch: int) -> bool:
        """Whether the validation rows are scored after `epoch`, from 1."""
        return epoch % self.valid_every == 0 or epoch == self.epochs

    def chooses_best_epoch(self, valid: int) -> bool:
        """Whether so many validation rows choose the epoch whose weights are kept; else it is the last."""
        return self.keep == "best" or (self.keep == "auto" and valid >= FEWEST_TO_CHOOSE)


@dataclass(frozen=True, kw_only=True)
class NumberedRows:
    """A party's rows, ready to train on, and how all parties number rows.

    All parties number rows alike: first the aligned ones in the common order, then, for each party in the order of
    `rest`, the rows that are not aligned. A row of another party's is missing here.

    Attributes:
        x: features of the party's own rows, (n, …) float32: the aligned ones, then its others in their order. Of an
            algorithm whose `view` is ``"coded"``, (n, columns) float64, NaN where a value is missing.
        encoded: names of the columns of x, where it is coded.
        codes: for each of them how many codes it can be, 0 for numbers; likewise.
        names: their identifiers, (n,); empty where nobody needs them.
        columns: how many columns the party's table has, before they were encoded; 0 where that is not known.
        split: which aligned rows train, validate and test.
        name: the party.
        rest: party → number of its rows that are not aligned; empty where an algorithm uses aligned rows only.
        y: class of each numbered row, int64, -1 where it is unknown, at the active party; or its number, float64, NaN
            where it is unknown; or zeros and ones of several labels, (rows, labels) int64, -1 where unknown.
        classes: number of classes, or of labels; 1 stands for a numeric target.
        labelled: passive party → how many of its other rows (the first ones) the active party has labels for.
        shared: by how many numbers, at most, one person goes: three parties can each lack another one of its rows.
        spare: features of rows of the party's own that are not aligned and have no number, (n, …) float32, for what it
            learns alone; None where it does not.
        weight: at the active party, how much each numbered row counts in metrics, (rows,) float64, 1 in the mean over
            the training rows; None where all count alike.
        counts: likewise, in the loss, (rows,) float32: `weight` times the weight of the row's class.
        encoder: what made `x` of the party's columns; None where that is not known.
        person: at the active party, for each numbered row the first number of the same person; None where all differ.
    """

    x: torch.Tensor = field(repr=False)
    split: Split
    name: str = ""
    names: Sequence[str] = ()
    columns: int = 0
    encoded: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    rest: Mapping[str, int] = field(default_factory=dict)
    y: torch.Tensor | None = field(default=None, repr=False)
    classes: int = 0
    labelled: Mapping[str, int] = field(default_factory=dict)
    shared: int = 1
    spare: torch.Tensor | None = field(default=None, repr=False)
    encoder: FeatureEncoder | None = field(default=None, repr=False)
    person: np.ndarray | None = field(default=None, repr=False)
    weight: torch.Tensor | None = field(default=None, repr=False)
    counts: torch.Tensor | None = field(default=None, repr=False)

    @property
    def aligned_count(self) -> int:
        """How many rows are aligned."""
        return len(self.x) - self.rest.get(self.name, 0)

    @property
    def total_count(self) -> int:
        """How many rows all parties number."""
        return self.aligned_count + sum(self.rest.values())

    def rows_only_at(self, party: str) -> np.ndarray:
        """Numbers of the rows that only `party` has, in its order."""
        start = self.aligned_count
        for name, count in self.rest.items():
            if name == party:
                return np.arange(start, start + count)
            start += count
        return np.arange(0)

    def known_to(self, party: str, rows: np.ndarray) -> np.ndarray:
        """Numbers of rows, (n,) without repeats, as `party` may know them: the aligned ones and its own as they are;
        for those that it lacks, the first numbers that it lacks, whichever they are. It feeds the same for all of
        those, and learns how many there are."""
        mine = self.rows_only_at(party)
        first, end = (int(mine[0]), int(mine[-1]) + 1) if len(mine) else (self.total_count, self.total_count)
        lacking = (rows >= self.aligned_count) & ((rows < first) | (rows >= end))
        stands_for = np.concatenate([np.arange(self.aligned_count, first), np.arange(end, self.total_count)])
        told = rows.copy()
        told[lacking] = stands_for[: np.count_nonzero(lacking)]
        return told

    def row_weights(self, rows: np.ndarray) -> np.ndarray | None:
        """How much numbered rows count in metrics, (n,); None where all count alike."""
        return None if self.weight is None else self.weight[torch.from_numpy(rows)].numpy()

    def merge_persons(self, rows: np.ndarray) -> np.ndarray:
        """`rows`, and the same number for all that are one person's."""
        return rows if self.person is None else self.person[rows]

    def own_places(self, rows: np.ndarray) -> np.ndarray:
        """For each numbered row its place in `x`, or -1 where this party lacks it."""
        mine = self.rows_only_at(self.name)
        first = mine[0] if len(mine) else self.total_count
        at = np.where(rows < self.aligned_count, rows, rows - first + self.aligned_count)
        return np.where((rows < self.aligned_count) | ((rows >= first) & (rows < first + len(mine))), at, -1)


class Numbers(Sequence[str]):
    """Names of rows that have none: their places, as texts, made when one is asked for.

    Args:
        count: how many.
    """

    def __init__(self, count: int) -> None:
        self._places = range(count)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...

    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        return [str(i) for i in self._places[place]] if isinstance(place, slice) else str(self._places[place])


class Features:
    """The features of a party's rows, on the device that trains.

    A number from `NumberedRows.total_count` to below twice that means the same row withheld, and -1 means no row. Both
    have `fill` for features, as a row that the party lacks. A release counts a row and its withheld twin separately.

    Args:
        table: the party's numbered rows.
        device: ``"cpu"`` or ``"cuda"``.

    Attributes:
        x: (n, …) float32, as `NumberedRows.x`: on the device, or on the host where the device has no room for it.
        device: where features of rows are given.
        fill: (1, …), what stands in for a row that the party lacks; zeros until an algorithm says otherwise.
    """

    def __init__(self, table: NumberedRows, device: str) -> None:
        self.device = torch.device(device)
        self.x = table.x.to(device) if fits(table.x, device) else table.x
        self.fill = torch.zeros_like(self.x[:1], device=device)
        self._table = table
        self._aligned = table.aligned_count
        self._whole: object = None
        self._all = False

    @cached_property
    def _at(self) -> np.ndarray:
        """Number → place; made where a number is asked for that is not its own place."""
        return np.append(self._table.own_places(np.arange(2 * self._table.total_count)), -1)

    def _are_places(self, rows: np.ndarray) -> bool:
        """Whether these rows (n,) are all aligned: their numbers are their places, and nothing has to be looked up."""
        if rows.dtype != np.int64 or not rows.flags.c_contiguous:
            return False
        whole = rows.base  # an epoch's batches are parts of one array, which is looked at once
        if whole is not self._whole:
            self._whole = whole
            self._all = isinstance(whole, np.ndarray) and self._are_aligned(whole)
        return self._all or self._are_aligned(rows)

    def _are_aligned(self, rows: np.ndarray) -> bool:
        numbers = rows.dtype == np.int64 and rows.ndim == 1 and rows.flags.c_contiguous and len(rows) > 0
        return numbers and bool(np.maximum.reduce(rows.view(np.uint64)) < self._aligned)  # a negative one is huge

    def __call__(self, rows: np.ndarray) -> torch.Tensor:
        """Features of numbered rows, (n, …); `fill` where this party lacks them."""
        if self._are_places(rows):
            return self._gathered(rows)
        place = self._at[rows]
        if not len(place) or place.min() >= 0:
            return self._gathered(place)
        found = self._gathered(np.maximum(place, 0))
        lacking = to_device(place < 0, self.device).view(-1, *(1,) * (self.x.ndim - 1))
        return torch.where(lacking, self.fill, found)  # by no index of its own: a GPU would wait for it

    def _gathered(self, places: np.ndarray) -> torch.Tensor:
        at = to_device(places, self.x.device)
        if self.x.device == self.device or self.x.device.type != "cpu":
            return self.x.index_select(0, at)
        return to_device(self.x.index_select(0, at), self.device)

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Places in `x` of those of the numbered rows that this party has and does not withhold."""
        if self._are_places(rows):
            return rows
        found: np.ndarray = self._at[rows]
        return found[found >= 0]

    @property
    def shape(self) -> torch.Size:
        """Of one row."""
        return self.x.shape[1:]

    def present_rows(self) -> np.ndarray:
        """Numbers of the rows whose features this party has, (n,)."""
        return np.flatnonzero(self._at[:-1] >= 0)

    def mean(self, rows: np.ndarray) -> torch.Tensor:
        """The mean of rows that this party has, by their places in `x`, (1, …)."""
        return self._gathered(rows).mean(dim=0, keepdim=True)


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch as the active party saw it."""

    loss: float
    valid: dict[str, float]


@dataclass(kw_only=True)
class Trained:
    """What one party has after its program ended.

    Attributes:
        readings: the party's clock, one reading an epoch.
        setup: its clock before the first epoch.
        finish: its clock for the test rows, after the last epoch.
        spent: what its releases cost in privacy.
        epochs: at the active party: the history.
        model: the party's part of the best model, for `Result.model`.
        best_epoch: at the active party: the epoch whose weights were kept, from 1.
        stopped: at the active party: why training ended.
        rows: at the active party: on how many rows it trained (those of its last epoch).
        extra: at the active party: further figures of an algorithm, by name.
        test: at the active party: the metrics on the test rows.
        scores: at the active party: probabilities of the test rows, (n, classes).
        valid_scores: at the active party: probabilities of the validation rows by the kept model, (n, classes).
        labels: at the active party: of the test rows, (n,): classes, or numbers in the target's units.
        classes: at the active party: their names; empty for a number.
        target: at the active party: the label's column.
        weight: at the active party: of the test rows in metrics, (n,); None where all count alike.
        alone: at the active party: the metrics on the test rows, scored without the passive parties; empty where the
            algorithm has no way to.
        calibration: at the active party: ``"whole"`` and ``"alone"`` → how confident scores from all columns, and from
            its own, were made to fit; see `securevfl.training.calibration`.
        alone_scores: at the active party: these scores, (n, classes), or (0, 0).
        notes: what the report should tell of this party's part in the run.
        self_training: at the active party of an algorithm that labels rows: how many, how many were dropped, and how
            many such labels are right, in words.
        warnings: what the user should look at before anything else: training that went nowhere, classes without rows.
        constant: at the active party: metrics on the test rows of always giving the training rows' class shares.
        split: which aligned rows trained, validated and tested.
        prepared: how each column of the party was prepared, where its table asks for that.
    """

    readings: list[Reading] = field(default_factory=list)
    setup: Reading | None = None
    finish: Reading | None = None
    spent: list[Spent] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    model: State = field(default_factory=dict, repr=False)
    best_epoch: int = 0
    stopped: str = ""
    rows: int = 0
    extra: dict[str, float] = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)
    scores: np.ndarray = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    valid_scores: np.ndarray = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    labels: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)
    classes: tuple[str, ...] = ()
    target: str = ""
    weight: np.ndarray | None = field(default=None, repr=False)
    alone: dict[str, float] = field(default_factory=dict)
    calibration: dict[str, Calibration] = field(default_factory=dict)
    alone_scores: np.ndarray = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    notes: list[str] = field(default_factory=list)
    self_training: str = ""
    warnings: list[str] = field(default_factory=list)
    constant: dict[str, float] = field(default_factory=dict)
    split: Split = field(default_factory=Split.empty)
    prepared: tuple[PreparedLine, ...] = ()

    def restore_readings(self, readings: object) -> None:
        """Readings of a checkpoint."""
        self.readings = [Reading(*values) for values in as_list(readings)]
