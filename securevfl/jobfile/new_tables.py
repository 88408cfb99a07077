"""Next month's tables: read for a trained model, without labels and without an edit of the job file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from securevfl.data import FeatureEncoder, Parties, PartyTable, TableLimits
from securevfl.data.columns import doubled_names
from securevfl.data.file_locations import place_of
from securevfl.data.lake import source_of
from securevfl.data.new_rows import find_unusual_columns
from securevfl.errors import InputError, UnknownNameError
from securevfl.jobfile.job_file import JobSections, PartySection, TableSection, read_job_sections
from securevfl.jobfile.toml_text import raise_all
from securevfl.party import Job
from securevfl.run.model import Model

__all__ = ["NewTables", "TrainedJob", "read_own_labels", "read_trained_job", "split_data_options"]


@dataclass(frozen=True, kw_only=True)
class NewTables:
    """The parties' new rows.

    Attributes:
        parties: their tables; the active one with labels where its file has them.
        notes: what a person should know about them, a line each.
    """

    parties: Parties
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrainedJob:
    """The job file of a trained model.

    Attributes:
        file: the job file.
        sections: its content.
        job: the job.
    """

    file: Path
    sections: JobSections
    job: Job

    def read_tables(
        self, model: Model, data: Mapping[str, Path], *, active: str = "", labels: bool = True, kept: bool = False
    ) -> NewTables:
        """The tables to score.

        Args:
            model: that scores them: it decides which columns are read.
            data: party → its new file, in place of the job file's; relative to the working directory.
            active: name of the active party; the one with a label in the job file unless given.
            labels: whether labels that the new file has are read, to measure the scores.
            kept: whether the job file is a run's copy, whose tables are not beside it: all of them must be in `data`.

        Raises:
            InputError: a party or a column that does not exist, columns of another type, or tables that cannot be read;
                each party's first mistake.
        """
        sections = self.sections
        if sections.data is not None:
            if data:
                raise InputError(
                    f"{self.file} takes its tables from the data set {sections.data.get('name')!r}, so --data has no "
                    "columns to go by: predict on new rows in Python, with sv.predict(model, parties)"
                )
            return NewTables(parties=sections.load_parties(self.file.parent, active))
        names = [party.name for party in sections.party]
        for name in [*data, *([active] if active else [])]:
            if name not in names:
                raise UnknownNameError("party", name, names)
        missing = [name for name in names if name not in data]
        if kept and missing:
            raise InputError(
                f"a run's folder holds no tables: add {' '.join(f'--data {name}=FILE' for name in missing)}, or name "
                "the job file and the model's folder"
            )
        owners = [party.name for party in sections.party if party.label is not None]
        if not active and len(owners) != 1:
            who = f"{' and '.join(owners)} own labels" if owners else "no party owns labels"
            raise InputError(f"{self.file}: {who}: name the party that asks with --active")
        chief = active or owners[0]
        tables, notes, found = [], list[str](), list[str]()
        grouping = sections.report.grouping(chief)
        for party in sections.party:
            section = party.linked_by(sections.link).with_task(sections.job.task)
            try:
                table, lines = _read_rows(
                    section,
                    data.get(party.name),
                    self.file.parent,
                    model,
                    labels=labels and party.name == chief,
                    beside=grouping[1] if grouping is not None and grouping[0] == party.name == chief else "",
                )
            except InputError as error:
                found.append(f"{party.name}: {error}")
                continue
            tables.append(table)
            notes += lines
        if found:
            raise InputError("\n  ".join(found))
        return NewTables(parties=Parties.of(*tables, active=chief), notes=tuple(notes))

    def has_table(self, party: str, data: Mapping[str, Path], *, kept: bool) -> bool:
        """Whether a party's table can be read; see `read_tables` for the arguments."""
        return self.sections.data is not None or party in data or not kept

    def read_party_table(self, model: Model, party: str, data: Mapping[str, Path], *, kept: bool = False) -> PartyTable:
        """One party's rows, without labels and without the other parties' tables; see `read_tables`.

        Raises:
            UnknownNameError: no such party.
            InputError: a table that cannot be read, or none.
        """
        sections = self.sections
        if sections.data is not None:
            parties = sections.load_parties(self.file.parent, "")
            if party not in parties:
                raise UnknownNameError("party", party, parties)
            return parties[party]
        section = next((one for one in sections.party if one.name == party), None)
        if section is None:
            raise UnknownNameError("party", party, [one.name for one in sections.party])
        if not self.has_table(party, data, kept=kept):
            raise InputError(f"a run's folder holds no tables: add --data {party}=FILE")
        section = section.linked_by(sections.link).with_task(sections.job.task)
        return _read_rows(section, data.get(party), self.file.parent, model, labels=False)[0]


