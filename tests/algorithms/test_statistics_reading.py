"""What a party believes of layouts, names and sizes that others tell for statistics: checked before it allocates."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import securevfl as sv
from securevfl.algorithms.statistics.columns import coarsen
from securevfl.algorithms.statistics.figures import ColumnNames
from securevfl.privacy import Link
from securevfl.run.statistics_record import statistics_record
from securevfl.shares.crossing.programs import receive_plan
from securevfl.testing.parties import make_parties
from securevfl.training import Trained
from securevfl.training.crossing import LAYOUT, PartyLayout, read_layouts
from securevfl.transport import Kind

PEOPLE = make_parties(passive=1, rows=260)


@pytest.mark.parametrize("wrong", [{"classes": 3}, {"classes": 0}, {"classes": 1 << 40}, {"rows": 209}, {"rows": None}])
def test_a_passive_party_refuses_other_sizes_than_were_agreed(
    wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With other classes, other counts would be guarded; nothing of its rows leaves."""
    send, sent = Link.send, []

    async def lie(self: Link, kind: Kind, what: str, **content: Any) -> None:
        if what == LAYOUT:
            content["meta"] = content["meta"] | wrong
        sent.append(what)
        await send(self, kind, what, **content)

    monkeypatch.setattr(Link, "send", lie)
    job = sv.Job(algorithm=sv.Statistics(bins=2, vif=False), protection=sv.Plain(), epochs=1)
    with pytest.raises(sv.ProtocolError, match="rows and classes in the place of"):
        sv.simulate(job, PEOPLE, observer=sv.Observer())
    assert "statistics/rows" not in sent


def test_more_products_than_a_party_should_allocate_are_refused() -> None:
    """4,096 columns on both sides are no more than a layout may have."""
    wide = PartyLayout(scores=4096)
    with pytest.raises(sv.InputError, match=r"terms in all.*leave columns out"):
        sv.Statistics(vif=False).plan_products(sv.Plain(), rows=10**6, classes=2, layouts=[wide, wide])
    binned = PartyLayout(scores=0, bins=(coarsen(50, missing=True, ordered=True),) * 40)
    asked = sv.Shares(dp=sv.DP(model=sv.Gaussian(epsilon=1.0, delta=1e-5)))
    with pytest.raises(sv.InputError, match=r"terms in all.*fewer bins"):
        sv.Statistics().plan_products(asked, rows=10**6, classes=60_000, layouts=[PartyLayout(scores=1), binned])
    many = PartyLayout(scores=30, means=(True,) * 30, bins=binned.bins)
    for protection in (asked, sv.Shares()):
        found = sv.Statistics().plan_products(
            protection, rows=10**6, classes=2, layouts=[PartyLayout(scores=20), many, binned, many]
        )
        terms = len(found.release.sources)
        assert terms <= found.count_work()[1] <= 1.1 * terms


@pytest.mark.parametrize("told", [{"rows": 300, "classes": 1 << 20}, {"rows": True, "classes": 2}, {"rows": 300}])
def test_a_party_without_data_refuses_impossible_sizes(told: dict[str, Any]) -> None:
    import asyncio
    from types import SimpleNamespace

    layouts = msgspec.json.encode([PartyLayout(scores=1)] * 2).decode()

    class Told:
        peer = "bank"

        async def receive(self, *names: object) -> object:
            return SimpleNamespace(meta={"layouts": layouts} | told)

    site = SimpleNamespace(links={"bank": Told()}, active="bank", passive=("shop",))
    sharing: Any = SimpleNamespace(site=site, algorithm=sv.Statistics(), protection=sv.Shares())
    with pytest.raises(sv.ProtocolError, match="impossible sizes"):
        asyncio.run(receive_plan(sharing))


def test_layouts_and_names_that_contradict_each_other_are_refused() -> None:
    bins = (((0, 1, 2),),)
    names = ColumnNames(scored=(), binned=("a",), numbers=(True,), missing=(True,))
    names.check(PartyLayout(scores=0, bins=bins, missing=(True,)), "shop")
    with pytest.raises(sv.ProtocolError, match="missing values"):
        names.check(PartyLayout(scores=0, bins=bins, missing=(False,)), "shop")
    for layout in (PartyLayout(scores=0, bins=bins, missing=(True, False)), PartyLayout(scores=0, missing=(True,))):
        with pytest.raises(sv.ProtocolError, match="impossible layout"):
            read_layouts(msgspec.json.encode([layout]).decode(), "shop", 1)
    for level in ((0, 1 << 32, 1), (0, -1, 0), (0, 2, 2)):  # the first would be 4 GB of numbers
        bad = PartyLayout(scores=0, bins=(((0, 1, 2), level),))
        with pytest.raises(sv.ProtocolError, match="not one of merged bins"):
            read_layouts(msgspec.json.encode([bad]).decode(), "shop", 1)
    for words in ("fewer\x1b[2J", "x" * 121):
        told = msgspec.structs.replace(names, left_out={"b": words})
        with pytest.raises(sv.ProtocolError, match="impossible reason"):
            told.check(PartyLayout(scores=0, bins=bins), "shop")


def test_names_of_a_peer_do_not_write_to_the_terminal() -> None:
    one = dict.fromkeys(("means", "deviations", "with_label", "iv", "iv_noise", "vif", "missing", "level"))
    one |= {"party": "shop", "column": "a\x1b[31m", "kind": "numbers", "bins": [], "withheld": ""}
    found = {"rows": 9, "class_rows": [], "least": 2, "epsilon": None, "delta": None, "correlation_error": 0.0}
    found |= {"count_error": 0.0, "columns": [one], "names": ["shop.a\x1b[31m"], "correlations": [[1.0]]}
    record = statistics_record({}, Trained(statistics=found | {"active": "bank"}))
    assert record is not None
    assert record.columns[0].column.isprintable()
    assert record.names[0].isprintable()
    assert np.shape(record.correlations) == (1, 1)
