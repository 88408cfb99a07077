"""Private set intersection: which rows do we have in common, without showing the others.

Protocols are state machines over arrays of bytes; whoever uses them moves the bytes.

>>> import secrets
>>> session = Session(names=("bank", "shop"), nonce=secrets.token_bytes(16), rules_tag=IdRules().tag())
>>> bank = DHClient(["ann", "bob", "eve"], session)
>>> shop = DHServer(["eve", "zoe", "ann"], session)
>>> for points in bank.blind_set():
...     shop.take_chunk(points)
...     bank.take_answers(shop.answer_chunk())
>>> for tokens in shop.token_chunks():
...     bank.take_tokens(tokens)
>>> rows = bank.find_common_rows()
>>> rows.tolist(), shop.find_proven_rows(bank.outputs.prove_rows(rows)).tolist()
([0, 2], [2, 0])
"""

from securevfl_psi import multiparty, unbalanced
from securevfl_psi.chunks import split
from securevfl_psi.circle import Circle, PairwiseKeys
from securevfl_psi.conversations import Pseudonyms, Result
from securevfl_psi.cpace import Comparison
from securevfl_psi.dh import TOKEN_BYTES, DHClient, DHServer, Session, intersect_in_process
from securevfl_psi.endpoint import Endpoint, run_in_process
from securevfl_psi.errors import (
    BudgetError,
    CertificateError,
    ConnectionLost,
    DisagreementError,
    ExpiredError,
    IdentifierError,
    InputError,
    LinkageError,
    MalformedError,
    PeerRefused,
    PlanRefusedError,
    PSIError,
    RowsDifferError,
    SetSizeError,
    ShardError,
    SmallIntersectionError,
)
from securevfl_psi.hash_to_curve import hash_many_to_u, hash_to_curve
from securevfl_psi.identifiers import Identifiers, IdRules, normalise, normalise_column
from securevfl_psi.joint import Joint, JointResult, JointTerms
from securevfl_psi.okvs import slots_for
from securevfl_psi.salted_hash import UnsafeSaltedHash
from securevfl_psi.speed import UNTOLD, Speed
from securevfl_psi.terms import LastingKey, Terms
from securevfl_psi.verify import list_digest

__all__ = [
    "TOKEN_BYTES",
    "UNTOLD",
    "BudgetError",
    "CertificateError",
    "Circle",
    "Comparison",
    "ConnectionLost",
    "DHClient",
    "DHServer",
    "DisagreementError",
    "Endpoint",
    "ExpiredError",
    "IdRules",
    "IdentifierError",
    "Identifiers",
    "InputError",
    "Joint",
    "JointResult",
    "JointTerms",
    "LastingKey",
    "LinkageError",
    "MalformedError",
    "PSIError",
    "PairwiseKeys",
    "PeerRefused",
    "PlanRefusedError",
    "Pseudonyms",
    "Result",
    "RowsDifferError",
    "Session",
    "SetSizeError",
    "ShardError",
    "SmallIntersectionError",
    "Speed",
    "Terms",
    "UnsafeSaltedHash",
    "hash_many_to_u",
    "hash_to_curve",
    "intersect_in_process",
    "list_digest",
    "multiparty",
    "normalise",
    "normalise_column",
    "run_in_process",
    "slots_for",
    "split",
    "unbalanced",
]
