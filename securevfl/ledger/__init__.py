"""The ledger: each message that a party sent or received, one line each, in a signed chain of hashes.

- `lines`: what a line holds, and its one form in bytes. `chain`: writing. `keys`, `key_files`: the parties' keys.
- `own`: a party's file over attempts and processes.
- `reading`, `verifying`, `comparing`: from files to chains that verify, each for itself and with its peers'.

What is proved, and what is not: docs/howto/policy-and-ledger.md.
"""

from __future__ import annotations

from securevfl.ledger.chain import MARK_EVERY, Ledger
from securevfl.ledger.comparing import incomplete, pinned, verify, verify_files
from securevfl.ledger.key_files import make_key, read_keys, read_private_key, read_public_key, read_public_keys
from securevfl.ledger.keys import PrivateKey, PublicKey
from securevfl.ledger.ledgers import Ledgers, file_of
from securevfl.ledger.lines import (
    CONNECTIONS,
    LINE_BYTES,
    VERSION,
    Closing,
    Entry,
    Line,
    Noted,
    Opening,
    decode,
    hash_of,
)
from securevfl.ledger.own import OpensLedgers, OwnLedgers
from securevfl.ledger.reading import Flaw, Located, raise_flaws, read
from securevfl.ledger.verifying import Chain, chains_of

__all__ = [
    "CONNECTIONS",
    "LINE_BYTES",
    "MARK_EVERY",
    "VERSION",
    "Chain",
    "Closing",
    "Entry",
    "Flaw",
    "Ledger",
    "Ledgers",
    "Line",
    "Located",
    "Noted",
    "Opening",
    "OpensLedgers",
    "OwnLedgers",
    "PrivateKey",
    "PublicKey",
    "chains_of",
    "decode",
    "file_of",
    "hash_of",
    "incomplete",
    "make_key",
    "pinned",
    "raise_flaws",
    "read",
    "read_keys",
    "read_private_key",
    "read_public_key",
    "read_public_keys",
    "verify",
    "verify_files",
]