def read_trained_job(path: str | Path) -> TrainedJob:
    """Read the job file of a trained model, without its tables.

    Raises:
        InputError: no such file, not TOML, or mistakes, all of them in one message.
    """
    file = Path(path)
    sections, _, found = read_job_sections(file)
    raise_all(file, found)
    try:
        job = sections.build_job()
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    return TrainedJob(file=file, sections=sections, job=job)


def read_own_labels(
    section: TableSection, file: Path | None, folder: Path, party: str, *, beside: str = ""
) -> PartyTable | None:
    """A party's new rows with their labels and weights alone, to measure scores; None if its file has no labels.

    Args:
        section: of its own file.
        file: the new table, in place of the section's.
        folder: of its own file.
        party: its name.
        beside: a column by which figures are grouped, where the file has it; empty for none.

    Raises:
        InputError: labels that cannot be used.
    """
    if section.label is None:
        return None
    path = section.path_from(folder) if file is None else file
    header = source_of(place_of(path, None), "", section.csv_form).column_names(TableLimits())
    if not set(_label_columns(section)) <= set(header):
        return None
    weight = section.weight if section.weight in header else None
    alone = section.without_label(()).replace(
        label=section.label, target=section.target, classes=section.classes, weight=weight, prepare=None, file=str(path)
    )
    return alone.read_table(Path(), party, beside if beside in header else "")


def _label_columns(section: TableSection) -> list[str]:
    return [] if section.label is None else [section.label] if isinstance(section.label, str) else list(section.label)


def split_data_options(given: Sequence[str]) -> dict[str, Path]:
    """Party → file, from options ``PARTY=FILE``.

    Raises:
        InputError: one without a party, or two of one party.
    """
    found: dict[str, Path] = {}
    for one in given:
        name, equals, file = one.partition("=")
        if not (equals and name and file):
            raise InputError(f"--data is {one!r}; write PARTY=FILE, once for each party: --data bank=next.csv")
        if name in found:
            raise InputError(f"--data names {name!r} twice, {found[name]} and {file}: leave one out")
        found[name] = Path(file)
    return found


def _read_rows(
    section: PartySection, file: Path | None, folder: Path, model: Model, *, labels: bool, beside: str = ""
) -> tuple[PartyTable, list[str]]:
    """A party's rows to score, and what is unusual about them."""
    if section.name not in model.parts:
        raise UnknownNameError("part of party", section.name, model.parts)
    encoder = FeatureEncoder.from_state(model.parts[section.name]["encoder"])
    bare = section.without_label(list(encoder.columns))
    if file is not None:
        bare, folder = bare.replace(file=str(file)), Path()
    path = bare.path_from(folder)
    header = list(source_of(place_of(path, None), "", section.csv_form).column_names(TableLimits()))
    for mistake in doubled_names(header, str(path)):
        raise mistake
    absent = [name for name in encoder.columns if name not in header and not section.aggregate]
    if absent:
        shown = ", ".join(map(repr, absent[:5])) + (", …" if len(absent) > 5 else "")
        raise InputError(
            f"{path} lacks {len(absent)} of the {len(encoder.columns)} columns that the model was trained on: {shown}; "
            f"give the file with them, under the same names (it has {', '.join(header[:8])}"
            f"{', …' if len(header) > 8 else ''})"
        )
    columns = _label_columns(section)
    if labels and columns and all(name in header for name in columns):
        weight = section.weight if section.weight in header else None
        bare = bare.replace(label=section.label, target=section.target, classes=section.classes, weight=weight)
    try:
        table = bare.read_table(folder, bare.name, beside if beside in header else "")
    except InputError as error:
        if bare.label is not None and "label" in str(error):
            raise InputError(f"{error}; to score these rows without their labels, add --no-labels") from None
        raise
    encoder.transform(table, np.arange(0))  # refuses columns of another type now, and not after an alignment
    used = {
        *table.id_columns,
        beside,
        section.label,
        section.weight,
        section.group,
        section.time,
        section.person,
        section.fold,
    }
    extra = [name for name in header if name not in {*used, *columns, *section.link.values()}]
    old = _trained_columns(section, extra, file)
    return table, find_unusual_columns(encoder, table, [name for name in extra if name not in old])


def _trained_columns(section: PartySection, extra: Sequence[str], file: Path | None) -> set[str]:
    """Columns that were there in training, too, and that nobody has to hear of again."""
    return set(extra) if file is None or section.features is not None or section.aggregate else set()
