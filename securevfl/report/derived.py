"""Figures that tables, plots and the page derive from a record, in one place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from securevfl.report.attack_record import AttackRecord
from securevfl.report.card import Card
from securevfl.report.card_making import make_run_card, rate_finding
from securevfl.report.record import EpsilonRecord, EpsilonTotal, Record, RunRecord

__all__ = [
    "active_name",
    "bytes_each_way",
    "bytes_per_epoch",
    "constant_of",
    "cost_per_epoch",
    "count_decimals",
    "describe_verification",
    "epsilon_of",
    "find_run",
    "format_amount",
    "group_warnings",
    "human_bytes",
    "human_seconds",
    "list_worst_findings",
    "make_cards",
    "metric_gain",
    "metric_text",
    "metrics_of",
    "phases_by_party",
    "short_title",
    "table_widths",
]


def find_run(record: Record, key: str) -> RunRecord | None:
    """The run with this key, if there is one."""
    return next((run for run in record.runs if run.key == key), None)


_CLASSES = (("auc", "AUC", 4), ("accuracy", "accuracy", 4), ("log_loss", "log-loss", 4), ("ks", "KS", 3))
_LABELS = (("macro_f1", "macro F1", 4),)
_NUMBERS = (("r2", "R²", 4), ("rmse", "RMSE", 5), ("mae", "MAE", 5), ("deviance", "deviance", 5), ("huber", "Huber", 5))
_AMOUNTS = frozenset({"rmse", "mae", "deviance", "huber"})
_SPAN = 100
"""Amounts of a column that are smaller than the largest by more than this get fewer digits than the others."""
_MOST_DECIMALS = 9


def metrics_of(*records: Record) -> list[tuple[str, str, int]]:
    """The metrics of the records' runs, the one that runs are compared by first: name, title, digits behind the point.

    Amounts in the target's units have so many that the smallest has five in all, so that points stand below each other.
    """
    runs = [run for record in records for run in record.runs]
    numeric = ["rmse" in run.test for run in runs]
    known = (*(_NUMBERS if any(numeric) else ()), *(() if numeric and all(numeric) else (*_CLASSES, *_LABELS)))
    found = []
    for name, title, digits in known:
        values = [run.test[name] for run in runs if name in run.test]
        if values:
            found.append((name, title, count_decimals(values, digits) if name in _AMOUNTS else digits))
    return found


def count_decimals(values: Iterable[float], digits: int = 4) -> int:
    """How many digits behind the point show `digits` of the smallest of some amounts, as one column has them."""
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    if not sizes:
        return digits - 1
    least = max(min(sizes), max(sizes) / _SPAN)
    return min(max(digits - 1 - math.floor(math.log10(least)), 0), _MOST_DECIMALS)


def format_amount(value: float, decimals: int | None = None, sign: str = "") -> str:
    """An amount without exponent; with four digits in all unless `decimals` says how many stand behind the point.

    Args:
        value: in any unit.
        decimals: from `count_decimals` of all amounts of a column.
        sign: ``"+"`` shows the sign of positive amounts, too.
    """
    return f"{value:{sign},.{count_decimals([value]) if decimals is None else decimals}f}"


def metric_text(value: float, digits: int) -> str:
    """A metric as text, with so many digits behind the point."""
    return f"{value:,.{digits}f}"


def metric_gain(record: Record, run: RunRecord, metric: str = "auc") -> float | None:
    """How much better than the active party alone; None if either has no such metric."""
    alone = find_run(record, "alone")
    if alone is None or run.key == "alone" or metric not in run.test or metric not in alone.test:
        return None
    return run.test[metric] - alone.test[metric]


def cost_per_epoch(run: RunRecord) -> tuple[float, float]:
    """(own computing, homomorphic encryption) of all parties together, mean seconds of an epoch."""
    if not run.epochs:
        return 0.0, 0.0
    parts = [(p.compute, p.he) for epoch in run.epochs for p in epoch.phases.values()]
    return sum(c for c, _ in parts) / len(run.epochs), sum(h for _, h in parts) / len(run.epochs)


def phases_by_party(run: RunRecord) -> dict[str, tuple[float, float, float]]:
    """Party → mean seconds of an epoch (own computing, homomorphic encryption, waiting)."""
    means: dict[str, tuple[float, float, float]] = {}
    for name in dict.fromkeys(name for epoch in run.epochs for name in epoch.phases):
        parts = [epoch.phases[name] for epoch in run.epochs if name in epoch.phases]
        means[name] = (
            sum(p.compute for p in parts) / len(run.epochs),
            sum(p.he for p in parts) / len(run.epochs),
            sum(p.wait for p in parts) / len(run.epochs),
        )
    return means


def active_name(record: Record) -> str:
    """The active party's name, or words for it where the record has none."""
    return next((party.name for party in record.parties if party.role == "active"), "the active party")


def describe_verification(record: Record) -> str:
    """Who verified the digest of the common rows, in words; empty without passive parties."""
    if not any(party.role == "passive" for party in record.parties):
        return ""
    by = record.alignment.verified_by
    if all(party.name in by for party in record.parties):
        count = len(record.parties)
        return "verified by both parties" if count == 2 else f"verified by all {count} parties"
    return f"verified by {', '.join(by)} only" if by else "not verified"


