"""Run one job: from parties' tables to a trained model and the record of the run.

- `runner`: runs one party over any mesh: connect, rendezvous, run its program, park and resume after a lost peer, end.
  `timeouts`: how long it waits. `events`: what it reports.
- `roster`, `context_building`: who takes part, and the context that a party's program runs in.
- `simulation`, `simulated_parties`, `in_memory`: all parties in one process, connected by memory.
- `model`, `model_parts`, `checkpoint`, `store`: what was learned, on disk. `partial_scoring`: scores by several sets of
  parties.
- `explained`: why a score is what it is.
- `recording`, `evaluation`, `receipt`, `result`, `frames`: what a run measured, as records and tables.
- `run_folder`, `run_files`, `signing`, `digests`: the files of a run and the keys that sign them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securevfl.lazy import load_on_use

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.run.explained.explaining import explain
    from securevfl.run.explained.explanation import Explanation
    from securevfl.run.explained.own_terms import own_curve, own_reasons
    from securevfl.run.model import Model, Prediction, predict
    from securevfl.run.result import Result
    from securevfl.run.run_files import write_ledgers
    from securevfl.run.simulation import Aligned, align_parties, join_parties

_NAMES = {
    "securevfl.run.explained.explaining": "explain",
    "securevfl.run.explained.explanation": "Explanation",
    "securevfl.run.model": "Model Prediction predict",
    "securevfl.run.explained.own_terms": "own_curve own_reasons",
    "securevfl.run.result": "Result",
    "securevfl.run.run_files": "write_ledgers",
    "securevfl.run.simulation": "Aligned align_parties join_parties",
}
"""Module → the names that it gives to this package, loaded when one of them is first used."""

__all__ = [
    "Aligned",
    "Explanation",
    "Model",
    "Prediction",
    "Result",
    "align_parties",
    "explain",
    "join_parties",
    "own_curve",
    "own_reasons",
    "predict",
    "write_ledgers",
]

if not TYPE_CHECKING:  # a type checker that saw this would take every name for a public one
    __getattr__ = load_on_use(__name__, _NAMES)
