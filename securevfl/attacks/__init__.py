"""Attacks on what the parties of a job observed, one file per kind.

`securevfl.experiments.attacking` records a job and runs them.

- `transcript`: each party's observations, and the ground truth for scoring only. `measure` scores attacks, `learners`
  fits the attackers' models.
- `label_gradients`, `completion`: a passive party's attacks on labels; `columns` on other parties' columns.
- `features`, `gram`, `attributes`, `predictions`: the active party's attacks on features.
- `membership`, `row_order`, `saved_parts`: leaks from the model, the row numbers and saved files.
- `suite` runs the attacks that apply to each party's view; `verdict` lists the claims that failed.
"""

from securevfl.attacks.measure import Estimate, Known, Measured
from securevfl.attacks.transcript import Message, Observation, Observations, Rule, Seen, Transcript, Truth, View

__all__ = [
    "Estimate",
    "Known",
    "Measured",
    "Message",
    "Observation",
    "Observations",
    "Rule",
    "Seen",
    "Transcript",
    "Truth",
    "View",
]
