"""A page that compares finished runs of several folders; runs that differ only in their seed share a line."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from securevfl.report.derived import active_name, epsilon_of, human_seconds, metric_text, metrics_of
from securevfl.report.record import Record, RunRecord
from securevfl.report.svg_shapes import draw_dot, draw_line, draw_picture, draw_text, shorten_text
from securevfl.report.template import fill_template, write_files

__all__ = ["Alike", "group_alike_runs", "render_runs", "write_runs"]

_LOWER = frozenset({"brier", "deviance", "ece", "log_loss", "mae", "rmse"})
"""Metrics for which lower is better."""
_SEEDS = frozenset({"seed", "seeds"})
_MOST = 40
"""Lines of a picture."""


@dataclass(frozen=True)
class Alike:
    """Runs that differ by their seed alone.

    Attributes:
        title: of the run.
        names: of their records, each once.
        runs: folder → run.
        metrics: name → its values, in the order of `runs`.
        epsilon: the largest.
        seconds: mean.
        test: numbers of test rows.
    """

    title: str
    names: tuple[str, ...]
    runs: Mapping[str, RunRecord]
    metrics: Mapping[str, tuple[float, ...]]
    epsilon: float | None
    seconds: float
    test: tuple[int, ...]


def group_alike_runs(records: Mapping[str, Record]) -> list[Alike]:
    """Group the runs of all folders whose jobs, parties and targets differ only in seeds.

    Args:
        records: folder → record.
    """
    groups: dict[str, list[tuple[str, Record, RunRecord]]] = {}
    for folder, record in records.items():
        for run in record.runs:
            groups.setdefault(_identify_run(record, run), []).append((folder, record, run))
    found = []
    for members in groups.values():
        runs = {folder: run for folder, _, run in members}
        names = [name for name in members[0][2].test if all(name in run.test for run in runs.values())]
        epsilons = [one for run in runs.values() if (one := epsilon_of(run)) is not None]
        found.append(
            Alike(
                title=members[0][2].title,
                names=tuple(dict.fromkeys(record.title or record.name for _, record, _ in members)),
                runs=runs,
                metrics={name: tuple(run.test[name] for run in runs.values()) for name in names},
                epsilon=max(epsilons) if epsilons else None,
                seconds=statistics.fmean(run.seconds for run in runs.values()),
                test=tuple(sorted({record.alignment.test for _, record, _ in members})),
            )
        )
    return found


def _identify_run(record: Record, run: RunRecord) -> str:
    target = run.evaluation.target if run.evaluation is not None else ""
    parties = [[party.name, party.role] for party in record.parties]
    return json.dumps([run.key, run.title, target, parties, _without_seeds(record.job)], sort_keys=True, default=str)


def _without_seeds(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _without_seeds(one) for key, one in value.items() if key not in _SEEDS}
    if isinstance(value, list | tuple):
        return [_without_seeds(one) for one in value]
    return value


def write_runs(records: Mapping[str, Record], path: Path) -> Path:
    """Write the page.

    Args:
        records: folder → record.
        path: an HTML file; links to the folders' own pages are relative to it.

    Raises:
        InputError: it cannot be written.
    """
    write_files(path.parent, {path.name: render_runs(records, path.parent).encode()})
    return path


def render_runs(records: Mapping[str, Record], beside: Path | None = None) -> str:
    """The page's text.

    Args:
        records: folder → record.
        beside: folder of the page, for links; without it there are none.
    """
    metrics = {entry[0]: entry for entry in metrics_of(*records.values())}
    groups = group_alike_runs(records)
    tests = {number for one in groups for number in one.test}
    return fill_template(
        "runs.html.j2",
        "Finished runs",
        {"seconds": human_seconds},
        groups=[_make_row(one, metrics, groups) for one in groups],
        titles=[title for _, title, _ in metrics.values()],
        picture=_draw_dots(groups, metrics),
        folders=[
            {
                "name": folder,
                "link": _link_report(folder, beside),
                "title": record.title or record.name,
                "created": record.created[:16].replace("T", " "),
                "active": active_name(record),
                "parties": ", ".join(party.name for party in record.parties),
                "common": record.alignment.common,
                "test": record.alignment.test,
            }
            for folder, record in records.items()
        ],
        unlike=len(tests) > 1,
        repeated=any(len(one.runs) > 1 for one in groups),
    )


def _link_report(folder: str, beside: Path | None) -> str:
    page = Path(folder) / "report.html"
    return "" if beside is None or not page.exists() else Path(os.path.relpath(page, beside)).as_posix()


def _make_row(one: Alike, metrics: Mapping[str, tuple[str, str, int]], groups: Sequence[Alike]) -> dict[str, object]:
    figures = []
    for name, _, digits in metrics.values():
        values = one.metrics.get(name)
        if not values:
            figures.append(("–", "", False))
            continue
        mean = statistics.fmean(values)
        means = [statistics.fmean(other.metrics[name]) for other in groups if other.metrics.get(name)]
        best = name != "bias" and len(means) > 1 and mean == (min(means) if name in _LOWER else max(means))
        spread = f"± {metric_text(statistics.stdev(values), digits)}" if len(values) > 1 else ""
        figures.append((metric_text(mean, digits), spread, best))
    return {
        "title": one.title,
        "names": ", ".join(one.names),
        "n": len(one.runs),
        "figures": figures,
        "epsilon": "–" if one.epsilon is None else f"{one.epsilon:.2f}",
        "seconds": one.seconds,
        "test": " or ".join(f"{number:,}" for number in one.test),
    }


def _draw_dots(groups: Sequence[Alike], metrics: Mapping[str, tuple[str, str, int]]) -> Markup | None:
    """The main metric: a dot for each run, a bar at their mean."""
    if not metrics:
        return None
    name, title, digits = next(iter(metrics.values()))
    shown = [one for one in groups if one.metrics.get(name)][:_MOST]
    values = [value for one in shown for value in one.metrics[name]]
    if len(values) < 2:
        return None
    low, high = min(values), max(values)
    room = (high - low) * 0.08 or 0.01
    low, high = low - room, high + room
    left, width, step = 300.0, 400.0, 26.0

    def place_x(value: float) -> float:
        return left + width * (value - low) / (high - low)

    parts = []
    for place, one in enumerate(shown):
        y, mean = 20 + step * place, statistics.fmean(one.metrics[name])
        parts.append(draw_text(left - 12, y + 4, shorten_text(one.title, 40), anchor="end"))
        parts.append(draw_line(left, y, (left + width, y), color="var(--line)"))
        for folder, value in zip(one.runs, one.metrics[name], strict=True):
            parts.append(draw_dot(place_x(value), y, color="var(--accent)", title=f"{folder}: {value:.{digits}f}"))
        parts.append(draw_line(place_x(mean), y - 8, (place_x(mean), y + 8), color="var(--ink)", width=2))
        parts.append(draw_text(left + width + 12, y + 4, metric_text(mean, digits)))
    bottom = 20 + step * len(shown)
    parts.append(draw_text(left, bottom + 8, f"{low:.{digits}f}", kind="muted"))
    parts.append(draw_text(left + width, bottom + 8, f"{high:.{digits}f}", anchor="end", kind="muted"))
    return draw_picture(left + width + 90, bottom + 16, parts, f"{title} of every run")
