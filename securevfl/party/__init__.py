"""One party: what it agrees to, and the program it runs on its own table and links.

- `job`: what all parties agree to run. `declarations`: every message that such a run may send. `eligibility`: which
  parties, epochs and labels an algorithm can serve. `report_options`: what the label owner's report decides with.
- `default_protection`: the protection of a job that names none.
- `consent`: each party checks the job against its own policy and sends the others its decision.
- `numbering`: the parties number their rows alike and agree which of them train, validate and test.
- `reports`, `rendezvous`: parties that may crash at any moment agree on the one state to resume from. `attempts`: what
  a party must keep between attempts at a run.
- `program`: consent, alignment, training and prediction of one party. `alone`: the active party scores rows without
  peers.

`run` and the rooms above it import from here; this folder imports `align`, `training` and what is below. It
names no algorithm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securevfl.lazy import load_on_use

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.party.alone import Alone
    from securevfl.party.consent import Terms, rule_against, terms_of_job
    from securevfl.party.declarations import job_exchanges
    from securevfl.party.default_protection import choose_protection, possible_defaults, with_default_protection
    from securevfl.party.eligibility import (
        check_trains,
        too_few_epochs,
        too_many_classes,
        undecided_choice,
        wrong_parties,
    )
    from securevfl.party.job import Job, JobOptions, JobTerms, Leaving
    from securevfl.party.planning import answer_price, planned_numbers
    from securevfl.party.program import (
        Alignments,
        align_party,
        consent_party,
        helping_program,
        note_spent,
        predict_party,
        run_party,
        scoring_program,
        train_party,
    )
    from securevfl.party.report_options import Costs, ReportOptions

_NAMES = {
    "securevfl.party.alone": "Alone",
    "securevfl.party.consent": "Terms rule_against terms_of_job",
    "securevfl.party.declarations": "job_exchanges",
    "securevfl.party.default_protection": "choose_protection possible_defaults with_default_protection",
    "securevfl.party.eligibility": "check_trains too_few_epochs too_many_classes undecided_choice wrong_parties",
    "securevfl.party.job": "Job JobOptions JobTerms Leaving",
    "securevfl.party.planning": "answer_price planned_numbers",
    "securevfl.party.program": (
        "Alignments align_party consent_party helping_program note_spent predict_party run_party "
        "scoring_program train_party"
    ),
    "securevfl.party.report_options": "Costs ReportOptions",
}
"""Module → the names that it gives to this package, loaded when one of them is first used."""

__all__ = [
    "Alignments",
    "Alone",
    "Costs",
    "Job",
    "JobOptions",
    "JobTerms",
    "Leaving",
    "ReportOptions",
    "Terms",
    "align_party",
    "answer_price",
    "check_trains",
    "choose_protection",
    "consent_party",
    "helping_program",
    "job_exchanges",
    "note_spent",
    "planned_numbers",
    "possible_defaults",
    "predict_party",
    "rule_against",
    "run_party",
    "scoring_program",
    "terms_of_job",
    "too_few_epochs",
    "too_many_classes",
    "train_party",
    "undecided_choice",
    "with_default_protection",
    "wrong_parties",
]

if not TYPE_CHECKING:  # a type checker that saw this would take every name for a public one
    __getattr__ = load_on_use(__name__, _NAMES)
