"""Put the record of statistics together: what the active party was opened, and what each owner knows of its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from securevfl.report.column_statistics import BinStatistics, ColumnStatistics, StatisticsRecord
from securevfl.report.overviews import clean_name
from securevfl.training import Trained
from securevfl.training.crossing import join_bins

__all__ = ["statistics_record"]


def statistics_record(trained: Mapping[str, Trained], chief: Trained) -> StatisticsRecord | None:
    """The record; None where the job computed no statistics, or this report is of a party that was opened none.

    A simulation has all owners' parts: their words for bins, missing values, means.

    Args:
        trained: party → what its program returned.
        chief: of the active party, if this report has it.
    """
    found = chief.statistics
    if "columns" not in found:
        return None
    own = {
        (party, str(one["column"])): one for party, part in trained.items() for one in part.statistics.get("own", ())
    }
    classes = list(chief.classes) or [str(place) for place in range(len(found["class_rows"]))]
    return StatisticsRecord(
        rows=found["rows"],
        classes=classes if found["class_rows"] else [],
        class_rows=found["class_rows"],
        least=found["least"],
        epsilon=found["epsilon"],
        delta=found["delta"],
        correlation_error=found["correlation_error"],
        count_error=found["count_error"],
        columns=[_read_column(one, own.get((one["party"], one["column"]), {})) for one in found["columns"]],
        names=[clean_name(name) for name in found["names"]],
        correlations=found["correlations"],
        active=found["active"],
        label=chief.target,
    )


def _read_column(one: Mapping[str, Any], own: Mapping[str, Any]) -> ColumnStatistics:
    bins, level = one["bins"], one["level"]
    if own and level is not None:
        words = own["levels"][level]
        bins = [
            {**part, "bin": join_bins([words[place] for place in group], number=one["kind"] == "numbers")}
            for part, group in zip(bins, one["groups"], strict=True)
        ]
    return ColumnStatistics(
        party=one["party"],
        column=clean_name(one["column"]),
        kind=one["kind"],
        missing=one["missing"] if one["missing"] is not None else own.get("missing"),
        mean=own.get("mean", one.get("mean")),
        deviation=own.get("deviation", one.get("deviation")),
        means=one["means"],
        deviations=one["deviations"],
        with_label=one["with_label"],
        iv=one["iv"],
        iv_noise=one["iv_noise"],
        vif=one["vif"],
        bins=[BinStatistics(**part) for part in bins],
        withheld=one["withheld"],
    )
