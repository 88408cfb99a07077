"""Draft a job file from tables: which column joins them, which is the label, how to prepare them. Guesses, each with
its reason in a comment, for a person to review before a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from securevfl.cut import find_protection
from securevfl.data.columns import ColumnUse, doubled_names
from securevfl.data.csv_rows import CsvRows
from securevfl.data.file_locations import place_of
from securevfl.data.lake import RowSource, source_of
from securevfl.data.limits import DEFAULT_LIMITS
from securevfl.data.sample import SAMPLE
from securevfl.data.snapshots import describe_snapshots, find_ending
from securevfl.errors import InputError, PolicyError, UnknownNameError
from securevfl.jobfile.joining import (
    count_distinct,
    counts_rows,
    describe_obstacle,
    distinct_values,
    find_compound_ids,
    find_single_ids,
    whole_numbers,
)
from securevfl.training import Algorithm, find_algorithm

__all__ = ["SHARES_RATE", "Draft", "draft_job"]

_USUAL = "splitnn"
_OTHERS = {
    "splitnn": "   # `securevfl init --algorithm boosting` drafts trees, `--algorithm auto` tries several",
    "auto": "   # tries several, and keeps the best on the validation rows; an agreement names one",
}
SHARES_RATE = 0.05
"""η on shares of a drafted budget. The default of 0.2, with momentum 0.9, is for some hundred steps of 256 rows. In the
thousands of steps of 32 rows that a budget has, the loss grows again after few epochs, and with many classes the
weights leave the range within which products on shares do not wrap."""
_SEALED = "       # everything at the cut is encrypted; the report lists what the result reveals"
_TRAINS = 0.7
"""Share of a table's rows that trains, with the usual split of rows that all parties have."""
_ROWS = 100_000
"""Rows of each table that guesses are made from."""
_LABELS = re.compile(
    r"(^|_)(label|target|y|class|outcome|default|defaulted|churn|churned|fraud|late|bad|good|response|converted|claim|"
    r"claims|died|readmitted)($|_)"
)
_NUMBER = re.compile(r"[-+]?[\d.,' €$£%]+|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T][\d:]+)?")
"""Numbers and dates in texts: preparation reads them."""
_NUMBER_FROM = 20
"""A label of numbers with at least this many distinct values makes the job a regression."""
_MOSTLY = 0.9
_WHOLE = frozenset("0123456789+- ")
"""Characters of whole numbers."""
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


@dataclass
class _Table:
    path: Path
    name: str
    source: RowSource
    table: Any = field(repr=False)
    ids: tuple[str, ...] = ()
    label: str = ""
    labels: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    def with_text_numbers(self) -> Any:
        """The same rows, with whole numbers of a CSV file as the texts that they are: identifiers are read so."""
        numbers = whole_numbers(self.table) if isinstance(self.source, CsvRows) else []
        if not numbers:
            return self.table
        table, texts = (
            self.table,
            _read_top(self.source, _column_use(numbers), [one for one in self.columns if one in numbers]),
        )
        for column in numbers:
            if _WHOLE.issuperset("".join(texts[column].unique().to_pylist())):  # 12.0 is a number, and names nobody
                table = table.set_column(table.column_names.index(column), column, texts[column])
        return table

    def distinct_values(self, column: str) -> set[str]:
        """See `joining.distinct_values`."""
        return distinct_values(self.table, column)


def draft_job(
    paths: Sequence[str | Path],
    folder: Path,
    *,
    id: str | Sequence[str] = (),
    label: str | Sequence[str] = (),
    algorithm: str = _USUAL,
) -> Draft:
    """Draft a job file for tables, one a party.

    Args:
        paths: of the tables: CSV, Parquet or Arrow.
        folder: where the file will be; paths in it are relative to that.
        id: the column that joins them, or several that do together, by the same names in all; guessed unless given.
        label: the label's column, or several of zeros and ones in one table; guessed unless given.
        algorithm: name of what is trained. How long it trains follows from it and from the number of rows.

    Raises:
        InputError: a table that cannot be read, fewer than two, a label that several have, or several labels that no
            table has together.
        UnknownNameError: a column that was named and is not there, or no such algorithm.
    """
    if len(paths) < 2:
        raise InputError(f"{len(paths)} table: a job has two or more, one of each party")
    tables = [_read_table(Path(path), number) for number, path in enumerate(paths)]
    _name_apart(tables)
    several = (label,) * bool(label) if isinstance(label, str) else tuple(label)
    why = _find_ids(tables, (id,) * bool(id) if isinstance(id, str) else tuple(id), several)
    if len(several) > 1:
        _find_labels(tables, several)
    else:
        _find_label(tables, *(several or ("",)))
    missing = [f"the identifier of {one.name!r}" for one in tables if not one.ids]
    missing[-1:] = [f"{one}; {why}" for one in missing[-1:]]
    missing += [] if any(one.label for one in tables) else ["which party has the label, and in which column"]
    found = tuple(_describe_format(one) for one in tables)
    return Draft(_format_job(tables, folder, algorithm), found, tuple(missing))


