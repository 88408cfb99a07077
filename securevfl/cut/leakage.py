"""What a receiver learns at the cut, in words: the texts of the declarations in `declared`. The threat model page says
the same at length."""

from __future__ import annotations

from typing import NamedTuple

from securevfl.privacy import DP
from securevfl.transport import Severity

__all__ = ["Revealed", "about_features", "about_labels"]


class Revealed(NamedTuple):
    """What the receiver of a message learns about its sender.

    Attributes:
        text: in words.
        severity: see `Exchange.severity`.
    """

    text: str
    severity: Severity


def about_features(
    *, sealed: bool, noisy: bool, trainable: bool, parties: int, together: bool, alone: bool = False
) -> Revealed:
    """What the active party learns of a passive party's features from z.

    Args:
        sealed: whether it opens z, or reads each ``a_p W_p``.
        noisy: whether features carry differentially private noise.
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
    if noisy:
        return Revealed(f"{text}, with differentially private noise in it", "note")
    if not sealed:
        return Revealed(f"{text}, from which they can be estimated", "leak")
    if trainable:
        return Revealed(text, "note")
    text += (
        "; after a few epochs it gives the passive features up to a rotation, and with about as many known "
        "records as columns the features themselves"
    )
    return Revealed(text, "leak")


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
        dp: differential privacy of the job.
        sealed: whether it opens the gradient at its activations, or reads the one at the cut.
        trainable: whether the passive parties' bottoms have parameters.
    """
    if sealed and not trainable:
        return Revealed("sizes, timing and the number of steps; nothing about labels", "ok")
    text = f"{'the gradient at its activations' if sealed else 'the gradient at the cut'}, for each row and step"
    if dp is not None and dp.gradients is not None:
        return Revealed(f"{text}, with differentially private noise in it", "note")
    if dp is not None and dp.randomised is not None:
        epsilon = dp.randomised.epsilon
        return Revealed(f"{text}, of labels that were drawn by randomised response (ε = {epsilon:g} for each)", "note")
    if dp is not None and dp.marvell is not None:
        return Revealed(
            f"{text}, with Marvell's noise in it: it hides labels from one look at a row, and not from the average "
            "over many",
            "leak",
        )
    return Revealed(f"{text}: enough to tell the labels apart in practice", "leak")
