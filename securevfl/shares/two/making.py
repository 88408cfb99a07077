"""How one of two computing parties makes its part of a model, once the sizes of the job are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from securevfl_crypto.two.correlations import Correlations
from securevfl_crypto.two.dealt import DealtCorrelations
from securevfl_crypto.two.pair import PairCorrelations

from securevfl.errors import InputError
from securevfl.shares.sharing import SharedPlan, Sharing, optimiser_of
from securevfl.shares.two.course import LARGEST_BATCH, TwoCourse
from securevfl.shares.two.dealt_lots import HelperLink
from securevfl.shares.two.network import TwoNetwork, step_rule
from securevfl.shares.two.noise import TwoStepNoise, find_sensitivity
from securevfl.shares.two.parties import CountedWire, TwoParty, count_openings
from securevfl.shares.two.wire import LinkTwoWire

__all__ = ["MOST_COLUMNS", "Made", "check_widths", "count_parts", "make_course"]

MOST_COLUMNS = 1 << 12
"""Numbers in a row that one party's keys serve at most; see `securevfl_crypto.rlwe.held_layout`."""

_METRICS = {1: 1, 2: 3}


@dataclass(frozen=True)
class Made:
    """What one party has made.

    Attributes:
        course: its way through the job, with its summands of the model's weights.
        wire: to the other party.
        helper: its link to the helper; None for none.
    """

    course: TwoCourse
    wire: LinkTwoWire
    helper: HelperLink | None

    async def pause_helper(self) -> None:
        """Tell a helper that nothing more is needed for now."""
        if self.helper is not None:
            await self.helper.pause()


async def _make_party(sharing: Sharing, sizes: SharedPlan, wire: LinkTwoWire, helper: HelperLink | None) -> TwoParty:
    """This party, with its source of random numbers, fresh for this process.

    Args:
        sharing: of the job.
        sizes: of the job, which both parties agree on.
        wire: to the other party.
        helper: the link to the helper; None for none.
    """
    site, names, counted = sharing.site, sharing.computing_parties, CountedWire(wire)
    if helper is not None:
        source: Correlations = DealtCorrelations(counted, await helper.receive_seed(), helper.ask)
    else:
        source = PairCorrelations(counted, f"{site.job} {', '.join(names)}".encode())
    most = sharing.plan.eval_rows
    openings = count_openings(
        validations=sharing.count_validations() * sharing.protection.opens_metrics,
        rows=sizes.test,
        width=sharing.answer(sizes.classes).width,
        # A server answers questions of any size: as many openings as rows, and no row more than there are.
        asked=count_parts(sizes.test, most) if sharing.trains else sizes.test,
        trains=sharing.trains,
        judged=sharing.judges_usefulness,
        metrics=1 if sharing.compares else _METRICS.get(sizes.classes, 2),
    )
    await source.setup()
    return TwoParty(site, names, counted, source, openings, compares=sharing.compares)


def count_parts(rows: int, most: int) -> int:
    """In how many parts answers about rows are opened, which come at most so many at a time."""
    whole, rest = divmod(rows, most)
    return whole * -(-most // LARGEST_BATCH) - (-rest // LARGEST_BATCH)


def check_widths(widths: Sequence[int]) -> None:
    """Refuse rows that are too wide for the keys of two parties without a helper.

    Args:
        widths: numbers in a row of each party.

    Raises:
        InputError: one has more than `MOST_COLUMNS`, with a column of ones at the active party.
    """
    most = max(widths[0] + 1, *widths[1:])
    if most > MOST_COLUMNS:
        raise InputError(
            f"a party's rows have {most:,} numbers (of a scorecard, one a bin), and two parties without a helper "
            f"multiply rows of up to {MOST_COLUMNS:,}: take fewer columns or bins, a helper, or three computing parties"
        )


async def make_course(sharing: Sharing, sizes: SharedPlan) -> Made:
    """This party's way through the job.

    Args:
        sharing: of the job.
        sizes: of the job, which both parties agree on.

    Raises:
        InputError: batches, or a rate, that two parties cannot train with.
    """
    site, names = sharing.site, sharing.computing_parties
    shape = sharing.network_shape(sizes.widths, sizes.classes)
    rule = step_rule(shape, optimiser_of(sharing.protection), sizes.batch_size)
    (peer,) = (name for name in names if name != site.name)
    if not sharing.protection.coordinator_among(names):
        check_widths(sizes.widths)
    wire, helper = LinkTwoWire(site, peer), HelperLink(site) if sharing.protection.coordinator_among(names) else None
    party = await _make_party(sharing, sizes, wire, helper)
    noise, mechanism = None, sharing.step_mechanism
    if mechanism is not None and sharing.trains:
        sensitivity = find_sensitivity(shape, rule, mechanism.clip)
        noise = TwoStepNoise(mechanism.sigma(sizes.times), sensitivity, rule.rate)
    network = TwoNetwork(party, shape, rule, sizes.batch_size, noise=noise)
    await network.agree_sharing()
    course = TwoCourse(
        party,
        network,
        sharing.answer(sizes.classes),
        sharing.plan.epochs,
        opens_metrics=sharing.protection.opens_metrics,
    )
    return Made(course, wire, helper)
