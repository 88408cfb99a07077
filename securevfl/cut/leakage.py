"""Who learns what at the cut, for each protection and kind of bottom. The threat model page tells the same at
length."""

from __future__ import annotations

from collections.abc import Sequence

from securevfl.cut import Protection
from securevfl.privacy import Finding

__all__ = ["Finding", "at_the_cut"]


def at_the_cut(
    protection: Protection, *, active: str, passive: Sequence[str], trainable: bool, together: bool = True
) -> list[Finding]:
    """Findings for a job whose only exchange after alignment is the cut layer.

    Args:
        protection: of the job.
        active: name of the active party.
        passive: names of the passive parties.
        trainable: whether the passive parties' bottoms have parameters.
        together: whether the active party opens the sum of their parts (``reduce="sum"``), or each by itself.
    """
    sealed = protection.name != "plain"
    noisy_features = protection.dp is not None and protection.dp.activations
    labels = _labels(protection)
    marvell = protection.dp is not None and protection.dp.labels == "marvell"
    parties = len(passive) if together else 1
    findings = [_about_features(active, name, sealed, noisy_features, trainable, parties) for name in passive]
    findings += [_about_labels(active, name, sealed, labels, trainable, marvell) for name in passive]
    return findings


def _about_features(active: str, name: str, sealed: bool, noisy: bool, trainable: bool, parties: int) -> Finding:
    image = "a moving, non-linear image of its features" if trainable else "a linear image of its features"
    if sealed:
        whose = "its part of z" if parties == 1 else f"z, the sum over {parties} parties and never one party's part"
        text = f"{whose}, for each row and step: {image}"
        if noisy:
            return Finding(active, name, f"{text}, with differentially private noise in it", "note")
        if not trainable:
            text += (
                "; after a few epochs it gives the passive features up to a rotation, and with about as many known "
                "records as columns the features themselves"
            )
            return Finding(active, name, text, "leak")
        return Finding(active, name, text, "note")
    text = f"a_p W_p of each row and step in the clear: {image}"
    if noisy:
        return Finding(active, name, f"{text}, with differentially private noise in it", "note")
    return Finding(active, name, f"{text}, from which they can be estimated", "leak")


def _labels(protection: Protection) -> str:
    """How labels are protected in what goes back, in words; empty for not at all."""
    dp = protection.dp
    if dp is None:
        return ""
    if dp.gradients:
        return "with differentially private noise in it"
    if dp.labels == "randomised_response":
        return f"of labels that were drawn by randomised response (ε = {dp.epsilon:g} for each)"
    return ""


def _about_labels(active: str, name: str, sealed: bool, labels: str, trainable: bool, marvell: bool) -> Finding:
    if sealed and not trainable:
        return Finding(name, active, "sizes, timing and the number of steps; nothing about labels", "ok")
    what = "the gradient at its activations" if sealed else "the gradient at the cut"
    if labels:
        return Finding(name, active, f"{what}, for each row and step, {labels}", "note")
    if marvell:
        text = (
            f"{what}, for each row and step, with Marvell's noise in it: it hides labels from one look at a row, and "
            "not from the average over many"
        )
        return Finding(name, active, text, "leak")
    return Finding(name, active, f"{what}, for each row and step: enough to tell the labels apart in practice", "leak")
