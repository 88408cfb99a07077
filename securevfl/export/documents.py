"""What an exported part contains: the document that describes it, and for a network its ONNX graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.data import FeatureEncoder
from securevfl.data.encodings import BlockEncoding, OneHot, Quantile, Standard
from securevfl.data.prepare import PreparedColumn
from securevfl.data.prepare.coded import CodedDate, CodedLevels, CodedNumber
from securevfl.data.prepare.columns import PreparedCategory, PreparedDate, PreparedNumber
from securevfl.data.prepare.scaling import Linear, Scores
from securevfl.export.reader import FORMAT

if TYPE_CHECKING:
    from securevfl.export.onnx_graph import Graph

__all__ = ["ExportedModel", "PartHead", "PartSource", "describe_encodings", "write_document"]

_Encoding = Standard | Quantile | OneHot | BlockEncoding | PreparedColumn


@dataclass(frozen=True, kw_only=True)
class PartHead:
    """Whose part of which model it is.

    Attributes:
        party: its owner.
        others: the passive parties whose values are added, in this order, at the active party; None at a passive one.
        job: digest of the job.
        run: name of the run; empty if unknown.
        part: digest of the party's part of the model.
    """

    party: str
    others: tuple[str, ...] | None
    job: str
    run: str
    part: str


@dataclass(frozen=True, kw_only=True)
class PartSource:
    """What an algorithm exports from.

    Attributes:
        head: whose part it is.
        protection: of the job.
        model: the party's part of the model, as training saved it.
        encoder: of the party's columns.
        outputs: width of the logits.
        link: from logits to scores, at the active party; see `reader.finish_scores`.
    """

    head: PartHead
    protection: Any
    model: Mapping[str, Any] = field(repr=False)
    encoder: FeatureEncoder = field(repr=False)
    outputs: int
    link: Mapping[str, Any]

    @property
    def is_active(self) -> bool:
        """Whether it is the active party's part."""
        return self.head.others is not None


@dataclass(frozen=True, kw_only=True)
class ExportedModel:
    """The model inside a part, without its columns.

    Attributes:
        kind: ``"bins"``, ``"linear"``, ``"trees"``, ``"splits"`` or ``"network"``.
        model: plain values; see docs/reference/exported-parts.md.
        compute: what training's own code computes from encoded rows, to check the export against: a passive party's
            values; the active party's outputs, (n, outputs), from its rows and the others' values.
        others: at the active party, passive party → how many values of a row it adds; of trees, its splits.
        sums: how the sum of all parties' values is read, at the active party; see `reader.finish_scores`.
        graph: the same as an ONNX graph; None without one.
    """

    kind: str
    model: Mapping[str, Any] = field(repr=False)
    compute: Callable[[np.ndarray, Mapping[str, np.ndarray]], np.ndarray] = field(repr=False)
    others: Mapping[str, int] = field(default_factory=dict)
    sums: Mapping[str, Any] = field(default_factory=lambda: {"sums are": "logits"})
    graph: Graph | None = field(default=None, repr=False)


def write_document(head: PartHead, encoder: FeatureEncoder, found: ExportedModel, link: Mapping[str, Any]) -> Any:
    """The document of a part, of plain values.

    Args:
        head: whose it is.
        encoder: of its columns.
        found: its model.
        link: from summed outputs to scores, at the active party; empty at a passive one.
    """
    document: dict[str, Any] = {"format": FORMAT, "party": head.party}
    if head.others is not None:
        document["others"] = list(head.others)
    document |= {"job": head.job, "run": head.run, "part": head.part}
    document |= {"view": encoder.view, "clip": encoder.clip, "columns": describe_encodings(encoder)}
    document |= {"encoded": encoder.column_names, "kind": found.kind, "model": dict(found.model)}
    if head.others is not None:
        document["link"] = {**found.sums, **link}
    return document


def describe_encodings(encoder: FeatureEncoder) -> dict[str, Any]:
    """Column → how its values become numbers, as plain values."""
    return {name: _describe_encoding(encoding) for name, encoding in encoder.columns.items()}


def _describe_encoding(encoding: _Encoding) -> dict[str, Any]:
    if isinstance(encoding, Standard):
        return {"how": "scaled", "scaling": _describe_scaling(Linear(encoding.mean, encoding.deviation))}
    if isinstance(encoding, Quantile):
        scaling = Scores(np.array(encoding.values), np.array(encoding.scores))
        return {"how": "scaled", "scaling": _describe_scaling(scaling)}
    if isinstance(encoding, OneHot):
        return {"how": "onehot", "levels": list(encoding.categories)}
    if isinstance(encoding, BlockEncoding):
        mean, deviation = list(encoding.mean), list(encoding.deviation)
        return {"how": "block", "shape": list(encoding.shape), "mean": mean, "deviation": deviation}
    return _describe_prepared(encoding.how)


def _describe_prepared(
    how: PreparedNumber | PreparedDate | PreparedCategory | CodedNumber | CodedDate,
) -> dict[str, Any]:
    if isinstance(how, PreparedCategory):
        levels = how.levels
        if isinstance(levels, CodedLevels):
            return {"how": "codes", "levels": list(levels.levels)}
        return {
            "how": "category",
            "onehot": list(levels.onehot),
            "other": levels.other,
            "counted": list(levels.counted),
            "frequency": np.asarray(levels.frequency).tolist(),
            "unknown": levels.unknown,
            "buckets": levels.buckets,
            "salt": levels.salt.hex(),
        }
    if isinstance(how, CodedNumber):
        return {"how": "plain", "flag": how.reader.kind == "flag"}
    if isinstance(how, CodedDate):
        return {"how": "plain date", "reference": how.reference, "parts": list(how.parts)}
    found: dict[str, Any] = {"fill": how.fill, "indicator": how.indicator}
    if isinstance(how, PreparedNumber):
        scaling = _describe_scaling(how.scaling)
        return {"how": "number", "flag": how.reader.kind == "flag", **found, "scaling": scaling}
    year = None if how.year is None else _describe_scaling(how.year)
    days = _describe_scaling(how.days)
    more = {"reference": how.reference, "days": days, "year": year, "cycles": list(how.cycles)}
    return {"how": "date", **found, **more}


def _describe_scaling(scaling: Linear | Scores) -> dict[str, Any]:
    if isinstance(scaling, Linear):
        return {"how": "linear", "centre": scaling.centre, "spread": scaling.spread}
    values, scores = np.asarray(scaling.values).tolist(), np.asarray(scaling.scores).tolist()
    return {"how": "ranks", "values": values, "scores": scores}
