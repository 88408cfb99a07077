"""Draft a job file from tables: which column joins them, which is the label, how to prepare them. Guesses, each with
its reason in a comment, for a person to review before a run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from securevfl.cut import find_protection
from securevfl.data.csv_rows import CsvRows
from securevfl.data.sample import SAMPLE
from securevfl.data.snapshots import describe_snapshots, find_ending
from securevfl.errors import InputError, PolicyError
from securevfl.jobfile.draft_tables import (
    MOST_ROWS,
    DraftTable,
    find_ids,
    find_labels,
    guess_label,
    name_apart,
    read_draft_table,
)
from securevfl.jobfile.fill_in import FILL_IN
from securevfl.jobfile.joining import count_distinct, counts_rows
from securevfl.jobfile.label_guess import AMOUNT_FROM, read_as_numbers
from securevfl.jobfile.toml_text import quote_text
from securevfl.training import Algorithm, find_algorithm

__all__ = ["MOST_VALIDATIONS", "SHARES_RATE", "Draft", "describe_table", "draft_job", "format_table"]

_USUAL = "splitnn"
_OF_TWO = "scorecard"
"""Drafted for two tables whose label has two values: it trains on shares of the two, where a network would show the
features of one party to the other. On three public tables (one seed each) its AUC is within 0.003 of pooled boosted
trees or above."""
_ROWS_OF_TWO = 4_000
"""Rows of the smallest table from which on `_OF_TWO` is drafted. A tenth of them validates, and on shares of fewer than
400 such rows an honest model may not prove useful, see `securevfl.shares.least_rows`."""
_WHY = {
    _OF_TWO: (
        "# On secret shares of the two no message shows a column, if both follow the protocol; only final predictions",
        "# reveal something about them. Under a network the party with the labels could compute the other's columns.",
    ),
    _USUAL: (
        "# Fewer than 4,000 rows: too few validate to show that a scorecard on secret shares of the two is useful.",
        "# On shares no message shows a column: `securevfl init --algorithm scorecard` drafts it all the same.",
    ),
}
"""The reason for the choice of `_choose_algorithm`, for two tables and a label of two values."""
_OTHERS = {
    "scorecard": "   # `securevfl init --algorithm boosting` drafts trees, `--algorithm splitnn` a network",
    "splitnn": "   # `securevfl init --algorithm boosting` drafts trees, `--algorithm auto` tries several",
    "auto": "   # tries several, and keeps the best on the validation rows; an agreement names them: methods = […]",
}
MOST_VALIDATIONS = 100
"""Validations of a job on shares, at most: `securevfl.shares.least_rows.MOST_METRICS`, which a test compares."""
SHARES_RATE = 0.05
"""η on shares of a drafted budget. The default of 0.2, with momentum 0.9, is for some hundred steps of 256 rows. In the
thousands of steps of 32 rows that a budget has, the loss grows again after few epochs, and with many classes the
weights leave the range within which products on shares do not wrap."""
_SHOWN = (
    "# It hides labels. From its part of the network's first layer the party with the labels can compute the other's",
    "# features; on shares of the two it cannot: `securevfl init --algorithm logistic_regression` drafts that.",
)
_SEALED = "       # everything at the cut is encrypted; the report lists what the result reveals"
_TRAINS = 0.7
"""Share of a table's rows that trains, with the usual split of rows that all parties have."""
_FREE_TEXT = 0.5
"""A text column with at least this share of distinct values is not used as a feature."""


@dataclass(frozen=True)
class Draft:
    """A drafted job file.

    Attributes:
        text: TOML, with comments.
        found: what was found of each table, a line each.
        missing: what a person must fill in; empty if the file can run.
    """

    text: str
    found: tuple[str, ...]
    missing: tuple[str, ...]


def draft_job(
    paths: Sequence[str | Path],
    folder: Path,
    *,
    id: str | Sequence[str] = (),
    label: str | Sequence[str] = (),
    algorithm: str = "",
) -> Draft:
    """Draft a job file for tables, one a party.

    Args:
        paths: of the tables: CSV, Parquet or Arrow.
        folder: where the file will be; paths in it are relative to that.
        id: the column that joins them, or several that do together: by the same names in all tables, or each with its
            party, ``"bank.ref"``; guessed unless given.
        label: the label's column, or several of zeros and ones in one table, perhaps with the party: ``"bank.late"``;
            guessed unless given.
        algorithm: name of what is trained; unless given a scorecard for two tables of many rows whose label has two
            values, else a network. How long it trains follows from it and from the number of rows.

    Raises:
        InputError: a table that cannot be read or has no header, fewer than two, a label that several have, or several
            labels that no table has together.
        UnknownNameError: a column that was named and is not there, or no such algorithm.
    """
    if len(paths) < 2:
        raise InputError(f"{len(paths)} table: a job has two or more, one of each party")
    tables = [read_draft_table(Path(path), number) for number, path in enumerate(paths)]
    name_apart(tables)
    several = (label,) * bool(label) if isinstance(label, str) else tuple(label)
    named = (id,) * bool(id) if isinstance(id, str) else tuple(id)
    why = find_ids(tables, named, several)
    find_labels(tables, several) if several else guess_label(tables)
    missing = [f"the identifier of {one.name!r}" for one in tables if not one.ids]
    missing[-1:] = [f"{one}; {why}" for one in missing[-1:]]
    missing += [one.offered for one in tables if one.offered]
    found = tuple(describe_table(one) for one in tables)
    return Draft(_format_job(tables, folder, algorithm), found, tuple(missing))


