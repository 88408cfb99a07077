"""A party's policy, its links to other parties, and differential privacy with its accounting. Cuts and algorithms
import this folder; it imports neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securevfl.lazy import load_on_use

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.ledger import (
        Entry,
        Ledger,
        LedgerChain,
        Ledgers,
        NoteLine,
        OpensLedgers,
        OwnLedgers,
        PrivateKey,
        PublicSigningKey,
        read_lines,
        verify_chains,
    )
    from securevfl.privacy.accountant import (
        Accountant,
        GaussianRelease,
        PureRelease,
        Release,
        Total,
        calibrate_sigma,
        epsilon_prv,
        epsilon_rdp,
    )
    from securevfl.privacy.clock import Clock, Reading
    from securevfl.privacy.dp import DP
    from securevfl.privacy.epsilon_budget import EpsilonBudget
    from securevfl.privacy.findings import OTHER_OWNERS, Finding
    from securevfl.privacy.held_numbers import HeldNumber, HeldNumbers
    from securevfl.privacy.joint import JointRelease
    from securevfl.privacy.journal import Journal, describe_lost_attempts
    from securevfl.privacy.labels import LabelRelease, randomised_response
    from securevfl.privacy.link import Declared, Link, MessageObserver, fan_out, gather, send_all
    from securevfl.privacy.loss import CrossEntropy, Loss
    from securevfl.privacy.means import group_means
    from securevfl.privacy.mechanisms import Gaussian, JointNoise, RandomisedResponse
    from securevfl.privacy.noise import Noised, NoiseShare, clip_rows, draw_gaussian, map_noised, strip_noise_mark
    from securevfl.privacy.opened_values import OpenedValues, describe_excess
    from securevfl.privacy.policy import DEFAULT_RESULTS, READABLE_KINDS, SCHEMES, SHARES, Policy, protection_of
    from securevfl.privacy.releases import Releases
    from securevfl.privacy.result_book import Grant, ResultBook
    from securevfl.privacy.rows import RowRelease
    from securevfl.privacy.severity import MeasuredView, Permitted, load_measured, permitted_by, severity_of_view
    from securevfl.privacy.sgd import PrivateSteps
    from securevfl.privacy.spent import PROTECTS, Counted, Spent, depends_on
    from securevfl.privacy.terms import REFUSED, Terms, describe_broken_rule, raise_refusal

_NAMES = {
    "securevfl.ledger": (
        "Entry Ledger LedgerChain Ledgers NoteLine OpensLedgers OwnLedgers PrivateKey PublicSigningKey "
        "read_lines verify_chains"
    ),
    "securevfl.privacy.accountant": (
        "Accountant GaussianRelease PureRelease Release Total calibrate_sigma epsilon_prv epsilon_rdp"
    ),
    "securevfl.privacy.clock": "Clock Reading",
    "securevfl.privacy.dp": "DP",
    "securevfl.privacy.epsilon_budget": "EpsilonBudget",
    "securevfl.privacy.findings": "OTHER_OWNERS Finding",
    "securevfl.privacy.held_numbers": "HeldNumber HeldNumbers",
    "securevfl.privacy.joint": "JointRelease",
    "securevfl.privacy.journal": "Journal describe_lost_attempts",
    "securevfl.privacy.labels": "LabelRelease randomised_response",
    "securevfl.privacy.link": "Declared Link MessageObserver fan_out gather send_all",
    "securevfl.privacy.loss": "CrossEntropy Loss",
    "securevfl.privacy.means": "group_means",
    "securevfl.privacy.mechanisms": "Gaussian JointNoise RandomisedResponse",
    "securevfl.privacy.noise": "Noised NoiseShare clip_rows draw_gaussian map_noised strip_noise_mark",
    "securevfl.privacy.opened_values": "OpenedValues describe_excess",
    "securevfl.privacy.policy": "DEFAULT_RESULTS READABLE_KINDS SCHEMES SHARES Policy protection_of",
    "securevfl.privacy.releases": "Releases",
    "securevfl.privacy.result_book": "Grant ResultBook",
    "securevfl.privacy.rows": "RowRelease",
    "securevfl.privacy.severity": "MeasuredView Permitted load_measured permitted_by severity_of_view",
    "securevfl.privacy.sgd": "PrivateSteps",
    "securevfl.privacy.spent": "PROTECTS Counted Spent depends_on",
    "securevfl.privacy.terms": "REFUSED Terms describe_broken_rule raise_refusal",
}
"""Module → the names that it gives to this package, loaded when one of them is first used."""

__all__ = [
    "DEFAULT_RESULTS",
    "DP",
    "OTHER_OWNERS",
    "PROTECTS",
    "READABLE_KINDS",
    "REFUSED",
    "SCHEMES",
    "SHARES",
    "Accountant",
    "Clock",
    "Counted",
    "CrossEntropy",
    "Declared",
    "Entry",
    "EpsilonBudget",
    "Finding",
    "Gaussian",
    "GaussianRelease",
    "Grant",
    "HeldNumber",
    "HeldNumbers",
    "JointNoise",
    "JointRelease",
    "Journal",
    "LabelRelease",
    "Ledger",
    "LedgerChain",
    "Ledgers",
    "Link",
    "Loss",
    "MeasuredView",
    "MessageObserver",
    "NoiseShare",
    "Noised",
    "NoteLine",
    "OpenedValues",
    "OpensLedgers",
    "OwnLedgers",
    "Permitted",
    "Policy",
    "PrivateKey",
    "PrivateSteps",
    "PublicSigningKey",
    "PureRelease",
    "RandomisedResponse",
    "Reading",
    "Release",
    "Releases",
    "ResultBook",
    "RowRelease",
    "Spent",
    "Terms",
    "Total",
    "calibrate_sigma",
    "clip_rows",
    "depends_on",
    "describe_broken_rule",
    "describe_excess",
    "describe_lost_attempts",
    "draw_gaussian",
    "epsilon_prv",
    "epsilon_rdp",
    "fan_out",
    "gather",
    "group_means",
    "load_measured",
    "map_noised",
    "permitted_by",
    "protection_of",
    "raise_refusal",
    "randomised_response",
    "read_lines",
    "send_all",
    "severity_of_view",
    "strip_noise_mark",
    "verify_chains",
]

if not TYPE_CHECKING:  # a type checker that saw this would take every name for a public one
    __getattr__ = load_on_use(__name__, _NAMES)
