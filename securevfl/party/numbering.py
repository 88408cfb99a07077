"""Between alignment and training: the parties exchange row counts, the active party announces which common rows train,
validate and test, and each party numbers its rows in the shared order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from securevfl.align import Alignment
from securevfl.data import FeatureEncoder, PartyTable
from securevfl.data.table import TEST, TRAIN
from securevfl.errors import InputError, PolicyError, ProtocolError
from securevfl.party.eligibility import too_many_classes
from securevfl.party.job import Job
from securevfl.party.weights import add_weights
from securevfl.party_context import PartyContext, PartySecret, derive_seed
from securevfl.privacy import fan_out
from securevfl.training import NumberedRows, Split
from securevfl.training.split import stratified_marks
from securevfl.training.split_columns import (
    UNUSED,
    class_folds,
    fold_marks,
    group_folds,
    group_marks,
    time_fold,
    time_marks,
)
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind, Message

__all__ = [
    "EXCHANGES",
    "AgreedRows",
    "agree_rows",
    "coded_columns",
    "encode_features",
    "fit_rows",
    "number_rows",
    "split_own_rows",
]

_ROWS, _START = "train/rows", "train/start"
EXCHANGES = (
    Exchange(_ROWS, Kind.CONTROL, PASSIVE, ACTIVE, "number of its rows"),
    Exchange(_START, Kind.CONTROL, ACTIVE, PASSIVE, "numbers of all rows; which of the common ones train"),
)

_MOST = 1 << 24
"""Largest set of rows that a peer may announce, as in alignment."""

_SALT = 32
"""Bytes of the key that categories are hashed by."""

_BY_SEED, _BY_MARK, _TRAIN_ALL = "seed", "mark", "train"
"""How the active party splits the common rows: from the job's seed, by marks that it sends, or all to train on."""


@dataclass(frozen=True, kw_only=True)
class AgreedRows:
    """What all parties of a federation know of one another's rows before training.

    Attributes:
        counts: party → its rows that are not aligned, and how many of them have labels at the active party.
        classes: number of classes.
        shared: see `NumberedRows`.
        split: which of the common rows train, validate and test.
        others: the party's own numbers of its rows that are not aligned, in the order in which it numbers them.
    """

    counts: Mapping[str, tuple[int, int]]
    classes: int
    shared: int
    split: Split
    others: np.ndarray = field(repr=False)


async def agree_rows(
    site: PartyContext,
    table: PartyTable,
    alignment: Alignment,
    job: Job,
    *,
    evaluates: bool = True,
    split: Split | None = None,
) -> AgreedRows:
    """Exchange row counts with the other parties of a federation, and receive the split.

    Args:
        site: the party's context.
        table: its own.
        alignment: its own.
        job: the job.
        evaluates: at the active party, whether this federation validates and tests, or trains on all common rows.
        split: at the active party, a split to use instead of drawing one; allowed only without peers.

    Raises:
        InputError: too few rows for a split, or no label book for an algorithm that needs one.
        ProtocolError: a peer sends impossible counts.
    """
    wrong = too_many_classes(job, site.name, len(table.classes)) if site.role != PASSIVE else ""
    if wrong:
        raise InputError(wrong)
    labels = alignment.labelled if job.algorithm.uses_book else {}
    known = labels.get(site.name, np.arange(0))
    others = _unaligned_rows(site, table, alignment, known) if job.algorithm.uses_others else known[:0]
    mine = (len(others), min(len(known), len(others)))
    if site.role == PASSIVE:
        return await _receive_split(site, mine, len(alignment.rows), job, others)
    how, fold = _TRAIN_ALL, np.empty(0, dtype=np.uint8)
    if split is None:
        how, fold = _choose_split(site, table, alignment, job, evaluates=evaluates, marked=len(site.label_owners) > 1)
    parts = split or _make_split(how, fold, len(alignment.rows), job)
    others = others[~excluded_rows(table, alignment.rows, parts, job)[others]]
    mine = (len(others), min(mine[1], len(others)))
    used = [alignment.rows, others, *(labels[name] for name in sorted(labels))]
    shared = int(np.bincount(np.concatenate(used)).max())
    counts = {site.name: mine}
    for name in site.passive:
        message = await site.links[name].receive(Kind.CONTROL, _ROWS)
        counts[name] = _check_counts([message.meta.get(what) for what in ("rows", "labelled")], name)
    if site.gone:
        counts |= _counts_of_gone(site)
    elif job.leaving == "go-on":
        site.keeper.store_row_counts(counts)
    _check_book(site, table, job, counts)
    classes = len(table.classes) if job.number_loss is None else 1
    meta: dict[str, str | int] = {"classes": classes, "shared": shared, "split": how}
    for name, (rows, labelled) in counts.items():
        meta |= {f"rows {name}": rows, f"labelled {name}": labelled}
    await fan_out(site.passive_links, lambda link: link.send(Kind.CONTROL, _START, meta=meta, fold=fold))
    return AgreedRows(counts=counts, classes=classes, shared=shared, split=parts, others=others)


