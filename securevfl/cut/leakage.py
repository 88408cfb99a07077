"""What the receiver of a message at the cut layer learns: the findings that reports, approvals and ledgers print.

A finding continues the sentence "*reader* learns of *party* …", so "its" refers to the party, and a reader's own things
are named as such. The threat model page explains each at length.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from securevfl.privacy import DP, JointNoise, RandomisedResponse, permitted_by, severity_of_view
from securevfl.privacy.mechanisms import GaussianNoise
from securevfl.privacy.severity import with_planned_epsilon
from securevfl.transport import Severity, Sight

__all__ = [
    "ATTRIBUTE",
    "DRAWN",
    "LABELS",
    "OTHERS_VIEW",
    "Revealed",
    "describe_drawn_labels",
    "describe_features",
    "describe_labels",
    "describe_noisy_release",
    "describe_others_columns",
    "describe_representations",
    "features_view",
    "labels_view",
]

DRAWN = "gradient of drawn labels"
"""Key in ``measured.json``: a gradient without noise, whose labels were drawn by randomised response."""

ATTRIBUTE, LABELS = "a yes-or-no attribute", "labels"
"""What an attacker ranks: the AUC that ε permits is stated for one of these."""


OTHERS_VIEW = "gradients, for others' columns"
"""Key in ``measured.json``: gradients as a source of other parties' columns, without noise on features."""


class Revealed(NamedTuple):
    """What the receiver of a message learns about its sender.

    Attributes:
        text: in words.
        severity: see `Exchange.severity`.
        sights: see `Exchange.sights`.
    """

    text: str
    severity: Severity
    sights: tuple[Sight, ...] = ()


def describe_noisy_release(
    mechanism: GaussianNoise | RandomisedResponse, text: str, ranked: str, through: str = "noisy releases"
) -> Revealed:
    """Describe a release with noise: the text, the AUC that its ε permits, and the severity of that AUC.

    Args:
        mechanism: the noise, with the ε that the plan spends.
        text: what the reader receives.
        ranked: `ATTRIBUTE` or `LABELS`.
        through: what the reader receives, in a few words, for tables.
    """
    allowed = permitted_by(mechanism)
    holds = ""
    if isinstance(mechanism, JointNoise):
        holds = f", as long as its weights stay below {mechanism.weight_bound:g}"
    seen = Sight(
        of="labels" if ranked == LABELS else "features",
        severity=allowed.severity,
        through=through,
        epsilon=allowed.epsilon,
        auc=allowed.auc,
    )
    return Revealed(f"{text} {allowed.describe(ranked)}{holds}", allowed.severity, (seen,))


def _measured_sight(of: Literal["features", "labels"], through: str, view: str) -> tuple[Sight, ...]:
    """A sight without noise; its severity comes from the measurement of `view`."""
    return (Sight(of=of, severity=severity_of_view(view), through=through, view=view),)


def describe_representations(dp: DP | None, what: str, view: str) -> Revealed:
    """Describe what a peer learns of features from representations that an algorithm sends beside the cut.

    Args:
        dp: differential privacy of the job, with the ε that its plan spends.
        what: the representations.
        view: their key in ``measured.json``.
    """
    short = view.partition(",")[0]
    if dp is not None and dp.activation_noise is not None:
        noisy = f"{what}, with differentially private noise"
        return describe_noisy_release(dp.activation_noise, noisy, ATTRIBUTE, f"{short}, noisy")
    return Revealed(f"{what}, in the clear", severity_of_view(view), _measured_sight("features", short, view))


def describe_drawn_labels(dp: DP | None, what: str, view: str, *, parties: int = 1) -> Revealed:
    """Describe what a passive party learns of labels from gradients without noise.

    These gradients cannot carry noise; the label owner can only draw its labels by randomised response first.

    Args:
        dp: differential privacy of the job, with the ε that its plan spends.
        what: the gradients that the party receives.
        view: their key in ``measured.json``.
        parties: number of passive parties.
    """
    if dp is not None and dp.label_draw is not None:
        drawn = f"{what}, computed from labels drawn by randomised response"
        told = describe_noisy_release(dp.label_draw, drawn, LABELS, "gradients of drawn labels")
        text = f"{told.text} by the draw; without noise, it also reveals what the model predicts for the row"
        worse: Severity = "leak" if "leak" in (told.severity, severity_of_view(DRAWN)) else told.severity
        seen = (*told.sights, *_measured_sight("labels", "what the model predicts", DRAWN))
        return _add_columns(Revealed(text, worse, seen), dp, parties)
    text = f"{what}: in practice the reader can tell the labels apart"
    return _add_columns(
        Revealed(text, severity_of_view(view), _measured_sight("labels", "gradients", view)), dp, parties
    )


