"""Candidates of an agreement, and training that goes on: budgets, checkpoints, whose word counts."""

from mutations.base import Break

__all__ = ["BREAKS"]

_CANDIDATES = "securevfl/party/candidates.py"
_KEEPER = "securevfl/party/candidate_keeper.py"
_PROGRAM = "securevfl/party/program.py"
_TESTS = "tests/party/test_agreed_choice.py::"
_DIVERGES = "tests/party/test_diverging.py::"
_BUDGET = (_TESTS + "test_the_budget_is_that_of_all_candidates_together",)
_RESUMES = (_TESTS + "test_an_attempt_resumes_in_the_middle_of_a_candidate",)

BREAKS = (
    Break(
        name="each candidate of an agreement with the whole ε",
        file=_CANDIDATES,
        old="return {name: divide_budget(one, len(jobs)) for name, one in jobs.items()}",
        new="return dict(jobs)",
        tests=_BUDGET,
    ),
    Break(
        name="what candidates that were not kept released left out of ε",
        file=_PROGRAM,
        old="        trained.spent += program.privacy_spent()\n",
        new="",
        tests=_BUDGET,
    ),
    Break(
        name="numbers of one candidate alone held against a policy",
        file="securevfl/party/planning.py",
        old="return sum(known) if len(known) == len(each) else None",
        new="return max(known) if len(known) == len(each) else None",
        tests=_BUDGET,
    ),
    Break(
        name="releases of all candidates under one name",
        file=_KEEPER,
        old='return f"{self._scope}/{release}"',
        new="return release",
        tests=(_TESTS + "test_releases_of_candidates_do_not_count_as_repetitions_of_each_other",),
    ),
    Break(
        name="a candidate that begins anew after a restart",
        file=_KEEPER,
        old="if found is not None:",
        new="if found is not None and first == 0:",
        tests=_RESUMES,
    ),
    Break(
        name="checkpoints of candidates that are over thrown away",
        file="securevfl/run/checkpoint.py",
        old="return bisect_left(self.ends, place[0] + (place[1] > 0))",
        new="return 0",
        tests=_RESUMES,
    ),
    Break(
        name="a candidate kept that nobody agreed to",
        file="securevfl/party/choosing.py",
        old="if not isinstance(told, str) or told not in candidates:",
        new="if not told:",
        tests=(_TESTS + "test_a_passive_party_keeps_nothing_that_was_not_agreed",),
    ),
    Break(
        name="a candidate that diverged trained again after a restart",
        file=_PROGRAM,
        old="        left_out |= told\n",
        new="",
        tests=(_DIVERGES + "test_a_job_that_resumes_does_not_train_it_again_and_counts_what_it_cost",),
    ),
    Break(
        name="what a candidate released before it diverged left out of ε after a restart",
        file=_PROGRAM,
        old="                program.count_earlier()\n",
        new="",
        tests=(_DIVERGES + "test_a_job_that_resumes_does_not_train_it_again_and_counts_what_it_cost",),
    ),
    Break(
        name="a divergence that peers learn before it is written down",
        file=_PROGRAM,
        old="        site.keeper.store_diverged({**left_out, name: why})\n",
        new="",
        tests=(_DIVERGES + "test_a_divergence_is_written_down_before_a_peer_learns_it",),
    ),
    Break(
        name="a message of a candidate that diverged recorded as sent, and never sent",
        file="securevfl/privacy/link.py",
        old="self._unsent.append(message)  # the ledger has its line: `settle_part` still sends it",
        new="pass",
        tests=(_DIVERGES + "test_a_link_ends_a_part_with_what_its_ledger_has_as_sent",),
    ),
    Break(
        name="a peer ends a candidate that is not under way",
        file="securevfl/privacy/link.py",
        old="if self._part and is_outcome(message):",
        new="if is_outcome(message):",
        tests=(_DIVERGES + "test_a_peer_cannot_end_what_is_no_candidate",),
    ),
    Break(
        name="a bound of ε that a peer passed taken for a training that diverged",
        file=_PROGRAM,
        old="    except BoundBroken:\n        raise\n",
        new="",
        tests=(_DIVERGES + "test_a_bound_of_epsilon_that_a_peer_passed_ends_the_job",),
    ),
    Break(
        name="the worst candidate kept",
        file="securevfl/party/choosing.py",
        old="key=lambda name: sign * figures[name][metric], reverse=True)",
        new="key=lambda name: sign * figures[name][metric])",
        tests=(_TESTS + "test_validation_rows_choose_and_only_the_kept_candidate_is_tested",),
    ),
    Break(
        name="training on shares that forgets the helper's part of the earlier model",
        file="securevfl/shares/coordinator.py",
        old="if saved is None and first is not None:",
        new="if saved is not None and first is not None:",
        tests=("tests/run/test_continuing.py::test_training_goes_on_under_protection",),
        keywords="shares",
    ),
    Break(
        name="training that goes on from the part of another run",
        file="securevfl/run/model_parts.py",
        old="if (found := _read_run(folder)) != run:",
        new="if not (found := _read_run(folder)):",
        tests=("tests/process/test_continuing_agreement.py",),
        keywords="plain",
    ),
    Break(
        name="ε of an earlier model left out by the one that goes on",
        file="securevfl/party/eligibility.py",
        old="    if protection.dp is not None:\n        raise InputError(TWO_BUDGETS)",
        new="    if protection.dp is False:\n        raise InputError(TWO_BUDGETS)",
        tests=("tests/run/test_continuing.py::test_what_cannot_go_on_is_refused",),
    ),
)
