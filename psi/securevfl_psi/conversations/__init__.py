"""What each two-party protocol says after the handshake, by kind of frame."""

from securevfl_psi.conversations.base import Conversation, Pseudonyms, Result
from securevfl_psi.conversations.diffie_hellman import Cardinality, Intersection, PseudonymExchange
from securevfl_psi.conversations.salted import SaltedHash
from securevfl_psi.terms import Protocol

__all__ = ["CONVERSATIONS", "Conversation", "Pseudonyms", "Result"]

CONVERSATIONS: dict[Protocol, type[Conversation]] = {
    "dh": Intersection,
    "cardinality": Cardinality,
    "pseudonyms": PseudonymExchange,
    "unsafe_salted_hash": SaltedHash,
}
