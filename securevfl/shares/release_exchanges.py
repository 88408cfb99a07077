"""The release of a model that was trained on shares: its messages, and what the receivers can do with their parts.

Severities follow attacks on the full credit table (`benchmarks.handed_out`). A passive party ranks the labels of its
rows by the direction in which its weights moved (AUC 0.70), and reads the labels of training rows that one of its
columns marks (AUC 1.00). With 1,000 known records, the active party gains R² 0.13 of a passive party's columns over
final predictions. What marked rows reveal about a third party is a leak until a measurement shows less.
"""

from __future__ import annotations

from collections.abc import Iterator

from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind, PartyRole, Severity, Sight

__all__ = ["PART", "release_exchanges"]

PART = "shares/open part"
"""The step that sends each data party its own part of the model, once."""

_THROUGH = "its own part of the model"
_ABOVE = (
    "the weights of the reader's own columns and of the layers above: each final prediction then gives the reader one "
    "equation in the sum that the other parties' columns contribute"
)
_OWN = (
    "the weights of the reader's own columns: the reader can rank its rows by label with them, and read the label of a "
    "training row that one of its columns marks"
)
_AMONG = (
    "the weights of the reader's own columns: the weight of a column that marks one training row follows that row's "
    "predictions in training, which depend on the other parties' columns"
)
_TOLD: dict[tuple[PartyRole, PartyRole], tuple[str, Severity, tuple[Sight, ...]]] = {
    (PASSIVE, ACTIVE): (_ABOVE, "leak", (Sight(of="features", severity="leak", through=_THROUGH),)),
    (ACTIVE, PASSIVE): (_OWN, "leak", (Sight(of="labels", severity="leak", through=_THROUGH),)),
    (PASSIVE, PASSIVE): (_AMONG, "leak", (Sight(of="features", severity="leak", through=_THROUGH),)),
}
"""Sender and receiver → what the receiver learns about the sender."""


def release_exchanges() -> Iterator[Exchange]:
    """Return the messages with shares of each data party's part, from every computing party."""
    roles: tuple[PartyRole, ...] = (ACTIVE, PASSIVE, COORDINATOR)
    for sender in roles:
        for receiver in (ACTIVE, PASSIVE):
            if sender == receiver == ACTIVE:
                continue
            reveals, severity, sights = _TOLD.get((sender, receiver), ("", "ok", ()))
            yield Exchange(
                PART,
                Kind.SHARE,
                sender,
                receiver,
                "shares of the receiver's own part of the model",
                reveals=reveals,
                severity=severity,
                optional=True,
                sights=sights,
            )
