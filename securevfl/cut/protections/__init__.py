"""The protections that a job can ask for. Nothing outside this folder knows one by its name.

`base` defines a protection and finds installed ones by their entry points; `plain`, `sealed` and `auto` are those of
the cut.
"""

from __future__ import annotations

from securevfl.cut.protections.auto import Auto
from securevfl.cut.protections.base import Protection, find_protection, protections
from securevfl.cut.protections.plain import Plain, Unnamed
from securevfl.cut.protections.sealed import BFV, CKKS, KeyBits, Paillier, Sealed, sealing_protections

__all__ = [
    "BFV",
    "CKKS",
    "Auto",
    "KeyBits",
    "Paillier",
    "Plain",
    "Protection",
    "Sealed",
    "Unnamed",
    "find_protection",
    "protections",
    "sealing_protections",
]