def _add_columns(labels: Revealed, dp: DP | None, parties: int) -> Revealed:
    """Add what a gradient reveals of the label owner's own columns: the model output depends on them, and the gradient
    on that output.

    Only noise that the reader does not know hides anything of z: the noise of other passive parties on their features.
    No ε covers these columns. Attacks gained nothing at those ε that make a *note* of the features themselves, and much
    without noise on features, whatever the noise on labels.
    """
    noise = None if dp is None else dp.features
    if noise is not None and parties > 1 and permitted_by(_noise_without_own_share(noise, parties)).severity == "note":
        text = "; under the noise on the other parties' features, no attack recovered the label owner's own columns"
        none = Sight(of="features", severity="note", through="gradients, under the others' noise")
        return Revealed(labels.text + text, labels.severity, (*labels.sights, none))
    hides = "" if dp is None or dp.labels is None else ", which noise on labels does not hide"
    worse: Severity = "leak" if labels.severity == "leak" else severity_of_view(OTHERS_VIEW)
    columns = _measured_sight("features", "gradients", OTHERS_VIEW)
    text = f"{labels.text}; it also reveals the label owner's own columns{hides}"
    return Revealed(text, worse, (*labels.sights, *columns))


def describe_features(
    dp: DP | None,
    *,
    sealed: bool,
    trainable: bool,
    parties: int,
    together: bool,
    frozen: bool = False,
    alone: bool = False,
    differing: bool = False,
) -> Revealed:
    """Describe what the active party learns of a passive party's features from the embedding z.

    Args:
        dp: differential privacy of the job, with the ε that its plan spends.
        sealed: True if it decrypts z, False if it reads each party's ``a_p W_p``.
        trainable: whether the passive parties' bottom models have parameters.
        parties: number of passive parties.
        together: whether a sealed cut opens the sum of their parts (True) or each part separately.
        frozen: whether bottom models are fixed random features instead of the identity.
        alone: whether one party feeds some rows while the others feed a constant.
        differing: whether different sets of parties feed the same row over time.
    """
    image = "a changing, nonlinear image of its features" if trainable else "a linear image of its features"
    if frozen:
        image = "a linear image of features that it draws in secret and never trains"
    if sealed:
        text = f"{_describe_opened_z(parties, together, alone, differing)}, for each row and step: {image}"
    else:
        text = f"its part of z in the clear, for each row and step: {image}"
    through = "z" if sealed else "each part of z"
    if dp is not None and dp.features is not None:
        noisy = f"{text}, with differentially private noise"
        return describe_noisy_release(dp.features, noisy, ATTRIBUTE, f"{through}, noisy")
    view = features_view(sealed=sealed, trainable=trainable, frozen=frozen)
    severity = severity_of_view(view)
    if frozen:
        text += (
            "; each disclosure of a row opens as many values as z is wide. Long before they outnumber its columns, an "
            "active party that knows some records can estimate the features: see max_results"
        )
    elif sealed and not trainable:
        text += (
            "; after a few epochs the active party can compute the features up to a rotation, and, with about as many "
            "known records as columns, the features themselves"
        )
    elif severity == "leak":
        text += ", from which the active party can estimate them"
    return Revealed(text, severity, _measured_sight("features", through, view))


def features_view(*, sealed: bool, trainable: bool, frozen: bool = False) -> str:
    """Return the key in ``measured.json`` of what the active party sees without noise."""
    kind = "frozen" if frozen else "trainable" if trainable else "identity"
    return f"{'z' if sealed else 'each part of z'}, {kind} bottoms"


def labels_view(*, sealed: bool, trainable: bool) -> str:
    """Return the key in ``measured.json`` of what a passive party sees without noise."""
    if sealed and not trainable:
        return "ciphertexts of gradients"
    return f"gradient at {'the activations' if sealed else 'the cut'}"


