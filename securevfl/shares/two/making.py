"""How one of two computing parties makes its part of a model, once the sizes of the job are known."""

from __future__ import annotations

from securevfl_crypto.two.dealing import DealtCorrelations
from securevfl_crypto.two.pair import PairCorrelations

from securevfl.shares.sharing import SharedPlan, Sharing, optimiser_of
from securevfl.shares.two.course import TwoCourse
from securevfl.shares.two.dealt_lots import HelperLink
from securevfl.shares.two.network import TwoNetwork, step_rule
from securevfl.shares.two.parties import CountedWire, TwoParty, count_openings
from securevfl.shares.two.wire import LinkTwoWire

__all__ = ["make_course", "make_party"]

_METRICS = {1: 1, 2: 3}


async def make_party(sharing: Sharing, sizes: SharedPlan) -> tuple[TwoParty, HelperLink | None]:
    """This party, linked with the other one and with its source of random numbers, all fresh for this process; and its
    link to the helper, where there is one.

    Args:
        sharing: of the job.
        sizes: of the job, which both parties agree on.
    """
    site, names = sharing.site, sharing.computing_parties
    (peer,) = (name for name in names if name != site.name)
    wire, helper = CountedWire(LinkTwoWire(site, peer)), None
    if sharing.protection.coordinator_among(names):
        helper = HelperLink(site)
        source: DealtCorrelations | PairCorrelations = DealtCorrelations(
            wire, await helper.receive_seed(), helper.ask
        )
    else:
        source = PairCorrelations(wire, f"{site.job} {', '.join(names)}".encode())
    most = sharing.plan.eval_rows
    openings = count_openings(
        validations=sharing.count_validations() * sharing.protection.opens_metrics,
        rows=sizes.test,
        width=sharing.answer(sizes.classes).width,
        # A server answers questions of any size: as many openings as rows, and no row more than there are.
        asked=-(-sizes.test // most) if sharing.trains else sizes.test,
        trains=sharing.trains,
        judged=sharing.judges_usefulness,
        metrics=_METRICS.get(sizes.classes, 2),
    )
    await source.setup()
    return TwoParty(site, names, wire, source, openings), helper


async def make_course(sharing: Sharing, sizes: SharedPlan) -> tuple[TwoCourse, HelperLink | None]:
    """This party's way through the job, with its summands of the model's weights; and its link to the helper.

    Args:
        sharing: of the job.
        sizes: of the job, which both parties agree on.

    Raises:
        InputError: batches, or a rate, that two parties cannot train with.
    """
    shape = sharing.network_shape(sizes.widths, sizes.classes)
    rule = step_rule(shape, optimiser_of(sharing.protection), sizes.batch_size)
    party, helper = await make_party(sharing, sizes)
    course = TwoCourse(
        party,
        TwoNetwork(party, shape, rule),
        sharing.answer(sizes.classes),
        sharing.plan.epochs,
        opens_metrics=sharing.protection.opens_metrics,
    )
    return course, helper
