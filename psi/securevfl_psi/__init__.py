"""Private set intersection: which rows do we have in common, without showing the others.

Protocols are state machines over arrays of bytes; whoever uses them moves the bytes.

>>> import secrets
>>> session = Session(names=("bank", "shop"), nonce=secrets.token_bytes(16), rules_tag=IdRules().tag())
>>> bank = Receiver(["ann", "bob", "eve"], session)
>>> shop = Sender(["eve", "zoe", "ann"], session)
>>> matches = bank.intersect(shop.blinded(), shop.double(bank.blinded()))
>>> matches.receiver_rows.tolist(), shop.rows(matches.sender_positions).tolist()
([0, 2], [2, 0])
"""

from securevfl_psi import multiparty, unbalanced
from securevfl_psi.chunks import split
from securevfl_psi.circle import Circle, PairwiseKeys
from securevfl_psi.conversations import Pseudonyms, Result
from securevfl_psi.dh import TOKEN_BYTES, Matches, Receiver, Sender, Session, intersect_in_process
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
    PSIError,
    SetSizeError,
    SmallIntersectionError,
)
from securevfl_psi.hash_to_curve import hash_many_to_u, hash_to_curve
from securevfl_psi.identifiers import Identifiers, IdRules, normalise, normalise_column
from securevfl_psi.okvs import slots_for
from securevfl_psi.salted_hash import UnsafeSaltedHash
from securevfl_psi.terms import Lasting, Terms
from securevfl_psi.verify import digests_equal, order_digest

__all__ = [
    "TOKEN_BYTES",
    "BudgetError",
    "CertificateError",
    "Circle",
    "ConnectionLost",
    "DisagreementError",
    "Endpoint",
    "ExpiredError",
    "IdRules",
    "IdentifierError",
    "Identifiers",
    "InputError",
    "Lasting",
    "LinkageError",
    "MalformedError",
    "Matches",
    "PSIError",
    "PairwiseKeys",
    "PeerRefused",
    "Pseudonyms",
    "Receiver",
    "Result",
    "Sender",
    "Session",
    "SetSizeError",
    "SmallIntersectionError",
    "Terms",
    "UnsafeSaltedHash",
    "digests_equal",
    "hash_many_to_u",
    "hash_to_curve",
    "intersect_in_process",
    "multiparty",
    "normalise",
    "normalise_column",
    "order_digest",
    "run_in_process",
    "slots_for",
    "split",
    "unbalanced",
]
