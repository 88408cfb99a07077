"""Every message of training on shares of two parties, declared before it is sent. Any other opening is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from securevfl.cut.leakage import Revealed
from securevfl.errors import ProtocolError
from securevfl.privacy import Gaussian, severity_of_view
from securevfl.shares.exchanges import (
    INPUT,
    METRIC_WORDS,
    METRICS,
    PLAN,
    PREDICTED,
    PREDICTIONS,
    STATISTICS,
    USEFUL,
    WIDTH,
    OpenedMetrics,
    about_metrics,
    describe_noise,
    share_exchanges,
)
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, Exchange, Kind, PartyRole, Sight

__all__ = ["AHEAD", "DEALT", "LOT", "RANGE", "STEP", "TWO_KEY", "crossing_exchanges", "name_step", "two_exchanges"]

TWO_KEY, AHEAD, STEP = "shares/two key", "shares/ahead", "shares/step"
"""Steps of the two among themselves: public keys; what makes their random numbers; masked words."""

RANGE = "shares/open range"
"""One bit, opened to both: whether weights are in the range in which nothing wraps."""

LOT, DEALT = "shares/lot", "shares/dealt"
"""Steps with a helper: how many random numbers the next lot has, and those numbers."""

_PAIR: tuple[tuple[PartyRole, PartyRole], ...] = ((ACTIVE, PASSIVE), (PASSIVE, ACTIVE))
_LONGEST = 80
_STEPS = {
    "keys": (TWO_KEY, Kind.PUBLIC_KEY),
    "transfers: set-up": (TWO_KEY, Kind.PUBLIC_KEY),
    "transfers": (AHEAD, Kind.SHARE),
    "ahead": (AHEAD, Kind.SHARE),
    "step": (STEP, Kind.SHARE),
    "bits": (STEP, Kind.SHARE),
    "multiply": (STEP, Kind.SHARE),
    "open metrics": (METRICS, Kind.SHARE),
    "open useful": (USEFUL, Kind.SHARE),
    "open range": (RANGE, Kind.SHARE),
    "open predictions": (PREDICTIONS, Kind.SHARE),
    "open statistics": (STATISTICS, Kind.SHARE),
}
"""Label of a message, or the first word of it, as the protocols call it, → step and kind."""

_USEFUL_BIT = "shares of one bit: whether the model predicts better with the passive party's columns than without"
_RANGE_BIT = "shares of one bit: whether logits of the validation rows are in range"
_AHEAD_WORDS = {
    False: "random numbers encrypted under the sender's key, masked answers to them, columns of oblivious transfers",
    True: "columns and corrections of oblivious transfers",
}


def name_step(label: str) -> tuple[str, Kind]:
    """As which step and kind a message of the two is declared.

    Args:
        label: as the protocol calls it.

    Raises:
        ProtocolError: no message is declared for it.
    """
    found = _STEPS.get(label) or _STEPS.get(re.split("[ :]", label, maxsplit=1)[0])
    if found is None:
        raise ProtocolError(
            f"a message {label[:_LONGEST]!r} is not declared in a job on shares of two; nothing was sent"
        )
    return found


def two_exchanges(
    passive: int, *, helper: bool, metrics: OpenedMetrics | None = None, noise: Gaussian | None = None
) -> tuple[Exchange, ...]:
    """Return the messages of training on shares of two parties; none without a passive party.

    Args:
        passive: number of passive parties.
        helper: whether a party without data deals the random numbers.
        metrics: what is opened of the metrics of the validation rows.
        noise: on the steps of the model, with the ε that the plan spends; None for none.
    """
    if not passive:
        return ()
    return (
        Exchange(WIDTH, Kind.CONTROL, PASSIVE, ACTIVE, "width of its rows"),
        Exchange(PLAN, Kind.CONTROL, ACTIVE, PASSIVE, "widths of both parties' rows, sizes of the job"),
        *(_helper_exchanges() if helper else ()),
        *_pair_exchanges(helper),
        *_opening_exchanges(helper, metrics, noise),
    )


def _helper_exchanges() -> Iterator[Exchange]:
    yield Exchange(PLAN, Kind.CONTROL, ACTIVE, COORDINATOR, "widths of both parties' rows, sizes of the job")
    yield Exchange(LOT, Kind.CONTROL, ACTIVE, COORDINATOR, "sizes of the next random numbers", optional=True)
    for receiver in (ACTIVE, PASSIVE):
        yield Exchange(DEALT, Kind.SHARE, COORDINATOR, receiver, "random numbers", optional=True)


def _pair_exchanges(helper: bool) -> Iterator[Exchange]:
    for sender, receiver in _PAIR:
        if not helper:
            yield Exchange(TWO_KEY, Kind.PUBLIC_KEY, sender, receiver, "public keys, and points of base transfers")
        yield Exchange(AHEAD, Kind.SHARE, sender, receiver, _AHEAD_WORDS[helper], optional=helper)
        yield Exchange(STEP, Kind.SHARE, sender, receiver, "masked words of a computation on shares")


def _opening_exchanges(helper: bool, metrics: OpenedMetrics | None, noise: Gaussian | None) -> Iterator[Exchange]:
    trust = (
        "if neither party combines what it holds with the helper" if helper else "if both parties follow the protocol"
    )
    trained = trust + describe_noise(noise)
    yield _opening(
        PREDICTIONS, PASSIVE, ACTIVE, "shares of final predictions", _about_predictions(trust), optional=True
    )
    if metrics == "none":
        return
    yield _opening(
        METRICS, PASSIVE, ACTIVE, METRIC_WORDS[metrics], about_metrics(metrics, trained, view=""), optional=True
    )
    for sender, receiver in _PAIR:
        yield _opening(RANGE, sender, receiver, _RANGE_BIT, Revealed("", "ok"), optional=True)
        yield _opening(USEFUL, sender, receiver, _USEFUL_BIT, Revealed("", "ok"), optional=True)


def _opening(
    step: str, sender: PartyRole, receiver: PartyRole, words: str, told: Revealed, *, optional: bool = False
) -> Exchange:
    return Exchange(
        step,
        Kind.SHARE,
        sender,
        receiver,
        words,
        reveals=told.text,
        severity=told.severity,
        optional=optional,
        sights=told.sights,
    )


def _about_predictions(trust: str) -> Revealed:
    severity = severity_of_view(PREDICTED)
    text = (
        "the final predictions of the scored rows, one value a row or one a class, which the active party gets in any "
        f"training, {trust}"
    )
    if severity == "leak":
        text += "; from them and its own columns, the active party can estimate some of the columns that the model uses"
    seen = Sight(of="features", severity=severity, through="final predictions", view=PREDICTED, result=True)
    return Revealed(text, severity, (seen,))


_TRAINING = ("shares/width", "shares/plan", "shares/epoch", "shares/open metrics", "shares/open useful")
_TRAINING_OF_TWO = (*_TRAINING, "shares/open range")


def crossing_exchanges(
    passive: int, *, two: bool, helper: bool, reveals: str, sights: Sequence[Sight]
) -> tuple[Exchange, ...]:
    """Return the messages of statistics on shares: those of training but for its sizes, metrics and checks, and with
    one opening, of what is released.

    Args:
        passive: number of passive parties.
        two: whether two parties compute.
        helper: whether a helper deals to them.
        reveals: what the active party learns from the opening.
        sights: the same, taken apart.
    """
    if not passive:
        return ()
    every = two_exchanges(passive, helper=helper) if two else share_exchanges(passive)
    left_out = _TRAINING_OF_TWO if two else _TRAINING
    found = []
    for one in every:
        if one.step in left_out:
            continue
        if one.step == INPUT:
            found.append(replace(one, words="shares of its rows"))
        elif one.step == "shares/open predictions":
            opened = replace(one, step=STATISTICS, words="shares of the statistics", optional=True)
            if one.reveals:
                opened = replace(opened, reveals=reveals, severity="note", sights=tuple(sights))
            found.append(opened)
        else:
            found.append(one)
    return tuple(found)
