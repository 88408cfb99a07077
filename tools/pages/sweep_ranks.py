"""Markdown table of mean ranks: which methods are better over the tables of a sweep, each table counted once."""

from __future__ import annotations

from statistics import fmean

from sweep_levels import ALONE, OTHER_LABELS

from securevfl.report import SweepRecord
from securevfl.report.ranks import rank_methods
from securevfl.report.statistics import FEWEST, LEVEL
from securevfl.report.sweep_record import Rows, by_seed, dataset_names, list_positions, method_names

__all__ = ["figures_by_table", "ranks"]

_WORDS: dict[Rows, str] = {"common": "all columns", "alone": "without the partner"}


def _name_table(record: SweepRecord, data: str) -> str:
    """The table that a data set of a sweep is made from: two splits of one table are one table."""
    sections = record.job.get("data")
    for section in sections if isinstance(sections, list) else []:
        if data == (section.get("label") or section.get("name")):
            return str(section["name"])
    return data


def figures_by_table(record: SweepRecord, rows: Rows) -> dict[str, list[float]]:
    """Method → its mean over the places of each table, of methods that ran with five seeds at every place of `local`.

    Left out are places where `local` or most methods have fewer than five seeds, and methods that know more labels or
    rows than the others.
    """
    seeds = by_seed(record, rows)
    methods = {method for _, method, _ in seeds}
    places = [
        (data, x)
        for data in dataset_names(record)
        for x in list_positions(record, data)
        if len(seeds.get((data, ALONE, x), {})) >= FEWEST
        and 2 * sum(len(seeds.get((data, method, x), {})) >= FEWEST for method in methods) >= len(methods)
    ]
    tables = list(dict.fromkeys(_name_table(record, data) for data, _ in places))
    found = {}
    for method in method_names(record):
        whole = all(len(seeds.get((data, method, x), {})) >= FEWEST for data, x in places)
        if whole and method not in OTHER_LABELS:
            means = {(data, x): fmean(seeds[data, method, x].values()) for data, x in places}
            found[method] = [
                fmean(mean for (data, _), mean in means.items() if _name_table(record, data) == table)
                for table in tables
            ]
    return found


def ranks(record: SweepRecord) -> str:
    """One row a method, its mean rank over the tables for each kind of rows; below, what Friedman and Nemenyi say."""
    found = {}
    for rows, words in _WORDS.items():
        figures = figures_by_table(record, rows)
        if len(figures) >= 3 and len(next(iter(figures.values()))) >= 2:
            found[words] = rank_methods(figures)
    if not found:
        return "*Fewer than three methods, or two tables, with five seeds at every place yet.*"
    names = list(dict.fromkeys(name for ranking in found.values() for name in ranking.ranks))
    lines = [["", *found], ["---"] * (1 + len(found))]
    lines += [[n, *(f"{r.ranks[n]:.1f}" if n in r.ranks else "–" for r in found.values())] for n in names]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    said = [
        f"{words[0].upper()}{words[1:]}: {len(one.ranks)} methods on {one.tables} tables; Friedman's test "
        f"{f'finds differences (p = {one.p:.2g})' if one.p <= LEVEL else f'finds none (p = {one.p:.2g})'}; mean ranks "
        f"that are further apart than {one.distance:.1f} differ (Nemenyi, 5 %)."
        for words, one in found.items()
    ]
    return "\n\n".join([table, *said])