def _counts_of_gone(site: PartyContext) -> dict[str, tuple[int, int]]:
    """Rows of parties that left, as they announced them: without these numbers, those of other rows would change, and
    with them what releases are counted by.

    Raises:
        InputError: the file that keeps them is missing.
    """
    kept = site.keeper.read_row_counts()
    if missing := [name for name in site.gone if name not in kept]:
        raise InputError(
            f"the state folder of {site.name!r} no longer says how many rows {', '.join(missing)} had, so that rows "
            "would be numbered anew: bring the folder back"
        )
    return {name: kept[name] for name in site.gone}


def excluded_rows(table: PartyTable, rows: np.ndarray, split: Split, job: Job) -> np.ndarray:
    """Rows of the label owner's table that may not train beside the common ones, (table.rows,) bool: those in a group
    that validates or tests, and those from no earlier than the first row that does.

    Args:
        table: the label owner's.
        rows: the common ones, in their order.
        split: of these.
        job: the job.
    """
    held = rows[np.concatenate([split.valid, split.test])]
    if not len(held) or job.split_by == "rows":
        return np.zeros(table.rows, dtype=bool)
    if job.split_by == "time" and table.time is not None:
        found: np.ndarray = table.time >= table.time[held].min()
        return found
    return np.isin(table.group, table.group[held]) if table.group is not None else np.zeros(table.rows, dtype=bool)


def _unaligned_rows(site: PartyContext, table: PartyTable, alignment: Alignment, known: np.ndarray) -> np.ndarray:
    """The party's rows that are not aligned and may train: first those with labels at the active party, in the order
    that both agreed on; then the rest, in an order drawn from the party's secret. So nobody sees how its table is
    sorted, and a resumed run has the same order.
    """
    free = np.ones(table.rows, dtype=bool) if table.fold is None else table.fold == TRAIN
    free[alignment.rows] = False
    free[known] = False
    generator = np.random.default_rng(site.secret.derive_seed("order of rows"))
    return np.concatenate([known, generator.permutation(np.flatnonzero(free))])


def _choose_split(
    site: PartyContext, table: PartyTable, alignment: Alignment, job: Job, *, evaluates: bool, marked: bool
) -> tuple[str, np.ndarray]:
    """How the active party splits, and its marks of the common rows, uint8."""
    if not evaluates:
        return _TRAIN_ALL, np.empty(0, dtype=np.uint8)
    if marked and table.fold is None:
        raise InputError(
            f"the first label owner, {site.name!r}, validates and tests: mark its rows in PartyTable(fold=…)"
        )
    return _split_marks(table, alignment, job, site.secret)


