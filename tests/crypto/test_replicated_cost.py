"""Rounds and bytes of each operation are those that the page on the protocol of shares states."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
from securevfl_crypto.replicated import Computing, Product, Share, deal_shares, run_three

PAGE = Path(__file__).parents[2] / "docs/reference/shares-protocol.md"
N = 240
HEADER = 24
Operation = Callable[[Computing, Share, Share], Awaitable[object]]

OPERATIONS: dict[str, Operation] = {
    "product, not truncated": lambda party, x, bit: party.compute_products([Product(x, x, "times")]),
    "product, truncated": lambda party, x, bit: party.compute_products([Product(x, x, "times", 16)]),
    "the same, times a bit that was computed before": lambda party, x, bit: party.compute_products(
        [Product(x, x, "times", 16, gate=bit)]
    ),
    "the same, then ReLU and its gate": lambda party, x, bit: party.compute_products(
        [Product(x, x, "times", 16, "relu")]
    ),
    "the same, then ReLU6 and its gate": lambda party, x, bit: party.compute_products(
        [Product(x, x, "times", 16, "relu6")]
    ),
    "the same, then the sigmoid in thirteen pieces": lambda party, x, bit: party.compute_products(
        [Product(x, x, "times", 16, "sigmoid")]
    ),
    "refreshed shares": lambda party, x, bit: party.refresh(x),
}


def cost(operation: Operation) -> tuple[int, float]:
    """Rounds, and bytes for each value without the counters of messages."""
    x, bit = deal_shares(np.arange(N, dtype=np.uint64)), deal_shares(np.ones(N, np.uint64))

    async def program(party: Computing) -> None:
        await operation(party, party.read_dealt(x[party.index]), party.read_dealt(bit[party.index]))

    run = run_three(program, record=True, openings={"x": 1})
    messages = sum(len(wire.received) for wire in run.wires)
    return run.rounds, (run.bytes_sent - HEADER * messages) / N


def stated() -> dict[str, tuple[str, str]]:
    """Operation → rounds and bytes, as text, of the page's table."""
    table = PAGE.read_text(encoding="utf-8").partition("| operation |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in table.splitlines()[2:]]
    return {name: (rounds, octets) for name, rounds, octets in rows}


@pytest.mark.parametrize("name", OPERATIONS)
def test_rounds_and_bytes_are_those_of_the_page(name: str) -> None:
    rounds, octets = cost(OPERATIONS[name])
    assert (str(rounds), f"{octets:g}") == stated()[name]


@pytest.mark.parametrize("count", [1, 3, 31])
def test_comparisons_with_several_constants(count: int) -> None:
    assert stated()["comparison with T constants"] == ("4", "96 + 152 T")
    assert cost(lambda party, x, bit: party.compare(x, [float(t) for t in range(count)])) == (4, 96 + 152 * count)


def test_openings_and_digests() -> None:
    assert cost(lambda party, x, bit: party.open("x", x, (0,))) == (1, (8 * N + 32) / N)
    assert cost(lambda party, x, bit: party.confirm("x", x, bit)) == (1, 192 / N)


@pytest.mark.parametrize("count", [2, 3, 10, 12])
def test_rounds_of_a_softmax(count: int) -> None:
    rounds, _ = cost(lambda party, x, bit: party.softmax(x.reshape(-1, count)))
    assert rounds == 14 + int(np.ceil(np.log2(count)))


def test_rounds_of_a_quotient() -> None:
    assert cost(lambda party, x, bit: party.divide(bit, x))[0] == 14


def test_what_does_not_depend_on_each_other_shares_its_rounds() -> None:
    async def all_at_once(party: Computing, x: Share, bit: Share) -> None:
        await party.compute_products(
            [
                Product(x, x, "times"),
                Product(x, x, "times", 16, gate=bit),
                Product(x, x, "times", 3, "relu6"),
                Product(x, bit, "times", 16, "sigmoid"),
            ]
        )

    assert cost(all_at_once) == (4, 24 + 80 + 448 + 1952)
