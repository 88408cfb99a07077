"""The exceptions of this package. A message gives the value, the bound and a remedy, never a peer's identifiers."""

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
    """A file or command-line option is unusable: a table, a certificate, an address."""


class IdentifierError(PSIError, ValueError):
    """A party's own identifiers are unusable: null, duplicated, empty or of mixed types."""


class LinkageError(PSIError, ValueError):
    """Records cannot be linked: an unusable schema or key, a record without a usable field, or scores that do not
    separate matches from other pairs."""


class SmallIntersectionError(PSIError):
    """Fewer identifiers are common than the party's policy demands. The peer did not learn which."""


class DisagreementError(PSIError):
    """The parties' parameters differ (protocol, rules, context), or they found different common rows."""


class RowsDifferError(DisagreementError):
    """The parties do not have the same common rows in the same order."""


class PlanRefusedError(PSIError):
    """The active party would learn more than this party's terms allow."""


class ConnectionLost(PSIError):
    """The peer closed the connection or was silent for too long."""


class CertificateError(PSIError):
    """The peer's certificate is not the expected one, or the peer does not accept this party's."""


class PeerRefused(PSIError):
    """The peer ended the run and gave one of a few general reasons."""


class MalformedError(PSIError, ValueError):
    """A message arrived that the protocol does not allow."""


class SetSizeError(MalformedError):
    """A set exceeds the limit, or its size differs from the announced one."""


class BudgetError(PSIError):
    """A client asked more queries than the server allows during the life of one filter."""


class ExpiredError(PSIError):
    """A published filter was used outside its period of validity."""


class ShardError(PSIError):
    """A run in shards cannot start or continue: an impossible plan, a set that does not fit it, or a shard's file that
    is missing, changed or from another run."""