def _read_table(path: Path, number: int) -> _Table:
    source = source_of(place_of(path))
    table = _read_top(source, _column_use(), None)
    if not table.num_rows:
        raise InputError(f"{path} has no rows")
    name = re.sub(r"[^a-z0-9]+", "_", path.name.split(".")[0].lower()).strip("_") or f"party_{number + 1}"
    name = name if name[0].isalpha() else f"party_{name}"
    return _Table(path, name[:32], source, table)


def _column_use(texts: Sequence[str] = ()) -> ColumnUse:
    return ColumnUse.from_arguments(id=texts, label=None, features=(), categorical=(), classes=None, prepare="auto")


def _read_top(source: RowSource, use: ColumnUse, columns: Sequence[str] | None) -> Any:
    """The first rows of a table, a `pyarrow.Table`."""
    import pyarrow as pa

    batches, parts, rows = source.iter_batches(columns, use, DEFAULT_LIMITS), [], 0
    try:
        for batch in batches:
            parts.append(batch)
            rows += len(batch)
            if rows >= _ROWS:
                break
    finally:
        batches.close()
    if not parts:
        return pa.table({})
    for mistake in doubled_names(parts[0].schema.names, source.location):
        raise mistake
    return pa.Table.from_batches(parts).slice(0, _ROWS)


def _name_apart(tables: list[_Table]) -> None:
    seen: dict[str, int] = {}
    for one in tables:
        seen[one.name] = seen.get(one.name, 0) + 1
        if seen[one.name] > 1:
            one.name = f"{one.name}_{seen[one.name]}"


def _find_ids(tables: list[_Table], given: tuple[str, ...], labels: tuple[str, ...]) -> str:
    """Columns that join the tables: the given ones, or one of each, or two or three; otherwise the reason why there are
    none.
    """
    doubled = [name for name in given if given.count(name) > 1 or name in labels]
    if doubled:
        raise InputError(f"column {doubled[0]!r} is named twice, among identifiers and labels; a column has one use")
    for one in tables:
        for name in given:
            if name not in one.columns:
                raise UnknownNameError(f"column of {one.path}:", name, one.columns)
        one.ids = given
    if given:
        return ""
    contents = [one.with_text_numbers() for one in tables]
    found: list[tuple[str, ...]] = [(column,) for column in find_single_ids(contents)]
    if not found:
        leave = [_no_part(one, labels) for one in tables]
        found = [tuple(columns) for columns in find_compound_ids(contents, leave)]
    for one, columns in zip(tables, found, strict=False):
        one.ids = columns
    return "" if found else describe_obstacle(contents, leave, [one.name for one in tables])


def _no_part(one: _Table, labels: tuple[str, ...]) -> set[str]:
    """Columns that cannot be part of an identifier: labels, and days in typed files, which have to be written as text
    first."""
    import pyarrow as pa

    typed = not isinstance(one.source, CsvRows)
    return {
        column
        for column in one.columns
        if column in labels or _LABELS.search(column.lower()) or (typed and pa.types.is_date(one.table[column].type))
    }


def _find_label(tables: list[_Table], given: str) -> None:
    owners = [one for one in tables if given in one.columns] if given else []
    if given and not owners:
        raise UnknownNameError("label column", given, sorted({name for one in tables for name in one.columns}))
    if len(owners) > 1:
        names = ", ".join(str(one.path) for one in owners)
        raise InputError(f"{names} all have a column {given!r}: rename those that are not the label")
    if owners:
        owners[0].label = given
        return
    likely = [
        (one, column)
        for one in tables
        for column in one.columns
        if column not in one.ids and _LABELS.search(column.lower()) and len(one.distinct_values(column)) > 1
    ]
    if len(likely) == 1:
        likely[0][0].label = likely[0][1]


def _find_labels(tables: list[_Table], given: tuple[str, ...]) -> None:
    """The table that has all of several labels."""
    for name in given:
        if not any(name in one.columns for one in tables):
            raise UnknownNameError("label column", name, sorted({name for one in tables for name in one.columns}))
    owners = [one for one in tables if set(given) <= set(one.columns)]
    if len(owners) != 1:
        raise InputError(
            f"{len(owners)} tables have all of the labels {', '.join(given)}, which must belong to one party: "
            "rename or move the others"
        )
    owners[0].label, owners[0].labels = given[0], given


def _describe_format(one: _Table) -> str:
    written = f", {one.source.dialect.description}" if isinstance(one.source, CsvRows) else ""
    more = " or more" if one.table.num_rows >= _ROWS else ""
    label = f", label {one.label!r}" if one.label else ""
    rows, columns = one.table.num_rows, len(one.columns)
    size = f"{rows:,} {'row' if rows == 1 else 'rows'}{more}, {columns} {'column' if columns == 1 else 'columns'}"
    return f"{one.path}: {size}{written}; party {one.name!r}, identifier {_format_names(one.ids)}{label}"


def _format_names(ids: tuple[str, ...]) -> str:
    return " + ".join(map(repr, ids or ("?",)))


