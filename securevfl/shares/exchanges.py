"""Every message of training on shares, declared before it is sent: who deals inputs to whom, what the computing parties
say to each other, and what is opened. Everything else that is opened is an error."""

from __future__ import annotations

from collections.abc import Iterator

from securevfl.cut.leakage import Revealed
from securevfl.privacy import Gaussian, permitted_by, severity_of_view
from securevfl.shares.release_exchanges import release_exchanges
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind, PartyRole, Sight

__all__ = ["MASKED", "METRICS", "PREDICTED", "PREDICTIONS", "RANGE", "ROUND", "share_exchanges"]

KEY, ROUND, CONFIRM = "shares/key", "shares/round", "shares/confirm"
"""Steps of the computing parties among themselves."""

WIDTH, PLAN, EPOCH, INPUT = "shares/width", "shares/plan", "shares/epoch", "shares/input"
"""Steps by which they learn the sizes of the job, and are dealt its rows."""

METRICS, RANGE, PREDICTIONS = "shares/open metrics", "shares/open range", "shares/open predictions"
"""What is opened, to the active party alone; the last one once for each row in a run, or in a prediction."""

MASKED, PREDICTED = "shares and masked values", "final predictions alone"
"""What ``measured.json`` calls all that a computing party receives of rows but the result, and the result."""

_TRUST = "if no two of the three computing parties put together what they hold"
_COMPUTING: tuple[PartyRole, ...] = (ACTIVE, PASSIVE, COORDINATOR)


def share_exchanges(passive: int, *, parts: bool = False, noise: Gaussian | None = None) -> tuple[Exchange, ...]:
    """Of training on shares; none without passive parties.

    Args:
        passive: number of passive parties.
        parts: whether the model is handed out at the end.
        noise: on the steps of the model, with the ε that the plan spends; None for none.
    """
    if not passive:
        return ()
    return (
        Exchange(WIDTH, Kind.CONTROL, PASSIVE, ACTIVE, "width of its part of the first layer's input"),
        Exchange(PLAN, Kind.CONTROL, ACTIVE, PASSIVE, "widths of all parts"),
        Exchange(PLAN, Kind.CONTROL, ACTIVE, COORDINATOR, "widths of all parts", optional=True),
        Exchange(EPOCH, Kind.CONTROL, ACTIVE, COORDINATOR, "sizes of an epoch's batches", optional=True),
        *_input_exchanges(),
        *_computing_exchanges(),
        *_opening_exchanges(noise),
        *(release_exchanges() if parts else ()),
    )


def _input_exchanges() -> Iterator[Exchange]:
    for sender in (ACTIVE, PASSIVE):
        for receiver in _COMPUTING:
            if (sender, receiver) != (ACTIVE, ACTIVE):
                yield _share_exchange(INPUT, sender, receiver, "shares of its rows, or of its part of a model")


def _computing_exchanges() -> Iterator[Exchange]:
    for sender in _COMPUTING:
        for receiver in _COMPUTING:
            if sender == receiver != PASSIVE:
                continue
            optional = COORDINATOR in (sender, receiver) or sender == receiver
            yield Exchange(
                KEY, Kind.PUBLIC_KEY, sender, receiver, "public key for randomness of two", optional=optional
            )
            yield _share_exchange(ROUND, sender, receiver, "masked values of a computation on shares")
            yield Exchange(
                CONFIRM, Kind.CONTROL, sender, receiver, "digests of shares that both hold", optional=optional
            )


def _opening_exchanges(noise: Gaussian | None) -> Iterator[Exchange]:
    """The findings speak of data parties: a coordinator has nothing that could be told."""
    metrics, predictions = _about_metrics(noise), _about_predictions()
    told = {
        METRICS: ("shares of rounded validation metrics", metrics),
        RANGE: ("shares of one bit: whether weights are in range", Revealed("", "ok")),
        PREDICTIONS: ("shares of final predictions", predictions),
    }
    for step, (words, learned) in told.items():
        yield Exchange(
            step,
            Kind.SHARE,
            PASSIVE,
            ACTIVE,
            words,
            reveals=learned.text,
            severity=learned.severity,
            optional=True,
            sights=learned.sights,
        )
        yield Exchange(step, Kind.SHARE, COORDINATOR, ACTIVE, words, optional=True)


def _about_metrics(noise: Gaussian | None) -> Revealed:
    text = (
        "rounded metrics of the model on the validation rows, one set an epoch, and nothing of single rows in "
        f"training, {_TRUST}"
    )
    if noise is not None:
        allowed = permitted_by(noise).describe("two values of a row that trained")
        text += f"; all that follows from the model, with differentially private noise in its steps {allowed}"
    seen = Sight(of="features", severity="ok", through="shares and rounded metrics", view=MASKED)
    return Revealed(text, "note", (seen,))


def _about_predictions() -> Revealed:
    """A prediction is a function of the row's columns, and so of those that the active party does not have. Under every
    other protection it is computed from what the active party reads anyhow, and adds nothing to that."""
    severity = severity_of_view(PREDICTED)
    text = (
        "final predictions of the rows that are scored, one value a row or one a class, as any training gives them to "
        f"the active party, {_TRUST}"
    )
    if severity == "leak":
        text += "; with its own columns, it can estimate from them some of the columns that the model uses"
    seen = Sight(of="features", severity=severity, through="final predictions", view=PREDICTED, result=True)
    return Revealed(text, severity, (seen,))


def _share_exchange(step: str, sender: PartyRole, receiver: PartyRole, words: str) -> Exchange:
    optional = COORDINATOR in (sender, receiver) or sender == receiver
    return Exchange(step, Kind.SHARE, sender, receiver, words, optional=optional)