def _split_marks(table: PartyTable, alignment: Alignment, job: Job, secret: PartySecret) -> tuple[str, np.ndarray]:
    """How a label owner that may choose splits, and its marks of the common rows, uint8.

    A stratified split is drawn from the party's secret: with the job's seed, the others could derive from the marks
    which rows are of one class.
    """
    rows = alignment.rows
    if table.fold is not None:
        return _BY_MARK, table.fold[rows].astype(np.uint8)
    if job.split_by == "time" and table.time is not None:
        time = table.time[rows]
        marks = time_marks(time, valid=job.valid, test=job.test)
        return _BY_MARK, marks if job.fold is None else time_fold(time, *job.fold, valid=job.valid)
    if job.split_by == "group" and table.group is not None:
        return _BY_MARK, _of_groups(table.group[rows], job, secret)
    if not job.stratify:
        return _BY_SEED, np.empty(0, dtype=np.uint8)
    classes = own_labels(table)[rows]
    seed = secret.derive_seed("stratified split")
    if job.fold is not None:
        numbers = class_folds(classes, job.fold[1], seed=seed, words=table.classes)
        return _BY_MARK, fold_marks(
            numbers, job.fold[0], valid=job.valid, seed=secret.derive_seed("validation in folds")
        )
    marks = stratified_marks(classes, valid=job.valid, test=job.test, seed=seed, words=table.classes)
    return _BY_MARK, marks


def _of_groups(groups: np.ndarray, job: Job, secret: PartySecret) -> np.ndarray:
    """Marks of the common rows, whose groups these are."""
    seed = secret.derive_seed("split by group")
    if job.fold is None:
        return group_marks(groups, valid=job.valid, test=job.test, seed=seed)
    numbers = group_folds(groups, job.fold[1], seed=seed)
    validation = secret.derive_seed("validation in folds")
    return fold_marks(numbers, job.fold[0], valid=job.valid, seed=validation, whole=groups)


def split_own_rows(table: PartyTable, alignment: Alignment, job: Job, secret: PartySecret) -> Split:
    """How the only label owner splits the common rows: by its table's marks, from the job's seed, or stratified.

    Args:
        table: the label owner's.
        alignment: its own.
        job: the job.
        secret: its own.

    Raises:
        InputError: too few rows to give each part one.
    """
    return _make_split(*_split_marks(table, alignment, job, secret), len(alignment.rows), job)


def own_labels(table: PartyTable) -> np.ndarray:
    """Labels of the party's own rows and, after them, of those in its label book."""
    own = np.empty(0, dtype=np.int64) if table.label is None else table.label
    return own if table.book is None else np.concatenate([own, table.book.label])


def _make_split(how: str, fold: np.ndarray, rows: int, job: Job) -> Split:
    if how == _TRAIN_ALL:
        return Split(np.arange(rows), np.arange(0), np.arange(0))
    if how == _BY_SEED and job.fold is not None:
        k, folds = job.fold
        order = np.random.default_rng(derive_seed(job.seed, "folds")).permutation(rows)
        numbers = np.empty(rows, dtype=np.int64)
        numbers[order] = np.arange(rows) % folds
        fold = fold_marks(numbers, k, valid=job.valid, seed=derive_seed(job.seed, "validation in folds", k))
        how = _BY_MARK
    found = (
        Split.from_marks(fold) if how == _BY_MARK else Split.draw(rows, valid=job.valid, test=job.test, seed=job.seed)
    )
    return found.with_valid(job.valid_rows, seed=job.seed)


