"""A party's policy, its links to other parties, and differential privacy with its accounting. Cuts and algorithms
import this folder; it imports neither.
"""

from securevfl.ledger import (
    Chain,
    Entry,
    Ledger,
    Ledgers,
    Noted,
    OpensLedgers,
    OwnLedgers,
    PrivateKey,
    PublicKey,
    read,
    verify,
)
from securevfl.privacy.accountant import (
    Accountant,
    GaussianRelease,
    PureRelease,
    Release,
    Total,
    calibrate,
    epsilon_prv,
    epsilon_rdp,
)
from securevfl.privacy.clock import Clock, Reading
from securevfl.privacy.dp import DP
from securevfl.privacy.findings import OTHER_OWNERS, Finding
from securevfl.privacy.joint import JointRelease
from securevfl.privacy.journal import Journal, lost_attempts
from securevfl.privacy.labels import LabelRelease, randomised_response
from securevfl.privacy.link import Declared, Heard, Link, fan_out, send_all, together
from securevfl.privacy.look_book import LookBook
from securevfl.privacy.looks import RowLooks, looks_allowed
from securevfl.privacy.loss import CrossEntropy, Loss
from securevfl.privacy.means import group_means
from securevfl.privacy.mechanisms import Gaussian, JointNoise, RandomisedResponse
from securevfl.privacy.noise import Noised, NoiseShare, bare, clip_rows, gaussian, mapped
from securevfl.privacy.policy import READABLE_KINDS, SCHEMES, SHARES, Policy, protection_of
from securevfl.privacy.releases import Releases
from securevfl.privacy.rows import RowRelease
from securevfl.privacy.severity import Measured, Permitted, measured, permitted, severity_of_view
from securevfl.privacy.sgd import PrivateSteps
from securevfl.privacy.spent import PROTECTS, Counted, Spent, protects
from securevfl.privacy.terms import REFUSED, Terms, broken_rule, raise_refusal

__all__ = [
    "DP",
    "OTHER_OWNERS",
    "PROTECTS",
    "READABLE_KINDS",
    "REFUSED",
    "SCHEMES",
    "SHARES",
    "Accountant",
    "Chain",
    "Clock",
    "Counted",
    "CrossEntropy",
    "Declared",
    "Entry",
    "Finding",
    "Gaussian",
    "GaussianRelease",
    "Heard",
    "JointNoise",
    "JointRelease",
    "Journal",
    "LabelRelease",
    "Ledger",
    "Ledgers",
    "Link",
    "LookBook",
    "Loss",
    "Measured",
    "NoiseShare",
    "Noised",
    "Noted",
    "OpensLedgers",
    "OwnLedgers",
    "Permitted",
    "Policy",
    "PrivateKey",
    "PrivateSteps",
    "PublicKey",
    "PureRelease",
    "RandomisedResponse",
    "Reading",
    "Release",
    "Releases",
    "RowLooks",
    "RowRelease",
    "Spent",
    "Terms",
    "Total",
    "bare",
    "broken_rule",
    "calibrate",
    "clip_rows",
    "epsilon_prv",
    "epsilon_rdp",
    "fan_out",
    "gaussian",
    "group_means",
    "looks_allowed",
    "lost_attempts",
    "mapped",
    "measured",
    "permitted",
    "protection_of",
    "protects",
    "raise_refusal",
    "randomised_response",
    "read",
    "send_all",
    "severity_of_view",
    "together",
    "verify",
]
