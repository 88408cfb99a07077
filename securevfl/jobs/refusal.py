"""Before a job begins, each party holds it against its own policy; one that refuses says so and sends nothing else."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from securevfl.algorithms import MultiVFL, SplitNN
from securevfl.cut import Protection
from securevfl.errors import PolicyError, ProtocolError
from securevfl.jobs.job import Job
from securevfl.privacy import READABLE_KINDS, REFUSED, Policy, Terms, broken_rule, raise_refusal
from securevfl.site import Site
from securevfl.transport import Kind

__all__ = ["await_refusal", "refuse", "rule_against", "terms"]

_ALWAYS = frozenset({Kind.CONTROL, Kind.BLINDED_SET, Kind.STATISTIC})


def terms(job: Job, party: str, *, active: str, passive: Sequence[str], pairwise: bool = False) -> Terms:
    """What `job` would do to `party`.

    Args:
        job: the job.
        party: one of them.
        active: name of the active party, or of the label owner.
        passive: names of the passive parties.
        pairwise: whether alignment would show the active party pairwise intersections, as a label book needs.
    """
    protection, mine = job.protection, party == active
    floor = protection.policy()
    sends = _ALWAYS | ({Kind.INTERSECTION} if mine else frozenset())
    if len(passive) > 1 and not pairwise:
        sends |= {Kind.PUBLIC_KEY}
    known_to = active if pairwise and not mine and len(passive) > 1 else ""
    if not job.algorithm.exchanges or not passive:
        return Terms(sends=sends, pairwise=known_to)
    names = floor.protections or _protections(protection)
    out, back = _content(job, mine, names, several=len(passive) > 1)
    bits = max(floor.min_key_bits, getattr(protection, "bits", 0)) if "paillier" in names else 0
    if mine and isinstance(job.algorithm, MultiVFL) and job.algorithm.blind:  # label owners' weights cross too
        names |= {job.algorithm.aggregation}
        if job.algorithm.aggregation == "paillier":
            bits = min(bits, job.algorithm.paillier_bits) if bits else job.algorithm.paillier_bits
    found = job.algorithm.findings(protection, passive, active)
    return Terms(
        protections=names,
        key_bits=bits,
        sends=sends | out,
        receives=back,
        opens=_opens(job),
        noised=floor.noised,
        epsilon=_planned(job, mine),
        releases="gradients" if mine else "activations",
        leaks=tuple(f"{f.party!r} learns {f.learns}" for f in found if f.about == party and f.severity == "leak"),
        pairwise=known_to,
    )


def _protections(protection: Protection) -> frozenset[str]:
    """What content may cross under: all that are offered, where the parties choose one as they begin."""
    if not protection.policy().sealed:
        return frozenset({"plain"})
    return frozenset(getattr(protection, "offers", (protection.name,)))


def _content(job: Job, mine: bool, names: frozenset[str], *, several: bool) -> tuple[frozenset[Kind], frozenset[Kind]]:
    """Kinds that the active party (`mine`) or a passive one sends and receives while training, beside those of
    `_ALWAYS`; where it depends on what is not known yet, all that are possible.

    Args:
        job: the job.
        mine: whether it is about the active party.
        names: what content may cross under, see `_protections`.
        several: whether there are other passive parties.
    """
    algorithm = job.algorithm
    if job.protection.policy().sealed:
        down, up = _sealed(job, names, several)
    elif isinstance(algorithm, SplitNN) or algorithm.reveals:
        handed = {Kind.REPRESENTATION} if algorithm.reveals else set()
        at_cut = isinstance(algorithm, SplitNN)
        down = {Kind.GRADIENT} | (handed | {Kind.MASKED_SHARE} if at_cut else set())  # the first half of the weights
        up = handed | ({Kind.ACTIVATION} if at_cut else set())
    else:
        down = up = {*READABLE_KINDS, Kind.MASKED_SHARE, Kind.PUBLIC_KEY}
    among: set[Kind] = set()
    if isinstance(algorithm, MultiVFL):  # seeds, masked changes or means of shares; ciphertexts with a key
        among = {Kind.MASKED_SHARE, Kind.PUBLIC_KEY} | ({Kind.CIPHERTEXT} if algorithm.blind else set())
    if mine:
        return frozenset(down | among), frozenset(up | among)
    return frozenset(up), frozenset(down)


def _sealed(job: Job, names: frozenset[str], several: bool) -> tuple[set[Kind], set[Kind]]:
    """Kinds that a sealed cut sends down to the passive parties, and up from each. Arguments as for `_content`."""
    algorithm = job.algorithm
    up = {Kind.CIPHERTEXT}
    if algorithm.trainable or several:  # a key for the gradients of its bottom; seeds of the masks
        up |= {Kind.PUBLIC_KEY}
    rounds = (getattr(algorithm, name, 1.0) for name in ("cut_momentum", "cut_weight_decay"))
    if "paillier" in names or algorithm.trainable or any(rounds) or getattr(algorithm, "blind", False):
        up |= {Kind.MASKED_SHARE}  # integer shares are drawn anew in each step
    return {Kind.CIPHERTEXT, Kind.PUBLIC_KEY}, up


def _opens(job: Job) -> frozenset[Kind]:
    """What the owner of a key decrypts of what crosses sealed."""
    if not job.protection.policy().sealed:
        return frozenset()
    return frozenset({Kind.ACTIVATION, Kind.GRADIENT} if job.algorithm.trainable else {Kind.ACTIVATION})


def _planned(job: Job, mine: bool) -> float | None:
    """ε of what the active party (`mine`: its labels) or a passive one (its features) would release."""
    dp = job.protection.dp
    if dp is not None and mine and dp.labels == "randomised_response":
        return dp.epsilon
    if dp is None or not (dp.gradients if mine else dp.activations):
        return math.inf
    return None if dp.noise_multiplier is not None else dp.epsilon


def rule_against(job: Job, party: str, *, active: str, passive: Sequence[str], pairwise: bool = False) -> str:
    """The rule of `party`'s own policy that `job` breaks, in words; empty if it accepts the job. See `terms`."""
    own = job.policies.get(party, Policy())
    return broken_rule(own, terms(job, party, active=active, passive=passive, pairwise=pairwise), party)


async def refuse(site: Site, rule: str) -> None:
    """Tell all peers which rule the job breaks, and nothing else.

    Raises:
        PolicyError: always: the job ends here.
    """
    for link in site.others:
        await link.send(Kind.CONTROL, REFUSED, meta={"rule": rule})
    site.close()
    raise PolicyError(f"{site.name!r} refuses the job: {rule}; nothing else was sent")


async def await_refusal(site: Site) -> None:
    """Wait until a peer says that it refuses.

    Raises:
        PolicyError: names the peer and the rule.
        ProtocolError: all peers ended without a refusal.
    """
    waiting = {asyncio.ensure_future(link.receive(Kind.CONTROL, REFUSED)): link.peer for link in site.others}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                peer = waiting.pop(task)
                if task.exception() is None:
                    raise_refusal(task.result(), peer)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    raise ProtocolError(f"{site.name!r} waited for a refusal, and all its peers ended without one")
