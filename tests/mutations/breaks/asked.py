"""The rules on what may be asked on shares: what is checked before anything is opened, and how metrics count."""

from mutations.base import Break

__all__ = ["BREAKS"]

_COURSE = "securevfl/shares/course.py"
_KEPT = ("tests/shares/test_kept_targets.py",)
_ANSWERS = ("tests/shares/test_answers.py",)
_NUMBERS = ("tests/shares/test_numbers.py",)
_USEFUL = "securevfl/shares/usefulness.py"
_METRICS = "securevfl/shares/metrics.py"
_DIGESTS = "securevfl/privacy/people_digests.py"

_BEST = ("tests/shares/test_best_epoch.py",)

BREAKS = (
    Break(
        name="targets that were dealt are not checked",
        file=_COURSE,
        old="        if not await check_targets(engine, every, trained, rule, counted=counted):\n",
        new="        if False:\n",
        tests=_KEPT,
        keywords="no_classes",
    ),
    Break(
        name="a target of one half passes for a class",
        file="securevfl/shares/kept_targets.py",
        old='[Product(dealt, dealt - one, "times")]',
        new='[Product(dealt, dealt - one, "times", shift=16)]',
        tests=_KEPT,
        keywords="modulo_2_64",
    ),
    Break(
        name="validation rows of one class are taken",
        file="securevfl/shares/kept_targets.py",
        old="    if counted:\n",
        new="    if False:\n",
        tests=_KEPT,
        keywords="some_of_each_class",
    ),
    Break(
        name="what is opened does not wait for the check of the range",
        file=_COURSE,
        old="        if not await self.network.engine.is_zero(name, await self.network.out_of_range()):\n",
        new="        if False:\n",
        tests=_KEPT,
        keywords="added_to_one_summand",
    ),
    Break(
        name="the range of norms alone is checked",
        file="securevfl/shares/network.py",
        old="        return (await engine.compare(concatenate([*norms, excess]))).reshape(-1)\n",
        new="        return (await engine.compare(concatenate(norms))).reshape(-1)\n",
        tests=("tests/shares/test_network.py", *_KEPT),
    ),
    Break(
        name="validation rows are dealt in each epoch",
        file=_COURSE,
        old="            self._valid = found\n",
        new="            pass\n",
        tests=_KEPT,
        keywords="validation_rows_are_dealt_once",
    ),
    Break(
        name="a model that is not useful answers",
        file=_COURSE,
        old="        useful = opened is not None and int(opened[0]) == 1\n",
        new="        useful = True\n",
        tests=_KEPT,
        keywords="useless",
    ),
    Break(
        name="usefulness compares with means of the first rows",
        file=_USEFUL,
        old="        rows, sums = await self._network.sum_others(inputs)\n",
        new="        if self._counted:\n            return\n"
        "        rows, sums = await self._network.sum_others(inputs)\n",
        tests=_ANSWERS,
        keywords="whatever_order",
    ),
    Break(
        name="usefulness compares with the active party's columns at their mean, too",
        file="securevfl/shares/network.py",
        old="zip(inputs, [inputs[0], *means], strict=True)",
        new="zip(inputs, [inputs[0] * 0, *means], strict=True)",
        tests=_ANSWERS,
        keywords="floating_point",
    ),
    Break(
        name="the mean loss of a number is of predictions of any size",
        file=_METRICS,
        old="        error = await clip_outputs(engine, logits, 1) - targets\n",
        new="        error = logits - targets\n",
        tests=_NUMBERS,
        keywords="however_large",
    ),
    Break(
        name="one over the rows has as many bits for any number of rows",
        file=_METRICS,
        old="        digits, jobs = min(_DIVISOR_BITS, room), []\n",
        new="        digits, jobs = _DIVISOR_BITS, []\n",
        tests=_NUMBERS,
        keywords="wraps",
    ),
    Break(
        name="metrics of a job count nothing",
        file="securevfl/shares/programs.py",
        old="                self.role.count_metrics(rows)\n",
        new="                pass\n",
        tests=_KEPT,
        keywords="restart_counts",
    ),
    Break(
        name="too many sets of metrics are opened between organisations",
        file="securevfl/shares/least_rows.py",
        old="    if found and not site.simulated:\n",
        new="    if False:\n",
        tests=_KEPT,
        keywords="sets_of_metrics",
    ),
    Break(
        name="the verdict on targets is told as any refusal",
        file="securevfl/run/causes.py",
        old="    if isinstance(error, PolicyError) and error.cause in _OTHERS:\n",
        new="    if False:\n",
        tests=("tests/run/test_runner.py",),
        keywords="verdict",
    ),
    Break(
        name="names of different lengths share a digest",
        file=_DIGESTS,
        old="    blocks[:, _HALF] = lengths\n",
        new="",
        tests=("tests/privacy/test_people_digests.py",),
    ),
    Break(
        name="people whose digests begin alike share a count",
        file=_DIGESTS,
        old="            same = used & (self._words[held] == words[left]) & (self._tails[held] == tails[left])\n",
        new="            same = used & (self._words[held] == words[left])\n",
        tests=("tests/privacy/test_people_digests.py",),
    ),
    Break(
        name="a book of before is read with the digests of today",
        file="securevfl/privacy/result_book.py",
        old="            self.digests = line.digests\n",
        new="            pass\n",
        tests=("tests/privacy/test_people_digests.py",),
    ),
    Break(
        name="what is answered is counted in memory first, and in the book at some later time",
        file="securevfl/privacy/opened_values.py",
        old="                self._book.add(self._run, people, width, synced=synced)\n",
        new="                pass\n",
        tests=("tests/privacy/test_result_book.py",),
    ),
    Break(
        name="a count may still be in the system's memory when the answer leaves",
        file="psi/securevfl_net/durable.py",
        old="    append_data(path, data)\n    sync_file(path)\n",
        new="    append_data(path, data)\n",
        tests=("tests/privacy/test_result_book.py",),
        keywords="disk",
    ),
    Break(
        name="of a set of metrics the figures are opened where a bit is due",
        file="securevfl/shares/course.py",
        old="        if self.member.compares:\n            found = await self._compare_with_best(engine, found)\n",
        new="",
        tests=_BEST,
        keywords="one_bit",
    ),
    Break(
        name="rounded metrics cost one number, however often they are opened",
        file="securevfl/shares/programs.py",
        old="if self.sharing.protection.numbers_of_metrics(2) > 1 or (",
        new="if False or (",
        tests=_BEST,
        keywords="cost_a_number",
    ),
    Break(
        name="between organisations rounded metrics are opened by default",
        file="securevfl/shares/protection.py",
        old='self.metrics == "best" or (self.metrics is None and not simulated)',
        new='self.metrics == "best"',
        tests=_BEST,
        keywords="between_organisations",
    ),
    Break(
        name="each epoch is compared with the first one",
        file="securevfl/shares/course.py",
        old="        self.best.share = self.best.share + gain\n",
        new="",
        tests=_BEST,
        keywords="best_of_all",
    ),
    Break(
        name="after a restart every epoch is the best so far",
        file="securevfl/shares/shared_model.py",
        old='                self.best.share = unpack_share(as_dict(state["best"])["figure"])',
        new="                pass",
        tests=_BEST,
        keywords="restart",
    ),
)
