"""Methods for few common rows, scores without the partner, and verdicts: what would make a table of results wrong."""

from mutations.base import Break

__all__ = ["BREAKS"]

BREAKS = (
    Break(
        name="passive parties that take part together are drawn one by one",
        file="securevfl/training/subsets.py",
        old="np.repeat(draw(generator, rows, 1), parties, axis=1)",
        new="draw(generator, rows, parties)",
        tests=("tests/algorithms/test_subsets.py",),
    ),
    Break(
        name="offsets out of fold come from models that saw the fold",
        file="securevfl/algorithms/residual.py",
        old="[np.concatenate([train[fold != number], others])",
        new="[np.concatenate([train, others])",
        tests=("tests/algorithms/test_residual.py",),
    ),
    Break(
        name="rows are scored alone with the links still there",
        file="securevfl/training/active_program.py",
        old="role.site, replace(role.site, passive=(), links={})",
        new="role.site, role.site",
        tests=(
            "tests/run/test_partial_scoring.py::test_an_algorithm_that_speaks_while_it_scores_alone_is_caught",
            "tests/algorithms/test_check_algorithm.py",
        ),
    ),
    Break(
        name="the weights of averaged models are swapped",
        file="securevfl/training/pooling.py",
        old="np.tensordot(np.asarray(weights), np.stack",
        new="np.tensordot(np.asarray(weights)[::-1], np.stack",
        tests=("tests/algorithms/test_best.py",),
    ),
    Break(
        name="a verdict takes no account of the page's other tests",
        file="securevfl/report/statistics.py",
        old="(len(ps) - place) * ps[i]",
        new="ps[i]",
        tests=("tests/report/test_statistics.py",),
    ),
    Break(
        name="a verdict takes no account of test rows that seeds share",
        file="securevfl/report/statistics.py",
        old="deviation * math.sqrt(1 / n + ratio)",
        new="deviation * math.sqrt(1 / n)",
        tests=("tests/report/test_statistics.py",),
    ),
    Break(
        name="old records count as if seeds shared no test rows",
        file="securevfl/report/split_ratio.py",
        old="if split is None or split.tested is None:\n            return None",
        new="if split is None or split.tested is None:\n            return 0.0",
        tests=("tests/report/test_split_ratio.py",),
    ),
    Break(
        name="cells state no ratio where seeds draw the split of own tables",
        file="securevfl/experiments/split_ratio.py",
        old="0.0 if marked else find_job_ratio(job)",
        new="0.0",
        tests=("tests/report/test_split_ratio.py", "tests/experiments/test_settings_sweep.py"),
    ),
    Break(
        name="a table with two splits counts twice in ranks",
        file="tools/pages/sweep_ranks.py",
        old='return str(section["name"])',
        new="return data",
        tests=("tests/docs/test_sweep_pages.py",),
    ),
    Break(
        name="a verdict from fewer than five seeds",
        file="securevfl/report/statistics.py",
        old="if sample.n >= FEWEST and sample.p is not None",
        new="if sample.p is not None",
        tests=("tests/report/test_statistics.py",),
    ),
    Break(
        name="representations with noise are declared as without it",
        file="securevfl/training/representations.py",
        old="        noised=dp is not None and dp.activation_noise is not None,\n",
        new="        noised=False,\n",
        tests=("tests/algorithms/test_protected.py",),
    ),
    Break(
        name="a server that leaves for good drops what it said last",
        file="securevfl/serving/serving_sessions.py",
        old="                        parks = False ",
        new="                        parks = True ",
        tests=("tests/serving/test_leaving.py",),
    ),
)