def describe_table(one: DraftTable) -> str:
    """What was found of a table, in a line."""
    written = f", {one.source.dialect.description}" if isinstance(one.source, CsvRows) else ""
    more = " or more" if one.table.num_rows >= MOST_ROWS else ""
    label = f", label {one.label!r}" if one.label else ""
    rows, columns = one.table.num_rows, len(one.columns)
    size = f"{rows:,} {'row' if rows == 1 else 'rows'}{more}, {columns} {'column' if columns == 1 else 'columns'}"
    return f"{one.path}: {size}{written}; party {one.name!r}, identifier {_format_names(one.ids)}{label}"


def _format_names(ids: tuple[str, ...]) -> str:
    return " + ".join(map(repr, ids or ("?",)))


def _guess_task(tables: list[DraftTable]) -> str:
    import pyarrow as pa

    for one in tables:
        if one.labels:
            return "multilabel"
        if one.label:
            kind, found = one.table[one.label].type, one.distinct_values(one.label)
            numeric = pa.types.is_floating(kind) or pa.types.is_integer(kind)
            if len(found) > AMOUNT_FROM and (numeric or (pa.types.is_string(kind) and read_as_numbers(found))):
                return "regression"
    return "classification"


def _left_out(one: DraftTable) -> dict[str, str]:
    """Columns that are not used as features → the reason."""
    import pyarrow as pa

    found = dict(one.barred)
    for column in one.columns:
        if column in (*one.ids, one.label, *one.labels) or column in found:
            continue
        if counts_rows(one.table, column) and one.table.num_rows > 1:
            found[column] = "numbers of the lines, as programs write that save a table with its index"
            continue
        if not pa.types.is_string(one.table[column].type):
            continue
        if count_distinct(one.table, column) <= _FREE_TEXT * one.table.num_rows:
            continue
        values = one.distinct_values(column)
        if not read_as_numbers(values):
            found[column] = f"{len(values):,} different texts in {one.table.num_rows:,} rows: a name, or free text"
    return found


def _choose_algorithm(tables: list[DraftTable], owner: DraftTable | None, task: str) -> str:
    """The algorithm for a job that names none."""
    if len(tables) != 2 or owner is None or task != "classification":
        return _USUAL
    enough = min(one.table.num_rows for one in tables) >= _ROWS_OF_TWO
    return _OF_TWO if enough and _has_two_values(owner) else _USUAL


def _has_two_values(owner: DraftTable) -> bool:
    return count_distinct(owner.table, owner.label) == 2


def _format_job(tables: list[DraftTable], folder: Path, algorithm: str) -> str:
    task, owner = _guess_task(tables), next((one for one in tables if one.label), None)
    why: tuple[str, ...] = ()
    if not algorithm:
        algorithm = _choose_algorithm(tables, owner, task)
        scored = len(tables) == 2 and task == "classification" and owner is not None and _has_two_values(owner)
        why = _WHY[algorithm] if scored else ()
    chosen = find_algorithm(algorithm)()
    protected = (
        ["[protection]", *_protect_two(chosen, task), ""] if len(tables) == 2 else _protect_several(chosen, task)
    )
    shared = 'name = "shares"' in protected or (len(tables) > 2 and bool(chosen.fits.shares) and task != "multilabel")
    lines = [
        "# Drafted by `securevfl init` from the tables' headers and first rows. Read it, then:",
        "#   securevfl check job.toml     lists what is wrong",
        "#   securevfl run job.toml       trains, and writes a report",
        f"name = {quote_text(_choose_title(owner))}",
        "# The run also trains what you have alone, and all tables pooled, to say whether joining is worth it.",
        "# baselines = []   # leaves that out",
        "",
        "[job]",
        *_format_budget(chosen, round(_TRAINS * min(one.table.num_rows for one in tables)), shared),
        f"task = {quote_text(task)}" + ("   # the label has many different numbers" if task == "regression" else ""),
        "",
        "[algorithm]",
        f"name = {quote_text(algorithm)}" + _OTHERS.get(algorithm, ""),
        *why,
        "",
    ]
    lines += protected
    for one in tables:
        lines += _format_party(one, folder)
    return "\n".join(lines) + "\n"


