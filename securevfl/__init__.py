"""securevfl: vertical federated learning that is private, provable and fast.

>>> import securevfl as sv
>>> parties = sv.datasets.default_credit(overlap=0.85, seed=0, rows=3_000)
>>> job = sv.Job(algorithm=sv.SplitNN(hidden=16), protection=sv.Plain(), epochs=5)
>>> result = sv.simulate(job, parties)
>>> result.run("plain").test["auc"] > 0.65
True

A name loads its module when it is first used. So ``import securevfl`` takes milliseconds, and a script that only reads
tables does not wait for torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers and editors
    from securevfl.algorithms import (
        APCVFL,
        MFTL,
        RISA,
        SFHTL,
        Additive,
        AllLabels,
        AutoAlgorithm,
        Best,
        BestWithTrees,
        BoostedResidual,
        Boosting,
        Distilled,
        EntityAugmentation,
        FalseVFL,
        FedCVT,
        FedDA,
        FedHSSL,
        FewShotVFL,
        HybridTree,
        LaserVFL,
        Local,
        LogisticRegression,
        MultiVFL,
        PartyDropout,
        PlugVFL,
        RandomMatch,
        ResidualAtTheCut,
        Scorecard,
        SelfSupervised,
        SplitNN,
        Statistics,
        ZeroImputation,
    )
    from securevfl.align import Align, Linkage
    from securevfl.auditing import audit
    from securevfl.cut import BFV, CKKS, Auto, Paillier, Plain
    from securevfl.data import (
        ColumnPreparation,
        LabelBook,
        Parties,
        PartyTable,
        Preparation,
        Storage,
        TableLimits,
        datasets,
        read_csv,
        read_parquet,
        read_table,
    )
    from securevfl.errors import (
        AlignmentError,
        AuditError,
        DiskFull,
        Expired,
        FewCommonRows,
        InputError,
        MachineFault,
        NoCommonRows,
        Parked,
        PartyFailed,
        PeerEnded,
        PeerRefused,
        PeerSilent,
        PolicyError,
        ProtectionInactive,
        ProtocolError,
        RangeError,
        RowsSpent,
        SecureVFLError,
        UnknownNameError,
        WireError,
    )
    from securevfl.experiments import (
        AttackResult,
        Study,
        attack,
        compare,
        cross_validate,
        demo,
        read_sweep,
        run_sweep,
        simulate,
    )
    from securevfl.experiments.aligned_rows import AlignedRows
    from securevfl.experiments.estimators import VerticalClassifier, VerticalRegressor
    from securevfl.experiments.search import search
    from securevfl.experiments.sweep import sweep
    from securevfl.jobfile import read_job
    from securevfl.party import Costs, Job, ReportOptions
    from securevfl.party_context import Observer
    from securevfl.privacy import DP, Gaussian, JointNoise, Policy, RandomisedResponse
    from securevfl.report import loggers
    from securevfl.run import (
        Explanation,
        Model,
        Prediction,
        Result,
        align_parties,
        explain,
        own_curve,
        own_reasons,
        predict,
    )
    from securevfl.shares import Shares
    from securevfl.training import Algorithm, Frozen

__version__ = "0.2.0"

_NAMES: Mapping[str, str] = {
    "securevfl.align": "Align Linkage",
    "securevfl.algorithms": (
        "APCVFL Additive AllLabels AutoAlgorithm Best BestWithTrees BoostedResidual Boosting Distilled "
        "EntityAugmentation FalseVFL FedCVT FedDA FedHSSL FewShotVFL HybridTree LaserVFL Local LogisticRegression MFTL "
        "MultiVFL PartyDropout PlugVFL RISA RandomMatch ResidualAtTheCut SFHTL Scorecard SelfSupervised "
        "SplitNN Statistics ZeroImputation"
    ),
    "securevfl.checks": "",
    "securevfl.cut": "Auto BFV CKKS Paillier Plain",
    "securevfl.data": "ColumnPreparation LabelBook Parties PartyTable Preparation Storage TableLimits datasets "
    "read_csv read_parquet read_table",
    "securevfl.errors": (
        "AlignmentError AuditError DiskFull Expired FewCommonRows InputError MachineFault NoCommonRows Parked "
        "PartyFailed PeerEnded PeerRefused PeerSilent PolicyError ProtectionInactive ProtocolError RangeError "
        "RowsSpent SecureVFLError UnknownNameError WireError"
    ),
    "securevfl.auditing": "audit",
    "securevfl.experiments": ("AttackResult Study attack compare cross_validate demo read_sweep run_sweep simulate"),
    "securevfl.jobfile": "read_job",
    "securevfl.report": "loggers",
    "securevfl.run": "Explanation Model Prediction Result align_parties explain own_curve own_reasons predict",
    "securevfl.experiments.aligned_rows": "AlignedRows",
    "securevfl.experiments.estimators": "VerticalClassifier VerticalRegressor",
    "securevfl.experiments.search": "search",
    "securevfl.experiments.sweep": "sweep",
    "securevfl.shares": "Shares",
    "securevfl.party_context": "Observer",
    "securevfl.party": "Costs Job ReportOptions",
    "securevfl.privacy": "DP Gaussian JointNoise Policy RandomisedResponse",
    "securevfl.training": "Algorithm Frozen",
}
"""Module → the public names that it gives to `sv`. A module without one is still loaded by its own name."""

_RENAMED: Mapping[str, str] = {
    "CrossValidation": "use sv.Study",
    "Marvell": "it is not differential privacy; use sv.Gaussian or sv.RandomisedResponse",
    "SearchResult": "use sv.Study",
    "SweepResult": "use sv.Study",
    "identity": "import securevfl_net.identity",
    "jobs": "import securevfl.run, jobfile, agreement, auditing, experiments, checks or process",
    "scale": "import securevfl_crypto.pools",
    "site": "import securevfl.party_context",
}
"""Name in 0.1.0 → what to use instead, for the error."""

_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "APCVFL",
    "BFV",
    "CKKS",
    "DP",
    "MFTL",
    "RISA",
    "SFHTL",
    "Additive",
    "Algorithm",
    "Align",
    "AlignedRows",
    "AlignmentError",
    "AllLabels",
    "AttackResult",
    "AuditError",
    "Auto",
    "AutoAlgorithm",
    "Best",
    "BestWithTrees",
    "BoostedResidual",
    "Boosting",
    "ColumnPreparation",
    "Costs",
    "DiskFull",
    "Distilled",
    "EntityAugmentation",
    "Expired",
    "Explanation",
    "FalseVFL",
    "FedCVT",
    "FedDA",
    "FedHSSL",
    "FewCommonRows",
    "FewShotVFL",
    "Frozen",
    "Gaussian",
    "HybridTree",
    "InputError",
    "Job",
    "JointNoise",
    "LabelBook",
    "LaserVFL",
    "Linkage",
    "Local",
    "LogisticRegression",
    "MachineFault",
    "Model",
    "MultiVFL",
    "NoCommonRows",
    "Observer",
    "Paillier",
    "Parked",
    "Parties",
    "PartyDropout",
    "PartyFailed",
    "PartyTable",
    "PeerEnded",
    "PeerRefused",
    "PeerSilent",
    "Plain",
    "PlugVFL",
    "Policy",
    "PolicyError",
    "Prediction",
    "Preparation",
    "ProtectionInactive",
    "ProtocolError",
    "RandomMatch",
    "RandomisedResponse",
    "RangeError",
    "ReportOptions",
    "ResidualAtTheCut",
    "Result",
    "RowsSpent",
    "Scorecard",
    "SecureVFLError",
    "SelfSupervised",
    "Shares",
    "SplitNN",
    "Statistics",
    "Storage",
    "Study",
    "TableLimits",
    "UnknownNameError",
    "VerticalClassifier",
    "VerticalRegressor",
    "WireError",
    "ZeroImputation",
    "__version__",
    "align_parties",
    "attack",
    "audit",
    "compare",
    "cross_validate",
    "datasets",
    "demo",
    "explain",
    "loggers",
    "own_curve",
    "own_reasons",
    "predict",
    "read_csv",
    "read_job",
    "read_parquet",
    "read_sweep",
    "read_table",
    "run_sweep",
    "search",
    "simulate",
    "sweep",
]

if not TYPE_CHECKING:  # a type checker that saw this would take every name for a public one

    def __getattr__(name: str) -> object:
        """Load a public name, or a folder that holds some, on first use (PEP 562)."""
        if name in _MODULES:
            value = globals()[name] = getattr(import_module(_MODULES[name]), name)
            return value
        if f"{__name__}.{name}" in _NAMES:
            return import_module(f"{__name__}.{name}")
        instead = f" since 0.2.0: {_RENAMED[name]}" if name in _RENAMED else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{instead}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES})
