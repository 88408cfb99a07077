"""What two parties open: no more bits than a value needs, whatever was computed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from securevfl_crypto.replicated import Opening
from securevfl_crypto.two.wire import MemoryEnd, MemoryWires

from securevfl.shares.network_ranges import NetworkShape
from securevfl.shares.two.judging import metric_sizes
from securevfl.shares.two.parties import CountedWire, TwoParty


@dataclass
class Opened:
    """What a party got, and the largest word that was sent."""

    values: np.ndarray | None = None
    sent: list[int] = field(default_factory=list)


def _open(values: np.ndarray, shifts: list[int], sizes: list[int]) -> tuple[np.ndarray, int]:
    wires = MemoryWires(record=True)
    pads = np.random.default_rng(2).integers(0, 1 << 64, values.shape, dtype=np.uint64)

    async def take_part(wire: MemoryEnd) -> np.ndarray | None:
        mine = pads if wire.me else values.view(np.uint64) - pads
        party = TwoParty(None, ("a", "p"), CountedWire(wire), None, {"metrics": Opening(1, (0,))})  # type: ignore[arg-type]
        return await party.open_words("metrics", mine, shifts, sizes)

    one, other = wires.pair()
    found, nothing = wires.run(take_part(one), take_part(other))
    assert nothing is None
    assert found is not None
    (message,) = wires.record
    return found, int(message.arrays[0].max()).bit_length()


@pytest.mark.parametrize(("shift", "size"), [(0, 2), (0, 12), (28, 17), (51, 10), (47, 15), (50, 12)])
def test_values_are_opened_rounded_and_signed(shift: int, size: int) -> None:
    top = (1 << (size - 1)) - 2
    values = np.array([[-top, -1, 0, 1, top]], np.int64) << shift
    found, bits = _open(values, [shift] * 5, [size] * 5)
    assert np.abs(found - (values >> shift)).max() <= (1 if shift else 0)
    assert bits <= size


def test_a_value_that_is_out_of_range_shows_no_more_bits() -> None:
    values = np.full((300, 1), 0x1234_5678_9ABC_DEF0, np.int64)
    found, bits = _open(values, [0], [9])
    assert bits <= 9
    assert set(found.reshape(-1).tolist()) == {0xF0 | -0x100 if 0xDEF0 >> 8 & 1 else 0xF0}


@pytest.mark.parametrize(("classes", "bits"), [(1, 18), (2, 40), (3, 30), (10, 32)])
def test_a_set_of_metrics_has_few_bits(classes: int, bits: int) -> None:
    assert sum(metric_sizes(NetworkShape((3, 2), (), (), classes))) == bits
