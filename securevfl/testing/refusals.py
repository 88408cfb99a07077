"""Check that a cut refuses peers with another job, unexpected gradients, wrong shapes and values out of range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from securevfl.cut import CutSpec, Protection
from securevfl.errors import ProtectionInactive, ProtocolError, RangeError
from securevfl.party_context import PartyContext
from securevfl.testing.cut_run import SPEC, WIDTHS, link_cut_parties, run_concurrently
from securevfl.testing.failure import CheckFailed
from securevfl.transport import Kind

__all__ = ["check_cut_alone", "check_cut_refusals"]

_ROWS = 5


@dataclass(frozen=True, kw_only=True)
class _Peers:
    """The settings of the two sides and what they do after setup.

    Attributes:
        spec: of the active party.
        theirs: of the passive party.
        trainable: whether the passive party claims a bottom with parameters.
        rows: how many the active party expects.
        fed: what the passive party feeds.
        train: whether the forward step is one of training.
        gradient: sent back.
    """

    spec: CutSpec = SPEC
    theirs: CutSpec = SPEC
    trainable: bool = False
    rows: int = _ROWS
    fed: torch.Tensor = field(default_factory=lambda: torch.zeros(_ROWS, WIDTHS["p1"]), repr=False)
    train: bool = True
    gradient: torch.Tensor = field(default_factory=lambda: torch.zeros(_ROWS, SPEC.width), repr=False)


def _run_step(protection: Protection, peers: _Peers) -> None:
    """One step of an active and one passive party.

    Raises:
        _Met: it ended with an error.
    """
    world = link_cut_parties(protection, replace(peers.spec, trainable=None), ("p1",))

    async def active() -> None:
        cut = protection.active_cut(world["a"], peers.spec)
        await cut.setup()
        await cut.forward(peers.rows, train=peers.train)
        await cut.backward(peers.gradient)
        world["a"].close()

    async def passive() -> None:
        cut = protection.passive_cut(world["p1"], peers.theirs)
        await cut.setup(WIDTHS["p1"], trainable=peers.trainable)
        await cut.forward(peers.fed, train=peers.train)
        await cut.backward()
        world["p1"].close()

    try:
        run_concurrently([active(), passive()])
    except Exception as error:
        raise _Met(world, error) from error


class _Met(Exception):
    """A meeting that ended with an error.

    Args:
        world: where it was.
        error: the error.
    """

    def __init__(self, world: Mapping[str, PartyContext], error: Exception) -> None:
        super().__init__(str(error))
        self.world = world
        self.error = error


def _expect_refusal(protection: Protection, what: str, peers: _Peers, kind: type[Exception] = ProtocolError) -> _Met:
    """Run both sides and return how they refused.

    Raises:
        CheckFailed: neither does, or the error is of another kind.
    """
    try:
        _run_step(protection, peers)
    except _Met as met:
        if not isinstance(met.error, kind):
            raise CheckFailed(
                f"{protection!r} ends with {type(met.error).__name__} ({met.error}) at {what}; {kind.__name__} was "
                "expected"
            ) from met.error
        return met
    raise CheckFailed(f"{protection!r} continues after {what}; {kind.__name__} was expected")


def check_cut_refusals(protection: Protection) -> None:
    """Check that the other side refuses if an active or a passive party breaks the protocol.

    Raises:
        CheckFailed: something was not refused; the first such case is named.
    """
    _expect_refusal(protection, "a peer whose cut has another width", _Peers(theirs=replace(SPEC, width=5)))
    for claims in (True, False):
        asked = replace(SPEC, trainable=not claims)
        what = f"a bottom that is announced {'with' if claims else 'without'} parameters against the job"
        met = _expect_refusal(protection, what, _Peers(spec=asked, theirs=asked, trainable=claims))
        told = [e.what for e in met.world["a"].ledger.entries if e.way == "sent" and e.kind is not Kind.CONTROL]
        if told:
            raise CheckFailed(f"{protection!r} sends {told} before it refuses {what}")
    _expect_refusal(
        protection, "a batch of fewer rows than expected", _Peers(rows=8, gradient=torch.zeros(8, SPEC.width))
    )
    _expect_refusal(protection, "a gradient of fewer rows than were fed", _Peers(gradient=torch.zeros(3, SPEC.width)))
    _expect_refusal(protection, "a backward step after a forward one without training", _Peers(train=False))
    if protection.uses_integers:
        for value in (SPEC.activation_bound, float("nan"), float("inf")):
            fed = torch.full((_ROWS, WIDTHS["p1"]), value)
            _expect_refusal(protection, f"activations of {value}", _Peers(fed=fed), RangeError)
        huge = torch.full((_ROWS, SPEC.width), 1e6)
        _expect_refusal(protection, "gradients of 1e6", _Peers(gradient=huge), RangeError)


def check_cut_alone(protection: Protection) -> None:
    """Check that without passive parties z is 0 or the protection refuses, as there is nothing to protect.

    Raises:
        CheckFailed: z is something else.
    """
    world = link_cut_parties(protection, SPEC, ())

    async def alone() -> torch.Tensor:
        cut = protection.active_cut(world["a"], SPEC)
        await cut.setup()
        z = await cut.forward(4, train=True)
        await cut.backward(torch.zeros(4, SPEC.width))
        return z

    try:
        (z,) = run_concurrently([alone()])
    except ProtectionInactive:
        return
    if z.shape != (4, SPEC.width) or z.any():
        raise CheckFailed(f"z is {z.tolist()}; zeros of shape {(4, SPEC.width)} were expected")
