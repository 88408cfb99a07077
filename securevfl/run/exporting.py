"""Export a party's part of a model for another scoring engine, and check what was written against the program.

A part is exported by its owner, from its own part of the model: no message is sent. Beside it goes the check: what the
written files compute from rows of a table equals what the program's own code computes from them. Where all parties'
parts are in one place, as in a simulation, the files' values together must also give the scores of `predict`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from securevfl_net.durable import make_folder, write_atomic

from securevfl.data import FeatureEncoder, PartyTable
from securevfl.errors import InputError
from securevfl.export import (
    ExportedModel,
    PartHead,
    PartSource,
    evaluate_graph,
    read_part,
    reader,
    write_document,
)
from securevfl.export.onnx_columns import graph_inputs
from securevfl.export.onnx_graph import load_onnx
from securevfl.export.raw_columns import raw_columns
from securevfl.run.model_parts import ModelPart
from securevfl.training import Task
from securevfl.training.calibration import WHOLE, Correction, correction_of
from securevfl.training.multilabel import Labels
from securevfl.training.registry import algorithms_fit
from securevfl.training.regression import Regression

__all__ = ["ExportedPart", "check_exported", "export_part"]

PART_FILE, GRAPH_FILE = ".part.json", ".onnx"
"""Suffixes of an exported part's files, after the party's name."""

READER_FILE = "read_part.py"
_ROWS = 1000
_CLOSE = 1e-5
"""Largest difference between a written part and the program: numbers of single precision, added in another order."""


@dataclass(frozen=True, kw_only=True)
class ExportedPart:
    """One party's exported part.

    Attributes:
        party: whose.
        document: content of its JSON file.
        files: that were written.
        model: with the program's own way to compute the same.
        encoder: of the party's columns.
        task: of the job; None at a passive party.
    """

    party: str
    document: Mapping[str, Any] = field(repr=False)
    files: tuple[Path, ...]
    model: ExportedModel = field(repr=False)
    encoder: FeatureEncoder = field(repr=False)
    task: Task | None = field(repr=False)

    @property
    def graph(self) -> bytes | None:
        """The written ONNX file; None without one."""
        found = next((file for file in self.files if file.name.endswith(GRAPH_FILE)), None)
        return None if found is None else found.read_bytes()

    def own_values(self, columns: Mapping[str, np.ndarray], *, by_graph: bool) -> np.ndarray:
        """What the written files of a passive party compute from raw columns.

        Args:
            columns: as `raw_columns` gives them.
            by_graph: whether the ONNX file computes it, and not the reader of the JSON file.
        """
        if by_graph:
            return evaluate_graph(self.graph or b"", graph_inputs(self.document, columns))
        return read_part(self.files[0]).own(columns)

    def scores(
        self, columns: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray], *, by_graph: bool
    ) -> np.ndarray:
        """Scores that the written files of the active party compute, (n, classes) or (n, 1).

        Args:
            columns: its raw columns.
            others: passive party → its values of the same rows.
            by_graph: see `own_values`.
        """
        if not by_graph:
            return read_part(self.files[0]).score(columns, others)
        rows = len(next(iter(others.values())))
        width = next(iter(self.model.others.values()))
        summed = np.zeros((rows, width), np.float32)
        for name in self.document["others"]:
            summed = summed + np.asarray(others[name], np.float32)
        takes = self.document["model"]["takes"]
        return evaluate_graph(self.graph or b"", {takes: summed, **graph_inputs(self.document, columns)})

    @property
    def forms(self) -> tuple[bool, ...]:
        """In which forms it was written, as `by_graph` of `scores`."""
        forms = [] if self.document["kind"] == "network" else [False]
        return (*forms, *([True] if self.model.graph is not None else []))


def export_part(part: ModelPart, folder: str | Path) -> ExportedPart:
    """Write one party's part of a model for another scoring engine.

    ``<party>.part.json`` describes it; a network's is beside it as ``<party>.onnx``; ``read_part.py`` reads the JSON
    file with numpy alone. Nothing of another party is in them.

    Args:
        part: the party's.
        folder: is created if missing.

    Raises:
        InputError: under the job's protection the part is not in this party's hands, the answers carry noise, the
            algorithm has no exported form, or the package `onnx` is needed and missing.
    """
    job, tree = part.job, part.tree
    if not job.algorithm.fits.exports:
        raise InputError(
            f"{job.algorithm.title} has no exported form: those of "
            f"{', '.join(algorithms_fit(lambda fits: fits.exports))} have one"
        )
    dp = job.protection.dp
    if dp is not None and (dp.activation_noise is not None or dp.joint_noise is not None):
        raise InputError(
            "every answer of this job carries noise, which an exported part would not draw: predict and serve with the "
            "other parties"
        )
    passive = tuple(map(str, tree.get("passive", ())))
    active = part.party not in passive
    task = _task_of(part)
    encoder = FeatureEncoder.from_state(tree["encoder"])
    link = _describe_link(task, tree) if active else {}
    head = PartHead(
        party=part.party, others=passive if active else None, job=job.digest, run=part.run, part=part.digest
    )
    source = PartSource(
        head=head, protection=job.protection, model=tree, encoder=encoder, outputs=task.outputs, link=link
    )
    found = job.algorithm.export_model(source)
    document = write_document(head, encoder, found, link)
    target = Path(folder)
    files = [target / f"{part.party}{PART_FILE}"]
    graph = None
    if found.graph is not None and (found.kind == "network" or _has_onnx()):
        facts = {"party": part.party, "job": job.digest, "run": part.run, "part": part.digest}
        graph = found.graph.finish(facts)
        files.append(target / f"{part.party}{GRAPH_FILE}")
        document["model"]["file"] = files[-1].name
    make_folder(target)
    if graph is not None:
        write_atomic(files[-1], graph, private=True)
    write_atomic(files[0], json.dumps(document, indent=1, allow_nan=False).encode(), private=True)
    if found.kind != "network":
        files.append(target / READER_FILE)
        write_atomic(files[-1], inspect.getsource(reader).encode())
    if graph is None and found.graph is not None:
        found = ExportedModel(kind=found.kind, model=found.model, compute=found.compute, others=found.others)
    return ExportedPart(
        party=part.party,
        document=document,
        files=tuple(files),
        model=found,
        encoder=encoder,
        task=task if active else None,
    )


def check_exported(part: ExportedPart, table: PartyTable, *, rows: int = _ROWS) -> float:
    """Compare what one party's written files compute from its rows with what the program's own code computes. The
    others' values are drawn, for nobody else is asked.

    Args:
        part: as it was exported.
        table: the party's.
        rows: how many of the table's first rows are compared.

    Returns:
        The largest difference of a value, or of a score at the active party.

    Raises:
        InputError: they differ.
    """
    chosen = np.arange(min(rows, table.rows))
    raw, x = raw_columns(part.encoder, table, chosen), part.encoder.transform(table, chosen)
    others = _draw_others(part, len(chosen))
    program = part.model.compute(x, others)
    if part.task is not None:
        program = program_scores(part, program)
    found = 0.0
    for by_graph in part.forms:
        if part.task is None:
            written = part.own_values(raw, by_graph=by_graph)
        else:
            written = part.scores(raw, others, by_graph=by_graph)
        gap = np.abs(written.astype(np.float64) - program.astype(np.float64)) / np.maximum(np.abs(program), 1.0)
        found = max(found, float(gap.max(initial=0.0)))
        if not found <= _CLOSE:
            raise InputError(
                f"the exported part of {part.party!r} ({part.files[int(by_graph)].name}) differs from the program by "
                f"{found:.3g} on its own rows: do not use it, and report this with the versions of securevfl and onnx"
            )
    return found


def program_scores(part: ExportedPart, outputs: np.ndarray) -> np.ndarray:
    """What the program makes of the active party's summed outputs: scores, (n, classes) or (n, 1)."""
    if part.task is None:
        raise InputError(f"{part.party!r} is not the active party")
    scores = part.task.compute_probabilities(torch.from_numpy(np.asarray(outputs, np.float64)))
    link = part.document["link"]
    if "temperature" not in link:
        return scores
    return Correction(link["temperature"], tuple(link["intercept"])).apply(scores)


