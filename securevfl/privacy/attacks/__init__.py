"""Attacks on what the parties of a real job saw, one file each; a recorder (`securevfl.jobs.recorder`) notes it.

- `transcript`: what each party saw, and the truth that only scores are given. `measure` scores, `learners` learn.
- `label_gradients`: labels from gradients. `features` and `gram`: features from z.
"""

from securevfl.privacy.attacks.measure import Estimate, Known, Measured
from securevfl.privacy.attacks.transcript import Look, Looks, Message, Rule, Seen, Transcript, Truth, View

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
