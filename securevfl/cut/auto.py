"""``protection="auto"``: the sealed cut under the scheme that is fastest on these machines over these links.

When the cut is set up, each party times one training step of the job's own sizes under each scheme on its machine, the
active party times a small and a large message to each passive party and back, and adds up

    step = owner's work for all parties + the slowest holder's work + bytes / bandwidth + 2 · latency.

It takes the least, tells the passive parties which and why, and all go on under that scheme. A passive party refuses a
choice that the job does not offer.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
import securevfl_crypto as crypto
import torch
from securevfl_crypto.pools import kept_pool

from securevfl.cut.blocks import block_sizes, check_errors
from securevfl.cut.costs import Speed
from securevfl.cut.handshake import check_shape, check_width
from securevfl.cut.sealed import SealedActive, SealedPassive
from securevfl.cut.spec import CutSpec
from securevfl.errors import ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link, Noised, NoiseShare, fan_out
from securevfl.transport import Kind

__all__ = ["AutoActive", "AutoPassive", "Timing", "predict_seconds", "time_step"]

_PROBE = 1 << 20
_MOST_COLUMNS = 1 << 10
"""The widest block that is timed, whatever a peer says of its own; times of wider ones are scaled up."""
_ROUNDS = 2


@dataclass(frozen=True)
class Timing:
    """One training step of one block on one machine.

    Attributes:
        owner: seconds of the key owner.
        holder: seconds of the feature holder.
        size: bytes both ways.
    """

    owner: float
    holder: float
    size: int


@lru_cache(maxsize=64)
def time_step(scheme: crypto.Scheme, spec: CutSpec, width: int) -> Timing:
    """Time one step of `spec` with a block of `width` columns on this machine; the better of two runs.

    Raises:
        securevfl_crypto.OverflowRefused: the block, or that of the gradient at the rows, does not fit into the scheme's
            plaintexts; or the scheme's error is too large.
    """
    key = scheme.generate_key()
    public = scheme.read_public(key.public.to_bytes())
    forward, back = block_sizes(spec, width, width)
    owner, holder = scheme.create_owner(key, forward), scheme.create_holder(public, forward, crypto.ZeroShares([]))
    check_errors(owner, spec, 1)
    if spec.trainable is not False:
        scheme.create_holder(public, back, crypto.ZeroShares([]))
    rng = np.random.default_rng(0)
    x = rng.integers(1 - (1 << 12), 1 << 12, size=(spec.batch_size, width))
    steps = rng.integers(-(1 << 8), 1 << 8, size=(spec.batch_size, spec.width))
    share = holder.fresh_share()
    theirs = owner.ring.reduce(-share)
    best: Timing | None = None
    for _ in range(_ROUNDS):
        clock = [time.perf_counter()]
        sealed = owner.seal_weights(theirs)
        clock.append(time.perf_counter())
        answer = holder.answer_product(sealed, x, share)
        clock.append(time.perf_counter())
        owner.open_product([answer], len(x))
        sealed_steps = owner.seal_steps(steps)
        clock.append(time.perf_counter())
        gradient, _ = holder.answer_gradient(sealed_steps, x)
        clock.append(time.perf_counter())
        owner.open_gradient(gradient)
        clock.append(time.perf_counter())
        a, b, c, d, e = (after - before for before, after in itertools.pairwise(clock))
        size = sum(message.nbytes for message in (sealed, answer, sealed_steps, gradient))
        found = Timing(a + c + e, b + d, size)
        if best is None or found.owner + found.holder < best.owner + best.holder:
            best = found
    if best is None:
        raise ValueError("nothing was timed")
    return best


def predict_seconds(owner: Sequence[Timing], holders: Sequence[float], links: Sequence[Speed]) -> float:
    """Seconds of a step: one entry for each passive party in all three, links of the active party with it."""
    wire = sum(timing.size / link.bandwidth for timing, link in zip(owner, links, strict=True))
    latency = 2 * max((link.latency for link in links), default=0.0)
    return sum(timing.owner for timing in owner) + max(holders, default=0.0) + wire + latency


def _format_step(name: str, seconds: float) -> str:
    return f"{name} {1e3 * seconds:.0f} ms"


C = TypeVar("C", SealedActive, SealedPassive)


class _Auto(Generic[C]):
    """What both sides share: nothing is sealed before `setup` has chosen; then it is the sealed cut under that scheme.

    Args:
        site: of the party.
        spec: of the cut.
        schemes: name → scheme, those that the job offers.
        link: a link as the user states it, or None to measure.
    """

    def __init__(
        self,
        site: PartyContext,
        spec: CutSpec,
        schemes: Mapping[str, crypto.Scheme],
        *,
        link: Speed | None = None,
    ) -> None:
        self._site = site
        self._spec = spec
        self._schemes = {name: scheme.with_pool(kept_pool(site.pool)) for name, scheme in schemes.items()}
        self._link = link
        self._cut: C | None = None

    @property
    def _chosen_cut(self) -> C:
        if self._cut is None:
            raise ProtocolError("the cut was used before its setup")
        return self._cut

    def snapshot(self) -> object:
        return {"scheme": self._chosen_cut.protection, "state": self._chosen_cut.snapshot()}

    def restore(self, state: object) -> None:
        self._chosen_cut.restore(_require_scheme(self._chosen_cut.protection, state))


class AutoActive(_Auto[SealedActive]):
    """The active party's side: chooses in `setup`."""

    def __init__(
        self,
        site: PartyContext,
        spec: CutSpec,
        schemes: Mapping[str, crypto.Scheme],
        *,
        link: Speed | None = None,
    ) -> None:
        super().__init__(site, spec, schemes, link=link)
        self.widths: dict[str, int] = {}

    def weight_shares(self) -> Mapping[str, np.ndarray]:
        """See `HasShares.weight_shares`."""
        return self._chosen_cut.weight_shares()

    async def setup(self) -> None:
        """See `ActiveCut.setup`."""
        site = self._site
        widths, holders = {}, {}
        for name in site.passive:
            message = await site.links[name].receive(Kind.CONTROL, "cut/measured")
            announced = message.meta
            widths[name] = check_width(name, announced.get("width"), self._spec)
            holders[name] = {
                label: _require_number(name, announced[label], 0, 1e6) for label in self._schemes if label in announced
            }
        speeds = [self._link or await self._measure_speed(name) for name in site.passive]
        steps: dict[str, float] = {}
        added = len(widths) if self._spec.reduce == "sum" else 1
        for label, scheme in self._schemes.items():
            if not all(label in found for found in holders.values()) or added > (scheme.most_holders or added):
                continue
            with site.clock.time_encryption():
                own = _time_schemes({label: scheme}, self._spec, max(widths.values()))
            if label in own:
                timings = [own[label]] * len(widths)
                steps[label] = predict_seconds(timings, [found[label] for found in holders.values()], speeds)
        if not steps:
            raise ProtocolError(
                f"none of {', '.join(self._schemes)} can seal this job: its integers are too large; lower the batch "
                "size, raise the cut's learning rate, or use protection 'paillier' with a larger key"
            )
        chosen = min(steps, key=steps.__getitem__)
        slowest = min(speeds, key=lambda speed: speed.bandwidth)
        estimates = ", ".join(_format_step(name, steps[name]) for name in sorted(steps, key=steps.__getitem__))
        why = (
            f"protection 'auto' took {chosen}: a step of {self._spec.batch_size} rows is estimated at "
            f"{estimates}, over links of "
            f"{8e-6 * slowest.bandwidth:.0f} Mbit/s and {1e3 * slowest.latency:.1f} ms"
            + (" (as stated)" if self._link else " (measured)")
        )
        site.notes.append(why)

        async def send_choice(link: Link) -> None:
            await link.send(Kind.CONTROL, "cut/choice", meta={"scheme": chosen, "why": why})

        await fan_out(site.passive_links, send_choice)
        self._cut = SealedActive(site, self._spec, self._schemes[chosen])
        await self._cut.setup()
        self.widths = self._cut.widths
        for name, width in self.widths.items():
            if width != widths[name]:
                raise ProtocolError(f"{name!r} measured activations {widths[name]} wide, and now feeds {width}")

    async def _measure_speed(self, name: str) -> Speed:
        """Of the link with a passive party, by an empty and a full message and back."""
        link, seconds = self._site.links[name], []
        for size in (0, _PROBE):
            start = time.perf_counter()
            await link.send(Kind.CONTROL, "cut/probe", probe=np.zeros(size, dtype=np.uint8))
            echo = await link.receive(Kind.CONTROL, "cut/probe", "probe")
            seconds.append(time.perf_counter() - start)
            check_shape(name, echo.arrays["probe"], (size,))
        return Speed(2 * _PROBE / max(seconds[1] - seconds[0], 1e-6), seconds[0] / 2)

    @property
    def step_error(self) -> float:
        """See `ActiveCut.step_error`."""
        return self._chosen_cut.step_error

    async def forward(self, rows: int, *, train: bool) -> torch.Tensor:
        """See `ActiveCut.forward`."""
        return await self._chosen_cut.forward(rows, train=train)

    async def backward(self, gradient: torch.Tensor | Noised[torch.Tensor]) -> None:
        """See `ActiveCut.backward`."""
        await self._chosen_cut.backward(gradient)


