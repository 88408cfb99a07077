"""Agreements: what several parties propose, approve and run.

- `canonical`: the one form in bytes. `cards`: what a party shows of itself. `proposal`: what is agreed on, whole.
- `approvals`: signatures, and the agreement that holds them. `differences`: what two proposals differ in, by field.
- `party_file`: a party's own file, which no peer sees. `bounds`: what an agreement allows while a job runs.
"""

from securevfl.jobs.agreement.approvals import (
    Agreement,
    Approval,
    approval_path,
    read_agreement,
    write_approval,
)
from securevfl.jobs.agreement.bounds import Spent, check_running
from securevfl.jobs.agreement.cards import PartyCard, TableSchema
from securevfl.jobs.agreement.differences import differences, field_digests, named_differences
from securevfl.jobs.agreement.party_file import Address, PartyFile, PeerSection, read_party_file
from securevfl.jobs.agreement.proposal import Limits, Proposal, ServingTerms
from securevfl.jobs.agreement.versions import Versions

__all__ = [
    "Address",
    "Agreement",
    "Approval",
    "Limits",
    "PartyCard",
    "PartyFile",
    "PeerSection",
    "Proposal",
    "ServingTerms",
    "Spent",
    "TableSchema",
    "Versions",
    "approval_path",
    "check_running",
    "differences",
    "field_digests",
    "named_differences",
    "read_agreement",
    "read_party_file",
    "write_approval",
]
