"""Audit the ledgers of a finished run.

- `audit`: verify the ledgers and add up what left each party. `lines`, `epsilon`, `files`: its three parts.
- `tables`: an audit as tables for the terminal and as JSON.
"""

from securevfl.auditing.audit import Audit, AuditLine, Epsilon, audit

__all__ = [
    "Audit",
    "AuditLine",
    "Epsilon",
    "audit",
]
