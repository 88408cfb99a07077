"""The job: what all parties agree to run. Frozen, checked once, and known to every party by its digest."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from securevfl.algorithms import ALGORITHMS, Algorithm, Plan, SplitNN
from securevfl.cut import PROTECTIONS, Plain, Protection
from securevfl.errors import InputError, UnknownNameError
from securevfl.privacy import Policy

__all__ = ["Job"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training job.

    Attributes:
        algorithm: what is trained, for example `SplitNN`; a name stands for its defaults.
        protection: how what crosses the cut is protected: `Plain` or `Paillier`, each with `dp` or without; likewise.
        epochs: most epochs over the training rows.
        batch_size: rows in a batch.
        steps: batches in an epoch; None for one pass over the algorithm's rows. With a number, algorithms that train on
            different rows take equally many steps.
        patience: epochs without a gain on the validation rows after which training stops; None for never.
        valid: fraction of the common rows that validate.
        test: fraction of the common rows that test.
        seed: of everything that is learned (never of cryptography): splits, batches, initial weights.
        clip: features are clipped to this many standard deviations.
        scale: how numeric features are scaled: ``"standard"``, or ``"quantile"`` for heavy tails.
        device: ``"cpu"`` or ``"cuda"`` for plain tensors.
        policies: party → that party's own policy, on top of what the protection demands.
    """

    algorithm: Algorithm = field(default_factory=SplitNN)
    protection: Protection = field(default_factory=Plain)
    epochs: int = 10
    batch_size: int = 256
    steps: int | None = None
    patience: int | None = None
    valid: float = 0.1
    test: float = 0.2
    seed: int = 0
    clip: float = 5.0
    scale: str = "standard"
    device: str = "cpu"
    policies: Mapping[str, Policy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, registry in (("algorithm", ALGORITHMS), ("protection", PROTECTIONS)):
            given = getattr(self, name)
            if isinstance(given, str):
                if given not in registry:
                    raise UnknownNameError(name, given, registry)
                object.__setattr__(self, name, registry[given]())
            elif not isinstance(given, tuple(registry.values())):
                known = ", ".join(f"sv.{kind.__name__}(…)" for kind in registry.values())
                raise InputError(f"{name} is {given!r}; one of {known} was expected, or a name: {', '.join(registry)}")
        whole = {"epochs": (1, 100_000), "batch_size": (1, 1 << 20), "seed": (0, (1 << 63) - 1)}
        for name in ("patience", "steps"):
            if getattr(self, name) is not None:
                whole[name] = (1, 100_000)
        for name, (low, high) in whole.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise InputError(f"{name} is {value!r}; it is a whole number from {low} to {high}")
        if not (0 < self.valid < 1 and 0 < self.test < 1 and self.valid + self.test < 1):
            raise InputError(
                f"valid is {self.valid} and test is {self.test}; both are fractions between 0 and 1, less than "
                "1 together"
            )
        if not 0 < self.clip < 8:
            raise InputError(f"clip is {self.clip}; features are clipped to more than 0 and less than 8 deviations")
        if self.scale not in ("standard", "quantile"):
            raise InputError(f"scale is {self.scale!r}; 'standard' and 'quantile' are known")
        self.algorithm.check(self.protection)
        self._check_device()

    def _check_device(self) -> None:
        if self.device != "cpu":
            try:
                usable = torch.device(self.device).type == "cuda" and torch.cuda.is_available()
            except RuntimeError:
                usable = False
            if not usable:
                raise InputError(f"device {self.device!r} is not there; torch sees 'cpu' only: use device='cpu'")
            if getattr(self.protection, "fixed_point", False):
                raise InputError(f"fixed-point runs compute on the CPU, not on {self.device!r}: use device='cpu'")

    @property
    def plan(self) -> Plan:
        """What the roles need of it."""
        return Plan(
            epochs=self.epochs, batch_size=self.batch_size, patience=self.patience, steps=self.steps, device=self.device
        )

    def describe(self) -> dict[str, object]:
        """Plain values, for JSON: the whole job, names of algorithm and protection included."""
        values: dict[str, object] = {}
        for item in dataclasses.fields(self):
            if item.name == "policies":
                values["policies"] = {name: policy.describe() for name, policy in sorted(self.policies.items())}
                continue
            value = getattr(self, item.name)
            if dataclasses.is_dataclass(value) and not isinstance(value, type):
                name = getattr(value, "name", None)
                value = ({"name": name} if name else {}) | dataclasses.asdict(value)
            values[item.name] = value
        return values

    @property
    def digest(self) -> str:
        """SHA-256 of the job, hexadecimal. Parties compare it before anything else; a policy is a party's own
        affair."""
        agreed = {name: value for name, value in self.describe().items() if name != "policies"}
        text = json.dumps(agreed, sort_keys=True, default=list, separators=(",", ":"))
        return hashlib.sha256(b"securevfl job v1" + text.encode()).hexdigest()

    def policy(self, party: str) -> Policy:
        """The policy that holds for `party`: its own and the protection's floor, the stricter of the two."""
        return self.protection.policy().stricter(self.policies.get(party, Policy()))
