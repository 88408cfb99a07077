"""Whether joining was worth it, in words: the first thing that a report answers."""

from __future__ import annotations

from securevfl.report.derived import find_run, metric_text, metrics_of
from securevfl.report.record import Record, RunRecord

__all__ = ["describe_gain", "find_joined", "format_signed", "joined_sentence"]

_TITLES = {"auc": "AUC", "accuracy": "accuracy", "r2": "R²"}


def format_signed(value: float, digits: int = 3) -> str:
    """+0.012 or −0.012, with a true minus sign; zero has no sign."""
    text = f"{value:+.{digits}f}"
    return text[1:] if not float(text) else text.replace("-", "−")


def find_joined(record: Record) -> RunRecord | None:
    """The first run of a federation that was compared with what its active party has alone."""
    return next((run for run in record.runs if run.gained is not None), None)


def describe_gain(record: Record, run: RunRecord) -> tuple[str, str]:
    """A gain with its metric, such as "+0.131 AUC", and what is behind it: the interval, both figures, the ceilings.

    Raises:
        ValueError: a run that was compared with nothing.
    """
    gained = run.gained
    if gained is None:
        raise ValueError(f"{run.key!r} was compared with no baseline")
    digits = next((digits for name, _, digits in metrics_of(record) if name == gained.metric), 4)
    parts, alone = [], find_run(record, gained.over)
    if gained.low is not None and gained.high is not None:
        rows = f" ({gained.rows:,} test rows)" if gained.rows else ""
        parts.append(f"95 % interval {format_signed(gained.low)} to {format_signed(gained.high)}{rows}")
        if gained.low <= 0 <= gained.high:
            parts.append("no difference is within it")
    else:
        parts.append("no interval: the test rows are too few or too alike to show chance, or their scores are not here")
    if alone is not None:
        before, after = (metric_text(one.test[gained.metric], digits) for one in (alone, run))
        parts.append(f"{alone.title} {before}, together {after}")
    if not gained.over:
        parts.append("in each fold over the better one of two methods alone")
    for key, title in (("pooled", "pooled in the clear"), ("pooled_boosted", "boosted trees, pooled")):
        ceiling = find_run(record, key)
        if ceiling is not None and gained.metric in ceiling.test:
            parts.append(f"{title}: {metric_text(ceiling.test[gained.metric], digits)}")
    return f"{format_signed(gained.gain)} {_TITLES.get(gained.metric, gained.metric)}", "; ".join(parts)


def joined_sentence(record: Record) -> str:
    """What joining was worth, in a sentence; empty where nothing was compared."""
    run = find_joined(record)
    if run is None:
        return ""
    gain, detail = describe_gain(record, run)
    return f"joined: {gain} over what you have ({detail})"
