"""Who learns what at the cut, for each protection and kind of bottom. The threat model page tells the same at
length."""

from __future__ import annotations

from collections.abc import Sequence

from securevfl.cut import Protection
from securevfl.privacy import Finding

__all__ = ["Finding", "at_the_cut"]


def at_the_cut(protection: Protection, *, active: str, passive: Sequence[str], trainable: bool) -> list[Finding]:
    """Findings for a job whose only exchange after alignment is the cut layer.

    Args:
        protection: of the job.
        active: name of the active party.
        passive: names of the passive parties.
        trainable: whether the passive parties' bottoms have parameters.
    """
    sealed = protection.name != "plain"
    noisy_features = protection.dp is not None and protection.dp.activations
    noisy_labels = protection.dp is not None and protection.dp.gradients
    findings = [_about_features(active, name, sealed, noisy_features, trainable, len(passive)) for name in passive]
    findings += [_about_labels(active, name, sealed, noisy_labels, trainable) for name in passive]
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
                "; over many steps it gives the passive features up to a rotation, and with d + 1 known "
                "records themselves"
            )
        return Finding(active, name, text, "note")
    text = f"a_p W_p of each row and step in the clear: {image}"
    if noisy:
        return Finding(active, name, f"{text}, with differentially private noise in it", "note")
    return Finding(active, name, f"{text}, from which they can be estimated", "leak")


def _about_labels(active: str, name: str, sealed: bool, noisy: bool, trainable: bool) -> Finding:
    if sealed and not trainable:
        return Finding(name, active, "sizes, timing and the number of steps; nothing about labels", "ok")
    what = "the gradient at its activations" if sealed else "the gradient at the cut"
    if noisy:
        return Finding(name, active, f"{what}, for each row and step, with differentially private noise in it", "note")
    return Finding(name, active, f"{what}, for each row and step: enough to tell the labels apart in practice", "leak")
