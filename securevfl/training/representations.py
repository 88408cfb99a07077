"""The messages of algorithms without a cut: passive parties send representations and receive gradients at them.

All such algorithms share these declarations, so that they describe the same disclosure in the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from securevfl.cut.leakage import Revealed, describe_drawn_labels, describe_representations
from securevfl.privacy import DP
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind, Sight

__all__ = ["handing_over", "representation_exchange"]

_REPRESENTATIONS, _GRADIENT = "representations, FedCVT", "gradient at the representations"
"""Names of such messages in ``measured.json``. The gate attacks those of FedCVT; the others send the same."""

_LEARNED: Mapping[str, str] = MappingProxyType({"representations": "learned representations"})


def representation_exchange(step: str, words: str, told: Revealed, dp: DP | None) -> Exchange:
    """Declare a message in which a passive party sends representations to the active one in the clear.

    Args:
        step: its name.
        words: what it carries.
        told: what its receiver learns, and how severe that is.
        dp: differential privacy of the job; the message is noised if it has noise on activations.
    """
    return Exchange(
        step,
        Kind.REPRESENTATION,
        PASSIVE,
        ACTIVE,
        words,
        reveals=told.text,
        severity=told.severity,
        noised=dp is not None and dp.activation_noise is not None,
        sights=told.sights,
    )


def handing_over(
    algorithm: str,
    dp: DP | None,
    *,
    features: str,
    labels: str,
    steps: Mapping[str, str] = _LEARNED,
    width: str = "width",
    passive: int = 1,
    beside: str = "",
) -> tuple[Exchange, ...]:
    """Declare all messages: the width of the representations, the representations, and the gradient at them.

    Args:
        algorithm: its name, before the slash of each step.
        dp: differential privacy of the job, with the ε that its plan spends.
        features: the representations that the active party sees, in words.
        labels: the gradients that a passive party sees, in words.
        steps: step → words, of the messages that carry representations.
        width: step of the message that carries their width.
        passive: number of passive parties.
        beside: what a gradient reveals about the other passive parties, if there are any.
    """
    told = describe_representations(dp, features, _REPRESENTATIONS)
    drawn = describe_drawn_labels(dp, labels, _GRADIENT, parties=passive)
    others = passive > 1 and bool(beside)
    sent = (representation_exchange(f"{algorithm}/{step}", words, told, dp) for step, words in steps.items())
    return (
        Exchange(f"{algorithm}/{width}", Kind.CONTROL, PASSIVE, ACTIVE, "width of the representations"),
        *sent,
        Exchange(
            f"{algorithm}/gradient",
            Kind.GRADIENT,
            ACTIVE,
            PASSIVE,
            "gradient at the representations",
            reveals=drawn.text,
            severity=drawn.severity,
            of_others=beside if others else "",
            others_severity="leak" if others else "ok",
            sights=drawn.sights,
            others_sights=(Sight(of="features", severity="leak", through="gradients"),) if others else (),
        ),
    )
