"""Files in which people with errors and members of one household look the same: no threshold without being asked."""

from __future__ import annotations

import numpy as np
import pytest
from securevfl_psi.linkage import (
    Code,
    Date,
    Encodings,
    Families,
    FamilyErrors,
    Field,
    LinkageError,
    Schema,
    Text,
    Whole,
    encode_records,
    link_records,
    similar_pairs,
    simulate_families,
    threshold,
    witness_tokens,
)
from securevfl_psi.linkage.decoys import decoys_of
from securevfl_psi.linkage.similarity import dice

KEY = bytes(range(32))
KINDS = {"street_number": Code(), "postcode": Code(), "phone": Code(), "date_of_birth": Date()}
NAMES = ("given_name", "surname", "street_number", "street", "suburb", "postcode", "phone", "date_of_birth")
SCHEMA = Schema(fields=tuple(Field(name=name, kind=KINDS.get(name, Text())) for name in NAMES))
DIRTY = FamilyErrors(typo=0.3, missing=0.08)
SEEDS = (100, 103, 104, 107, 109)
WITNESSES = ({"surname": Whole(), "date_of_birth": Whole()}, {"given_name": Whole(), "phone": Whole()})


def _encoded(files: Families) -> tuple[Encodings, Encodings]:
    a, b = (encode_records(table, SCHEMA, KEY) for table in files.tables)
    return a, b


def _precision(files: Families, rows_a: np.ndarray, rows_b: np.ndarray) -> float:
    return float((files.people[0][rows_a] == files.people[1][rows_b]).mean())


def test_files_that_do_not_show_who_is_common_get_no_threshold_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule that this replaced refused below 0.5: it believed files of which a quarter of the links is right."""
    caught = []
    for seed in SEEDS:
        files = simulate_families(500, common=0.1, together=0.5, errors=DIRTY, seed=seed)
        pair = _encoded(files)
        with pytest.raises(LinkageError, match=r"do not separate|precision is about|the scores show about"):
            link_records(*pair)
        with monkeypatch.context() as patch:
            patch.setattr(threshold, "_CROWDED", np.inf)
            try:
                believed = link_records(*pair)
            except LinkageError:  # by the rule of before
                continue
        true = _precision(files, believed.rows_a, believed.rows_b)
        assert true < 0.45
        assert believed.precision > 0.5
        caught.append(believed.precision - true)
    assert len(caught) >= 2
    assert max(caught) > 0.2


def test_what_the_refusal_says_to_do_helps() -> None:
    files = simulate_families(1000, common=0.2, together=0.5, errors=DIRTY, seed=100)
    pair = _encoded(files)
    with pytest.raises(LinkageError, match=r"Give witnesses, or ask for a precision such as 0\.9"):
        link_records(*pair)
    sure = link_records(*pair, precision=0.9)
    assert _precision(files, sure.rows_a, sure.rows_b) > 0.85
    tokens = tuple(witness_tokens(table, SCHEMA, WITNESSES, KEY) for table in files.tables)
    witnessed = link_records(*pair, witnesses=(tokens[0], tokens[1]))
    assert _precision(files, witnessed.rows_a, witnessed.rows_b) > 0.6
    own = link_records(*pair, threshold=0.8)  # whoever knows better says so
    assert len(own)


@pytest.mark.parametrize(
    ("common", "together", "errors"),
    [(0.5, 0.5, DIRTY), (0.2, 1.0, DIRTY), (0.1, 0.5, FamilyErrors()), (0.1, 1.0, FamilyErrors(uneven=2.0))],
)
def test_files_that_are_told_apart_are_linked(common: float, together: float, errors: FamilyErrors) -> None:
    files = simulate_families(700, common=common, together=together, errors=errors, seed=102)
    found = link_records(*_encoded(files))
    assert _precision(files, found.rows_a, found.rows_b) > 0.65


def test_others_of_the_own_file_are_counted() -> None:
    """Against all pairs, one by one."""
    files = simulate_families(60, common=0.5, seed=2)
    pair = _encoded(files)
    decoys = decoys_of(pair, similar_pairs(*pair), None)
    thresholds = np.array([0.9, 0.75, 0.65])
    expected = np.zeros(3)
    for records in pair:
        rows = np.arange(len(records))
        first, second = (grid.ravel() for grid in np.meshgrid(rows, rows))
        scores = dice(records, records, first[first != second], second[first != second])
        expected += [(scores >= least).sum() / len(records) / 2 for least in thresholds]
    assert decoys.least < 0.65
    assert decoys.count_alike(thresholds) == pytest.approx(expected)
