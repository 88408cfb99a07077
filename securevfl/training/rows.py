"""The inputs and results of a role beside its plan: the party's numbered rows, the history of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, overload

import numpy as np
import torch

from securevfl.data import FeatureEncoder, PreparedLine
from securevfl.privacy import Reading, Spent
from securevfl.training.calibration import Calibration
from securevfl.training.split import Split
from securevfl.training.state import State, as_list
from securevfl.transport import fits_device, to_device

__all__ = ["ChosenModel", "Epoch", "Features", "NumberedRows", "Numbers", "Trained", "TriedModel"]


@dataclass(frozen=True, kw_only=True)
class NumberedRows:
    """A party's encoded rows, under the numbers that all parties use for them.

    All parties number rows alike: first the aligned ones in the common order, then, for each party in the order of
    `rest`, the rows that are not aligned. Rows that only another party has are missing here.

    Attributes:
        x: features of the party's own rows, (n, …) float32: the aligned ones, then its others in their order. For an
            algorithm whose `view` is ``"coded"``, (n, columns) float64, NaN where a value is missing.
        encoded: names of the columns of `x` if it is coded.
        codes: the number of codes of each of these columns, 0 for numbers; also only if `x` is coded.
        names: of the rows' persons, (n,), by which the party counts what it discloses; empty if nothing needs them.
        columns: how many columns the party's table has before encoding; 0 if unknown.
        split: which aligned rows train, validate and test.
        name: the party.
        rest: party → number of its rows that are not aligned; empty if the algorithm uses aligned rows only.
        y: at the active party, the target of each numbered row: a class, int64, -1 if unknown; or a number, float64,
            NaN if unknown; or zeros and ones of several labels, (rows, labels) int64, -1 if unknown.
        classes: number of classes, or of labels; 1 for a numeric target.
        words: at the active party, the classes or labels as its table writes them; empty for a number, and where
            nobody warns of them.
        labelled: passive party → how many of its other rows (the first ones) the active party has labels for.
        shared: the most numbers that one person can have. A person whose rows are not aligned has a number for each
            party that has a row.
        spare: features of the party's rows that are neither aligned nor numbered, (n, …) float32, which it uses to
            train without its peers; None if it does not.
        weight: at the active party, how much each numbered row counts in metrics, (rows,) float64, 1 in the mean over
            the training rows; None if all count alike.
        counts: how much each counts in the loss, (rows,) float32: `weight` times the weight of the row's class.
        encoder: encoded the party's columns as `x`; None if unknown.
        person: at the active party, for each numbered row the first number of the same person; None if all differ.
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
    words: tuple[str, ...] = ()
    labelled: Mapping[str, int] = field(default_factory=dict)
    shared: int = 1
    spare: torch.Tensor | None = field(default=None, repr=False)
    encoder: FeatureEncoder | None = field(default=None, repr=False)
    person: np.ndarray | None = field(default=None, repr=False)
    weight: torch.Tensor | None = field(default=None, repr=False)
    counts: torch.Tensor | None = field(default=None, repr=False)

    def name_numbers(self) -> NumberedRows:
        """The same rows as an algorithm of coded columns takes them: each column of `x` a number, with a name. Rows
        that are coded are returned unchanged."""
        width = self.x[:1].numel() if len(self.x) else self.x.shape[1:].numel()
        if self.encoded or not width:
            return self
        return replace(self, encoded=tuple(f"column {number}" for number in range(1, width + 1)), codes=(0,) * width)

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
        """Rewrite row numbers, (n,) without repeats, for `party`: those of aligned rows and of its own are unchanged.
        Those of rows that it lacks become the lowest such numbers, so the party learns only how many there are. That
        does no harm, because it feeds the same constant for every row that it lacks."""
        mine = self.rows_only_at(party)
        first, end = (int(mine[0]), int(mine[-1]) + 1) if len(mine) else (self.total_count, self.total_count)
        lacking = (rows >= self.aligned_count) & ((rows < first) | (rows >= end))
        replacements = np.concatenate([np.arange(self.aligned_count, first), np.arange(end, self.total_count)])
        visible = rows.copy()
        visible[lacking] = replacements[: np.count_nonzero(lacking)]
        return visible

    def row_weights(self, rows: np.ndarray) -> np.ndarray | None:
        """How much numbered rows count in metrics, (n,); None if all count alike."""
        return None if self.weight is None else self.weight[torch.from_numpy(rows)].numpy()

    def merge_persons(self, rows: np.ndarray) -> np.ndarray:
        """`rows`, with all rows of one person replaced by the same number."""
        return rows if self.person is None else self.person[rows]

    def own_places(self, rows: np.ndarray) -> np.ndarray:
        """For each numbered row its place in `x`, or -1 if this party lacks it."""
        mine = self.rows_only_at(self.name)
        first = mine[0] if len(mine) else self.total_count
        at = np.where(rows < self.aligned_count, rows, rows - first + self.aligned_count)
        return np.where((rows < self.aligned_count) | ((rows >= first) & (rows < first + len(mine))), at, -1)


