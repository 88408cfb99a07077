"""The protections of job files, by name."""

from __future__ import annotations

from securevfl.cut.protections.auto import Auto
from securevfl.cut.protections.base import PROTECTIONS
from securevfl.cut.protections.plain import Plain
from securevfl.cut.protections.sealed import BFV, CKKS, Paillier
from securevfl.cut.protections.shares import Shares

__all__ = ["PROTECTIONS"]

PROTECTIONS |= {kind.name: kind for kind in (Auto, BFV, CKKS, Paillier, Plain, Shares)}
