"""Job files: TOML in, a job and its parties out. All mistakes of a file are reported at once, each with its path, the
value found, what was expected, and the nearest name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import msgspec
import numpy as np
from msgspec import Meta

from securevfl.align import Align, Linkage
from securevfl.config import Config
from securevfl.cut import Protection, Unnamed
from securevfl.data import LabelBook, Parties, PartyTable, Preparation, Storage, TableLimits, datasets, read_table
from securevfl.data.aggregates import check_aggregate
from securevfl.data.columns import ColumnUse
from securevfl.data.dialect import CsvForm
from securevfl.data.file_locations import is_address
from securevfl.data.link_columns import read_texts, table_columns
from securevfl.data.storage import IN_MEMORY
from securevfl.data.table import explain_bad_name
from securevfl.errors import InputError
from securevfl.jobfile.policy_file import with_policies
from securevfl.jobfile.toml_text import raise_all, read_sections, read_toml
from securevfl.party import Job, JobOptions
from securevfl.party.report_options import ReportOptions
from securevfl.privacy import Policy
from securevfl.training import Algorithm, find_algorithm

__all__ = [
    "JobFile",
    "JobSections",
    "PartySection",
    "TableSection",
    "doubled_parties",
    "load_parties",
    "read_job",
    "read_job_sections",
    "right_parties",
]

Word = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]


class TableSection(Config):
    """Where a party's table is and what its columns are for. See `read_table`, `TableLimits` and `Storage` for the
    meaning of the keys.

    Attributes:
        id: the identifier column, or a list of columns that make one together.
        prepare: ``"auto"``, or a section: see `Preparation`.
        label: the label column; or a list of columns of zeros and ones, for several labels.
        target: content of the label column: ``"classes"``, a ``"number"`` or several ``"labels"``; by default that of
            the job's task.
        weight, group, time: a label owner's columns; see `read_table`.
        person: the column that names the person of a row; the identifier unless given. What may be answered about a
            person is counted by it.
        spill_above: size in bytes above which columns and encoded features are put into a memory-mapped file.
        spill_folder: folder of that file.
        aggregate, order_by: how several rows of an identifier become one; see `read_table`.
        fold: a label owner's column that marks which rows train (0), validate (1) and test (2); not a feature.
        book: a label owner's file of rows of which it has only the label, with the same columns for id and label.
        drop: columns that are not used, instead of listing all others in `features`.
        link: linkage field of the job → the table's column; these columns are not features.
        delimiter, encoding, decimal: the format of a CSV file; detected from its first lines unless given.
    """

    file: Word
    id: Word | tuple[Word, ...]
    label: Word | tuple[Word, ...] | None = None
    features: tuple[Word, ...] | None = None
    categorical: tuple[Word, ...] = ()
    classes: tuple[str | int | float | bool | date, ...] | None = None
    prepare: Preparation | None = None
    target: Literal["classes", "number", "labels"] | None = None
    weight: Word | None = None
    group: Word | None = None
    time: Word | None = None
    person: Word | None = None
    drop: tuple[Word, ...] = ()
    aggregate: Mapping[str, Word | tuple[Word, ...]] = msgspec.field(default_factory=dict)
    order_by: Word | None = None
    fold: Word | None = None
    book: Word | None = None
    link: Mapping[str, Word] = msgspec.field(default_factory=dict)
    delimiter: Literal[",", ";", "|", "\t"] | None = None
    encoding: Word | None = None
    decimal: Literal[".", ","] | None = None
    max_rows: Count | None = None
    max_columns: Count | None = None
    max_bytes: Count | None = None
    max_ratio: Count | None = None
    spill_above: Annotated[int, Meta(ge=0)] | None = None
    spill_folder: Word | None = None

    @property
    def column_use(self) -> ColumnUse:
        """The purpose of each column."""
        return ColumnUse.from_arguments(**self._column_fields)

    def problems(self) -> list[str]:
        found = super().problems()
        if self.drop and self.features is not None:
            found.append(f"features and drop = {list(self.drop)} are both given; leave one of the two out")
        for check in (lambda: self.csv_form, lambda: check_aggregate(self.aggregate, self.order_by)):
            try:
                check()
            except InputError as error:
                found.append(str(error))
        if self.aggregate and self.link:
            found.append("aggregate and link: rows are linked one by one; aggregate the table before you link it")
        return found

    @property
    def csv_form(self) -> CsvForm:
        """The given settings of a CSV file's format.

        Raises:
            InputError: the settings are impossible.
        """
        return CsvForm(self.delimiter, self.encoding, self.decimal)

    @property
    def _column_fields(self) -> dict[str, Any]:
        names = "id label features categorical classes prepare weight group time person drop aggregate order_by"
        return {name: getattr(self, name) for name in names.split()} | {"target": self.target or "classes"}

    def with_task(self, task: str) -> Self:
        """The same section with a number as label if a job's task is ``"regression"`` and no target is set."""
        said = self.label is None or self.target is not None or task != "regression"
        return self if said else self.replace(target="number")

    def without_label(self, columns: Sequence[str]) -> Self:
        """The same section for rows to score: these feature columns, and nothing that only training or a test needs.

        Args:
            columns: that the party's part of the model takes.
        """
        rules, kinds = self.prepare, tuple(name for name in self.categorical if name in columns)
        if self.aggregate:  # the model's columns are made of the file's
            columns, kinds = self.features, self.categorical  # type: ignore[assignment]
        elif rules is not None:
            kept = {name: rule for name, rule in rules.columns.items() if name in columns}
            rules = rules.replace(columns=kept)
        return self.replace(
            label=None,
            classes=None,
            target=None,
            weight=None,
            group=None,
            time=None,
            fold=None,
            book=None,
            features=None if columns is None else tuple(columns),
            categorical=kinds,
            prepare=rules,
        )

    def path_from(self, folder: Path) -> str | Path:
        """The table's path or address; relative paths are relative to the folder of the file that names it."""
        return _path_or_address(folder, self.file)

    def read_table(self, folder: Path, name: str, beside: str = "") -> PartyTable:
        """The table of party `name`.

        Args:
            folder: of the file that names it.
            name: of the party.
            beside: a column by which the report groups rows, whether it is a feature or not; empty for none.

        Raises:
            InputError: the table cannot be used; the message has the place and the remedy.
        """
        path = self.path_from(folder)
        given = {name: getattr(self, name) for name in ("max_rows", "max_columns", "max_bytes", "max_ratio")}
        limits = TableLimits(**{name: value for name, value in given.items() if value is not None})
        above = IN_MEMORY if self.spill_above is None else self.spill_above
        storage = Storage(above=above, folder=self.spill_folder or "")
        uses = dict(self._column_fields)
        linked = read_texts(path, self.link, limits) if self.link else {}
        if linked and self.features is None:
            names = table_columns(path, limits)
            columns = self.column_use.select_features(names)
            uses |= {"features": [c for c in columns if c not in self.link.values()], "drop": ()}
        if self.fold is not None and self.features is not None:
            uses["features"] = (*self.features, self.fold)
        written = {name: getattr(self, name) for name in ("delimiter", "encoding", "decimal")}
        table = read_table(path, name=name, limits=limits, storage=storage, **written, **uses)
        if linked:
            table = replace(table, link=linked)
        if self.fold is not None:
            table = _with_fold(table, self.fold, path)
        if beside and beside not in table.columns:
            table = replace(table, beside=read_texts(path, {beside: beside}, limits, what="column for report.group"))
        if self.book is not None:
            if not isinstance(self.label, str):
                raise InputError(f"{path}: book is for one label of classes: leave it out, or name one label")
            book = read_table(
                _path_or_address(folder, self.book),
                name=name,
                limits=limits,
                id=self.id,
                label=self.label,
                features=(),
                classes=table.classes,
                **written,
            )
            if book.label is not None:
                table = replace(table, book=LabelBook(ids=tuple(book.ids), label=book.label))
        return table


