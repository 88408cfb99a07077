"""Attacks on what the parties of a job observed, one file for each kind of secret.

`securevfl.experiments.attacking` records a job and runs them.

- `transcript`: each party's observations, and the ground truth for scoring only. `measure` scores attacks, `learners`
  fits the attackers' models.
- `label_inference`: a passive party infers labels.
- `feature_inference`, `gram`: one party infers columns of another.
- `run_leaks`: what predictions, the row numbering and saved model parts reveal.
- `epsilon`: a lower bound on ε from an attack's success.
- `suite` runs the attacks that apply to each party's view.
"""

from securevfl.attacks.measure import AttackScore, Estimate, Known
from securevfl.attacks.transcript import (
    CutRule,
    Observation,
    Observations,
    ObservedMessage,
    PartyView,
    Seen,
    Transcript,
    Truth,
)

__all__ = [
    "AttackScore",
    "CutRule",
    "Estimate",
    "Known",
    "Observation",
    "Observations",
    "ObservedMessage",
    "PartyView",
    "Seen",
    "Transcript",
    "Truth",
]
