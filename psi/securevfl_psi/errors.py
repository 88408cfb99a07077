"""The exceptions of this package. Each message gives the value, the bound and the cure; never another party's
identifiers."""

from __future__ import annotations

__all__ = [
    "BudgetError",
    "CertificateError",
    "ConnectionLost",
    "DisagreementError",
    "ExpiredError",
    "IdentifierError",
    "InputError",
    "LinkageError",
    "MalformedError",
    "PSIError",
    "PeerRefused",
    "PlanRefusedError",
    "RowsDifferError",
    "SetSizeError",
    "ShardError",
    "SmallIntersectionError",
]


class PSIError(Exception):
    """Base of all errors of this package; raised itself when a protocol's steps are called out of order."""


class InputError(PSIError, ValueError):
    """Files or options of the command line that cannot be used: a table, a certificate, an address."""


class IdentifierError(PSIError, ValueError):
    """A party's own identifiers cannot be used: null, doubled, empty or of mixed types."""


class LinkageError(PSIError, ValueError):
    """Records cannot be linked as asked: a schema or key that cannot be used, a record without a usable field, scores
    that tell no matches apart."""


class SmallIntersectionError(PSIError):
    """Fewer identifiers are common than the party's policy demands; the peer was not told which."""


class DisagreementError(PSIError):
    """The parties do not run the same thing (protocol, rules, context), or do not find the same common rows."""


class RowsDifferError(DisagreementError):
    """The parties do not hold the same common rows in the same order."""


class PlanRefusedError(PSIError):
    """The active party would learn more than this party's terms allow."""


class ConnectionLost(PSIError):
    """The peer hung up, or was silent for too long."""


class CertificateError(PSIError):
    """The peer shows another certificate than the expected one, or does not accept this party's."""


class PeerRefused(PSIError):
    """The peer ended the run and said why, in general terms."""


class MalformedError(PSIError, ValueError):
    """What arrived is not what the protocol allows."""


class SetSizeError(MalformedError):
    """A set is larger than the limit, or not as large as announced."""


class BudgetError(PSIError):
    """A client asked more than the server allows it within the life of one filter."""


class ExpiredError(PSIError):
    """A published filter is used outside the time that its server stated."""


class ShardError(PSIError):
    """A run in shards that cannot begin or go on: a plan that is not possible, a set that does not fit it, a file of a
    shard that is missing, was changed or belongs to another run."""