async def _receive_split(
    site: PartyContext, mine: tuple[int, int], rows: int, job: Job, others: np.ndarray
) -> AgreedRows:
    """A passive party's half of `agree_rows`."""
    link = site.links[site.active]
    await link.send(Kind.CONTROL, _ROWS, meta={"rows": mine[0], "labelled": mine[1]})
    message = await link.receive(Kind.CONTROL, _START, "fold")
    order = (site.active, *site.everyone)
    counts = {
        name: _check_counts([message.meta.get(f"{what} {name}") for what in ("rows", "labelled")], link.peer)
        for name in order
    }
    if counts[site.name] != mine:
        raise ProtocolError(f"{link.peer!r} sent other counts of {site.name!r}'s rows than it received")
    least, most = (2, 1 << 16) if job.number_loss is None else (1, 1)  # one class encodes a numeric target
    classes = _read_integer(message, "classes", least, most, link.peer)
    shared = _read_integer(message, "shared", 1, len(order), link.peer)
    how, fold = message.meta.get("split"), np.asarray(message.arrays["fold"])
    size = rows if how == _BY_MARK else 0
    ways = (_BY_SEED, _BY_MARK, _TRAIN_ALL) if len(site.label_owners) > 1 else (_BY_SEED, _BY_MARK)
    if how not in ways or fold.dtype != np.uint8 or fold.shape != (size,):
        raise ProtocolError(
            f"{link.peer!r} splits {rows} common rows by {how!r:.20} with {fold.dtype} marks of shape {fold.shape}; "
            f"by {' or '.join(map(repr, ways))}, with {size} marks, was expected"
        )
    if fold.max(initial=0) > (UNUSED if job.split_by == "time" and job.fold is not None else TEST):
        raise ProtocolError(f"{link.peer!r} marks a common row {fold.max()}; 0 trains, 1 validates and 2 tests")
    if how == _BY_MARK and len(np.unique(fold[fold <= TEST])) <= TEST:
        raise ProtocolError(f"{link.peer!r} marks no common row to train, to validate or to test; each needs one")
    if sum(count for count, _ in counts.values()) > _MOST:
        raise ProtocolError(f"{link.peer!r} announces more than {_MOST} rows of all parties beside the aligned ones")
    return AgreedRows(
        counts=counts, classes=classes, shared=shared, split=_make_split(str(how), fold, rows, job), others=others
    )


def _check_counts(values: Sequence[object], peer: str) -> tuple[int, int]:
    if not all(isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST for value in values):
        raise ProtocolError(f"{peer!r} announces {values} rows beside the aligned ones, and labelled ones")
    rows, labelled = (int(str(value)) for value in values)
    if labelled > rows:
        raise ProtocolError(f"{peer!r} announces {labelled} labelled rows of {rows}")
    return rows, labelled


def _read_integer(message: Message, what: str, low: int, high: int, peer: str) -> int:
    value = message.meta.get(what)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ProtocolError(f"{peer!r} announces {what} {value!r:.20}; {low} to {high} are possible")
    return value


def _check_book(site: PartyContext, table: PartyTable, job: Job, counts: Mapping[str, tuple[int, int]]) -> None:
    """An algorithm that lives on labels of other parties' rows needs a label book, if they have such rows."""
    others = sum(counts[name][0] for name in site.passive)
    if job.algorithm.uses_book and table.book is None and others:
        raise InputError(
            f"{job.algorithm.title} trains on rows of other parties with labels at {site.name!r} ({others} "
            "rows), but it has no label book: give PartyTable(book=LabelBook(…)), or labels='all' for a "
            "named data set"
        )


def fit_rows(alignment: Alignment, agreed: AgreedRows) -> np.ndarray:
    """The party's own numbers of the rows that its columns' encoding is fitted on: those that train."""
    return np.concatenate([alignment.rows[agreed.split.train], agreed.others])


def encode_features(table: PartyTable, rows: np.ndarray, job: Job, secret: PartySecret) -> FeatureEncoder:
    """Fit the encoding of the party's columns on these rows; categories are hashed with a key of the party's own."""
    salt = secret.keystream(_SALT, "buckets of categories")
    algorithm = job.algorithm
    return FeatureEncoder.fit(
        table,
        rows,
        clip=job.clip,
        scale=job.scale,
        salt=salt,
        view=algorithm.view,
        levels=algorithm.declared_levels(table.name),
        blind=algorithm.encodes_blindly(job.protection),
    )