def _path_or_address(folder: Path, name: str) -> str | Path:
    return name if is_address(name) else folder / name


def _with_fold(table: PartyTable, column: str, path: str | Path) -> PartyTable:
    """The table with one of its columns as its fold."""
    marks = table.columns.get(column)
    if not isinstance(marks, np.ndarray) or marks.dtype.kind not in "biuf" or not np.isin(marks, (0, 1, 2)).all():
        raise InputError(f"{path}: column {column!r} is the fold; give each row 0 (trains), 1 (validates) or 2 (tests)")
    columns = {name: values for name, values in table.columns.items() if name != column}
    return replace(table, columns=columns, fold=marks.astype(np.int8))


class PartySection(TableSection):
    """``[[party]]``: one party's table and, below it, its policy."""

    name: Word
    policy: Policy | None = None

    def problems(self) -> list[str]:
        rule = explain_bad_name(self.name)
        return super().problems() + ([rule] if rule else [])

    def linked_by(self, how: Linkage | None) -> PartySection:
        """The section with a column for each linkage field: those that it names; of the field's own name otherwise."""
        return self if how is None else self.replace(link={**{name: name for name in how.fields}, **self.link})

    def load_table(self, folder: Path, beside: str = "") -> PartyTable:
        """The table.

        Args:
            folder: of the file.
            beside: see `read_table`.

        Raises:
            InputError: the table cannot be used; the message has the place and the remedy.
        """
        return self.read_table(folder, self.name, beside)


