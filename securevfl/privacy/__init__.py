"""Ledger, policy, links, and differential privacy with its accounting."""

from securevfl.privacy.accountant import GaussianRelease, calibrate, epsilon_prv, epsilon_rdp
from securevfl.privacy.clock import Clock, Reading
from securevfl.privacy.dp import DP, RowRelease, Spent, clip_rows, gaussian
from securevfl.privacy.findings import Finding
from securevfl.privacy.ledger import Chain, Entry, Ledger, read, verify
from securevfl.privacy.link import Link
from securevfl.privacy.policy import READABLE_KINDS, Policy

__all__ = [
    "DP",
    "READABLE_KINDS",
    "Chain",
    "Clock",
    "Entry",
    "Finding",
    "GaussianRelease",
    "Ledger",
    "Link",
    "Policy",
    "Reading",
    "RowRelease",
    "Spent",
    "calibrate",
    "clip_rows",
    "epsilon_prv",
    "epsilon_rdp",
    "gaussian",
    "read",
    "verify",
]
