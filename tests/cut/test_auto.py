"""Protection "auto": what it takes follows from machines and links, all parties go on under it, and it says why."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import securevfl_crypto as crypto
import torch
from support.clear_scheme import Clear
from support.cuts import KITS, link_in_memory

import securevfl as sv
from securevfl.cut import auto
from securevfl.cut.auto import AutoActive, AutoPassive, Timing, predict_seconds
from securevfl.cut.costs import Speed
from securevfl.cut.spec import CutSpec
from securevfl.transport import Kind

SPEC = CutSpec(width=3, lr=0.5, batch_size=8)
SCHEMES = {"small": Clear(), "large": Clear(1 << 59)}
TIMINGS = {"small": Timing(0.05, 0.05, 100_000), "large": Timing(0.01, 0.01, 3_000_000)}


@pytest.fixture(autouse=True)
def _timed(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {scheme: name for name, scheme in SCHEMES.items()}
    monkeypatch.setattr(auto, "time_step", lambda scheme, spec, width: TIMINGS[names[scheme]])


def run(link: Speed | None, offered: dict[str, crypto.Scheme] | None = None) -> tuple[torch.Tensor, dict[str, Any]]:
    world = link_in_memory()

    async def active() -> torch.Tensor:
        cut = AutoActive(world["a"], SPEC, SCHEMES, link=link)
        await cut.setup()
        assert cut.widths == {"p1": 4, "p2": 2}
        z = await cut.forward(5, train=True)
        await cut.backward(torch.ones(5, 3) / 8)
        cut.restore(cut.snapshot())
        return z

    async def passive(name: str, width: int) -> None:
        cut = AutoPassive(world[name], SPEC, offered or SCHEMES, link=link)
        await cut.setup(width, trainable=name == "p1")
        await cut.forward(torch.ones(5, width), train=True)
        back = await cut.backward()
        assert (back is None) == (name != "p1")
        cut.restore(cut.snapshot())

    async def together() -> torch.Tensor:
        z, *_ = await asyncio.gather(active(), passive("p1", 4), passive("p2", 2))
        return z

    return asyncio.run(together()), world


def test_slow_links_make_it_take_little_traffic_and_fast_ones_little_work() -> None:
    for bandwidth, taken in ((1e6, "small"), (1e9, "large")):
        _, world = run(Speed(bandwidth, 0.01))
        assert f"took {taken}" in world["a"].notes[0]
        assert "as stated" in world["a"].notes[0]
        choices = [e for e in world["p1"].ledger.entries if e.what == "cut/choice"]
        assert [e.kind for e in choices] == [Kind.CONTROL]


def test_links_are_measured_where_they_are_not_stated() -> None:
    _, world = run(None)
    assert "(measured)" in world["a"].notes[0]
    assert sum(e.what == "cut/probe" for e in world["p2"].ledger.entries) == 4


def test_it_computes_what_the_scheme_it_takes_computes() -> None:
    z, _ = run(Speed(1e9, 0.0))
    world = link_in_memory()

    async def together() -> torch.Tensor:
        kit = KITS["fixed point"]

        async def active() -> torch.Tensor:
            cut = kit.active(world["a"], SPEC)
            await cut.setup()
            return await cut.forward(5, train=False)

        async def passive(name: str, width: int) -> None:
            cut = kit.passive(world[name], SPEC)
            await cut.setup(width, trainable=False)
            await cut.forward(torch.ones(5, width), train=False)

        found, *_ = await asyncio.gather(active(), passive("p1", 4), passive("p2", 2))
        return found

    assert torch.equal(z, asyncio.run(together()))


def test_what_not_all_parties_offer_is_not_taken() -> None:
    _, world = run(Speed(1e9, 0.0), {"small": SCHEMES["small"]})
    assert "took small" in world["a"].notes[0]


@pytest.mark.parametrize("choice", ["rsa", 3])
def test_a_choice_that_the_job_does_not_offer_is_refused(choice: str | int) -> None:
    world = link_in_memory(passive=("p1",))

    async def active() -> None:
        await world["a"].links["p1"].receive(Kind.CONTROL, "cut/measured")
        await world["a"].links["p1"].send(Kind.CONTROL, "cut/choice", meta={"scheme": choice})

    async def together() -> None:
        cut = AutoPassive(world["p1"], SPEC, SCHEMES, link=Speed(1e9, 0.0))
        await asyncio.gather(active(), cut.setup(4, trainable=False))

    with pytest.raises(sv.ProtocolError, match="the job offers small, large: nothing was encrypted"):
        asyncio.run(together())


def test_the_estimate_adds_up() -> None:
    two = [Timing(0.1, 9.0, 1_000_000)] * 2
    seconds = predict_seconds(two, [0.3, 0.5], [Speed(1e6, 0.01), Speed(2e6, 0.02)])
    assert seconds == pytest.approx(0.2 + 0.5 + 1.0 + 0.5 + 0.04)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"offers": ()}, r"auto\.offers has 0 values; a list of 1 or more values"),
        ({"offers": ("rsa",)}, "auto offers 'rsa'; known: 'bfv', 'ckks', 'paillier'"),
        ({"offers": ("ckks", "palier")}, "did you mean 'paillier'"),
        ({"mbit": 0}, r"auto\.mbit is 0; a number above 0"),
        ({"latency_ms": -1}, r"auto\.latency_ms is -1; a number from 0"),
        ({"bits": 1024}, r"auto\.bits is 1024; a whole number from 2048 to 8192"),
        ({"bits": 2049}, "a multiple of 64"),
    ],
)
def test_impossible_settings_are_refused(change: dict[str, Any], match: str) -> None:
    with pytest.raises(sv.InputError, match=match):
        sv.Auto(**change)


def test_a_snapshot_of_another_scheme_is_refused_with_the_cure() -> None:
    with pytest.raises(sv.ProtocolError, match=r"'bfv'.*took 'ckks' now: go on with protection 'bfv'"):
        auto._require_scheme("ckks", {"scheme": "bfv", "state": 1})
    assert auto._require_scheme("bfv", {"scheme": "bfv", "state": 1}) == 1
    with pytest.raises(TypeError, match="not a snapshot"):
        auto._require_scheme("bfv", [1])


@pytest.mark.parametrize(("width", "fine"), [((1 << 24) // 3, False), (1 << 20, True), (0, False), (4.0, False)])
def test_a_width_that_no_cut_has_is_not_timed(width: float, fine: bool) -> None:
    """Nor is a wide one timed in full: what is encrypted for the measurement does not grow with what a peer says."""
    world, timed = link_in_memory(passive=("p1",)), list[int]()

    def measure(scheme: crypto.Scheme, spec: CutSpec, columns: int) -> Timing:
        timed.append(columns)
        raise crypto.OverflowRefused("too large")

    async def together() -> None:
        await world["p1"].links["a"].send(Kind.CONTROL, "cut/measured", meta={"width": width, "small": 0.1})
        await AutoActive(world["a"], SPEC, SCHEMES, link=Speed(1e9, 0.0)).setup()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto, "time_step", measure)
        with pytest.raises(sv.ProtocolError, match="can seal this job" if fine else "wide"):
            asyncio.run(together())
    assert timed == ([1024] if fine else [])


def test_times_of_a_block_that_is_wider_than_is_timed_grow_with_it() -> None:
    found = auto._time_schemes(SCHEMES, SPEC, 4096)
    assert found["small"] == Timing(0.2, 0.2, 400_000)


def test_a_party_that_feeds_another_width_than_it_measured_is_refused() -> None:
    world = link_in_memory(passive=("p1",))

    async def passive() -> None:
        await world["p1"].links["a"].send(Kind.CONTROL, "cut/measured", meta={"width": 2, "small": 0.1, "large": 0.1})
        await world["p1"].links["a"].receive(Kind.CONTROL, "cut/choice")
        await KITS["integers, no cipher"].passive(world["p1"], SPEC).setup(4, trainable=False)

    async def together() -> None:
        await asyncio.gather(AutoActive(world["a"], SPEC, SCHEMES, link=Speed(1e6, 0.0)).setup(), passive())

    with pytest.raises(sv.ProtocolError, match="'p1' measured activations 2 wide, and now feeds 4"):
        asyncio.run(together())