def _default_algorithm() -> Algorithm:
    return find_algorithm("splitnn")()


class JobSections(Config):
    """All sections of a job file."""

    name: str = ""
    title: Annotated[str, Meta(max_length=200)] = ""
    baselines: tuple[Literal["alone", "alone_boosted", "pooled", "pooled_boosted"], ...] | None = None
    folds: Annotated[int, Meta(ge=2, le=100)] | None = None
    job: JobOptions = msgspec.field(default_factory=JobOptions)
    algorithm: Algorithm = msgspec.field(default_factory=_default_algorithm)
    protection: Protection = msgspec.field(default_factory=Unnamed)
    align: Align = msgspec.field(default_factory=Align)
    link: Linkage | None = None
    policy: Mapping[str, Policy] = msgspec.field(default_factory=dict)
    report: ReportOptions = msgspec.field(default_factory=ReportOptions)
    data: Mapping[str, object] | None = None
    party: tuple[PartySection, ...] = ()

    def build_job(self) -> Job:
        """The job.

        Raises:
            InputError, PolicyError: an algorithm and a protection that do not go together.
        """
        return self.job.build_job(
            algorithm=self.algorithm,
            protection=self.protection,
            align=self.align,
            link=self.link,
            policies=self.policies,
            report=self.report,
        )

    @property
    def policies(self) -> dict[str, Policy]:
        """Party → its own policy, from ``[policy.NAME]`` or ``[party.policy]``."""
        return dict(self.policy) | {party.name: party.policy for party in self.party if party.policy is not None}

    def data_mistakes(self) -> list[str]:
        """Problems with the named data set that can be found before loading it."""
        if self.data is None:
            return []
        options = dict(self.data)
        return datasets.find_mistakes(options.pop("name", None), options)

    def load_parties(self, folder: Path, active: str) -> Parties:
        """The parties' tables.

        Args:
            folder: of the job file.
            active: name of the active party, where no table has labels.

        Raises:
            InputError: tables that cannot be used, each party's first mistake.
        """
        if self.data is not None:
            options = dict(self.data)
            return datasets.load(str(options.pop("name")), **options)
        sections = [party.linked_by(self.link) for party in self.party]
        return load_parties(sections, self.job.task, folder, active, self.report)


def load_parties(
    sections: Sequence[PartySection], task: str, folder: Path, active: str = "", report: ReportOptions | None = None
) -> Parties:
    """The tables of ``[[party]]`` sections.

    Args:
        sections: of all parties.
        task: of the job.
        folder: of the file.
        active: name of the active party, where no table has labels.
        report: names the column by which the report groups rows, which need not be a feature.

    Raises:
        InputError: tables that cannot be used, each party's first mistake.
    """
    tables, found = [], []
    owner = next((party.name for party in sections if party.label is not None), active)
    grouping = None if report is None else report.grouping(owner)
    for i, party in enumerate(sections):
        beside = grouping[1] if grouping is not None and grouping[0] == party.name else ""
        try:
            tables.append(party.with_task(task).load_table(folder, beside))
        except InputError as error:
            found.append(f"party[{i}]: {error}")
    if found:
        raise InputError("\n  ".join(found))
    return Parties.of(*tables, active=active)