def _describe_opened_z(parties: int, together: bool, alone: bool, differing: bool) -> str:
    """Name whose part of z the active party decrypts."""
    if parties == 1:
        return "its part of z"
    if together and differing:
        return f"z, the sum over several sets of the {parties} parties, and, as their difference, its part separately"
    if together and alone:
        return f"z, the sum over {parties} parties, and its part separately for rows where the others feed a constant"
    if together:
        return f"z, the sum over {parties} parties and never one party's part"
    return "its part of z separately, not only the sum of all parties'"


def describe_labels(dp: DP | None, *, sealed: bool, trainable: bool, parties: int) -> Revealed:
    """Describe what a passive party learns of the label owner from the gradient that comes back.

    Args:
        dp: differential privacy of the job, with the ε that its plan spends.
        sealed: True if it decrypts the gradient at its activations, False if it reads the gradient at the cut.
        trainable: whether the passive parties' bottom models have parameters.
        parties: number of passive parties.
    """
    view = labels_view(sealed=sealed, trainable=trainable)
    if sealed and not trainable:
        seen = _measured_sight("labels", "sizes, timing, number of steps", view)
        return Revealed("sizes, timing and the number of steps; nothing about labels", severity_of_view(view), seen)
    text = f"{'the gradient at its activations' if sealed else 'the gradient at the cut'}, for each row and step"
    if dp is not None and dp.gradient_noise is not None:
        found = describe_noisy_release(
            dp.gradient_noise, f"{text}, with differentially private noise", LABELS, "gradients, noisy"
        )
        return _add_columns(found, dp, parties)
    return describe_drawn_labels(dp, text, view, parties=parties)


def describe_others_columns(dp: DP | None, *, sealed: bool, trainable: bool, parties: int) -> Revealed | None:
    """Describe what a passive party learns of another one's features from the gradient that comes back; None if none.

    The gradient is that of a function of z, the sum over all parties. Its size reveals the prediction p, and its zeros
    reveal which units of the ReLU above z are off. Noise at the logits and drawn labels leave these zeros unchanged;
    noise on features does not, because z is then computed from noisy activations.

    Args:
        dp: differential privacy of the job, with the ε that its plan spends.
        sealed: True if it decrypts the gradient at its activations, False if it reads the gradient at the cut.
        trainable: whether the passive parties' bottom models have parameters.
        parties: number of passive parties.
    """
    if parties < 2 or (sealed and not trainable):
        return None
    text = f"{'the gradient at its activations' if sealed else 'the gradient at the cut'}, for each row and step"
    noise = None if dp is None else dp.features
    if noise is None:
        hides = "" if dp is None else ", which noise on labels does not hide"
        return Revealed(
            f"{text}: it depends on z, and so reveals another passive party's columns{hides}",
            severity_of_view(OTHERS_VIEW),
            _measured_sight("features", "gradients", OTHERS_VIEW),
        )
    joint = isinstance(noise, JointNoise)
    carries = (
        "with differentially private noise in z, less the reader's own share"
        if joint
        else "which is computed from activations with differentially private noise"
    )
    told = f"{text}: it reveals another passive party's columns through z, {carries}"
    return describe_noisy_release(_noise_without_own_share(noise, parties), told, ATTRIBUTE, "gradients, of noisy z")


_LEAST_SIGMA = 0.1
"""Smallest noise multiplier that a mechanism accepts."""


def _noise_without_own_share(noise: GaussianNoise, parties: int) -> GaussianNoise:
    """Return the noise on features that one passive party does not know. The parties' shares of noise on z add up to
    the whole, and each knows its own, so 1 − 1/m of the variance is left."""
    if not isinstance(noise, JointNoise) or noise.noise_multiplier is not None:
        return noise  # the others' own noise is unknown; a multiplier without a number of releases bounds nothing
    sigma = noise.sigma(1) * math.sqrt(1 - 1 / parties)
    if sigma < _LEAST_SIGMA:
        return noise  # so little that it hides nothing, with the reader's share or without
    return with_planned_epsilon(noise.replace(noise_multiplier=sigma, on_budget="refuse"), 1)
