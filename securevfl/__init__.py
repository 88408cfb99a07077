"""securevfl: vertical federated learning that is private, provable and fast.

>>> import securevfl as sv
>>> parties = sv.datasets.default_credit(overlap=0.85, seed=0, rows=3_000)
>>> job = sv.Job(algorithm=sv.SplitNN(hidden=16), protection=sv.Plain(), epochs=5)
>>> result = sv.simulate(job, parties)
>>> result.run("plain").test["auc"] > 0.65
True
"""

from securevfl.algorithms import (
    RISA,
    AllLabels,
    EntityAugmentation,
    FedCVT,
    FedDA,
    Local,
    LogisticRegression,
    MultiVFL,
    RandomMatch,
    SelfSupervised,
    SplitNN,
    ZeroImputation,
)
from securevfl.cut import BFV, CKKS, Auto, Paillier, Plain
from securevfl.data import LabelBook, Parties, PartyTable, datasets, read_csv, read_parquet
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
from securevfl.jobs import (
    Job,
    Model,
    Prediction,
    Result,
    align_parties,
    audit,
    compare,
    demo,
    predict,
    read_job,
    read_sweep,
    run_sweep,
    simulate,
)
from securevfl.privacy import DP, Gaussian, JointNoise, Marvell, Policy, RandomisedResponse
from securevfl.site import Observer

__version__ = "0.1.0"

__all__ = [
    "BFV",
    "CKKS",
    "DP",
    "RISA",
    "AlignmentError",
    "AllLabels",
    "AuditError",
    "Auto",
    "EntityAugmentation",
    "FedCVT",
    "FedDA",
    "Gaussian",
    "InputError",
    "Job",
    "JointNoise",
    "LabelBook",
    "Local",
    "LogisticRegression",
    "Marvell",
    "Model",
    "MultiVFL",
    "Observer",
    "Paillier",
    "Parties",
    "PartyFailed",
    "PartyTable",
    "Plain",
    "Policy",
    "PolicyError",
    "Prediction",
    "ProtectionInactive",
    "ProtocolError",
    "RandomMatch",
    "RandomisedResponse",
    "RangeError",
    "Result",
    "SecureVFLError",
    "SelfSupervised",
    "SplitNN",
    "UnknownNameError",
    "WireError",
    "ZeroImputation",
    "__version__",
    "align_parties",
    "audit",
    "compare",
    "datasets",
    "demo",
    "predict",
    "read_csv",
    "read_job",
    "read_parquet",
    "read_sweep",
    "run_sweep",
    "simulate",
]
