"""Find what would fail before a job trains, all at once: from the file and from each table's header and first rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from securevfl_net.fields import suggest_nearest

from securevfl.align.linkage import unknown_values
from securevfl.align.result import RULES
from securevfl.checks.label_leaks import CheckedTable, find_leaks
from securevfl.checks.party_check import CertificateEnd, check_party_file
from securevfl.data import TableLimits
from securevfl.data.link_columns import read_texts, table_columns
from securevfl.data.overview import TableOverview, table_overview
from securevfl.data.parties import wrong_id_columns
from securevfl.data.sample import SAMPLE, read_identifiers, table_mistakes
from securevfl.data.snapshots import snapshot_hint
from securevfl.errors import InputError, PolicyError, UnknownNameError
from securevfl.experiments.baselines import wrong_baselines
from securevfl.experiments.sweep_file import read_sweep_sections
from securevfl.jobfile.job_file import JobSections, PartySection, read_job_sections
from securevfl.jobfile.job_roster import policy_refusals, roster_of
from securevfl.jobfile.toml_text import read_toml
from securevfl.party import Job, too_few_epochs, too_many_classes, with_default_protection, wrong_parties
from securevfl.report import Card
from securevfl.run.id_spelling import find_spellings
from securevfl.run.job_card import job_card
from securevfl.run.roster import Roster

__all__ = ["JobCheck", "check_file"]

_COMPARED = 50_000
"""Rows of a table up to which its identifiers are compared with those of others."""


@dataclass(frozen=True, kw_only=True)
class JobCheck:
    """Result of the check.

    Attributes:
        mistakes: problems that the user must correct.
        hints: what would run, and is likely not meant.
        refusals: what policies forbid.
        summary: what would run.
        card: worst case, who could read what of whose data in the job; None if it cannot be determined.
        tables: content of the tables that can be read here: all of a job file's, or a party's own.
        certificates: of the party whose file it is, and until when they are valid.
    """

    mistakes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    summary: str = ""
    card: Card | None = None
    tables: tuple[TableOverview, ...] = ()
    certificates: tuple[CertificateEnd, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 if nothing was found, 3 for policies alone, 2 otherwise."""
        return InputError.exit_code if self.mistakes else PolicyError.exit_code if self.refusals else 0


def check_file(path: str | Path, *, active: str = "", accept_leak: bool = False) -> JobCheck:
    """Check a job file, a sweep file, or a party's own file. Nothing runs. Of tables it reads the header and the first
    rows, and counts the rows unless a table is large. It loads named data sets, because only that shows whether their
    files exist.

    Args:
        path: the file.
        active: name of the active party, where no table has labels: to predict.
        accept_leak: accept leaks, as if the job file did.
    """
    file = Path(path)
    try:
        content = read_toml(file, "job", "examples/credit.toml")
        if content.keys() & {"axis", "method"}:
            return _check_sweep(file)
        if isinstance(content.get("party"), str) or "keys" in content:
            return _check_party(file)
        return _check_job(file, content, active, accept_leak)
    except InputError as error:
        return JobCheck(mistakes=(str(error),))


def _check_sweep(file: Path) -> JobCheck:
    sweep, mistakes, refused = read_sweep_sections(file, device="cpu")
    tables = []
    for party in sweep.party:
        wrong, table = _looked_at(party.with_task(sweep.task), file.parent)
        mistakes += wrong
        tables += [] if table is None else [table]
    data = f"{len({spec.data for spec in sweep.cells})} data sets"
    return JobCheck(
        mistakes=tuple(mistakes),
        refusals=tuple(refused),
        summary=f"a sweep of {len(sweep.cells)} cells, {len({spec.method for spec in sweep.cells})} methods on "
        f"{f'the tables of {len(sweep.party)} parties' if sweep.party else data}",
        tables=tuple(tables),
    )


def _check_party(file: Path) -> JobCheck:
    found = check_party_file(file)
    peers = f"; peers {', '.join(found.peers)}" if found.peers else ""
    looked = f"; of its table, the first {SAMPLE:,} rows were looked at" if found.table else ""
    return JobCheck(
        mistakes=found.mistakes,
        hints=found.hints,
        summary=f"The file of {found.party}{peers}{looked}",
        tables=() if found.table is None else (found.table,),
        certificates=found.certificates,
    )


