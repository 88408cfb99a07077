"""What a receiver learns at the cut, in words: the texts of the declarations in `declared`. The threat model page says
the same at length."""

from __future__ import annotations

from typing import NamedTuple

from securevfl.privacy import DP, JointNoise, RandomisedResponse, permitted, severity_of_view
from securevfl.privacy.mechanisms import GaussianNoise
from securevfl.transport import Severity

__all__ = [
    "ATTRIBUTE",
    "DRAWN",
    "LABELS",
    "Revealed",
    "about_features",
    "about_labels",
    "features_view",
    "handed_over",
    "labels_drawn",
    "labels_view",
    "revealed_under",
]

DRAWN = "gradient of drawn labels"
"""What ``measured.json`` calls a gradient of labels that randomised response hides, and of a prediction left bare."""

ATTRIBUTE, LABELS = "a yes-or-no attribute", "labels"
"""What an ε on features, and one on labels, lets an attacker rank."""


class Revealed(NamedTuple):
    """What the receiver of a message learns about its sender.

    Attributes:
        text: in words.
        severity: see `Exchange.severity`.
    """

    text: str
    severity: Severity


def revealed_under(mechanism: GaussianNoise | RandomisedResponse, text: str, ranked: str) -> Revealed:
    """What is left under a mechanism: the text, what its ε permits, and the severity of that.

    Args:
        mechanism: with the ε that the plan spends.
        text: what is received.
        ranked: `ATTRIBUTE` or `LABELS`.
    """
    allowed = permitted(mechanism)
    holds = f", while its weights stay below {mechanism.weight_bound:g}" if isinstance(mechanism, JointNoise) else ""
    return Revealed(f"{text} {allowed.words(ranked)}{holds}", allowed.severity)


def handed_over(dp: DP | None, what: str, view: str) -> Revealed:
    """What the peer learns of features from representations that an algorithm hands over beside the cut.

    Args:
        dp: differential privacy of the job, with the ε that its plan spends.
        what: is handed over.
        view: what ``measured.json`` calls it.
    """
    if dp is not None and dp.activations is not None:
        return revealed_under(dp.activations, f"{what}, with differentially private noise in them", ATTRIBUTE)
    return Revealed(f"{what}, in the clear", severity_of_view(view))


def labels_drawn(dp: DP | None, what: str, view: str) -> Revealed:
    """What a passive party learns of labels from gradients that can carry no noise: they can only be of drawn labels.

    Args:
        dp: differential privacy of the job, with the ε that its plan spends.
        what: it receives.
        view: what ``measured.json`` calls it.
    """
    if dp is not None and dp.randomised is not None:
        told = revealed_under(dp.randomised, f"{what}, of labels that were drawn by randomised response", LABELS)
        text = f"{told.text} by the draw; without noise in it, it also tells what the model predicts of the row"
        return Revealed(text, "leak" if "leak" in (told.severity, severity_of_view(DRAWN)) else told.severity)
    return Revealed(f"{what}: enough to tell the labels apart in practice", severity_of_view(view))


def about_features(
    dp: DP | None, *, sealed: bool, trainable: bool, parties: int, together: bool, alone: bool = False
) -> Revealed:
    """What the active party learns of a passive party's features from z.

    Args:
        dp: differential privacy of the job, with the ε that its plan spends.
        sealed: whether it opens z, or reads each ``a_p W_p``.
        trainable: whether the passive parties' bottoms have parameters.
        parties: number of passive parties.
        together: whether a sealed cut opens the sum of their parts, or each by itself.
        alone: whether some rows are fed by one of them while the others feed a constant.
    """
    image = "a moving, non-linear image of its features" if trainable else "a linear image of its features"
    if sealed:
        text = f"{_whose(parties, together, alone)}, for each row and step: {image}"
    else:
        text = f"a_p W_p of each row and step in the clear: {image}"
    if dp is not None and dp.features is not None:
        return revealed_under(dp.features, f"{text}, with differentially private noise in it", ATTRIBUTE)
    severity = severity_of_view(features_view(sealed=sealed, trainable=trainable))
    if sealed and not trainable:
        text += (
            "; after a few epochs it gives the passive features up to a rotation, and with about as many known "
            "records as columns the features themselves"
        )
    elif severity == "leak":
        text += ", from which they can be estimated"
    return Revealed(text, severity)


def features_view(*, sealed: bool, trainable: bool) -> str:
    """What ``measured.json`` calls what the active party sees without noise."""
    return f"{'z' if sealed else 'each part of z'}, {'trainable' if trainable else 'identity'} bottoms"


def labels_view(*, sealed: bool, trainable: bool) -> str:
    """What it calls what a passive party sees without noise."""
    if sealed and not trainable:
        return "ciphertexts of gradients"
    return f"gradient at {'the activations' if sealed else 'the cut'}"


def _whose(parties: int, together: bool, alone: bool) -> str:
    """Whose z the active party opens."""
    if parties == 1:
        return "its part of z"
    if together and alone:
        return f"z, the sum over {parties} parties, and its part by itself for rows of which the others feed a constant"
    if together:
        return f"z, the sum over {parties} parties and never one party's part"
    return "its part of z, by itself and not only the sum of all parties'"


def about_labels(dp: DP | None, *, sealed: bool, trainable: bool) -> Revealed:
    """What a passive party learns of the labels from what goes back to it.

    Args:
        dp: differential privacy of the job, with the ε that its plan spends.
        sealed: whether it opens the gradient at its activations, or reads the one at the cut.
        trainable: whether the passive parties' bottoms have parameters.
    """
    view = labels_view(sealed=sealed, trainable=trainable)
    if sealed and not trainable:
        return Revealed("sizes, timing and the number of steps; nothing about labels", severity_of_view(view))
    text = f"{'the gradient at its activations' if sealed else 'the gradient at the cut'}, for each row and step"
    if dp is not None and dp.gradients is not None:
        return revealed_under(dp.gradients, f"{text}, with differentially private noise in it", LABELS)
    if dp is not None and dp.marvell is not None:
        return Revealed(
            f"{text}, with Marvell's noise in it: it hides labels from one look at a row, and not from the sum over "
            "many",
            "leak",
        )
    return labels_drawn(dp, text, view)
