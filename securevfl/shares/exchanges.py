"""Every message of training on shares, declared before it is sent: who deals inputs to whom, what the computing parties
send each other, and which values are opened. Any other opening is an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from securevfl.cut.leakage import Revealed
from securevfl.privacy import Gaussian, permitted_by, severity_of_view
from securevfl.shares.release_exchanges import release_exchanges
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind, PartyRole, Sight

__all__ = [
    "MASKED",
    "METRICS",
    "METRIC_WORDS",
    "PREDICTED",
    "PREDICTIONS",
    "ROUND",
    "STATISTICS",
    "SUMS",
    "USEFUL",
    "OpenedMetrics",
    "about_metrics",
    "describe_noise",
    "share_exchanges",
]

OpenedMetrics: TypeAlias = Literal["rounded", "best", "none"]
"""What is opened of the metrics of validation rows: see `securevfl.shares.protection.Shares`."""

KEY, ROUND, CONFIRM = "shares/key", "shares/round", "shares/confirm"
"""Steps of the computing parties among themselves."""

WIDTH, PLAN, EPOCH, INPUT = "shares/width", "shares/plan", "shares/epoch", "shares/input"
"""Steps that announce the sizes of the job and deal its rows."""

SUMS = "shares/open sums"
"""Opens to each data party the sums of its own columns, once an epoch of an additive model."""

METRICS, PREDICTIONS = "shares/open metrics", "shares/open predictions"
"""Values opened to the active party only; the last one once for each row in a run, or in a prediction."""

STATISTICS = "shares/open statistics"
"""Opens statistics of columns to the active party, once a job that computes them in the place of a model."""

USEFUL = "shares/open useful"
"""One bit, opened once a job to all three: whether the passive parties' columns make the model better."""

MASKED, PREDICTED = "shares and masked values", "final predictions alone"
"""Keys in ``measured.json``: everything that a computing party receives of rows except the result, and the result."""

_USEFUL_BIT = "shares of one bit: whether the model predicts better with the passive parties' columns than without"
_BEST_BIT = "shares of one bit: whether the validation metrics are the best so far"
METRIC_WORDS: dict[OpenedMetrics | None, str] = {
    "rounded": "shares of rounded validation metrics",
    "best": _BEST_BIT,
    None: f"{_BEST_BIT}; in a simulation, of the rounded metrics",
    "none": "",
}
"""What is sent of them."""
_TRUST = "if no two of the three computing parties collude"
_COMPUTING: tuple[PartyRole, ...] = (ACTIVE, PASSIVE, COORDINATOR)


def share_exchanges(
    passive: int,
    *,
    parts: bool = False,
    noise: Gaussian | None = None,
    metrics: OpenedMetrics | None = None,
    soft: bool = False,
) -> tuple[Exchange, ...]:
    """Return the messages of training on shares; none without passive parties.

    Args:
        passive: number of passive parties.
        parts: whether the model is released in parts at the end.
        noise: on the steps of the model, with the ε that the plan spends; None for none.
        metrics: what is opened of the metrics of the validation rows.
        soft: whether targets may be mixtures, which nobody checks.
    """
    if not passive:
        return ()
    return (
        Exchange(WIDTH, Kind.CONTROL, PASSIVE, ACTIVE, "width of its part of the first layer's input"),
        Exchange(PLAN, Kind.CONTROL, ACTIVE, PASSIVE, "widths of all parts"),
        Exchange(PLAN, Kind.CONTROL, ACTIVE, COORDINATOR, "widths of all parts", optional=True),
        Exchange(EPOCH, Kind.CONTROL, ACTIVE, COORDINATOR, "sizes of an epoch's batches", optional=True),
        *_input_exchanges(),
        *_computing_exchanges(_about_range(noise) if metrics == "none" else Revealed("", "ok")),
        *_opening_exchanges(noise, metrics, soft),
        *(release_exchanges() if parts else ()),
    )


def _input_exchanges() -> Iterator[Exchange]:
    for sender in (ACTIVE, PASSIVE):
        for receiver in _COMPUTING:
            if (sender, receiver) != (ACTIVE, ACTIVE):
                yield _share_exchange(INPUT, sender, receiver, "shares of its rows, or of its part of a model")