def _check_job(file: Path, content: Mapping[str, Any], active: str, accept_leak: bool) -> JobCheck:
    sections, broken, mistakes = read_job_sections(file)
    refused: list[str] = []
    tables = []
    for party in sections.party:
        wrong, table = _looked_at(party.with_task(sections.job.task).linked_by(sections.link), file.parent)
        mistakes += wrong
        tables += [] if table is None else [table]
    if "algorithm" not in broken:
        mistakes += _column_mistakes(sections, file.parent)
    roster, found = roster_of(sections, content, active)
    mistakes += found
    if roster is not None:
        mistakes += _about_parties(sections, broken, roster)
        mistakes += _group_mistakes(sections, file.parent, roster.owners[0]) if roster.owners else []
    hints: list[str] = []
    if sections.link is None and roster is not None and len(roster.owners) == 1 and not mistakes:
        found, hints = _about_identifiers(sections.party, file.parent)
        mistakes += found
    if sections.link is not None and not mistakes:
        hints = _about_placeholders([party.linked_by(sections.link) for party in sections.party], file.parent)
    job: Job | None = None
    if not broken & {"job", "algorithm", "protection", "align", "link"}:
        try:
            job = sections.build_job()
            if accept_leak:
                job = job.replace(accept_leak=True)
            if roster is not None and not active:  # to predict, a model is there, and more parties may have trained it
                job = with_default_protection(job, roster.owners, roster.passive)
        except InputError as error:
            mistakes.append(str(error))
        except PolicyError as error:
            refused.append(str(error))
    leaks = [] if mistakes or active else _about_leaks(sections, file.parent)
    hints += [*leaks, *_about_snapshots(sections, file.parent), *_about_company(roster)]
    if job is not None:
        hints += _about_rows(job, tables)
        if roster is not None and not active:
            found, few = _about_common_rows(job, roster, tables)
            refused += few
            hints += found
        mistakes += [too_many_classes(job, one.party, one.classes) for one in tables if one.classes is not None]
        if job.algorithm.encodes_blindly(job.protection) and roster is not None:
            mistakes += job.algorithm.undeclared_columns(job.protection, _feature_columns(sections, file.parent))
    if job is not None and roster is not None:
        refused += policy_refusals(job, roster, predicts=bool(active))
    return JobCheck(
        mistakes=tuple(filter(None, dict.fromkeys(mistakes))),
        hints=tuple(hints),
        refusals=tuple(dict.fromkeys(refused)),
        summary=_summarise_job(job, roster, sections),
        card=None if job is None or roster is None else _make_card(job, roster, sections, file.parent),
        tables=tuple(tables),
    )


def _make_card(job: Job, roster: Roster, sections: JobSections, folder: Path) -> Card | None:
    """The job's card, with the columns of the tables that can be read here, counted as `run` counts them."""
    try:
        columns = {name: len(own) for name, own in _feature_columns(sections, folder).items()}
    except InputError:  # a named data set without its files, which is reported elsewhere
        columns = {}
    return job_card(job, roster.owners, roster.passive, columns=columns)


def _about_rows(job: Job, tables: Sequence[TableOverview]) -> list[str]:
    """What the protection expects of the numbers of rows, if all rows of the smallest table are common."""
    rows = [table.rows for table in tables if table.rows is not None]
    if not rows or len(rows) < len(tables):
        return []
    fewest = min(rows)
    valid = min(int(fewest * job.valid), job.valid_rows or fewest)
    return job.protection.foresee_refusals(int(fewest * (1 - job.valid - job.test)), valid)


def _about_common_rows(job: Job, roster: Roster, tables: Sequence[TableOverview]) -> tuple[list[str], list[str]]:
    """What the algorithm expects of the common rows, of which there are no more than rows in any table: hints, and what
    is refused for certain."""
    counted = [table for table in tables if table.rows is not None]
    if not counted or not roster.owners:
        return [], []
    smallest = min(counted, key=lambda table: table.rows or 0)
    rows = smallest.rows or 0
    if why := job.algorithm.refuse_rows(rows):
        return [], [f"the table of {smallest.party!r} has {rows:,} rows, so no more are common, and {why}"]
    own = next((table for table in tables if table.party == roster.owners[0]), None)
    if own is None:
        return [], []
    numbers = sum(one.holds == "numbers" and one.column not in own.one_value for one in own.lines)
    label = 1 if own.classes is None or own.classes == 2 else own.classes - 1
    return job.algorithm.foresee_refusals(job.protection, rows=rows, offered=numbers + label), []


def _column_mistakes(sections: JobSections, folder: Path) -> list[str]:
    """Columns that the algorithm's settings name but no table has."""
    columns = _feature_columns(sections, folder) if sections.party else {}
    return sections.algorithm.column_mistakes(columns) if columns else []


def _group_mistakes(sections: JobSections, folder: Path, owner: str) -> list[str]:
    """A party or column that ``report.group`` names and nobody has."""
    where = sections.report.grouping(owner)
    if where is None or not sections.party:
        return []
    party, column = where
    section = next((one for one in sections.party if one.name == party), None)
    if section is None:
        return [str(UnknownNameError("party of report.group", party, [one.name for one in sections.party]))]
    try:
        columns = table_columns(section.path_from(folder), TableLimits())
    except InputError:  # reported elsewhere
        return []
    known = column in columns
    return [] if known else [str(UnknownNameError(f"column of {party!r} in report.group:", column, columns))]


