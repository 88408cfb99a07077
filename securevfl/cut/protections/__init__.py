"""The protections that a job can ask for. Nothing outside this folder knows one by its name.

`base` says what a protection is; `plain`, `sealed`, `auto` and `shares` are those of this toolkit; `named` says what
job files call them.
"""

from __future__ import annotations

from securevfl.cut.protections.auto import Auto
from securevfl.cut.protections.base import Protection
from securevfl.cut.protections.named import PROTECTIONS
from securevfl.cut.protections.plain import Plain, Unnamed
from securevfl.cut.protections.sealed import BFV, CKKS, KeyBits, Paillier, Sealed
from securevfl.cut.protections.shares import Shares

__all__ = [
    "BFV",
    "CKKS",
    "PROTECTIONS",
    "Auto",
    "KeyBits",
    "Paillier",
    "Plain",
    "Protection",
    "Sealed",
    "Shares",
    "Unnamed",
]
