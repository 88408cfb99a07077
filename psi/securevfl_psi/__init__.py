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

from securevfl_psi.dh import TOKEN_BYTES, Matches, Receiver, Sender, Session, intersect_in_process
from securevfl_psi.errors import IdentifierError, MalformedError, PSIError, SetSizeError
from securevfl_psi.hash_to_curve import hash_many_to_u, hash_to_curve
from securevfl_psi.identifiers import IdRules, normalise
from securevfl_psi.verify import digests_equal, order_digest

__all__ = [
    "TOKEN_BYTES",
    "IdRules",
    "IdentifierError",
    "MalformedError",
    "Matches",
    "PSIError",
    "Receiver",
    "Sender",
    "Session",
    "SetSizeError",
    "digests_equal",
    "hash_many_to_u",
    "hash_to_curve",
    "intersect_in_process",
    "normalise",
    "order_digest",
]