def _draw_others(part: ExportedPart, rows: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    if part.model.kind == "trees":
        return {name: generator.random((count, rows)) < 0.5 for name, count in part.model.others.items()}
    return {
        name: generator.normal(0, 0.2, (rows, width)).astype(np.float32) for name, width in part.model.others.items()
    }


def _task_of(part: ModelPart) -> Task:
    plan, classes = part.job.plan, int(part.tree["classes"])
    if plan.number is not None:
        task: Task = Regression(loss=plan.number)
        return task.with_state(part.tree["target"]) if "target" in part.tree else task
    return Labels(classes) if plan.several else Task(classes)


def _describe_link(task: Task, tree: Mapping[str, Any]) -> dict[str, Any]:
    """From logits to scores, as plain values; see `reader.finish_scores`."""
    classes = [str(name) for name in tree["names"]]
    if isinstance(task, Regression):
        exponential = task.loss.name in ("poisson", "tweedie")
        return {
            "then": "number",
            "classes": classes,
            "exponential": exponential,
            "scale": task.scale,
            "centre": task.center,
        }
    if task.is_multilabel:
        return {"then": "labels", "classes": classes}
    correction = correction_of(tree, WHOLE)
    return {
        "then": "two classes" if task.classes == 2 else "classes",
        "classes": classes,
        "temperature": correction.temperature,
        "intercept": list(correction.intercept),
    }


def _has_onnx() -> bool:
    try:
        load_onnx()
    except InputError:
        return False
    return True
