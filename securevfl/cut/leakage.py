"""What a receiver learns at the cut, in words: the texts of the declarations in `declared`. The threat model page says
the same at length."""

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
"""What ``measured.json`` calls a gradient of labels that randomised response hides, and of a prediction left bare."""

ATTRIBUTE, LABELS = "a yes-or-no attribute", "labels"
"""What an ε on features, and one on labels, lets an attacker rank."""


OTHERS_VIEW = "gradients, for others' columns"
"""What ``measured.json`` calls gradients that tell of columns of other parties, without noise on features."""


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
    """What is left under a mechanism: the text, what its ε permits, and the severity of that.

    Args:
        mechanism: with the ε that the plan spends.
        text: what is received.
        ranked: `ATTRIBUTE` or `LABELS`.
        through: what is received, in a few words.
    """
    allowed = permitted_by(mechanism)
    holds = f", while its weights stay below {mechanism.weight_bound:g}" if isinstance(mechanism, JointNoise) else ""
    seen = Sight(
        of="labels" if ranked == LABELS else "features",
        severity=allowed.severity,
        through=through,
        epsilon=allowed.epsilon,
        auc=allowed.auc,
    )
    return Revealed(f"{text} {allowed.describe(ranked)}{holds}", allowed.severity, (seen,))


def _measured_sight(of: Literal["features", "labels"], through: str, view: str) -> tuple[Sight, ...]:
    """What a message without noise tells, as it was measured."""
    return (Sight(of=of, severity=severity_of_view(view), through=through, view=view),)


def describe_representations(dp: DP | None, what: str, view: str) -> Revealed:
    """What the peer learns of features from representations that an algorithm hands over beside the cut.

    Args:
        dp: differential privacy of the job, with the ε that its plan spends.
        what: is handed over.
        view: what ``measured.json`` calls it.
    """
    short = view.partition(",")[0]
    if dp is not None and dp.activations is not None:
        noisy = f"{what}, with differentially private noise in them"
        return describe_noisy_release(dp.activations, noisy, ATTRIBUTE, f"{short}, noisy")
    return Revealed(f"{what}, in the clear", severity_of_view(view), _measured_sight("features", short, view))


def describe_drawn_labels(dp: DP | None, what: str, view: str, *, parties: int = 1) -> Revealed:
    """What a passive party learns of labels from gradients that can carry no noise: they can only be of drawn labels.

    Args:
        dp: differential privacy of the job, with the ε that its plan spends.
        what: it receives.
        view: what ``measured.json`` calls it.
        parties: number of passive parties.
    """
    if dp is not None and dp.randomised is not None:
        drawn = f"{what}, of labels that were drawn by randomised response"
        told = describe_noisy_release(dp.randomised, drawn, LABELS, "gradients of drawn labels")
        text = f"{told.text} by the draw; without noise in it, it also tells what the model predicts of the row"
        worse: Severity = "leak" if "leak" in (told.severity, severity_of_view(DRAWN)) else told.severity
        seen = (*told.sights, *_measured_sight("labels", "what the model predicts", DRAWN))
        return _add_columns(Revealed(text, worse, seen), dp, parties)
    text = f"{what}: enough to tell the labels apart in practice"
    return _add_columns(
        Revealed(text, severity_of_view(view), _measured_sight("labels", "gradients", view)), dp, parties
    )


def _add_columns(labels: Revealed, dp: DP | None, parties: int) -> Revealed:
    """What a gradient tells of the label owner's own columns, beside its labels: they go into z, and z into it.

    Only noise that the reader does not know hides something of z: that of other passive parties, on their features.
    There is no ε for these columns. Attacks gained nothing at those ε that make a *note* of the features themselves,
    and much without noise on features, whatever the noise on labels.
    """
    noise = None if dp is None else dp.features
    if noise is not None and parties > 1 and permitted_by(_noise_without_own_share(noise, parties)).severity == "note":
        text = "; of the label owner's own columns no attack got anything, under the noise on the others' features"
        none = Sight(of="features", severity="note", through="gradients, under the others' noise")
        return Revealed(labels.text + text, labels.severity, (*labels.sights, none))
    hides = "" if dp is None or dp.labels is None else ", which noise on labels does not hide"
    worse: Severity = "leak" if labels.severity == "leak" else severity_of_view(OTHERS_VIEW)
    columns = _measured_sight("features", "gradients", OTHERS_VIEW)
    return Revealed(f"{labels.text}; and of the label owner's own columns{hides}", worse, (*labels.sights, *columns))


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
    """What the active party learns of a passive party's features from z.

    Args:
        dp: differential privacy of the job, with the ε that its plan spends.
        sealed: whether it opens z, or reads each ``a_p W_p``.
        trainable: whether the passive parties' bottoms have parameters.
        parties: number of passive parties.
        together: whether a sealed cut opens the sum of their parts, or each by itself.
        frozen: whether these are fixed features of the party's own, instead of the identity.
        alone: whether some rows are fed by one of them while the others feed a constant.
        differing: whether one row is fed by several sets of them.
    """
    image = "a moving, non-linear image of its features" if trainable else "a linear image of its features"
    if frozen:
        image = "a linear image of features that it drew in secret and never trains"
    if sealed:
        text = f"{_describe_opened_z(parties, together, alone, differing)}, for each row and step: {image}"
    else:
        text = f"a_p W_p of each row and step in the clear: {image}"
    through = "z" if sealed else "each part of z"
    if dp is not None and dp.features is not None:
        noisy = f"{text}, with differentially private noise in it"
        return describe_noisy_release(dp.features, noisy, ATTRIBUTE, f"{through}, noisy")
    view = features_view(sealed=sealed, trainable=trainable, frozen=frozen)
    severity = severity_of_view(view)
    if frozen:
        text += (
            "; each look at a row gives away as many values as z is wide, and long before these are as many as its "
            "columns, they tell much of the features to whoever knows some records: see max_looks"
        )
    elif sealed and not trainable:
        text += (
            "; after a few epochs it gives the passive features up to a rotation, and with about as many known "
            "records as columns the features themselves"
        )
    elif severity == "leak":
        text += ", from which they can be estimated"
    return Revealed(text, severity, _measured_sight("features", through, view))


