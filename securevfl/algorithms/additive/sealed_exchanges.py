"""The messages of an additive model between two parties, sealed for each other."""

from __future__ import annotations

from typing import Literal

from securevfl.algorithms.additive.sealed_keys import KEY
from securevfl.algorithms.additive.sealed_scores import SCORES, ZERO
from securevfl.algorithms.additive.sealed_sums import ANSWER, OPENED, PART
from securevfl.cut import Protection
from securevfl.cut.declared_exchanges import Ciphers
from securevfl.cut.leakage import ATTRIBUTE, LABELS, Revealed
from securevfl.privacy import Gaussian, severity_of_view
from securevfl.privacy.gaussian_dp import mu_for
from securevfl.privacy.severity import Permitted, auc_of_mu
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind, PartyRole, Sight

__all__ = ["two_party_exchanges"]

_PREDICTED = "final predictions alone"
"""Key in ``measured.json``: an active party that knows its own part learns as much from any prediction."""


def two_party_exchanges(protection: Protection) -> tuple[Exchange, ...]:
    """Return the messages of training and predictions between two parties, without those that tell sizes.

    Args:
        protection: of the job.
    """
    ciphers = Ciphers(names=protection.ciphers, key_bits=protection.key_bits)
    noise = None if protection.dp is None else protection.dp.model
    answers = _about_answers()
    both: tuple[PartyRole, ...] = (ACTIVE, PASSIVE)
    return (
        *(Exchange(KEY, Kind.PUBLIC_KEY, one, _other(one), "public key") for one in both),
        *(ciphers.declare_ciphertext(PART, one, "its part of the residual of each training row") for one in both),
        *(ciphers.declare_ciphertext(ANSWER, one, "sums over its columns, masked") for one in both),
        *(_opened_sums(one, noise) for one in both),
        ciphers.declare_ciphertext(ZERO, ACTIVE, "an encrypted zero, which scores are added to"),
        ciphers.declare_ciphertext(
            SCORES,
            PASSIVE,
            "the sum of its shapes for each scored row",
            opened=Kind.ACTIVATION,
            reveals=answers.text,
            severity=answers.severity,
            sights=answers.sights,
        ),
    )


def _other(role: PartyRole) -> PartyRole:
    return PASSIVE if role == ACTIVE else ACTIVE


def _opened_sums(sender: PartyRole, noise: Gaussian | None) -> Exchange:
    """Sums over the receiver's columns, which it can unmask: what they tell of the sender."""
    told = _about_sums(sender, noise)
    return Exchange(
        OPENED,
        Kind.STATISTIC,
        sender,
        _other(sender),
        "sums over the receiver's columns, under a mask that the receiver drew",
        reveals=told.text,
        severity=told.severity,
        sights=told.sights,
    )


def _about_sums(sender: PartyRole, noise: Gaussian | None) -> Revealed:
    of: Literal["labels", "features"] = "labels" if sender == ACTIVE else "features"
    if noise is None:
        text = (
            "sums of residuals over the reader's own columns, without noise: one number for each of its columns and "
            "epoch, and those of single rows where its columns mark them"
        )
        return Revealed(text, "leak", (Sight(of=of, severity="leak", through="exact sums"),))
    allowed = Permitted(noise.epsilon, auc_of_mu(mu_for(noise.epsilon, noise.delta)))
    told = allowed.describe(LABELS if sender == ACTIVE else ATTRIBUTE)
    seen = Sight(of=of, severity=allowed.severity, through="noisy sums", epsilon=allowed.epsilon, auc=allowed.auc)
    text = (
        "sums of residuals over the reader's own columns, with differentially private noise of both parties on all "
        f"that anyone sees {told}, if the reader follows the protocol"
    )
    return Revealed(text, allowed.severity, (seen,))


def _about_answers() -> Revealed:
    severity = severity_of_view(_PREDICTED)
    text = (
        "the sum of its shapes for each scored row, rounded to 1/256: one number a row or one a class, which no noise "
        "covers, and which the active party learns from any prediction"
    )
    if severity == "leak":
        text += "; from them and its own columns, the active party can estimate some of the columns that the model uses"
    seen = Sight(of="features", severity=severity, through="final predictions", view=_PREDICTED, result=True)
    return Revealed(text, severity, (seen,))