class Numbers(Sequence[str]):
    """Names for rows without identifiers: their positions as texts, made on demand.

    Args:
        count: number of rows.
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

    Two more kinds of row numbers are allowed: number r + `NumberedRows.total_count` means row r with its features
    withheld, and -1 means no row. Both get `fill` as features, like a row that the party lacks. For differential
    privacy, row r and row r withheld count as two rows.

    Args:
        table: the party's numbered rows.
        device: ``"cpu"`` or ``"cuda"``.

    Attributes:
        x: (n, …) float32, as `NumberedRows.x`: on the device, or on the host if the device has no room for it.
        device: where the features of requested rows are placed.
        fill: (1, …), the features used for a row that the party lacks; zeros unless an algorithm sets others.
    """

    def __init__(self, table: NumberedRows, device: str) -> None:
        self.device = torch.device(device)
        self.x = table.x.to(device) if fits_device(table.x, device) else table.x
        self.fill = torch.zeros_like(self.x[:1], device=device)
        self._table = table
        self._aligned = table.aligned_count
        self._whole: object = None
        self._all = False

    @cached_property
    def _place_of(self) -> np.ndarray:
        """Number → place in `x`, or -1; built on first use, which batches of aligned rows never need."""
        # The last entry is that of number -1.
        return np.append(self._table.own_places(np.arange(2 * self._table.total_count)), -1)

    def _are_places(self, rows: np.ndarray) -> bool:
        """Whether these rows (n,) are all aligned: their numbers are their places, so no look-up is needed."""
        if rows.dtype != np.int64 or not rows.flags.c_contiguous:
            return False
        whole = rows.base  # an epoch's batches are slices of one array, which is checked once
        if whole is not self._whole:
            self._whole = whole
            self._all = isinstance(whole, np.ndarray) and self._are_aligned(whole)
        return self._all or self._are_aligned(rows)

    def _are_aligned(self, rows: np.ndarray) -> bool:
        numbers = rows.dtype == np.int64 and rows.ndim == 1 and rows.flags.c_contiguous and len(rows) > 0
        # Read as unsigned, a negative number is huge, so one comparison checks both ends.
        return numbers and bool(np.maximum.reduce(rows.view(np.uint64)) < self._aligned)

    def __call__(self, rows: np.ndarray) -> torch.Tensor:
        """Features of numbered rows, (n, …); `fill` for those that this party lacks."""
        if self._are_places(rows):
            return self._gather_rows(rows)
        place = self._place_of[rows]
        if not len(place) or place.min() >= 0:
            return self._gather_rows(place)
        found = self._gather_rows(np.maximum(place, 0))
        lacking = to_device(place < 0, self.device).view(-1, *(1,) * (self.x.ndim - 1))
        return torch.where(lacking, self.fill, found)  # not by indexing, for which a GPU would have to synchronise

    def _gather_rows(self, places: np.ndarray) -> torch.Tensor:
        at = to_device(places, self.x.device)
        if self.x.device == self.device or self.x.device.type != "cpu":
            return self.x.index_select(0, at)
        return to_device(self.x.index_select(0, at), self.device)

    def find_places(self, rows: np.ndarray) -> np.ndarray:
        """Places in `x` of the given rows, without those that this party lacks or withholds."""
        if self._are_places(rows):
            return rows
        found: np.ndarray = self._place_of[rows]
        return found[found >= 0]

    @property
    def row_shape(self) -> torch.Size:
        """The shape of one row's features."""
        return self.x.shape[1:]

    def present_rows(self) -> np.ndarray:
        """Numbers of the rows whose features this party has, (n,)."""
        return np.flatnonzero(self._place_of[:-1] >= 0)

    def mean_row(self, rows: np.ndarray) -> torch.Tensor:
        """The mean features of the rows at these places in `x`, (1, …)."""
        return self._gather_rows(rows).mean(dim=0, keepdim=True)


