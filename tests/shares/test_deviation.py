"""What one computing party can do that does not follow the protocol, and what the others notice: the statements of the
threat model, each with its attack."""

from __future__ import annotations

import numpy as np
import pytest
from support.deviating import ATTACKED, column_weights, draw_tables, packed_columns, read_by_deviating

OWN, THEIRS, LABELS = draw_tables()
INCOME = THEIRS[:, ATTACKED]


def _correlation(logits: np.ndarray) -> float:
    return abs(float(np.corrcoef(logits, INCOME)[0, 1]))


def test_without_a_deviation_predictions_do_not_open_a_column() -> None:
    found = read_by_deviating(OWN, THEIRS, LABELS, None)
    assert found.bits == (1, 1, 1)
    assert _correlation(found.logits) < 0.3


@pytest.mark.parametrize("party", [0, 1, 2])
def test_a_party_that_adds_a_large_number_to_a_weight_is_seen_by_all_three(party: int) -> None:
    """The active party would read the column to half a percent: the range bit must stop all before that."""
    found = read_by_deviating(OWN, THEIRS, LABELS, column_weights(1024), party=party)
    assert found.bits == (0, 0, 0)
    assert _correlation(found.logits) > 0.9999
    assert np.median(np.abs(found.logits / 1024 - INCOME) / INCOME) < 0.01


@pytest.mark.parametrize("party", [0, 1, 2])
def test_a_party_that_adds_to_the_range_bit_as_well_is_not_seen(party: int) -> None:
    """What the threat model states: the bit is computed by the same three, so that it finds mistakes and half-hearted
    deviations, and no proof."""
    found = read_by_deviating(OWN, THEIRS, LABELS, column_weights(1024), party=party, forges=True)
    assert found.bits == (1, 1, 1)
    assert _correlation(found.logits) > 0.9999


@pytest.mark.parametrize("bits", [8, 4])
def test_within_the_range_a_column_is_read_as_well(bits: int) -> None:
    found = read_by_deviating(OWN, THEIRS, LABELS, column_weights(15), rate=2**-14, bits=bits)
    assert found.bits == (1, 1, 1)
    assert _correlation(found.logits) > 0.99


@pytest.mark.parametrize(("columns", "bits"), [(9, 8), (7, 4)])
def test_one_number_a_row_opens_several_columns_of_yes_and_no(columns: int, bits: int) -> None:
    yes, read, bit = packed_columns(columns, bits)
    assert bit == (1, 1, 1)
    assert (yes == read).mean() > 0.99
