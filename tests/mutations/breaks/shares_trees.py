"""Trees on shares: fractions, ties, scales, gates and sides that are subtly wrong."""

from mutations.base import Break

__all__ = ["BREAKS"]

_TREES = "securevfl/shares/trees/"
_SPLITS = _TREES + "splits.py"
_GROWING = _TREES + "growing.py"
_CANDIDATES = _TREES + "candidates.py"
_TOURNAMENT = _TREES + "tournament.py"
_TESTS = "tests/shares/trees/test_growing.py"
_SELECT = "tests/shares/trees/test_tournament.py"
_SETS = "tests/shares/trees/test_sets_of_levels.py"

BREAKS = (
    Break(
        name="a fraction of a split without the one in its denominator",
        file=_SPLITS,
        old="    below = products[0] + _share_constant(engine, 1, shape)\n",
        new="    below = products[0]\n",
        tests=(_TESTS + "::test_a_fraction_of_nothing_does_not_win",),
    ),
    Break(
        name="no split compared last",
        file=_SPLITS,
        old="    return concatenate([stays[:, None], above], 1), concatenate([stays_below[:, None], below], 1)\n",
        new="    return concatenate([above, stays[:, None]], 1), concatenate([below, stays_below[:, None]], 1)\n",
        tests=(_TESTS,),
    ),
    Break(
        name="no split compared last, and taken for it",
        file=_SPLITS,
        old="    chosen = await find_largest(engine, *fractions, plan_stages(count, widest))\n"
        "    return chosen[:, 1:]\n",
        new="    fractions = tuple(concatenate([part[:, 1:], part[:, :1]], 1) for part in fractions)\n"
        "    chosen = await find_largest(engine, *fractions, plan_stages(count, widest))\n    return chosen[:, :-1]\n",
        tests=(_TESTS,),
    ),
    Break(
        name="no split that counts no penalty",
        file=_SPLITS,
        old="        Product(squares[0], scaled.penalty, ",
        new="        Product(squares[0], scaled.penalty * 0, ",
        tests=(_TESTS,),
    ),
    Break(
        name="gradients scaled by the number of rows",
        file=_SPLITS,
        old="    size = totals[2] + _share_constant(engine, rule.to_word(1), totals[2].shape)\n",
        new="    size = _share_constant(engine, rule.to_word(rule.rows), totals[2].shape)\n",
        tests=(_TESTS + "::test_small_gradients_lose_no_gain",),
    ),
    Break(
        name="a least sum of h on the left side only",
        file=_SPLITS,
        old="for x in (v, whole.broadcast_to(shape) - v)]\n",
        new="for x in (v, v)]\n",
        tests=(_TESTS,),
    ),
    Break(
        name="a least sum of h that forgets the penalty",
        file=_SPLITS,
        old="        least = bits_of((rule.to_word(rule.min_hessian) + penalty,))\n",
        new="        least = bits_of((rule.to_word(rule.min_hessian),))\n",
        tests=(_TESTS,),
    ),
    Break(
        name="directions that nothing holds",
        file=_SPLITS,
        old="    held, free = np.flatnonzero(directions), np.flatnonzero(directions == 0)\n",
        new="    directions = directions * 0\n"
        "    held, free = np.flatnonzero(directions), np.flatnonzero(directions == 0)\n",
        tests=(_TESTS + "::test_a_split_follows_the_direction_of_its_column",),
    ),
    Break(
        name="directions the wrong way round",
        file=_SPLITS,
        old="u[:, held] * directions[held]",
        new="u[:, held] * (-directions[held])",
        tests=(_TESTS + "::test_a_split_follows_the_direction_of_its_column",),
    ),
    Break(
        name="leaves that no split above them bounds",
        file=_TREES + "leaves.py",
        old="    return await _clip(engine, leaves, low, high)\n",
        new="    return leaves\n",
        tests=(_TESTS + "::test_scores_only_rise_or_fall_with_a_column_that_has_a_direction",),
    ),
    Break(
        name="bounds of a split that forget those above it",
        file=_TREES + "leaves.py",
        old="await _clip(engine, middle, low, high) if level else middle\n",
        new="middle\n",
        tests=(_TESTS + "::test_scores_only_rise_or_fall_with_a_column_that_has_a_direction",),
    ),
    Break(
        name="half of the least gain",
        file=_SPLITS,
        old="math.ldexp(rule.min_gain, exponent",
        new="math.ldexp(rule.min_gain * 0.5, exponent",
        tests=(_TESTS,),
    ),
    Break(
        name="a least gain by the scale of h alone",
        file=_SPLITS,
        old="counts[0] - counts[1] * 2 -",
        new="counts[0] - counts[1] -",
        tests=(_TESTS,),
    ),
    Break(
        name="the later of two equal fractions wins too",
        file=_TOURNAMENT,
        old="engine.constant(np.broadcast_to(later.astype(np.uint64), won.shape).copy())\n"
        "        factors.append(one + won * np.where(later, -1, 1))\n",
        new="engine.constant(np.broadcast_to((later * 0).astype(np.uint64), won.shape).copy())\n"
        "        factors.append(one + won)\n",
        tests=(_SELECT,),
    ),
    Break(
        name="the last of equal fractions wins",
        file=_TOURNAMENT,
        old="    left, right = np.triu_indices(size, 1)\n",
        new="    right, left = np.triu_indices(size, 1)\n",
        tests=(_SELECT,),
    ),
    Break(
        name="right children that are their left siblings",
        file=_GROWING,
        old="            np.subtract(whole[..., block], part, out=found[:, :, 1, block])\n",
        new="            found[:, :, 1, block] = part\n",
        tests=(_TESTS,),
    ),
    Break(
        name="sums of children in the order of the parents",
        file=_GROWING,
        old="            found[:, :, 0, block] = part\n"
        "            np.subtract(whole[..., block], part, out=found[:, :, 1, block])\n",
        new="            found[:, :, 1, block] = part\n"
        "            np.subtract(whole[..., block], part, out=found[:, :, 0, block])\n",
        tests=(_TESTS,),
    ),
    Break(
        name="leaves that share their parents' sums",
        file=_GROWING,
        old="_interleave([found[0][:, 0].T[..., None]], totals[:2, :, None])",
        new="_interleave([found[0][:, 0].T[..., None]], found[0][:, 0].T[..., None] * 2)",
        tests=(_TESTS,),
    ),
    Break(
        name="sides added up from the wrong end of a column",
        file=_CANDIDATES,
        old="words[:, one.places]), one.left)",
        new="words[:, one.places]), one.left[:, ::-1])",
        tests=(_TESTS,),
    ),
    Break(
        name="missing values that never go left",
        file=_CANDIDATES,
        old="    missing_left[:, count] = 1\n",
        new="",
        tests=(_TESTS,),
    ),
    Break(
        name="sums of another split than the sides",
        file=_CANDIDATES,
        old="flat[:, one.cells]), one.left.T)",
        new="flat[:, one.cells]), one.left[::-1].T)",
        tests=(_TESTS,),
    ),
    Break(
        name="categories split in the owner's order",
        file=_CANDIDATES,
        old="_part_cells(count + lacks) if parts",
        new="_cut_cells(count + lacks, lacks=False) if parts",
        tests=(_SETS,),
    ),
    Break(
        name="sets made of as many cells as a peer says",
        file=_TREES + "programs.py",
        old=" or not all(fits_sets(cells, most) for cells in (bins + missing)[sets].tolist()):\n",
        new=":\n",
        tests=(_SETS + "::test_a_column_with_too_many_sets_is_refused_before_any_is_made",),
    ),
    Break(
        name="sets of a column that may only rise",
        file=_TREES + "programs.py",
        old="if directions[sets].any() or not",
        new="if not",
        tests=(_SETS + "::test_a_column_with_too_many_sets_is_refused_before_any_is_made",),
    ),
    Break(
        name="sets that take no account of missing values",
        file="securevfl/algorithms/boosting/on_shares.py",
        old="fits_sets(count + lacks, most)",
        new="fits_sets(count, most)",
        tests=(_SETS + "::test_a_party_parts_its_categories_with_few_levels",),
    ),
    Break(
        name="low bits of sums taken for all",
        file=_GROWING,
        old="        tasks = [scale_task(self.engine, totals, self.rule), Task(summand, shift)]\n",
        new="        tasks = [scale_task(self.engine, totals, self.rule), Task(summand >> np.uint64(shift))]\n",
        tests=(_TESTS,),
    ),
    Break(
        name="low bits of sides taken for all",
        file=_TREES + "cells.py",
        old="    own = summand.astype(np.uint64, copy=False) << np.uint64(shift)\n",
        new="    own, shift = summand.astype(np.uint64, copy=False), 0\n",
        tests=(_TESTS,),
    ),
    Break(
        name="two parties that add the same cells' products",
        file=_TREES + "cells.py",
        old="        return [y.next, y.mine + y.next if self._index == 1 else y.mine]\n",
        new="        return [y.next, y.mine + y.next]\n",
        tests=(_TESTS,),
    ),
    Break(
        name="leaves without the rate",
        file=_GROWING,
        old="round(self.rule.rate * (1 << FRACTION))",
        new="(1 << FRACTION)",
        tests=(_TESTS,),
    ),
    Break(
        name="leaves without the penalty",
        file=_TREES + "leaves.py",
        old="(sums[1] + penalty) * finer",
        new="sums[1] * finer",
        tests=(_TESTS,),
    ),
    Break(
        name="errors of numbers that may leave their words",
        file=_TREES + "gradients.py",
        old="Curve((-edge, edge), (1, -1), start=-edge)",
        new="Curve((-1 << 40, 1 << 40), (1, -1), start=-1 << 40)",
        tests=(_TESTS,),
    ),
    Break(
        name="h of a hessian that is not p (1 − p)",
        file=_TREES + "gradients.py",
        old="Task(multiply_summand(engine, p, rest), 2 * bits - own)",
        new="Task(multiply_summand(engine, p, p), 2 * bits - own)",
        tests=(_TESTS,),
    ),
)