class AutoPassive(_Auto[SealedPassive]):
    """A passive party's side: measures, answers the probe, and takes a choice that the job offers."""

    def opened_weights(self, other: np.ndarray | None) -> np.ndarray:
        """See `OpensWeights.opened_weights`."""
        return self._chosen_cut.opened_weights(other)

    async def setup(self, width: int, *, trainable: bool) -> None:
        """See `PassiveCut.setup`."""
        site = self._site
        link = site.links[site.active]
        with site.clock.time_encryption():
            timings = _time_schemes(self._schemes, self._spec, width)
        meta = {name: timing.holder for name, timing in timings.items()}
        await link.send(Kind.CONTROL, "cut/measured", meta={"width": width, **meta})
        for size in () if self._link else (0, _PROBE):
            message = await link.receive(Kind.CONTROL, "cut/probe", "probe")
            probe = check_shape(site.active, message.arrays["probe"], (size,))
            await link.send(Kind.CONTROL, "cut/probe", probe=probe)
        message = await link.receive(Kind.CONTROL, "cut/choice")
        chosen = message.meta.get("scheme")
        if not isinstance(chosen, str) or chosen not in self._schemes:
            raise ProtocolError(
                f"{site.active!r} chose {chosen!r}; the job offers {', '.join(self._schemes)}: nothing was encrypted"
            )
        self._cut = SealedPassive(site, self._spec, self._schemes[chosen])
        await self._cut.setup(width, trainable=trainable)

    async def forward(
        self, activations: torch.Tensor | Noised[torch.Tensor], *, train: bool, noise: NoiseShare | None = None
    ) -> None:
        """See `PassiveCut.forward`."""
        await self._chosen_cut.forward(activations, train=train, noise=noise)

    async def backward(self) -> torch.Tensor | None:
        """See `PassiveCut.backward`."""
        return await self._chosen_cut.backward()