@dataclass(frozen=True, slots=True)
class Epoch:
    """The active party's figures of one epoch."""

    loss: float
    valid: dict[str, float]


@dataclass(frozen=True)
class TriedModel:
    """One candidate of a choice among algorithms, as one party knows it.

    Attributes:
        title: as shown.
        valid: metric of the validation rows, by the epoch that is kept; None where this party does not know it.
        epochs: that were trained.
        best_epoch: at the active party: the epoch that is kept, from 1.
        seconds: of its epochs, by the party's clock.
        bytes: that the party sent in them.
    """

    title: str
    valid: float | None
    epochs: int
    best_epoch: int
    seconds: float
    bytes: int


@dataclass(frozen=True)
class ChosenModel:
    """The candidate that a job kept.

    Attributes:
        kept: its name.
        metric: of the validation rows, by which they were compared; empty at a party that only received the choice.
        tried: name → each candidate; at the active party the best first.
        left_out: name → why, of candidates whose training diverged.
    """

    kept: str
    metric: str
    tried: Mapping[str, TriedModel]
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class Trained:
    """What a party's program returns.

    Attributes:
        readings: the party's clock, one reading an epoch.
        setup: the clock's reading for everything before the first epoch.
        finish: the clock's reading for scoring the test rows, after the last epoch.
        spent: the privacy cost of its releases.
        epochs: at the active party: the history.
        model: the party's part of the best model, for `Result.model`.
        best_epoch: at the active party: the epoch whose weights were kept, from 1.
        stopped: at the active party: why training ended.
        rows: at the active party: number of rows in its last training epoch.
        extra: at the active party: further figures of an algorithm, by name.
        test: at the active party: the metrics on the test rows.
        uncalibrated: at the active party: the same metrics before the scores were calibrated; empty if they were not.
        scores: at the active party: probabilities of the test rows, (n, classes).
        valid_scores: at the active party: probabilities of the validation rows by the kept model, (n, classes).
        valid_labels: at the active party: of the validation rows, as `labels`; empty if unknown.
        labels: at the active party: of the test rows, (n,): classes, or numbers in the target's units.
        classes: at the active party: their names; empty for a number.
        target: at the active party: the label's column.
        weight: at the active party: of the test rows in metrics, (n,); None if all count alike.
        alone: at the active party: the metrics on the test rows, scored without the passive parties; empty if the
            algorithm cannot do that.
        calibration: at the active party: how scores were calibrated, under ``"whole"`` those from all parties' columns
            and under ``"alone"`` those from its own columns; see `securevfl.training.calibration`.
        alone_scores: at the active party: scores of the test rows from its own columns, (n, classes), or (0, 0).
        alone_valid_scores: likewise of the validation rows; (0, 0) unless the plan asks for them.
        notes: sentences for the report on this party's part in the run.
        self_training: at the active party of an algorithm that labels rows: a sentence on how many were labelled, how
            many were dropped, and how many of the labels are right.
        warnings: what the user should read first: training without progress, classes without rows.
        constant: at the active party: metrics on the test rows of always predicting the training rows' class shares.
        split: which aligned rows trained, validated and tested.
        prepared: how each column of the party was prepared, if its table requests preparation.
        choice: which algorithm was kept, where an agreement names several; None for a job of one.
        statistics: of columns, as plain values, where a job computes them in the place of a model: at the active party
            all that was opened, at a passive one what it knows of its own.
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
    uncalibrated: dict[str, float] = field(default_factory=dict)
    scores: np.ndarray = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    valid_scores: np.ndarray = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    valid_labels: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)
    labels: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)
    classes: tuple[str, ...] = ()
    target: str = ""
    weight: np.ndarray | None = field(default=None, repr=False)
    alone: dict[str, float] = field(default_factory=dict)
    calibration: dict[str, Calibration] = field(default_factory=dict)
    alone_scores: np.ndarray = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    alone_valid_scores: np.ndarray = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    notes: list[str] = field(default_factory=list)
    self_training: str = ""
    warnings: list[str] = field(default_factory=list)
    constant: dict[str, float] = field(default_factory=dict)
    statistics: dict[str, Any] = field(default_factory=dict, repr=False)
    split: Split = field(default_factory=Split.without_rows)
    prepared: tuple[PreparedLine, ...] = ()
    choice: ChosenModel | None = None

    def restore_readings(self, readings: object) -> None:
        """Restore the readings of a checkpoint."""
        self.readings = [Reading(*values) for values in as_list(readings)]
