"""Attacks on what the parties of a job saw, one file each.

`securevfl.experiments.attacking` records a job and runs them.

- `transcript`: what each party saw, and the truth that only scores are given. `measure` scores, `learners` learn.
- `label_gradients`, `completion`: a passive party's attacks on labels; `columns` on other parties' columns.
- `features`, `gram`, `attributes`, `predictions`: the active party's attacks on features.
- `membership`, `row_order`, `saved_parts`: what the model, row numbers and files tell.
- `suite` runs what applies to each party's view; `verdict` says which claims fell.
"""

from securevfl.attacks.measure import Estimate, Known, Measured
from securevfl.attacks.transcript import Look, Looks, Message, Rule, Seen, Transcript, Truth, View

__all__ = [
    "Estimate",
    "Known",
    "Look",
    "Looks",
    "Measured",
    "Message",
    "Rule",
    "Seen",
    "Transcript",
    "Truth",
    "View",
]
