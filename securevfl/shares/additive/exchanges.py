"""The messages of an additive model on shares: those of any training on shares, and the sums that owners get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from securevfl.cut.leakage import ATTRIBUTE, LABELS, Revealed
from securevfl.privacy import Gaussian
from securevfl.privacy.gaussian_dp import mu_for
from securevfl.privacy.severity import Permitted, auc_of_mu
from securevfl.shares.exchanges import CONFIRM, SUMS, WIDTH, OpenedMetrics, share_exchanges
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind, PartyRole, Sight

__all__ = ["sum_exchanges"]

_WORDS = "shares of the sums of residuals over the receiver's own columns"
_CHECKED = (
    "one bit an epoch, whether contrasts and probabilities that parties deal are within their bounds, and nothing "
    "about validation rows or single rows in training, if no two of the three computing parties collude"
)


def sum_exchanges(passive: int, *, noise: Gaussian | None, metrics: OpenedMetrics | None) -> tuple[Exchange, ...]:
    """Return the messages of training on shares by sums; none without passive parties.

    Args:
        passive: number of passive parties.
        noise: on the sums, with the ε that the plan spends; None for none.
        metrics: what is opened of the metrics of the validation rows.
    """
    found = []
    for one in share_exchanges(passive, noise=noise, metrics=metrics):
        if one.step == CONFIRM and one.reveals:
            found.append(replace(one, reveals=_CHECKED if noise else ""))
        elif one.step != WIDTH:  # the algorithm says how many columns a party has
            found.append(one)
    return (*found, *_opened_sums(noise)) if passive else ()


def _opened_sums(noise: Gaussian | None) -> Iterator[Exchange]:
    """The sums, from every computing party to every data party."""
    roles: tuple[PartyRole, ...] = (ACTIVE, PASSIVE, COORDINATOR)
    for sender in roles:
        for receiver in (ACTIVE, PASSIVE):
            if sender == receiver == ACTIVE:
                continue
            told = Revealed("", "ok") if sender == COORDINATOR else _about_sums(sender, noise)
            yield Exchange(
                SUMS,
                Kind.SHARE,
                sender,
                receiver,
                _WORDS,
                reveals=told.text,
                severity=told.severity,
                optional=True,
                sights=told.sights,
            )


def _about_sums(sender: PartyRole, noise: Gaussian | None) -> Revealed:
    """What the sums tell their owner about a party whose rows are in them."""
    if noise is None:
        text = (
            "sums of residuals over the reader's own columns, without noise: one number for each of its columns and "
            "epoch, and those of single rows where its columns mark them"
        )
        seen = Sight(of="labels" if sender == ACTIVE else "features", severity="leak", through="exact sums")
        return Revealed(text, "leak", (seen,))
    allowed = Permitted(noise.epsilon, auc_of_mu(mu_for(noise.epsilon, noise.delta)))
    told = allowed.describe(LABELS if sender == ACTIVE else ATTRIBUTE)
    seen = Sight(
        of="labels" if sender == ACTIVE else "features",
        severity=allowed.severity,
        through="noisy sums",
        epsilon=allowed.epsilon,
        auc=allowed.auc,
    )
    text = "sums of residuals over the reader's own columns, with differentially private noise on all that anyone sees"
    return Revealed(f"{text} {told}, if no two of the three computing parties collude", allowed.severity, (seen,))