def bytes_each_way(record: Record, run: RunRecord) -> tuple[int, int]:
    """(bytes that the active party sent, bytes that the passive parties sent) in the whole run."""
    active = {party.name for party in record.parties if party.role == "active"}
    out = sum(link.bytes for link in run.links if link.sender in active)
    return out, sum(link.bytes for link in run.links) - out


def bytes_per_epoch(record: Record, run: RunRecord) -> tuple[float, float]:
    """As `directions`, the mean of an epoch (training and validation, without set-up and test)."""
    if not run.epochs:
        return 0.0, 0.0
    active = {party.name for party in record.parties if party.role == "active"}
    out = back = 0
    for epoch in run.epochs:
        for link, size in epoch.bytes.items():
            if link.split(" -> ")[0] in active:
                out += size
            else:
                back += size
    return out / len(run.epochs), back / len(run.epochs)


def epsilon_of(run: RunRecord) -> float | None:
    """The largest ε of any party's features or labels; None without differential privacy. It is by the exact formula
    where noise was sized by it, and by the RDP accountant elsewhere.

    Where a party releases both, its features and labels are budgets apart: their sum is in the report's totals only.
    """
    apart = [_stated_epsilon(line) for line in run.epsilon_totals if " and " not in line.protects]
    return max([*apart, *(_stated_epsilon(line) for line in run.epsilon)], default=None)


def _stated_epsilon(line: EpsilonRecord | EpsilonTotal) -> float:
    return line.epsilon_rdp if line.epsilon_exact is None else line.epsilon_exact


def group_warnings(record: Record) -> dict[str, list[RunRecord]]:
    """Each warning once, with the runs that it is of."""
    found: dict[str, list[RunRecord]] = {}
    for run in record.runs:
        for warning in run.warnings:
            found.setdefault(warning, []).append(run)
    return found


def human_bytes(size: float) -> str:
    """1234567 → ``1.23 MB``; decimal units."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            value = size / scale
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{size:.0f} B"


def human_seconds(seconds: float) -> str:
    """0.0123 → ``12 ms``; 75 → ``75 s``; 600 → ``10 min``."""
    if seconds >= 300:
        return f"{seconds / 60:.0f} min"
    if seconds >= 10:
        return f"{seconds:.0f} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 1e-3 else "< 1 ms"


def short_title(run: RunRecord, runs: Sequence[RunRecord]) -> str:
    """The run's title, for axes and legends: without the algorithm's name where all `runs` of jobs have the same."""
    names = {one.title.partition(", ")[0] for one in runs if not one.baseline}
    if run.baseline or len(names) > 1:
        return run.title
    return run.title.removeprefix(f"{names.pop()}, ") or run.title


def constant_of(record: Record) -> str:
    """The score of a constant prediction, to compare accuracy and log-loss with; empty if no run has it."""
    constant = next((run.constant for run in record.runs if run.constant), None)
    if constant is None:
        return ""
    if "rmse" in constant:
        return f"Always giving the training rows' mean has RMSE {format_amount(constant['rmse'])}."
    return (
        f"Always giving the training rows' class shares scores accuracy {constant['accuracy']:.4f} "
        f"and log-loss {constant['log_loss']:.4f}."
    )


def make_cards(record: Record, attacked: AttackRecord | None = None) -> dict[str, Card]:
    """Key of each federated run → what each party could read in it, at worst.

    Args:
        record: of the runs.
        attacked: attacks on the same job; the cards of runs with its title show them.
    """
    found = {}
    for run in record.runs:
        mine = attacked if attacked is not None and attacked.title == run.title else None
        card = None if run.baseline else make_run_card(run, record.parties, mine, title=short_title(run, record.runs))
        if card is not None:
            found[run.key] = card
    return found


_TOLD = "result"
"""A leak by what the job is for alone."""


def table_widths(record: Record) -> dict[str, int]:
    """Party → number of its columns, as the cards count them."""
    return {party.name: len(party.columns) for party in record.parties}


def list_worst_findings(record: Record) -> list[tuple[RunRecord, str, str]]:
    """For each federated run, the worst that each party learns of others.

    Returns:
        Run, severity as its card rates it, and a sentence such as "bank can read or compute data of network, retailer";
        parties with the same severity share a line, the most severe comes first.
    """
    words = {
        "leak": "can read or compute data of",
        _TOLD: "can estimate, from the result that it is given, data of",
        "note": "learns something limited of",
        "ok": "learns only what was agreed about",
    }
    found = []
    widths = table_widths(record)
    for run in record.runs:
        learned: dict[str, dict[str, dict[str, None]]] = {}
        for line, about in ((one, about) for one in run.learned for about in one.about.split(", ")):
            rated = rate_finding(line, widths, [about])
            severity = rated if rated in words else "leak"  # what nobody knows is not harmless
            if severity == "leak" and line.sights and all(sight.result for sight in line.sights):
                severity = _TOLD
            for party in line.party.split(", "):
                learned.setdefault(party, {}).setdefault(severity, {})[about] = None
        for severity, text in words.items():
            said = [
                f"{party} {text} {', '.join(about[severity])}"
                for party, about in learned.items()
                if severity == next(one for one in words if one in about)
            ]
            if said:
                found.append((run, "leak" if severity == _TOLD else severity, "; ".join(said)))
    return found
