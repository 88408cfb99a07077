"""Each party's ledger: one line per message sent or received, in a hash chain signed with the party's key.

- `lines`: the fields of a line and its canonical bytes. `chain`: writing. `keys`, `key_files`: the parties' keys.
- `own`: a party's file across attempts and processes.
- `reading`, `verifying`, `comparing`: from files to verified chains, first each chain alone, then against its peers'
  chains.

What a ledger proves and what it does not: docs/howto/policy-and-ledger.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securevfl.lazy import load_on_use

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.ledger.chain import MARK_EVERY, Ledger
    from securevfl.ledger.comparing import describe_missing, find_pin_mismatches, verify_chains, verify_files
    from securevfl.ledger.key_files import make_key, read_keys, read_private_key, read_public_key, read_public_keys
    from securevfl.ledger.keys import PrivateKey, PublicSigningKey
    from securevfl.ledger.ledgers import Ledgers, file_of
    from securevfl.ledger.lines import (
        AGREEMENT,
        CONNECTIONS,
        LEFT,
        LINE_BYTES,
        READMITTED,
        REFUSED,
        STOPPED,
        VERSION,
        Closing,
        Entry,
        Line,
        NoteLine,
        OpeningLine,
        decode_line,
        hash_of,
    )
    from securevfl.ledger.own_ledger import OpensLedgers, OwnLedgers
    from securevfl.ledger.reading import Flaw, Located, raise_flaws, read_lines
    from securevfl.ledger.readmission import (
        Readmission,
        ReadmissionRequest,
        decode_readmission,
        encode_readmission,
        grant_readmission,
        require_signed,
        sign_request,
    )
    from securevfl.ledger.verifying import LedgerChain, chains_of

_NAMES = {
    "securevfl.ledger.chain": "MARK_EVERY Ledger",
    "securevfl.ledger.comparing": "describe_missing find_pin_mismatches verify_chains verify_files",
    "securevfl.ledger.key_files": "make_key read_keys read_private_key read_public_key read_public_keys",
    "securevfl.ledger.keys": "PrivateKey PublicSigningKey",
    "securevfl.ledger.ledgers": "Ledgers file_of",
    "securevfl.ledger.lines": (
        "AGREEMENT CONNECTIONS LEFT LINE_BYTES READMITTED REFUSED STOPPED VERSION Closing Entry Line NoteLine "
        "OpeningLine decode_line hash_of"
    ),
    "securevfl.ledger.own_ledger": "OpensLedgers OwnLedgers",
    "securevfl.ledger.reading": "Flaw Located raise_flaws read_lines",
    "securevfl.ledger.readmission": (
        "Readmission ReadmissionRequest decode_readmission encode_readmission grant_readmission require_signed "
        "sign_request"
    ),
    "securevfl.ledger.verifying": "LedgerChain chains_of",
}
"""Module → the names that it gives to this package, loaded when one of them is first used."""

__all__ = [
    "AGREEMENT",
    "CONNECTIONS",
    "LEFT",
    "LINE_BYTES",
    "MARK_EVERY",
    "READMITTED",
    "REFUSED",
    "STOPPED",
    "VERSION",
    "Closing",
    "Entry",
    "Flaw",
    "Ledger",
    "LedgerChain",
    "Ledgers",
    "Line",
    "Located",
    "NoteLine",
    "OpeningLine",
    "OpensLedgers",
    "OwnLedgers",
    "PrivateKey",
    "PublicSigningKey",
    "Readmission",
    "ReadmissionRequest",
    "chains_of",
    "decode_line",
    "decode_readmission",
    "describe_missing",
    "encode_readmission",
    "file_of",
    "find_pin_mismatches",
    "grant_readmission",
    "hash_of",
    "make_key",
    "raise_flaws",
    "read_keys",
    "read_lines",
    "read_private_key",
    "read_public_key",
    "read_public_keys",
    "require_signed",
    "sign_request",
    "verify_chains",
    "verify_files",
]

if not TYPE_CHECKING:  # a type checker that saw this would take every name for a public one
    __getattr__ = load_on_use(__name__, _NAMES)
