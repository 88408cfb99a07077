"""What each protocol sends and receives after the handshake, as scripts over frames; `endpoint` and drivers move
them."""

from securevfl_psi.conversations.base import Conversation, Make, Pseudonyms, Result
from securevfl_psi.conversations.counting import Cardinality
from securevfl_psi.conversations.intersection import make_intersection
from securevfl_psi.conversations.naming import PseudonymExchange
from securevfl_psi.conversations.salted import SaltedHash
from securevfl_psi.conversations.transferring import make_transfer
from securevfl_psi.terms import Protocol

__all__ = ["CONVERSATIONS", "Conversation", "Pseudonyms", "Result"]

CONVERSATIONS: dict[Protocol, Make] = {
    "dh": make_intersection,
    "ot": make_transfer,
    "cardinality": Cardinality,
    "pseudonyms": PseudonymExchange,
    "unsafe_salted_hash": SaltedHash,
}