def _time_schemes(schemes: Mapping[str, crypto.Scheme], spec: CutSpec, width: int) -> dict[str, Timing]:
    """Timings of the schemes that can seal this block, or one of `_MOST_COLUMNS` columns if it is wider."""
    found, timed = {}, min(width, _MOST_COLUMNS)
    for name, scheme in schemes.items():
        try:
            one = time_step(scheme, replace(spec, reduce="none", device="cpu"), timed)
        except crypto.OverflowRefused:
            continue
        times = width / timed
        found[name] = Timing(times * one.owner, times * one.holder, round(times * one.size))
    return found


def _require_number(name: str, value: object, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ProtocolError(f"{name!r} tells {value!r} of its machine; a number from {low:g} to {high:g} is possible")
    return value


def _require_scheme(scheme: str, state: object) -> object:
    """What a snapshot holds.

    Raises:
        ProtocolError: it was taken under another scheme, whose shares are numbers of another ring.
    """
    if not isinstance(state, dict) or set(state) != {"scheme", "state"}:
        raise TypeError("not a snapshot of this cut")
    if state["scheme"] != scheme:
        raise ProtocolError(
            f"the shares are {state['scheme']!r}'s, and protection 'auto' took {scheme!r} now: go on with protection "
            f"{state['scheme']!r}, or offers=[{state['scheme']!r}]"
        )
    return state["state"]
