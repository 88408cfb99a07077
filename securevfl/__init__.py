"""securevfl: vertical federated learning that is private, provable and fast.

>>> import securevfl as sv
>>> parties = sv.datasets.default_credit(overlap=0.85, seed=0, rows=3_000)
>>> job = sv.Job(algorithm=sv.SplitNN(hidden=16), protection=sv.Plain(), epochs=5)
>>> result = sv.simulate(job, parties)
>>> result.run("plain").test["auc"] > 0.65
True
"""

from securevfl.algorithms import SplitNN
from securevfl.cut import Paillier, Plain
from securevfl.data import Parties, PartyTable, datasets, read_csv, read_parquet
from securevfl.errors import (
    AlignmentError,
    AuditError,
    InputError,
    PartyFailed,
    PolicyError,
    ProtectionInactive,
    ProtocolError,
    RangeError,
    SecureVFLError,
    UnknownNameError,
    WireError,
)
from securevfl.jobs import Job, Result, align_parties, audit, compare, demo, read_job, simulate
from securevfl.party import Observer
from securevfl.privacy import DP, Policy

__version__ = "0.1.0"

__all__ = [
    "DP",
    "AlignmentError",
    "AuditError",
    "InputError",
    "Job",
    "Observer",
    "Paillier",
    "Parties",
    "PartyFailed",
    "PartyTable",
    "Plain",
    "Policy",
    "PolicyError",
    "ProtectionInactive",
    "ProtocolError",
    "RangeError",
    "Result",
    "SecureVFLError",
    "SplitNN",
    "UnknownNameError",
    "WireError",
    "__version__",
    "align_parties",
    "audit",
    "compare",
    "datasets",
    "demo",
    "read_csv",
    "read_job",
    "read_parquet",
    "simulate",
]
