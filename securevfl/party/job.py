"""The job: everything all parties agree to run. Frozen, validated once, and identified at every party by its digest."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta
from securevfl_crypto.errors import PoolError
from securevfl_crypto.pools import check_pool

from securevfl.align import Align, Linkage
from securevfl.config import Config
from securevfl.cut import Protection, Unnamed
from securevfl.data import Scale
from securevfl.party.report_options import ReportOptions
from securevfl.privacy import Finding, Policy
from securevfl.training import Algorithm, Keep, Plan, find_algorithm
from securevfl.training.objectives import LossOfNumber
from securevfl.transport import Sight

__all__ = ["Job", "JobOptions", "JobTerms", "Leaving"]

_OWN_AFFAIR = ("policies", "device", "pool", "accept_leak", "report")
"""Fields in which the parties may differ."""

_LATER = {"align": Align(), "link": None} | {
    "split_by": "rows",
    "fold": None,
    "task": "classification",
    "loss": "auto",
    "huber_delta": 1.0,
    "tweedie_power": 1.5,
    "target_range": None,
    "class_weight": None,
    "leaving": "end",
}
"""Parts that jobs once did not have: with their defaults they do not change the digest by which models are found."""

_BALANCED = 64.0
"""Reserve at a sealed cut for rows of a class up to this many times rarer than the mean, if classes are balanced."""

Leaving = Literal["end", "go-on"]
"""What happens if a party with features alone leaves for good."""

Folds = Annotated[int, Meta(ge=1, le=100)]
Weight = Annotated[float, Meta(gt=0, le=1_000)]
Fraction = Annotated[float, Meta(gt=0, lt=1)]


def _default_algorithm() -> Algorithm:
    return find_algorithm("splitnn")()


class JobTerms(Config):
    """What all parties agree on besides the algorithm and the protection.

    Attributes:
        epochs: most epochs over the training rows.
        batch_size: rows in a batch.
        steps: batches in an epoch; None for one pass over the algorithm's rows. With a number, algorithms that train on
            different rows take the same number of steps.
        patience: epochs without a gain on the validation rows after which training stops; None to never stop early.
        keep: which epoch's weights the run keeps: of the ``"best"`` on the validation rows, of the ``"last"``, or
            ``"auto"``: of the best where at least 50 rows validate, else of the last.
        valid: fraction of the common rows that validate.
        test: fraction of the common rows that test.
        valid_every: epochs from one validation to the next. Each validation opens values of every validation row
            once more; epochs without a validation cannot be the best.
        valid_rows: upper limit of validation rows, drawn at random; the others are not used at all. None for all.
        stratify: whether the label owner draws the split by class.
        split_by: ``"rows"`` splits row by row; ``"group"`` keeps rows of one group (a column of the label owner's)
            together; ``"time"`` trains on the earliest rows and tests on the latest.
        fold: ``(k, n)``: the k-th of n folds tests, for cross-validation; its `test` is not used then.
        task: ``"classification"``, ``"regression"`` where the label is a number (``target="number"`` in its table), or
            ``"multilabel"`` where a row can have several of some labels (``label=["a", "b"]`` there).
        loss: of a regression: ``"squared"``, ``"huber"``, or with the logarithm of the mean ``"poisson"`` (counts) and
            ``"tweedie"`` (amounts with many zeros, such as claims); ``"auto"`` is squared, or the cross entropy.
        huber_delta: from which error on ``"huber"`` grows linearly, in standard deviations of the target.
        tweedie_power: p of ``"tweedie"``, between 1 (Poisson) and 2 (gamma).
        target_range: the lowest and highest target, public to all parties; targets outside are clipped to it. Noise on
            labels needs it. Without it the active party scales the target by its training rows.
        class_weight: ``"balanced"``, or class → how much its rows count in the loss, 1 for classes that are not named.
            (How much single rows count is a column of the label owner's, `PartyTable.weight`.)
        seed: of splits and batches, never of cryptography. Where the cut is not sealed it also gives each party's
            secret, from which first weights are drawn (`securevfl.party_context.PartySecret`).
        clip: features are clipped to this many standard deviations.
        scale: how numbers are scaled: ``"standard"``, ``"quantile"`` or ``"robust"`` for heavy tails, ``"auto"`` for
            what fits each column, or ``"none"``; see `securevfl.data.prepare.scaling`. A table's own preparation
            overrides it.
    """

    epochs: Annotated[int, Meta(ge=1, le=100_000)] = 10
    batch_size: Annotated[int, Meta(ge=1, le=1 << 20)] = 256
    steps: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    patience: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    keep: Keep = "best"
    valid: Fraction = 0.1
    test: Fraction = 0.2
    valid_every: Annotated[int, Meta(ge=1, le=100_000)] = 1
    valid_rows: Annotated[int, Meta(ge=1, le=1 << 24)] | None = None
    stratify: bool = False
    split_by: Literal["rows", "group", "time"] = "rows"
    fold: tuple[Folds, Folds] | None = None
    task: Literal["classification", "regression", "multilabel"] = "classification"
    loss: Literal["auto", "squared", "huber", "poisson", "tweedie"] = "auto"
    huber_delta: Annotated[float, Meta(gt=0, le=1_000)] = 1.0
    tweedie_power: Annotated[float, Meta(gt=1, lt=2)] = 1.5
    target_range: tuple[float, float] | None = None
    class_weight: Mapping[str, Weight] | Literal["balanced"] | None = None
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    clip: Annotated[float, Meta(gt=0, lt=8)] = 5.0
    scale: Scale = "standard"

    @classmethod
    def section_path(cls) -> str:
        return "job"

    def problems(self) -> list[str]:
        found = super().problems()
        if self.valid + self.test >= 1:
            found.append(
                f"valid is {self.valid} and test is {self.test}; together they are less than 1, so that rows are left "
                "to train"
            )
        if self.patience is not None and self.patience < self.valid_every:
            found.append(
                f"patience is {self.patience} and valid_every {self.valid_every}: no validation would come before the "
                "patience is over; give patience as many epochs at least"
            )
        if self.stratify and self.split_by != "rows":
            found.append(
                f"stratify draws single rows, but split_by is {self.split_by!r}, which keeps rows together: "
                "leave one out"
            )
        if self.fold is not None and not (self.fold[0] <= self.fold[1] and self.fold[1] >= 2):
            found.append(f"fold is {list(self.fold)}; the first number is 1 to the second, which is 2 or more")
        return found + self._target_problems()

    def _target_problems(self) -> list[str]:
        """Problems with the settings of a numeric target."""
        found, bounds = [], self.target_range
        if self.task != "regression":
            if self.loss != "auto":
                found.append(f"loss {self.loss!r} is for a number, but task is {self.task!r}: set task='regression'")
            if bounds is not None:
                found.append("target_range is for task='regression': leave it out")
        if self.task == "classification":
            return found
        has = "a regression has none" if self.task == "regression" else "several labels are no classes"
        if self.class_weight is not None:
            found.append(f"class_weight is of classes, and {has}: leave it out, or weigh rows")
        if self.stratify:
            found.append(f"stratify draws the split by class, and {has}: leave it out")
        if self.task == "multilabel":
            return found
        if bounds is not None and not (math.isfinite(bounds[1] - bounds[0]) and bounds[0] < bounds[1]):
            found.append(f"target_range is {list(bounds)}; the lowest target and a larger, highest one were expected")
        elif bounds is not None and self.loss in ("poisson", "tweedie") and bounds[0] < 0:
            found.append(f"target_range is {list(bounds)}, and the loss {self.loss!r} is for amounts from 0 up")
        return found

    @property
    def has_several_labels(self) -> bool:
        """Whether a row can have several labels."""
        return self.task == "multilabel"

    @property
    def number_loss(self) -> LossOfNumber | None:
        """How a numeric target is trained; None for classes or labels."""
        if self.task != "regression":
            return None
        name = "squared" if self.loss == "auto" else self.loss
        return LossOfNumber(name, self.huber_delta, self.tweedie_power, self.target_range)


class JobOptions(JobTerms):
    """What a job has besides its algorithm, its protection and the parties' policies: a job file's section ``[job]``.

    Attributes:
        device: ``"cpu"`` or ``"cuda"`` for plain tensors. Parties choose it independently, and peers need not know it.
        pool: workers for the products of a sealed cut: ``"local"``, ``"process:2"``, ``"ray"``, ``"ray:HOST:PORT"``:
            see `securevfl_crypto.pools`. Parties choose it independently, and peers need not know it.
        accept_leak: whether a job that names no protection, and cannot train on secret shares, may run in the clear. A
            protection that is named runs as it is.
        leaving: ``"end"``: without a party the job does not go on. ``"go-on"``: it goes on with the others if one with
            features alone leaves for good, where the algorithm can; an agreement says after which time.
        epochs, batch_size, steps, patience, keep, valid, test, valid_every, valid_rows, stratify, seed, clip, scale:
            see `JobTerms`.
        split_by, fold, task, loss, huber_delta, tweedie_power, target_range, class_weight: see there.
    """

    elsewhere: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("lr", "learning_rate"), "lr of the algorithm"),
        **dict.fromkeys(("trees", "n_estimators"), "epochs: boosting grows a tree in each"),
        "random_state": "seed",
        "n_epochs": "epochs",
    }

    device: str = "cpu"
    pool: str = "local"
    accept_leak: bool = False
    leaving: Leaving = "end"

    def problems(self) -> list[str]:
        found = super().problems()
        if self.device != "cpu" and not _is_usable(self.device):
            found.append(f"device {self.device!r} is not there; torch sees 'cpu' only: use device='cpu'")
        try:
            check_pool(self.pool)
        except PoolError as error:
            found.append(str(error))
        return found

    def build_job(self, **parts: Any) -> Job:
        """The job with these options.

        Args:
            parts: `algorithm`, `protection` and `policies`, as for `Job`.

        Raises:
            InputError, PolicyError: parts that do not go together.
        """
        return Job(**{name: getattr(self, name) for name in JobOptions.__struct_fields__}, **parts)


def _is_usable(device: str) -> bool:
    import torch

    try:
        return torch.device(device).type == "cuda" and torch.cuda.is_available()
    except RuntimeError:
        return False


class Job(JobOptions):
    """A training job.

    Attributes:
        algorithm: what is trained, for example `SplitNN`: any `Algorithm`, or the name of an installed one for its
            defaults.
        protection: how what crosses the cut is protected: `Plain`, `BFV` or another, each with `dp` or without;
            likewise. Without one, secret shares where the parties and the algorithm allow it; else the job is refused
            unless it has `accept_leak`: see `securevfl.party.default_protection`.
        align: how common rows are found.
        link: how records without a common identifier are linked before that; None if they have one.
        policies: party → that party's own policy, on top of what the protection demands.
        report: what the label owner's report decides with, costs and groups. Peers need not know it.
        epochs, batch_size, steps, patience, keep: see `JobOptions`.
        valid, test, valid_every, valid_rows, stratify: see there.
        split_by, fold, task, loss, huber_delta, tweedie_power, target_range, class_weight: see there.
        seed, clip, scale, device, pool, accept_leak, leaving: see there.

    Raises:
        InputError: values out of range, all of them in one message; or a kind of differential privacy that the
            algorithm cannot have.
        PolicyError: a protection that the algorithm cannot have.
    """

    algorithm: Algorithm = msgspec.field(default_factory=_default_algorithm)
    protection: Protection = msgspec.field(default_factory=Unnamed)
    align: Align = msgspec.field(default_factory=Align)
    link: Linkage | None = None
    policies: Mapping[str, Policy] = msgspec.field(default_factory=dict)
    report: ReportOptions = msgspec.field(default_factory=ReportOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.algorithm.check_protection(self.protection)
        if self.number_loss is not None:
            self.algorithm.check_number(self.number_loss, self.protection)
        if self.has_several_labels:
            self.algorithm.check_several(self.protection)
        if self.class_weight is not None:
            self.algorithm.check_weights("class_weight is given", self.protection)
        if self.link is not None and self.link.weights:
            self.algorithm.check_weights("[link] has weights = true", self.protection)
        if self.leaving == "go-on":
            self.algorithm.check_leaving(self.protection)

    def problems(self) -> list[str]:
        found = super().problems()
        if self.stratify and self.protection.dp is not None and self.protection.dp.labels is not None:
            found.append(
                "stratify is set and dp.labels asks for noise on labels: a stratified split would reveal "
                "labels without noise through the rows that train; leave stratify out"
            )
        covered = self.protection.on_shares or self.algorithm.covers_training(self.protection)
        if self.stratify and covered and self.protection.dp is not None and self.protection.dp.model:
            found.append(
                "stratify is set and dp.model bounds what is learned of a row that trains: a stratified split would "
                "reveal labels without noise through the rows that train; leave stratify out"
            )
        found += self.protection.plan_problems(patience=self.patience, keep=self.keep, batch_size=self.batch_size)
        found += self._validation_problems()
        if self.report.costs is not None and self.task != "classification":
            found.append(f"report.costs are for two classes, and task is {self.task!r}: leave them out")
        if not found and self.device != "cpu" and self.protection.uses_integers and not self.protection.is_sealed:
            found.append(f"fixed-point runs compute on the CPU, not on {self.device!r}: use device='cpu'")
        return found

    def _validation_problems(self) -> list[str]:
        """What needs scores of the validation rows in training, where the algorithm takes none."""
        if not self.algorithm.opens_only_answers(self.protection):
            return []
        why = f"and {self.algorithm.title} under {self.protection.title} scores no validation rows in training"
        found = []
        if self.keep != "last":
            found.append(f"keep is {self.keep!r}, {why}: set keep = 'last'")
        if self.patience is not None:
            found.append(f"patience is {self.patience}, {why}: leave patience out")
        return found

    @property
    def number_loss(self) -> LossOfNumber | None:
        """How a numeric target is trained; None for a classification. ``loss="auto"`` is the Huber loss if the
        protection bounds errors, see `Protection.error_bound`, and the algorithm does not do so itself.
        """
        found, bound = super().number_loss, self.protection.error_bound
        if found is None or bound is None or self.loss != "auto" or self.algorithm.bounds_errors:
            return found
        return replace(found, name="huber", delta=bound)

    @property
    def plan(self) -> Plan:
        """The plan for the roles."""
        return Plan(
            epochs=self.epochs,
            batch_size=self.batch_size,
            patience=self.patience,
            steps=self.steps,
            keep=self.keep,
            valid_every=self.valid_every,
            validates=not self.algorithm.opens_only_answers(self.protection),
            device=self.device,
            number=self.number_loss,
            several=self.has_several_labels,
            heaviest=_BALANCED if self.class_weight == "balanced" else max((self.class_weight or {"": 1.0}).values()),
            weighs_classes=self.class_weight is not None,
        )

    def planned_protection(self, passive: int) -> Protection:
        """The protection with the ε that this plan spends in the place of noise multipliers: findings, declarations and
        refusals are made from it.

        Args:
            passive: number of passive parties.
        """
        return self.algorithm.with_planned_noise(self.protection, self.plan, passive)

    def findings(self, passive: Sequence[str], active: str) -> list[Finding]:
        """What each party could learn of another in this job, with the planned ε: from the algorithm, the protection
        and the alignment.

        Args:
            passive: names of the passive parties.
            active: name of the active party.
        """
        found = self.algorithm.findings(self.planned_protection(len(passive)), passive, active)
        linked = [] if self.link is None else self.link.findings(passive, active)
        return [*found, *self.align.findings(passive, active), *linked, *self._split_findings(passive, active)]

    def _split_findings(self, passive: Sequence[str], active: str) -> list[Finding]:
        """What the marks of a split that follows a column of the label owner's disclose."""
        told = {
            "time": "which common rows are from before, between and after two points in time",
            "group": "that common rows which train and rows which test are never of one group",
        }
        if self.split_by == "rows":
            return []
        sight = Sight(of="rows", severity="note", through=f"the split by {self.split_by}")
        return [Finding(name, active, told[self.split_by], "note", (sight,)) for name in passive]

    @property
    def digest(self) -> str:
        """SHA-256 of the job, hexadecimal. Parties compare it before anything else; a policy, a device and a pool are a
        party's own affair, and that a leak is accepted shows in the protection."""
        usual = {name: getattr(self, name) == value for name, value in _LATER.items()}
        agreed = {
            name: value
            for name, value in self.describe().items()
            if name not in _OWN_AFFAIR and not usual.get(name, False)
        }
        text = json.dumps(agreed, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(b"securevfl job v3" + text.encode()).hexdigest()

    def policy(self, party: str) -> Policy:
        """The policy that applies to `party`: its own combined with the protection's minimum; the stricter rule
        applies.
        """
        return self.protection.policy().combine_strictest(self.policies.get(party, Policy()))