def features_view(*, sealed: bool, trainable: bool, frozen: bool = False) -> str:
    """What ``measured.json`` calls what the active party sees without noise."""
    kind = "frozen" if frozen else "trainable" if trainable else "identity"
    return f"{'z' if sealed else 'each part of z'}, {kind} bottoms"


def labels_view(*, sealed: bool, trainable: bool) -> str:
    """What it calls what a passive party sees without noise."""
    if sealed and not trainable:
        return "ciphertexts of gradients"
    return f"gradient at {'the activations' if sealed else 'the cut'}"


def _describe_opened_z(parties: int, together: bool, alone: bool, differing: bool) -> str:
    """Whose z the active party opens."""
    if parties == 1:
        return "its part of z"
    if together and differing:
        return f"z of each row over several sets of the {parties} parties, and by their differences its part by itself"
    if together and alone:
        return f"z, the sum over {parties} parties, and its part by itself for rows of which the others feed a constant"
    if together:
        return f"z, the sum over {parties} parties and never one party's part"
    return "its part of z, by itself and not only the sum of all parties'"


def describe_labels(dp: DP | None, *, sealed: bool, trainable: bool, parties: int) -> Revealed:
    """What a passive party learns of the label owner from what goes back to it.

    Args:
        dp: differential privacy of the job, with the ε that its plan spends.
        sealed: whether it opens the gradient at its activations, or reads the one at the cut.
        trainable: whether the passive parties' bottoms have parameters.
        parties: number of passive parties.
    """
    view = labels_view(sealed=sealed, trainable=trainable)
    if sealed and not trainable:
        seen = _measured_sight("labels", "sizes, timing, number of steps", view)
        return Revealed("sizes, timing and the number of steps; nothing about labels", severity_of_view(view), seen)
    text = f"{'the gradient at its activations' if sealed else 'the gradient at the cut'}, for each row and step"
    if dp is not None and dp.gradients is not None:
        found = describe_noisy_release(
            dp.gradients, f"{text}, with differentially private noise in it", LABELS, "gradients, noisy"
        )
        return _add_columns(found, dp, parties)
    return describe_drawn_labels(dp, text, view, parties=parties)


def describe_others_columns(dp: DP | None, *, sealed: bool, trainable: bool, parties: int) -> Revealed | None:
    """What a passive party learns of another passive party's features from what goes back to it; None if nothing does.

    It is the gradient of a function of z, the sum over all parties: its size tells p, and its zeros tell which units of
    the ReLU above z are off. Noise at the logits and drawn labels leave these zeros as they are. Noise on features does
    not, for z is made of noisy activations then.

    Args:
        dp: differential privacy of the job, with the ε that its plan spends.
        sealed: whether it opens the gradient at its activations, or reads the one at the cut.
        trainable: whether the passive parties' bottoms have parameters.
        parties: number of passive parties.
    """
    if parties < 2 or (sealed and not trainable):
        return None
    text = f"{'the gradient at its activations' if sealed else 'the gradient at the cut'}, for each row and step"
    noise = None if dp is None else dp.features
    if noise is None:
        hides = "" if dp is None else ", which noise on labels does not hide"
        return Revealed(
            f"{text}: it tells of z, and so of another passive party's columns{hides}",
            severity_of_view(OTHERS_VIEW),
            _measured_sight("features", "gradients", OTHERS_VIEW),
        )
    joint = isinstance(noise, JointNoise)
    carries = (
        "with differentially private noise in it, less the reader's own share"
        if joint
        else ("made of activations with differentially private noise in them")
    )
    told = f"{text}: it tells of another passive party's columns through z, {carries}"
    return describe_noisy_release(_noise_without_own_share(noise, parties), told, ATTRIBUTE, "gradients, of noisy z")


_LEAST_SIGMA = 0.1
"""The least noise multiplier that mechanisms take."""


def _noise_without_own_share(noise: GaussianNoise, parties: int) -> GaussianNoise:
    """Noise on features as one of the passive parties knows it. Shares of noise on z add up to all of it, and each
    party knows its own: 1 − 1/m of the variance is left."""
    if not isinstance(noise, JointNoise) or noise.noise_multiplier is not None:
        return noise  # the others' own noise is unknown; a multiplier without a number of looks bounds nothing
    sigma = noise.sigma(1) * math.sqrt(1 - 1 / parties)
    if sigma < _LEAST_SIGMA:
        return noise  # so little that it hides nothing, with the reader's share or without
    return with_planned_epsilon(noise.replace(noise_multiplier=sigma, on_budget="refuse"), 1)
