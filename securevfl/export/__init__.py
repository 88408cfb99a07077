"""A party's part of a model for other scoring engines: JSON with a reader in numpy, and ONNX for networks."""

from securevfl.export.documents import ExportedModel, PartHead, PartSource, write_document
from securevfl.export.onnx_graph import Graph, evaluate_graph
from securevfl.export.reader import FORMAT, ReadPart, finish_scores, read_part

__all__ = [
    "FORMAT",
    "ExportedModel",
    "Graph",
    "PartHead",
    "PartSource",
    "ReadPart",
    "evaluate_graph",
    "finish_scores",
    "read_part",
    "write_document",
]
