"""Agreements: what several parties propose, approve and run.

- `canonical`: the one form in bytes. `cards`: what a party shows of itself. `proposal`: what is agreed on, whole.
- `approvals`: signatures, and the agreement that contains them. `find_differences`: the fields in which two proposals
  differ.
- `party_file`: a party's own file, which no peer sees. `proposing`: makes cards and proposals. `approving`: checks a
  proposal against a party's own file. `words`: describes a proposal for people.
- `draft_party`: drafts a party's own file from its table and the others' cards.
- `peers`: what connections need of it. `bounds`: what an agreement allows while a job runs.
"""

from securevfl.agreement.approvals import Agreement, Approval, approval_path, read_agreement, write_approval
from securevfl.agreement.approving import ProposalCheck, approve_proposal, check_proposal
from securevfl.agreement.bounds import AgreementUse, check_running, check_versions
from securevfl.agreement.cards import PartyCard, TableSchema
from securevfl.agreement.differences import field_digests, find_differences
from securevfl.agreement.draft_party import PartyDraft, draft_party
from securevfl.agreement.party_file import Address, PartyBudget, PartyFile, PeerSection, read_party_file
from securevfl.agreement.peers import identity_of, peer_book, require_peers, row_of
from securevfl.agreement.proposal import AgreedLimits, Proposal, ServingTerms
from securevfl.agreement.proposing import make_party_card, planned_epsilon, propose_job, read_card
from securevfl.agreement.versions import Versions

__all__ = [
    "Address",
    "AgreedLimits",
    "Agreement",
    "AgreementUse",
    "Approval",
    "PartyBudget",
    "PartyCard",
    "PartyDraft",
    "PartyFile",
    "PeerSection",
    "Proposal",
    "ProposalCheck",
    "ServingTerms",
    "TableSchema",
    "Versions",
    "approval_path",
    "approve_proposal",
    "check_proposal",
    "check_running",
    "check_versions",
    "draft_party",
    "field_digests",
    "find_differences",
    "identity_of",
    "make_party_card",
    "peer_book",
    "planned_epsilon",
    "propose_job",
    "read_agreement",
    "read_card",
    "read_party_file",
    "require_peers",
    "row_of",
    "write_approval",
]
