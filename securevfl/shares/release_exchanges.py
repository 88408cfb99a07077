"""What is opened at the end of training on shares where the job hands the model out, and what its receivers can then
do with it.

Severities follow attacks on the full credit table (`benchmarks.handed_out`). A passive party ranks labels of its rows
by the direction in which its weights moved (AUC 0.70), and reads those of training rows that columns of its own mark
(AUC 1.00). The active party gains R² 0.13 of a passive one's columns over final predictions, with 1,000 known records.
What marked rows tell of a third party was not measured well enough to be less than a leak.
"""

from __future__ import annotations

from collections.abc import Iterator

from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind, PartyRole, Severity, Sight

__all__ = ["PART", "release_exchanges"]

PART = "shares/open part"
"""The step: to each data party its own part of the model, once."""

_THROUGH = "its own part of the model"
_ABOVE = (
    "the weights of its own columns and of the layers above: a final prediction then is one equation in what the "
    "others' columns add up to"
)
_OWN = (
    "the weights of its own columns: they rank its rows by their labels, and tell the label of a training row that one "
    "of its columns marks"
)
_AMONG = (
    "the weights of its own columns: that of a column which marks one training row follows its predictions in "
    "training, to which the others' columns add"
)
_TOLD: dict[tuple[PartyRole, PartyRole], tuple[str, Severity, tuple[Sight, ...]]] = {
    (PASSIVE, ACTIVE): (_ABOVE, "leak", (Sight(of="features", severity="leak", through=_THROUGH),)),
    (ACTIVE, PASSIVE): (_OWN, "leak", (Sight(of="labels", severity="leak", through=_THROUGH),)),
    (PASSIVE, PASSIVE): (_AMONG, "leak", (Sight(of="features", severity="leak", through=_THROUGH),)),
}
"""Sender and receiver → what the receiver learns about the sender."""


def release_exchanges() -> Iterator[Exchange]:
    """Shares of each data party's part, from all that compute."""
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
