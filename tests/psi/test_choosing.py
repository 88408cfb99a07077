"""`auto`: both ends choose alike, by sizes and link, and say why; who names a protocol gets it or is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from securevfl_psi import choosing
from securevfl_psi.choosing import choose_protocol
from securevfl_psi.endpoint import Endpoint, run_in_process
from securevfl_psi.errors import DisagreementError, MalformedError, PSIError
from securevfl_psi.terms import RequestedProtocol
from support.psi_ends import BANK, SHOP, terms

from benchmarks.psi_links import LINES

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
SIZES = st.integers(0, 1 << 32)


def _auto(one: RequestedProtocol, other: RequestedProtocol, **more: Any) -> tuple[Endpoint, Endpoint]:
    links = more.pop("links", (None, None))
    ends = [
        Endpoint(ids, terms(side, protocol, link=link, **more))  # type: ignore[arg-type]
        for ids, side, protocol, link in zip((BANK, SHOP), ("receiver", "sender"), (one, other), links, strict=True)
    ]
    run_in_process(ends[0], ends[1])
    return ends[0], ends[1]


@pytest.mark.parametrize(
    ("sizes", "link", "protocol"),
    [
        ((3, 4), None, "dh"),
        ((1 << 12, 1 << 12), None, "dh"),
        ((1 << 17, 1 << 17), None, "ot"),
        ((1 << 20, 1 << 20), None, "ot"),
        ((1 << 20, 1 << 20), 100.0, "ot"),
        ((1 << 20, 1 << 20), 1.0, "dh"),  # where bytes are all that counts, dh moves fewer in one direction
        ((1 << 12, 1 << 24), 100.0, "ot"),
        ((0, 0), None, "dh"),
    ],
)
def test_sizes_and_link_decide(sizes: tuple[int, int], link: float | None, protocol: str) -> None:
    chosen = choose_protocol(*sizes, link)
    assert chosen.protocol == protocol
    assert f"{sizes[0]:,} identifiers ask {sizes[1]:,}" in chosen.why
    assert ("Mbit/s" in chosen.why) == (link is not None)
    assert "dh about" in chosen.why
    assert "ot about" in chosen.why


def _measured() -> Iterator[tuple[str, tuple[int, int], float | None, dict[str, float]]]:
    """Line, sizes, megabits a second, and seconds of each protocol, as the benchmarks found them."""
    links = json.loads((RESULTS / "psi_links.json").read_text(encoding="utf-8"))
    for line, (megabits, _) in {"none": (None, 0.0), **{k: v for k, v in LINES.items() if v}}.items():
        yield line, (1 << 20, 1 << 20), megabits, {name: links[line][name]["seconds"] for name in ("dh", "ot")}
    small = json.loads((RESULTS / "psi_unbalanced.json").read_text(encoding="utf-8"))
    for line, runs in small["runs"].items():
        megabits = float(line.split()[0]) if "Mbit" in line else None
        seconds = {name: runs[name][0]["seconds"] for name in ("dh", "ot")}
        yield line, (small["small"], small["large"]), megabits, seconds


def test_what_it_takes_was_the_faster_one_on_every_line_that_was_measured() -> None:
    found = list(_measured())
    assert len(found) >= 11
    for line, sizes, megabits, seconds in found:
        assert choose_protocol(*sizes, megabits).protocol == min(seconds, key=lambda name: seconds[name]), line


@given(SIZES, SIZES, st.none() | st.floats(1e-3, 1e6))
def test_every_size_has_an_answer(client: int, server: int, link: float | None) -> None:
    assert choose_protocol(client, server, link).protocol in ("dh", "ot")


@pytest.mark.parametrize("learns", ["both", "receiver"])
@pytest.mark.parametrize("chosen", ["dh", "ot"])
def test_both_ends_run_what_was_chosen(monkeypatch: pytest.MonkeyPatch, chosen: str, learns: str) -> None:
    monkeypatch.setattr(choosing, "_START", 0.0 if chosen == "ot" else 1.0)
    monkeypatch.setattr(choosing, "_ENCODED", 0.0 if chosen == "ot" else 1.0)
    monkeypatch.setattr(choosing, "_LOOKED_UP", 0.0 if chosen == "ot" else 1.0)
    for end in _auto("auto", "auto", learns=learns):
        assert end.result.protocol == chosen
        assert "3 identifiers ask 4: dh about" in end.result.why
    assert _auto("auto", "auto", links=(8.0, 5.0))[1].result.why.count("over 5 Mbit/s") == 1


@pytest.mark.parametrize("named", ["dh", "ot"])
def test_who_names_a_protocol_gets_it(named: RequestedProtocol) -> None:
    for one, other, who in ((named, "auto", "bank"), ("auto", named, "shop")):
        for end in _auto(one, other):  # type: ignore[arg-type]
            assert end.result.protocol == named
            assert end.result.why == f"{who} wants it"
            assert end.result.count == 2


@pytest.mark.parametrize("named", ["cardinality", "pseudonyms", "unsafe_salted_hash"])
def test_nothing_else_can_be_slipped_in(named: RequestedProtocol) -> None:
    """A party that leaves the choice open never shows more than `dh` and `ot` do."""
    with pytest.raises(DisagreementError, match=f"protocol '{named}'|protocol 'auto'"):
        _auto("auto", named)
    with pytest.raises(DisagreementError, match=f"protocol '{named}'|protocol 'auto'"):
        _auto(named, "auto")
    with pytest.raises(DisagreementError, match=r"protocol 'ot'|protocol 'dh'"):
        _auto("dh", "ot")


@pytest.mark.parametrize("link", ["fast", -1, 0, True, [], 1e999])
def test_hostile_links(link: object) -> None:
    hello = json.loads(terms("sender", "auto").encode_hello(3)) | {"link": link}
    with pytest.raises(MalformedError, match="a number above 0 was expected"):
        terms("receiver", "auto").accept_hello(json.dumps(hello).encode(), 3)


@pytest.mark.parametrize(("protocol", "link"), [("auto", 0.0), ("auto", float("nan")), ("dh", 5.0)])
def test_links_that_cannot_be(protocol: RequestedProtocol, link: float) -> None:
    with pytest.raises(PSIError, match=r"link=.*megabits a second"):
        terms("receiver", protocol, link=link)


def test_padded_sizes_decide() -> None:
    """The same at both ends: what is announced counts, as the peer knows nothing else."""
    bank, shop = _auto("auto", "auto", pad_to=50)
    assert bank.result.why == shop.result.why
    assert "50 identifiers ask 50" in bank.result.why
