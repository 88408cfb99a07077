"""The count of numbers of a row: before anything is dealt, one book a party, for ever."""

from mutations.base import Break

__all__ = ["BREAKS"]

_BOOK = ("tests/privacy/test_result_book.py",)

BREAKS = (
    Break(
        name="on shares, a prediction is counted after it was opened",
        file="securevfl/shares/programs.py",
        old="""        self.role.count_answer(rows)
        if self.sharing.judges_usefulness:
            valid = list(split_chunks(self.role.table.split.valid, self.role.plan.eval_rows))
            await self.course.judge_usefulness(count_rows(valid), self._words_to_score(valid))
        await self.course.predict(count_rows(parts), self._words_to_score(parts))
""",
        new="""        await self.course.predict(count_rows(parts), self._words_to_score(parts))
        self.role.count_answer(rows)
""",
        tests=("tests/privacy/test_results.py",),
        keywords="dealt",
    ),
    Break(
        name="on shares, an answer of K classes counts one number",
        file="securevfl/training/passive_role.py",
        old="            return self.protection.numbers_per_answer(Task(self.table.classes).outputs)\n",
        new="            return 1\n",
        tests=("tests/privacy/test_results.py",),
        keywords="several_classes",
    ),
    Break(
        name="each job's folder has a result book of its own",
        file="securevfl/process/party_process.py",
        old='        book = results or state.path.parent / f"{name}.results.jsonl"\n',
        new='        book = state.path / f"{name}.results.jsonl"\n',
        tests=("tests/process/test_result_books.py",),
        keywords="without_being",
    ),
    Break(
        name="between organisations, the default bound of numbers only counts",
        file="securevfl/training/passive_role.py",
        old="            refuses=policy.writes_bound or not site.simulated,\n",
        new="            refuses=policy.writes_bound,\n",
        tests=("tests/process/test_result_books.py",),
        keywords="without_being",
    ),
    Break(
        name="what was answered is forgotten with time",
        file="securevfl/privacy/opened_values.py",
        old="            before = self._book.count_opened(self._people, self.asker)\n",
        new="            before = self._book.count_opened(self._people, self.asker) * (self._now() < 3e9)\n",
        tests=_BOOK,
        keywords="calendar",
    ),
    Break(
        name="two processes count in a result book at the same time",
        file="securevfl/privacy/result_book.py",
        old='        with lock_file(self.path.with_suffix(".lock")):\n',
        new="        if True:\n",
        tests=_BOOK,
        keywords="two_processes",
    ),
    Break(
        name="changed and removed lines of a result book are not noticed",
        file="securevfl/privacy/result_book.py",
        old="        if not hmac.compare_digest(seal, chain.hex().encode()):\n",
        new="        if False:\n",
        tests=_BOOK,
        keywords="changed_moved",
    ),
    Break(
        name="grants count that the party did not sign",
        file="securevfl/privacy/result_book.py",
        old="        if key is None:\n            return mine\n",
        new="        if True:\n            return mine\n",
        tests=_BOOK,
        keywords="signed",
    ),
    Break(
        name="an older copy of a result book is taken",
        file="securevfl/party/consent.py",
        old="    compare_running(site, {name: meta for name, (_, meta) in said.items()})\n",
        new="",
        tests=("tests/process/test_result_books.py",),
        keywords="older_copy",
    ),
    Break(
        name="a process goes on with an older copy of the result book that was put in its place",
        file="securevfl/privacy/result_book.py",
        old="            if found < number:\n",
        new="            if found < 0 * number:\n",
        tests=_BOOK,
        keywords="older_copy",
    ),
    Break(
        name="a party's own card forgets what was answered under a larger bound",
        file="securevfl/run/own_share.py",
        old="max(numbers, used or 0)",
        new="numbers",
        tests=("tests/run/test_own_share.py",),
        keywords="earlier_bound",
    ),
    Break(
        name="an organisation that is entered at noon has the limits of the day once more",
        file="securevfl/serving/day_book.py",
        old="        if self._organisations.get(asker, asker) != self._asker:\n",
        new="        if asker != self._asker:\n",
        tests=("tests/serving/test_day_book.py",),
        keywords="entered_later",
    ),
)
