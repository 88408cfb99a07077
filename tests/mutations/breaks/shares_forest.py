"""Trees on shares between growing and answering: small words, cells that nobody compares, scores of another model."""

from mutations.base import Break

__all__ = ["BREAKS"]

_NARROW = "crypto/securevfl_crypto/replicated/narrow.py"
_COURSE = "securevfl/shares/trees/course.py"
_FOREST = "securevfl/shares/trees/forest.py"
_START = "securevfl/shares/trees/start.py"
_PROGRAMS = "securevfl/shares/trees/programs.py"
_BINS = "securevfl/algorithms/boosting/on_shares.py"
_WORDS = "tests/crypto/test_narrow.py"
_TREES = "tests/shares/trees/"
_JOBS = _TREES + "test_boosting_jobs.py"
_SCORED = _TREES + "test_forest.py"

BREAKS = (
    Break(
        name="one seed for every table that its owner deals",
        file=_NARROW,
        old="    seed = os.urandom(_SEED)\n",
        new="    seed = bytes(_SEED)\n",
        tests=(_WORDS,),
    ),
    Break(
        name="two summands of small words from one seed",
        file=_NARROW,
        old="    seeds = [os.urandom(_SEED) for _ in range(2)]\n",
        new="    seeds = [os.urandom(_SEED)] * 2\n",
        tests=(_WORDS,),
    ),
    Break(
        name="a part in the place of the zero that owners never send",
        file=_NARROW,
        old="        if len(self.parts) != 1:\n",
        new="        if not self.parts:\n",
        tests=(_WORDS, _TREES + "test_owned_cells.py"),
    ),
    Break(
        name="the summand of an owned table by the wrong factor",
        file=_NARROW,
        old='"next" if dealt.has_seed else "mine"',
        new='"mine" if dealt.has_seed else "next"',
        tests=(_WORDS,),
    ),
    Break(
        name="a product of a dealt table left out",
        file=_NARROW,
        old='"both" if index == 1 else "mine"',
        new='"mine"',
        tests=(_WORDS,),
    ),
    Break(
        name="small words of which half are compared",
        file=_NARROW,
        old="return Share(pack(self.mine), pack(self.next))",
        new="return Share(pack(self.mine), pack(self.mine))",
        tests=(_WORDS,),
    ),
    Break(
        name="cells that nobody compares",
        file=_COURSE,
        old='            await member.engine.confirm("cells", *shares)\n',
        new='            await member.engine.confirm("cells")\n',
        tests=(_JOBS,),
    ),
    Break(
        name="first scores that nobody compares",
        file=_COURSE,
        old='await engine.confirm("first scores", share.as_words())',
        new='await engine.confirm("first scores")',
        tests=(_TREES + "test_first_scores.py",),
    ),
    Break(
        name="every row in every tree",
        file=_COURSE,
        old="            used = np.zeros(rows, np.int64)\n",
        new="            used = np.ones(rows, np.int64)\n",
        tests=(_JOBS + "::test_rows_and_columns_of_a_round_follow_the_job",),
    ),
    Break(
        name="every column in every tree",
        file=_COURSE,
        old="draw_columns(seed, number, usable, self.terms.columns)",
        new="draw_columns(seed, number, usable, 1.0)",
        tests=(_JOBS + "::test_rows_and_columns_of_a_round_follow_the_job",),
    ),
    Break(
        name="errors of numbers cut at one of their scales",
        file=_COURSE,
        old="    largest = 1.0 if classes > 1 else ERROR_BOUND\n",
        new="    largest = 1.0\n",
        tests=(_JOBS,),
    ),
    Break(
        name="scores of a model that went back",
        file=_FOREST,
        old="if inputs.scores is None or inputs.trees > len(self.trees):",
        new="if inputs.scores is None:",
        tests=(_SCORED + "::test_rows_are_scored_again_where_the_model_went_back",),
    ),
    Break(
        name="the active party's columns averaged in place of the others",
        file=_FOREST,
        old="slice(None, starts[self.shape.own]) if others else slice(starts[self.shape.own], None)",
        new="slice(starts[self.shape.own], None) if others else slice(None, starts[self.shape.own])",
        tests=(_SCORED,),
    ),
    Break(
        name="leaves that no range bounds",
        file=_FOREST,
        old="*(tree.leaves for tree in self.trees[self._checked :])",
        new="*(tree.leaves * 0 for tree in self.trees[self._checked :])",
        tests=(_SCORED + "::test_leaves_out_of_range_are_seen_and_looked_at_once",),
    ),
    Break(
        name="loaded leaves that count as looked at",
        file=_FOREST,
        old="        self._checked, self.fitted = 0, None\n",
        new="        self.fitted = None\n",
        tests=(_SCORED,),
    ),
    Break(
        name="trees without their initial scores",
        file=_FOREST,
        old="        return found if inputs.first is None else found + inputs.first\n",
        new="        return found\n",
        tests=(_TREES + "test_first_scores.py",),
    ),
    Break(
        name="sides that a restart does not draw anew",
        file=_FOREST,
        old="                Share(tree.sides.mine.astype(np.uint64), tree.sides.next.astype(np.uint64)),\n",
        new="                Share(tree.sides.mine.astype(np.uint64), tree.sides.next.astype(np.uint64) * 0),\n",
        tests=(_SCORED, _JOBS),
    ),
    Break(
        name="rare classes that the sigmoid cannot tell",
        file=_PROGRAMS,
        old="        if 0 < rarer < LEAST_RATE:\n",
        new="        if 0 < rarer < LEAST_RATE / 2:\n",
        tests=(_JOBS + "::test_rare_classes_and_many_classes_are_refused_before_a_row_is_dealt",),
    ),
    Break(
        name="a mean of one row more",
        file=_START,
        old="round(2.0**shift / rows)",
        new="round(2.0**shift / (rows + 1))",
        tests=(_SCORED + "::test_initial_scores_are_log_odds_or_means",),
    ),
    Break(
        name="a new row without a value in a cell of the next column",
        file=_BINS,
        old="np.minimum(codes, most.astype(np.int64)).T",
        new="codes.T",
        tests=(_JOBS,),
    ),
)