def _format_budget(algorithm: Algorithm, rows: int, shared: bool) -> list[str]:
    """How long to train on about so many rows, on shares or not."""
    budget = algorithm.fit_budget(rows)
    lines = [
        f"epochs = {budget.epochs}       # at most, for about {rows:,} rows that train",
        f"patience = {budget.patience}      # ends after so many epochs without a gain on the validation rows",
    ]
    if shared and budget.epochs > MOST_VALIDATIONS:
        every = math.ceil(budget.epochs / MOST_VALIDATIONS)
        lines.append(f"valid_every = {every}    # a job on shares validates at most {MOST_VALIDATIONS} times")
    return lines + ([] if budget.batch_size is None else [f"batch_size = {budget.batch_size}"])


def _protect_two(algorithm: Algorithm, task: str) -> list[str]:
    """The settings of a protection of two parties: shares of the two where it can train on them."""
    try:
        algorithm.check_protection(find_protection("shares").from_values({"computing": 2}))
    except (InputError, PolicyError):
        pass
    else:
        if task != "multilabel":
            return ['name = "shares"', "computing = 2   # these two, and nobody else", *_shares_rate(algorithm)]
    sealed = _find_sealed(algorithm)
    if sealed:
        return [f"name = {quote_text(sealed)}{_SEALED}", *_SHOWN * (algorithm.name == _USUAL)]
    return [f'name = "{FILL_IN}"   # `securevfl check` says what this algorithm can have']


def _protect_several(algorithm: Algorithm, task: str) -> list[str]:
    """The section on the protection of three parties or more."""
    if task == "multilabel":
        return ["[protection]", 'name = "bfv"       # several labels are not learned on shares', ""]
    rate = _shares_rate(algorithm)
    if rate:
        return ["[protection]", 'name = "shares"   # three of the parties compute; nobody sees a value', *rate, ""]
    return ["# No [protection]: three parties or more train on secret shares if they can.", ""]


def _shares_rate(algorithm: Algorithm) -> list[str]:
    """The learning rate on shares for the steps of `fit_budget`; empty for an algorithm without one."""
    if algorithm.fits.shares_kind != "network" or not algorithm.fits.shares:
        return []
    return [f"lr = {SHARES_RATE}   # for small batches and thousands of steps; the default is for few, large ones"]


def _find_sealed(algorithm: Algorithm) -> str:
    """The protection of two parties that encrypts what the algorithm sends; empty if it has none."""
    for name in ("bfv", "paillier"):
        try:
            algorithm.check_protection(find_protection(name)())
        except (InputError, PolicyError):
            continue
        return name
    return ""


def _choose_title(owner: DraftTable | None) -> str:
    return "job" if owner is None else re.sub(r"[^A-Za-z0-9_-]+", "-", owner.label).strip("-") or "job"


def _read_ids(one: DraftTable) -> list[str]:
    return ["".join(map(str, row.values())) for row in one.table.select(list(one.ids)).slice(0, SAMPLE).to_pylist()]


def _one_line(text: str) -> str:
    """A text as a comment has it: names of columns may have line breaks."""
    return " ".join(text.split())


def _format_party(one: DraftTable, folder: Path) -> list[str]:
    return ["[[party]]", f"name = {quote_text(one.name)}", *format_table(one, folder), ""]


def format_table(one: DraftTable, folder: Path) -> list[str]:
    """The lines of a section that say where a table is and what its columns are for.

    Args:
        one: the table.
        folder: of the file that they are for.
    """
    try:
        file = one.path.resolve().relative_to(folder.resolve())
    except ValueError:
        file = one.path.resolve()
    lines = [f"file = {quote_text(str(file))}"]
    if isinstance(one.source, CsvRows):
        lines[-1] += f"    # {one.source.dialect.description}: detected; override with delimiter, encoding and decimal"
    if len(one.ids) == 1:
        counted = "; it counts the rows: right only if all tables list the same people in one order"
        why = one.id_reason + counted * counts_rows(one.table, one.ids[0])
        lines.append(f"id = {quote_text(one.ids[0])}   # {why}")
    elif one.ids:
        several = ", ".join(map(quote_text, one.ids))
        lines.append(f"id = [{several}]   # no single column identifies the rows; these do together, in all tables")
    else:
        nothing = "no column, and no two or three together, identify each row in all tables"
        lines.append(f'id = "{FILL_IN}"   # {one.doubt or nothing}')
    if one.ids and (ending := find_ending(_read_ids(one))):
        lines.append(f"# {describe_snapshots(one.path.name, ending)}")
    if one.label:
        several = "[" + ", ".join(map(quote_text, one.labels)) + "]   # zeros and ones; a row can have more than one"
        why = f"   # {one.reason}" if one.reason else ""
        lines.append(f"label = {several if one.labels else quote_text(one.label) + why}")
    elif one.offered:
        lines.append(f'label = "{FILL_IN}"   # {_one_line(one.offered)}')
    left = _left_out(one)
    features = [column for column in one.columns if column not in {*left, *one.ids, one.label, *one.labels}]
    lines += [f"# left out: {quote_text(column)}, {why}" for column, why in left.items()]
    if left or (one.label and not features):
        lines.append("features = [" + ", ".join(map(quote_text, features)) + "]")
    lines.append('prepare = "auto"   # gaps, dates, categories, skewed numbers: fitted on the training rows')
    return lines
