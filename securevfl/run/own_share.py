"""A party's own card: what the answers that it allows can give away of its own table, for its own eyes alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from securevfl.attacks.learned_share import LearnedShare, compute_share
from securevfl.data import PartyTable
from securevfl.data.features import FeatureEncoder
from securevfl.data.prepare import Preparation
from securevfl.privacy import load_measured
from securevfl.report.record import OwnShareRecord

__all__ = ["compute_own_share"]

_SAMPLE = 20_000
"""Most rows that are looked at, drawn at random."""
_PREDICTED = "final predictions alone"
"""Key in ``measured.json`` of what one number of an honest job gave attackers."""


def compute_own_share(
    table: PartyTable, asker: str, numbers: int | None, *, used: int | None = None, granted: int = 0
) -> OwnShareRecord:
    """Compute what a party's table gives away to one asker at worst. The table stays here, and so should the result:
    it is a statistic of the table.

    Args:
        table: the party's own.
        asker: the party that is answered.
        numbers: most numbers of each row that it gets, ever, grants among them; None without a bound.
        used: of these, so far, of the row with most; None where nobody counted.
        granted: how many of them grants add.

    Raises:
        InputError: columns that cannot be prepared.
    """
    # Numbers that were given under a larger bound, or under a grant that has ended, are not taken back.
    found = _share_of_table(table, None if numbers is None else max(numbers, used or 0))
    predicted = load_measured().get(_PREDICTED)
    return OwnShareRecord(
        party=table.name,
        asker=asker,
        numbers=numbers,
        used=used,
        columns=len(table.feature_names),
        share=1.0 if numbers is None else found.share,
        known=found.known,
        judged=found.judged,
        granted=granted,
        measured=None if predicted is None else max(0.0, predicted.got - max(0.0, predicted.without)),
    )


def _share_of_table(table: PartyTable, numbers: int | None) -> LearnedShare:
    if numbers is None or table.rows == 0:
        return LearnedShare(1.0, 0, len(table.feature_names), 0, 0)
    rows = np.sort(np.random.default_rng(0).permutation(table.rows)[:_SAMPLE])
    if table.preparation is None:  # which takes any column: many categories, missing values, amounts
        table = replace(table, preparation=Preparation())
    encoder = FeatureEncoder.fit(table, rows)
    values = encoder.transform(table, rows).reshape(len(rows), -1)
    parts = [FeatureEncoder({name: one}, encoder.clip, encoder.view) for name, one in encoder.columns.items()]
    widths = [part.transform(table, rows[:1]).reshape(1, -1).shape[1] for part in parts]
    return compute_share(values, numbers, columns=np.repeat(np.arange(len(widths)), widths).tolist())