def quote_text(text: str) -> str:
    """A text as TOML has it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _guess_task(tables: list[_Table]) -> str:
    import pyarrow as pa

    for one in tables:
        if one.labels:
            return "multilabel"
        if one.label:
            kind, found = one.table[one.label].type, one.distinct_values(one.label)
            numeric = pa.types.is_floating(kind) or pa.types.is_integer(kind)
            read = sum(_NUMBER.fullmatch(text) is not None for text in found) if pa.types.is_string(kind) else 0
            if len(found) > _NUMBER_FROM and (numeric or read >= _MOSTLY * len(found)):
                return "regression"
    return "classification"


def _left_out(one: _Table) -> dict[str, str]:
    """Columns that are not used as features → the reason."""
    import pyarrow as pa

    found = {}
    for column in one.columns:
        if column in (*one.ids, one.label, *one.labels):
            continue
        if counts_rows(one.table, column) and one.table.num_rows > 1:
            found[column] = "numbers of the lines, as programs write that save a table with its index"
            continue
        if not pa.types.is_string(one.table[column].type):
            continue
        if count_distinct(one.table, column) <= _FREE_TEXT * one.table.num_rows:
            continue
        values = one.distinct_values(column)
        read = sum(_NUMBER.fullmatch(text) is not None for text in values)
        if read < _MOSTLY * len(values):
            found[column] = f"{len(values):,} different texts in {one.table.num_rows:,} rows: a name, or free text"
    return found


def _format_job(tables: list[_Table], folder: Path, algorithm: str) -> str:
    task, owner = _guess_task(tables), next((one for one in tables if one.label), None)
    chosen = find_algorithm(algorithm)()
    lines = [
        "# Drafted by `securevfl init` from the tables' headers and first rows. Read it, then:",
        "#   securevfl check job.toml     lists what is wrong",
        "#   securevfl run job.toml       trains, and writes a report",
        f"name = {quote_text(_choose_title(owner))}",
        "# The run also trains what you have alone, and all tables pooled, to say whether joining is worth it.",
        "# baselines = []   # leaves that out",
        "",
        "[job]",
        *_format_budget(chosen, round(_TRAINS * min(one.table.num_rows for one in tables))),
        f"task = {quote_text(task)}" + ("   # the label has many different numbers" if task == "regression" else ""),
        "",
        "[algorithm]",
        f"name = {quote_text(algorithm)}" + _OTHERS.get(algorithm, ""),
        "",
    ]
    if len(tables) == 2:
        lines += ["[protection]", *_protect_two(chosen, task), ""]
    else:
        lines += _protect_several(chosen, task)
    for one in tables:
        lines += _format_party(one, folder)
    return "\n".join(lines) + "\n"


def _format_budget(algorithm: Algorithm, rows: int) -> list[str]:
    """How long to train on about so many rows."""
    budget = algorithm.fit_budget(rows)
    lines = [
        f"epochs = {budget.epochs}       # at most, for about {rows:,} rows that train",
        f"patience = {budget.patience}      # ends after so many epochs without a gain on the validation rows",
    ]
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
        return [f"name = {quote_text(sealed)}{_SEALED}"]
    return ['name = "FILL IN"   # `securevfl check` says what this algorithm can have']


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


def _choose_title(owner: _Table | None) -> str:
    return "job" if owner is None else re.sub(r"[^A-Za-z0-9_-]+", "-", owner.label).strip("-") or "job"


def _read_ids(one: _Table) -> list[str]:
    return ["".join(map(str, row.values())) for row in one.table.select(list(one.ids)).slice(0, SAMPLE).to_pylist()]


def _format_party(one: _Table, folder: Path) -> list[str]:
    try:
        file = one.path.resolve().relative_to(folder.resolve())
    except ValueError:
        file = one.path.resolve()
    lines = ["[[party]]", f"name = {quote_text(one.name)}", f"file = {quote_text(str(file))}"]
    if isinstance(one.source, CsvRows):
        lines[-1] += f"    # {one.source.dialect.description}: detected; override with delimiter, encoding and decimal"
    if len(one.ids) == 1:
        lines.append(f"id = {quote_text(one.ids[0])}   # different in every row, and shared with the other tables")
    elif one.ids:
        several = ", ".join(map(quote_text, one.ids))
        lines.append(f"id = [{several}]   # no single column identifies the rows; these do together, in all tables")
    else:
        lines.append('id = "FILL IN"   # no column, and no two or three together, identify each row in all tables')
    if one.ids and (ending := find_ending(_read_ids(one))):
        lines.append(f"# {describe_snapshots(one.path.name, ending)}")
    if one.label:
        several = "[" + ", ".join(map(quote_text, one.labels)) + "]   # zeros and ones; a row can have more than one"
        lines.append(f"label = {several if one.labels else quote_text(one.label)}")
    left = _left_out(one)
    features = [column for column in one.columns if column not in {*left, *one.ids, one.label, *one.labels}]
    lines += [f"# left out: {quote_text(column)}, {why}" for column, why in left.items()]
    if left or (one.label and not features):
        lines.append("features = [" + ", ".join(map(quote_text, features)) + "]")
    lines.append('prepare = "auto"   # gaps, dates, categories, skewed numbers: fitted on the training rows')
    return [*lines, ""]
