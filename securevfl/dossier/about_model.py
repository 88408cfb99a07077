"""What documents tell of the model: how it was trained, how good it is and for whom, and where it fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from securevfl.dossier.evidence import DossierEvidence
from securevfl.dossier.places import ask
from securevfl.dossier.sentences import Fact, FillIn, Item, Row, Source, Table, format_value, write_row, write_sentence
from securevfl.report.record import RunRecord

__all__ = [
    "describe_benefit",
    "describe_calibration",
    "describe_classes",
    "describe_groups",
    "describe_importance",
    "describe_limitations",
    "describe_metrics",
    "describe_monitoring",
    "describe_preparation",
    "describe_training",
    "describe_versions",
    "list_figures",
]

_METRICS = {
    "auc": "AUC",
    "log_loss": "log-loss",
    "ks": "KS",
    "r2": "R²",
    "rmse": "RMSE",
    "mae": "MAE",
    "ece": "expected calibration error",
    "pr_auc": "area under precision and recall",
}
_MOST = 12


def _name_metric(name: str) -> str:
    return _METRICS.get(name, name.replace("_", " "))


def describe_preparation(evidence: DossierEvidence) -> list[Item]:
    """How columns were prepared, as far as the report knows, and how many values were missing."""
    run = evidence.run
    rows = []
    for party, columns in (run.prepared if run is not None else {}).items():
        for i, column in enumerate(columns):
            source = Source("report", f"runs.{evidence.run_key}.prepared.{party}.{i}")
            missing = f"{column.missing:.1%}"
            rows.append(Row((party, column.column, column.holds, missing, column.how), (source,)))
    if not rows:
        key = evidence.run_key
        source = Source("report", f"runs.{key}.prepared (empty)") if run is not None else Source("file", "no report")
        return [write_sentence("This report does not record how columns were prepared.", source)]
    return [Table(("party", "column", "values", "missing", "prepared"), tuple(rows))]


def describe_training(evidence: DossierEvidence) -> list[Item]:
    """How long the run trained, on how many rows, and why it ended."""
    run = evidence.run
    if run is None:
        epochs = evidence.setting("epochs")
        return [write_sentence("The job trains for up to {epochs} epochs.", epochs=epochs)]
    if not run.rows_trained or not run.best_epoch:
        # In a party's own report, 0 stands for what the party does not know.
        source = Source("report", f"runs.{run.key}.rows_trained (0: not known to this party)")
        text = "This report has neither the number of rows trained nor why training ended; the label owner's has both."
        return [write_sentence(text, source)]
    found: list[Item] = [
        write_sentence(
            "{rows} rows trained. Training ended after {epochs} epochs: {why}. Kept: the weights of epoch {best}.",
            rows=evidence.of_run("rows_trained"),
            epochs=Fact(len(run.epochs), Source("report", f"runs.{run.key}.epochs")),
            why=evidence.of_run("stopped"),
            best=evidence.of_run("best_epoch"),
        )
    ]
    if run.draws > 1:
        found.append(
            write_sentence(
                "The run was repeated {draws} times with new noise; figures are means.", draws=evidence.of_run("draws")
            )
        )
    return found


def describe_metrics(evidence: DossierEvidence) -> list[Item]:
    """Every figure of the test rows that the report has, beside the baselines."""
    run = evidence.run
    if run is None:
        return [_no_figures(evidence, "no run has finished")]
    names = {**dict.fromkeys(run.test), **dict.fromkeys(run.evaluation.metrics if run.evaluation is not None else ())}
    if not names:
        return [_no_figures(evidence, "this party received no figures of the test rows")]
    baselines = [one for one in (evidence.record.runs if evidence.record is not None else ()) if one.baseline]
    rows = []
    for name in names:
        where = f"test.{name}" if name in run.test else f"evaluation.metrics.{name}"
        fact = evidence.of_run(where)
        spread = run.deviation.get(name)
        text = str(fact) + (f" ± {spread:.4g}" if spread is not None else "")
        others = [format_value(one.test.get(name)) if name in one.test else "–" for one in baselines]
        cited = [Source("report", f"runs.{one.key}.test.{name}") for one in baselines if name in one.test]
        rows.append(write_row(_name_metric(name), fact.as_text(text), *others, sources=cited))
    count = evidence.reported("alignment.test")
    heads = ("figure", run.title, *(one.title for one in baselines))
    found: list[Item] = [
        write_sentence("Figures are of the {rows} test rows, which neither trained nor validated.", rows=count),
        Table(heads, tuple(rows)),
    ]
    if run.constant:
        shown = ", ".join(f"{_name_metric(name)} {value:.4g}" for name, value in run.constant.items())
        found.append(
            write_sentence(
                f"Always giving the training rows' class shares or mean would score: {shown}.",
                evidence.of_run("constant").source,
            )
        )
    return found


def _no_figures(evidence: DossierEvidence, why: str) -> FillIn:
    owners = [name for name, role in evidence.roles.items() if role == "active"]
    return FillIn("figures", f"figures of the model ({why})", f"they are in the report of {' or '.join(owners)}")


def describe_benefit(evidence: DossierEvidence) -> list[Item]:
    """What joining was worth to the party with the labels, with its interval."""
    run = evidence.run
    gained = None if run is None else run.gained
    if gained is None:
        return [ask("benefit")]
    interval = (
        "" if gained.low is None or gained.high is None else f" (95 % interval {gained.low:+.3f} to {gained.high:+.3f})"
    )
    return [
        write_sentence(
            f"On {{rows}} test rows the joint model has {gained.gain:+.3f} {_name_metric(gained.metric)} over the best "
            f"model of the label owner's columns alone{interval}. The better one was chosen on the same test rows; "
            "the interval is of chance in these rows, not of another split or another period.",
            evidence.of_run("gained").source,
            rows=evidence.of_run("gained.rows"),
        )
    ]


def describe_classes(evidence: DossierEvidence) -> list[Item]:
    """Per class: precision and recall, that is who is wrongly scored and how often."""
    evaluation = None if evidence.run is None else evidence.run.evaluation
    if evaluation is None or not evaluation.per_class:
        return []
    rows = []
    for i, one in enumerate(evaluation.per_class):
        source = Source("report", f"runs.{evidence.run_key}.evaluation.per_class.{i}")
        wrong = "–" if not one.rows else f"{1 - one.recall:.1%}"
        cells = (one.name, f"{one.rows:,}", f"{one.precision:.3f}", f"{one.recall:.3f}", wrong)
        rows.append(Row(cells, (source,)))
    likeliest = "Each row counts as its likeliest class here; with another cut-off these figures are others."
    return [
        Table(("class", "test rows", "precision", "recall", "given another class"), tuple(rows)),
        write_sentence(likeliest, Source("report", f"runs.{evidence.run_key}.evaluation.per_class")),
    ]


def describe_calibration(evidence: DossierEvidence) -> list[Item]:
    """Whether scores can be read as probabilities, and whether they moved between validation and test rows."""
    run = evidence.run
    evaluation = None if run is None else run.evaluation
    found: list[Item] = []
    if evaluation is not None and "ece" in evaluation.metrics:
        found.append(
            write_sentence(
                "The expected calibration error on the test rows is {ece}.",
                ece=evidence.of_run("evaluation.metrics.ece"),
            )
        )
    if run is not None and not run.calibration and run.evaluation is not None:
        found.append(
            write_sentence(
                "Scores were not calibrated after training.", Source("report", f"runs.{run.key}.calibration (empty)")
            )
        )
    for which in () if run is None else run.calibration:
        found.append(
            write_sentence(f"Calibration of the {which} scores: {{how}}.", how=evidence.of_run(f"calibration.{which}"))
        )
    if evaluation is not None and evaluation.psi is not None:
        found.append(
            write_sentence(
                "The population stability index of scores between validation and test rows is {psi}; below 0.1 little "
                "moved, above 0.25 much did.",
                psi=evidence.of_run("evaluation.psi"),
            )
        )
    return found


def describe_groups(evidence: DossierEvidence) -> list[Item]:
    """Figures by group of people, where the report has them; else a place, because nobody measured it."""
    groups = _read_groups(evidence.run)
    rows = []
    for path, values in groups:
        source = Source("report", f"runs.{evidence.run_key}.evaluation.{path}")
        rows += [Row((path, format_value(values)), (source,))]
    if rows:
        return [Table(("group", "figures"), tuple(rows))]
    return [ask("groups")]


def _read_groups(run: RunRecord | None) -> list[tuple[str, Any]]:
    """Whatever the evaluation has under a name with "group", as plain values."""
    evaluation = None if run is None else run.evaluation
    if evaluation is None:
        return []
    found: list[tuple[str, Any]] = []
    for name, value in msgspec.to_builtins(evaluation).items():
        if "group" not in name or not value:
            continue
        parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
        found += [(f"{name}.{key}", one) for key, one in parts]
    return found


def describe_importance(evidence: DossierEvidence) -> list[Item]:
    """Which columns matter most, where the model tells: shapes of an additive model, bins of a scorecard."""
    run = evidence.run
    rows = []
    for party, shapes in (run.shapes if run is not None else {}).items():
        for i, shape in enumerate(shapes[:_MOST]):
            source = Source("report", f"runs.{evidence.run_key}.shapes.{party}.{i}")
            noise = f", of which noise alone would give {shape.noise:.3g}" if shape.noise else ""
            rows.append(Row((party, shape.column, f"spread {shape.importance:.3g}{noise}"), (source,)))
    for party, points in (run.points if run is not None else {}).items():
        for i, column in enumerate(points[:_MOST]):
            source = Source("report", f"runs.{evidence.run_key}.points.{party}.{i}")
            value = "–" if column.information_value is None else f"information value {column.information_value:.3g}"
            rows.append(Row((party, column.column, f"{len(column.bins)} bins, {value}"), (source,)))
    if rows:
        return [Table(("party", "column", "weight in the model"), tuple(rows))]
    return [ask("explanation")]


def describe_limitations(evidence: DossierEvidence) -> list[Item]:
    """Warnings and notes of the run, each as the report has it."""
    run = evidence.run
    if run is None:
        return []
    found: list[Item] = []
    for kind, texts in (("Warning", run.warnings), ("Note", run.notes)):
        where = f"{kind.lower()}s"
        seen: set[str] = set()
        for i, text in enumerate(texts):
            if text not in seen:
                seen.add(text)
                found.append(write_sentence(f"{kind} of the run: {{text}}.", text=evidence.of_run(f"{where}.{i}")))
    return found


def describe_monitoring(evidence: DossierEvidence) -> list[Item]:
    """What is there to watch the model by, and who has to."""
    return [
        *describe_calibration(evidence),
        ask("monitoring"),
    ]


def describe_versions(evidence: DossierEvidence, *, machine: bool = True) -> list[Item]:
    """Software of the run, and its machine, as the report recorded them; before a run, what was agreed."""
    if evidence.record is None:
        names = ("securevfl", "protocol", "wire", "session", "ledger")
        rows = [write_row(name, evidence.agreed(f"versions.{name}")) for name in names]
        return [Table(("what", "version"), tuple(rows))]
    rows = [write_row(name, evidence.reported(f"versions.{name}")) for name in evidence.record.versions]
    if machine:
        rows += [write_row(name, evidence.reported(f"machine.{name}")) for name in evidence.record.machine]
    return [Table(("what", "version or description"), tuple(rows))]


def list_figures(evidence: DossierEvidence) -> list[Item]:
    """Which figures the report has, by name."""
    run = evidence.run
    if run is None or not run.test:
        return []
    names = ", ".join(
        map(_name_metric, dict.fromkeys([*run.test, *(run.evaluation.metrics if run.evaluation else ())]))
    )
    return [write_sentence(f"The report has these figures of the test rows: {names}.", evidence.of_run("test").source)]