def doubled_parties(sections: Sequence[PartySection]) -> list[str]:
    """Problems: names that several parties have."""
    names = [party.name for party in sections]
    doubled = sorted({name for name in names if names.count(name) > 1})
    return [f"two parties are called {name!r}; give each its own name" for name in doubled]


@dataclass(frozen=True, kw_only=True)
class JobFile:
    """Content of a job file.

    Attributes:
        name: of the run; its reports go to ``runs/<name>`` by default.
        job: the job.
        parties: the parties' tables, loaded.
        baselines: which baselines to run beside it; None for the usual ones, see `securevfl.experiments`.
        folds: of cross-validation; None for one run.
        title: of the report; its name unless given.
    """

    name: str
    job: Job
    parties: Parties
    baselines: tuple[str, ...] | None
    folds: int | None = None
    title: str = ""


def read_job(
    path: str | Path, *, active: str = "", policies: Sequence[str | Path] = (), accept_leak: bool = False
) -> JobFile:
    """Read a job file; relative file names in it are relative to it.

    Args:
        path: the file.
        active: name of the active party, where no table has labels: to predict.
        policies: parties' own policy files; if the job file also has a policy for a party, both apply.
        accept_leak: accept leaks, like ``accept_leak = true`` in the job file.

    Raises:
        InputError: no such file, not TOML, or mistakes, all of them in one message; or what loading the tables raises,
            each party's first mistake.
        PolicyError: a protection that the algorithm cannot have.
    """
    file = Path(path)
    sections, _, found = read_job_sections(file)
    raise_all(file, found)
    try:
        job = sections.build_job()
        if accept_leak:
            job = job.replace(accept_leak=True)
        if policies:
            job = job.replace(policies=with_policies(job.policies, policies))
        parties = sections.load_parties(file.parent, active)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return JobFile(
        name=sections.name or file.stem,
        job=job,
        parties=parties,
        baselines=sections.baselines,
        folds=sections.folds,
        title=sections.title,
    )


def read_job_sections(file: Path) -> tuple[JobSections, frozenset[str], list[str]]:
    """The sections of a job file, the names of those with mistakes, which have their defaults instead, and every
    mistake.

    Raises:
        InputError: no such file, or not TOML.
    """
    content = read_toml(file, "job", "examples/credit.toml")
    sections, broken, found = read_sections(JobSections, content, ["party"])
    if "party" in broken:  # those that are right
        sections = sections.replace(party=right_parties(content["party"]))
    return sections, broken, found + _find_conflicts(sections, content)


def right_parties(content: object) -> tuple[PartySection, ...]:
    """The sections of parties without mistakes, from a file in which some have mistakes."""
    right = []
    for section in content if isinstance(content, list) else []:
        try:
            right.append(PartySection.from_values(section))
        except InputError:
            continue
    return tuple(right)


def _find_conflicts(sections: JobSections, content: Mapping[str, Any]) -> list[str]:
    """Mistakes that concern several sections, and names with several meanings."""
    found = []
    if {"/", "\\", "\0"} & set(sections.name) or sections.name in (".", ".."):
        found.append(f"name is {sections.name!r}; it names the run's folder: letters, digits, '-' and '_'")
    if ("data" in content) == ("party" in content):
        found.append("a job file has either a [data] section (a named data set) or [[party]] sections (files)")
    found += sections.data_mistakes()
    found += doubled_parties(sections.party)
    found += [
        f"{party.name!r} has two policies, [policy.{party.name}] and [party.policy]: leave one out"
        for party in sections.party
        if party.policy is not None and party.name in sections.policy
    ]
    return found
