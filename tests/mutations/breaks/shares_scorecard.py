"""A scorecard on shares: evidence that is subtly wrong, bins that nobody checks, points of the wrong party."""

from mutations.base import Break

__all__ = ["BREAKS"]

_CARD = "securevfl/shares/scorecard/"
_EVIDENCE = _CARD + "evidence.py"
_COURSE = _CARD + "course.py"
_NETWORK = _CARD + "card_network.py"
_MERGED = "tests/shares/scorecard/test_merging.py"
_COMPUTED = "tests/shares/scorecard/test_evidence.py"
_TRAINED = "tests/shares/scorecard/test_card_training.py"

BREAKS = (
    Break(
        name="rows of both classes counted as those of the first",
        file=_EVIDENCE,
        old="concatenate([positives, rows * ONE - positives, total,",
        new="concatenate([positives, rows * ONE, total,",
        tests=(_COMPUTED,),
    ),
    Break(
        name="evidence without the halves of the plain path",
        file=_EVIDENCE,
        old="    doubled = counts * 2 + engine.constant(np.full(counts.shape, ONE, np.uint64))\n",
        new="    doubled = counts * 2\n",
        tests=(_COMPUTED,),
    ),
    Break(
        name="evidence without the odds of all rows",
        file=_EVIDENCE,
        old="logs[cells : 2 * cells] - overall\n",
        new="logs[cells : 2 * cells] - overall * 0\n",
        tests=(_COMPUTED,),
    ),
    Break(
        name="evidence without its bounds",
        file=_EVIDENCE,
        old="_LOG_BITS - FRACTION, curve=clip)",
        new="_LOG_BITS - FRACTION)",
        tests=(_COMPUTED,),
    ),
    Break(
        name="a bin of one row less than the job says",
        file=_EVIDENCE,
        old="curve=Curve((least,)))",
        new="curve=Curve((least - 1,)))",
        tests=(_COMPUTED + "::test_a_bin_with_fewer_rows_than_the_job_says_is_found",),
    ),
    Break(
        name="evidence of the columns in the order of their bins",
        file=_EVIDENCE,
        old="looked.append(stacked[order].T)",
        new="looked.append(stacked.T)",
        tests=(_COMPUTED, _TRAINED),
    ),
    Break(
        name="bins that are too small train on",
        file=_COURSE,
        old="        if not await engine.is_zero(BINS_CHECK, short):\n",
        new="        if not await engine.is_zero(BINS_CHECK, short * 0):\n",
        tests=(_TRAINED + "::test_a_party_that_cuts_smaller_bins_than_the_job_says_is_refused_by_all",),
    ),
    Break(
        name="places of a batch that nobody compares",
        file=_COURSE,
        old='            await self.network.engine.confirm("input", self._columns[used], self.kept.train[used])\n',
        new="            self._columns[used]\n",
        tests=(_TRAINED + "::test_other_rows_of_a_batch_at_one_party_are_noticed",),
    ),
    Break(
        name="bins that nobody compares",
        file=_COURSE,
        old='            await self.network.engine.confirm(f"bins {self.layout.digest}")\n',
        new='            await self.network.engine.confirm("bins")\n',
        tests=(_TRAINED + "::test_bins_that_parties_were_told_differently_are_noticed",),
    ),
    Break(
        name="loaded evidence that no range bounds",
        file=_NETWORK,
        old="            return concatenate([await super().out_of_range(), found])\n",
        new="            return concatenate([await super().out_of_range(), found * 0])\n",
        tests=(_COMPUTED + "::test_loaded_evidence_out_of_range_is_found",),
    ),
    Break(
        name="evidence that a restart does not draw anew",
        file=_NETWORK,
        old="*([] if self.evidence is None else [self.evidence])]\n",
        new="*([] if self.evidence is None else [self.evidence * 0])]\n",
        tests=(_TRAINED,),
    ),
    Break(
        name="the bias among a passive party's points",
        file=_CARD + "release.py",
        old="(values[:-1], float(values[-1])) if active else (values, None)",
        new="(values, None) if active else (values[:-1], float(values[-1]))",
        tests=(_COMPUTED,),
    ),
    Break(
        name="equal neighbours that are not merged",
        file=_CARD + "merging.py",
        old="await _compare(engine, stack([rises, -rises], 0), _ABOVE)",
        new="await _compare(engine, stack([rises, -rises], 0), 0.0)",
        tests=(_MERGED + "::test_equal_neighbours_are_merged_and_one_or_two_bins_stay",),
    ),
    Break(
        name="a boundary that stays though one pair of runs is in the wrong order",
        file=_CARD + "merging.py",
        old="    return await _compare(engine, short, 0.0)\n",
        new="    return await _compare(engine, short, -1 / ONE)\n",
        tests=(_MERGED + "::test_merged_counts_are_those_of_the_plain_path",),
    ),
    Break(
        name="the direction that changes shares more",
        file=_CARD + "merging.py",
        old="change[0] - change[1], 0.0)",
        new="change[1] - change[0], 0.0)",
        tests=(_MERGED + "::test_merged_counts_are_those_of_the_plain_path",),
    ),
    Break(
        name="merged bins weigh as one of them",
        file=_CARD + "course.py",
        old="            merged, positives = await merge_bins(",
        new="            _, positives = await merge_bins(",
        tests=(_MERGED + "::test_a_job_merges_its_counts_and_every_party_gets_points_that_rise_or_fall",),
    ),
    Break(
        name="bins are too small only once they are merged",
        file=_CARD + "course.py",
        old="dealt=rows)",
        new="dealt=merged)",
        tests=(_MERGED + "::test_a_bin_that_is_too_small_is_found_also_where_it_is_merged",),
    ),
)