def coded_columns(encoder: FeatureEncoder) -> dict[str, Any]:
    """The fields of `NumberedRows` that describe coded columns."""
    return (
        {"encoded": tuple(encoder.column_names), "codes": tuple(encoder.code_counts)} if encoder.view == "coded" else {}
    )


def number_rows(
    site: PartyContext, table: PartyTable, alignment: Alignment, job: Job, agreed: AgreedRows, encoder: FeatureEncoder
) -> NumberedRows:
    """The party's rows in the common order: the aligned ones and, if the algorithm uses them, its others.

    Raises:
        PolicyError: an active party without labels.
        ProtocolError: a peer announced other labelled rows than alignment found.
    """
    others = agreed.others
    x = torch.from_numpy(encoder.transform(table, np.concatenate([alignment.rows, others])))
    order = (site.active, *site.everyone) if job.algorithm.uses_others else ()
    mine = NumberedRows(
        x=x,
        **coded_columns(encoder),
        split=agreed.split,
        name=site.name,
        names=_persons_of_rows(table, alignment.rows, others) if site.role == PASSIVE else (),
        columns=table.values,
        rest={name: agreed.counts[name][0] for name in order},
        labelled={name: agreed.counts[name][1] for name in order[1:]},
        classes=agreed.classes,
        shared=agreed.shared,
        encoder=encoder,
    )
    if site.role == PASSIVE:
        return (
            mine
            if not job.algorithm.learns_alone
            else replace(mine, spare=_spare_features(site, table, alignment, encoder, mine))
        )
    if table.label is None:
        raise PolicyError(f"{site.name!r} has no labels and cannot be the active party")
    return _with_labels(mine, site, table, alignment, job, others)


def _persons_of_rows(table: PartyTable, *rows: np.ndarray) -> Sequence[str]:
    return table.persons_of(np.concatenate(rows))


def _spare_features(
    site: PartyContext, table: PartyTable, alignment: Alignment, encoder: FeatureEncoder, mine: NumberedRows
) -> torch.Tensor | None:
    """Features of the party's rows that are not aligned, where the algorithm does not number them anyway."""
    rows = _unaligned_rows(site, table, alignment, np.arange(0))
    return None if mine.rest or not len(rows) else torch.from_numpy(encoder.transform(table, rows))


def _with_labels(
    mine: NumberedRows, site: PartyContext, table: PartyTable, alignment: Alignment, job: Job, others: np.ndarray
) -> NumberedRows:
    """Add the active party's labels, and which numbers belong to one person."""
    labels = alignment.labelled if job.algorithm.uses_book else {}
    label = own_labels(table)
    numbers = np.full(mine.total_count, -1)  # of the table's rows
    numbers[: len(alignment.rows)] = alignment.rows
    y = np.full((mine.total_count, *label.shape[1:]), -1, dtype=np.int64)
    if job.number_loss is not None:
        y = np.full(mine.total_count, np.nan)
    y[: len(alignment.rows)] = label[alignment.rows]
    if len(others):
        y[mine.rows_only_at(site.name)] = label[others]
        numbers[mine.rows_only_at(site.name)] = others
    for name, count in mine.labelled.items():
        if count != len(labels.get(name, ())):
            raise ProtocolError(f"{name!r} reported {count} labelled rows; {site.name!r} has another count")
        if count:
            y[mine.rows_only_at(name)[:count]] = label[labels[name]]
    place = np.arange(mine.total_count)
    if mine.shared > 1:
        first: dict[int, int] = {}
        for name, rows in ((site.name, others), *((name, labels[name]) for name in mine.labelled)):
            for number, row in zip(mine.rows_only_at(name).tolist(), rows.tolist(), strict=False):
                place[number] = first.setdefault(row, number)
    words = tuple(map(str, table.classes)) if job.number_loss is None else ()
    labelled = replace(mine, y=torch.from_numpy(y), person=place, words=words)
    return add_weights(labelled, table, np.where(numbers < table.rows, numbers, -1), job.class_weight)