def _computing_exchanges(checked: Revealed) -> Iterator[Exchange]:
    """Messages among the computing parties.

    Args:
        checked: what the digests of checks tell the active party.
    """
    for sender in _COMPUTING:
        for receiver in _COMPUTING:
            if sender == receiver != PASSIVE:
                continue
            optional = COORDINATOR in (sender, receiver) or sender == receiver
            yield Exchange(
                KEY, Kind.PUBLIC_KEY, sender, receiver, "public key for randomness of two", optional=optional
            )
            yield _share_exchange(ROUND, sender, receiver, "masked values of a computation on shares")
            told = checked if (sender, receiver) == (PASSIVE, ACTIVE) else Revealed("", "ok")
            yield Exchange(
                CONFIRM,
                Kind.CONTROL,
                sender,
                receiver,
                "digests of shares that both hold, and of values that have to be zero",
                reveals=told.text,
                severity=told.severity,
                optional=optional,
                sights=told.sights,
            )


def _opening_exchanges(noise: Gaussian | None, metrics: OpenedMetrics | None, soft: bool) -> Iterator[Exchange]:
    """A coordinator has no data, so its shares reveal nothing about it."""
    told = {
        METRICS: (METRIC_WORDS[metrics], about_metrics(metrics, f"{_TRUST}{describe_noise(noise)}", soft=soft)),
        PREDICTIONS: ("shares of final predictions", _about_predictions()),
    }
    if metrics == "none":
        del told[METRICS]
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
    for sender in _COMPUTING if metrics != "none" else ():
        for receiver in _COMPUTING:
            if sender != receiver or sender == PASSIVE:
                yield _share_exchange(USEFUL, sender, receiver, _USEFUL_BIT, optional=True)


def about_metrics(metrics: OpenedMetrics | None, trust: str, *, soft: bool = False, view: str = MASKED) -> Revealed:
    """What the metrics of validation rows reveal.

    Args:
        metrics: what is opened of them.
        trust: on what that rests, and what noise adds.
        soft: whether targets may be mixtures.
        view: the measured view of one row's columns; empty where none was measured.
    """
    bare = metrics == "rounded"
    what = (
        "rounded metrics of the model on the validation rows, once an epoch, which give one row away to whoever knows "
        "all others that train and validate, and nothing else about single rows in training"
        if bare
        else "one bit an epoch, whether the model predicts the validation rows better than before"
        f"{'' if metrics else ' (in a simulation, the rounded metrics)'}, and nothing about single rows in training"
    )
    text = f"{what}, {trust}"
    if soft:
        text += "; targets may change from batch to batch, so that it can hide which rows it labels"
    if bare:  # by hand: no job of the gate has an attacker that knows all rows but one
        return Revealed(text, "note", (Sight(of="features", severity="note", through="rounded metrics"),))
    return Revealed(text, "note", (Sight(of="features", severity="ok", through="shares and bits", view=view),))


def _about_range(noise: Gaussian | None) -> Revealed:
    """What training reveals where no metrics are opened."""
    text = (
        "one bit an epoch, whether weights are in range, and nothing about validation rows or single rows in "
        f"training, {_TRUST}{describe_noise(noise)}"
    )
    seen = Sight(of="features", severity="ok", through="shares and one bit", view=MASKED)
    return Revealed(text, "ok", (seen,))


def describe_noise(noise: Gaussian | None) -> str:
    """What a sentence about training adds where the model's steps are noisy; nothing where they are not."""
    if noise is None:
        return ""
    allowed = permitted_by(noise).describe("two values of a row that trained")
    return f"; everything is computed from a model with differentially private noise in its steps {allowed}"


def _about_predictions() -> Revealed:
    """A prediction is a function of the row's columns, including those that the active party does not have. Under every
    other protection, the active party computes it from values that it reads anyway, so it adds nothing to them."""
    severity = severity_of_view(PREDICTED)
    text = (
        "the final predictions of the scored rows, one value a row or one a class, which the active party gets in any "
        f"training, {_TRUST}"
    )
    if severity == "leak":
        text += "; from them and its own columns, the active party can estimate some of the columns that the model uses"
    seen = Sight(of="features", severity=severity, through="final predictions", view=PREDICTED, result=True)
    return Revealed(text, severity, (seen,))


def _share_exchange(
    step: str, sender: PartyRole, receiver: PartyRole, words: str, *, optional: bool = False
) -> Exchange:
    optional = optional or COORDINATOR in (sender, receiver) or sender == receiver
    return Exchange(step, Kind.SHARE, sender, receiver, words, optional=optional)