def _feature_columns(sections: JobSections, folder: Path) -> dict[str, tuple[str, ...]]:
    """Party → its features. Empty where a table cannot be read, which is reported elsewhere."""
    columns = {}
    for party in sections.party:
        try:
            names = table_columns(party.path_from(folder), TableLimits())
        except InputError:
            return {}
        linked = set((party.link or {}).values())
        chosen = party.column_use.select_features(names)
        columns[party.name] = tuple(chosen if party.features else [name for name in chosen if name not in linked])
    if not columns and sections.data is not None:
        columns = {table.name: tuple(table.columns) for table in sections.load_parties(Path(), "").values()}
    return columns


def _looked_at(party: PartySection, folder: Path) -> tuple[list[str], TableOverview | None]:
    """Problems with a party's table, and its content; columns for linkage are texts, not features."""
    path, found = party.path_from(folder), list[str]()
    if party.link:
        try:
            names = table_columns(path, TableLimits())
        except InputError as error:
            return [str(error)], None
        found = [
            str(UnknownNameError(f"linkage column of {path}:", column, names))
            for column in party.link.values()
            if column not in names
        ]
        if party.features is None:
            linked = set(party.link.values())
            chosen = [name for name in party.column_use.select_features(names) if name not in linked]
            party = party.replace(features=tuple(chosen), drop=())
    found += table_mistakes(path, party.column_use, form=party.csv_form)
    return found, table_overview(party.name, path, party.column_use, form=party.csv_form)


def _about_identifiers(parties: Sequence[PartySection], folder: Path) -> tuple[list[str], list[str]]:
    """Report that no row is common to all, and tables that spell identifiers differently; for small tables."""
    wrong = wrong_id_columns({party.name: party.column_use.ids for party in parties})
    if wrong:
        return [wrong], []
    ids = {}
    for party in parties:
        path = party.path_from(folder)
        some = read_identifiers(path, party.column_use, most=_COMPARED, form=party.csv_form)
        if some is None:
            return [], []
        ids[str(path)] = some
    if len(ids) < 2:  # none, or one file of several parties
        return [], []
    hints = find_spellings(ids)
    if set.intersection(*({RULES.apply(text) for text in some} for some in ids.values())):
        return [], hints
    if not hints:
        hints = ["are they the same people, and does id name the column of the same numbers in each?"]
    return ["; ".join(["no row is common to all parties: the tables have no identifier in common", *hints])], []


def _about_snapshots(sections: JobSections, folder: Path) -> list[str]:
    """Identifiers that end in dates, of all tables."""
    return [
        hint
        for party in sections.party
        for hint in snapshot_hint(party.path_from(folder), party.column_use, form=party.csv_form)
    ]


def _about_company(roster: Roster | None) -> list[str]:
    """A job of one party."""
    if roster is None or len(roster.names) > 1:
        return []
    return [f"{roster.names[0]} is the only party: nothing is joined; add a [[party]] for each other table"]


def _about_leaks(sections: JobSections, folder: Path) -> list[str]:
    """Columns that are nearly the label: of all tables, or of the label's own where records are linked."""
    parties = [party.with_task(sections.job.task).linked_by(sections.link) for party in sections.party]
    tables = []
    for party in parties:
        use = party.column_use
        use = replace(use, drop=(*use.drop, *(party.link or {}).values())) if party.features is None else use
        tables.append(CheckedTable(party=party.name, path=party.path_from(folder), use=use, form=party.csv_form))
    together = [tables] if sections.link is None else [[one] for one in tables]
    return [str(leak) for some in together for leak in find_leaks(some)]


def _about_placeholders(parties: Sequence[PartySection], folder: Path) -> list[str]:
    """Values in columns for linkage that may mean "unknown"; for small tables."""
    hints = []
    for party in parties:
        path = party.path_from(folder)
        try:
            texts = read_texts(path, party.link, TableLimits(max_rows=_COMPARED))
        except InputError:  # more rows
            continue
        hints += [f"{path}, {one}" for one in unknown_values(texts)]
    return hints


def _about_parties(sections: JobSections, broken: frozenset[str], roster: Roster) -> list[str]:
    """Parties, epochs and baselines that the algorithm cannot serve, and policies of nobody."""
    found = [
        f"policy.{name} is the policy of nobody{suggest_nearest(name, roster.names)}"
        for name in sections.policy
        if name not in roster.names
    ]
    if "algorithm" in broken:
        return found
    found += wrong_parties(sections.algorithm, roster.owners, roster.passive, sections.protection)
    found += wrong_baselines(sections.algorithm, sections.baselines or ())
    return found + ([] if "job" in broken else too_few_epochs(sections.algorithm, sections.job.epochs))


def _summarise_job(job: Job | None, roster: Roster | None, sections: JobSections) -> str:
    if job is None or roster is None:
        return ""
    looked = f"; of each table, the first {SAMPLE:,} rows were looked at" if sections.party else ""
    epochs = f"{job.epochs} {'epoch' if job.epochs == 1 else 'epochs'}"
    return (
        f"{job.algorithm.title}, {job.protection.title}, {epochs}; {', '.join(roster.owners)} with labels, "
        f"{', '.join(roster.passive) or 'nobody'} without{looked}"
    )
