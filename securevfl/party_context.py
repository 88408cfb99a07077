"""The context of one party in a run: its name, links, ledger, policy and secret.

The programs of `align`, `cut`, `training`, `algorithms` and `party` get one, and reach nothing outside it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from securevfl.errors import InputError
from securevfl.privacy import Clock, HeldNumbers, Journal, Policy, ResultBook
from securevfl.transport import ACTIVE, COORDINATOR, PASSIVE, PartyRole

if TYPE_CHECKING:
    from securevfl.privacy import Ledger, Link
    from securevfl.transport import Array, Kind, Message

__all__ = ["SILENCE", "Keeper", "Observer", "PartyContext", "PartySecret", "derive_seed"]


def derive_seed(seed: int, *labels: str | int) -> int:
    """Derive an independent 63-bit seed for learning (never for cryptography) from a seed and labels of its purpose."""
    text = "\x1f".join(["securevfl", str(seed), *map(str, labels)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


@dataclass(frozen=True, repr=False)
class PartySecret:
    """One party's secret, from which its first weights and other random choices of learning are drawn.

    Under a sealed protection it comes from the operating system. It is stored in the party's own checkpoints, so that a
    resumed run makes the same choices, and nowhere else: not in a message, ledger or model.

    Attributes:
        number: from 0 to 2^256 − 1; 256 random bits, unless it is `derived`.
    """

    number: int

    def __post_init__(self) -> None:
        if not 0 <= self.number < 1 << 256:
            raise InputError("a party's secret is a number from 0 to 2^256 - 1; make one with PartySecret.generate()")

    @classmethod
    def generate(cls) -> PartySecret:
        """256 bits from the operating system."""
        return cls(secrets.randbits(256))

    @classmethod
    def from_seed(cls, seed: int, party: str) -> PartySecret:
        """Derive the secret from the job's seed, which all parties know: not secret, but the same in every run. For
        simulations without encryption, which claim no secrecy, and for experiments that run a job twice.
        """
        return cls(derive_seed(seed, "private", party))

    @classmethod
    def from_keeper(cls, keeper: Keeper) -> PartySecret | None:
        """Load the secret of the run that a keeper's checkpoint continues; None without a checkpoint.

        Raises:
            InputError: the checkpoint contains no secret.
        """
        saved = keeper.load()
        if saved is None:
            return None
        text = saved.get("secret")
        if not isinstance(text, str) or len(text) != 64 or not set(text) <= set("0123456789abcdef"):
            raise InputError(
                "the checkpoint contains no secret of its party: it is damaged, or an older version wrote "
                "it; start from the beginning, with another folder for checkpoints"
            )
        return cls(int(text, 16))

    @property
    def to_hex(self) -> str:
        """64 hexadecimal digits, for the party's own checkpoint."""
        return f"{self.number:064x}"

    def derive_seed(self, *labels: str | int) -> int:
        """Derive a 63-bit seed for learning, for the purpose that the labels name."""
        return derive_seed(self.number, *labels)

    def keystream(self, count: int, *labels: str) -> bytes:
        """`count` bytes of SHAKE-256 (FIPS 202) over the secret and the labels, each prefixed with its length: without
        the secret they cannot be told from random bytes, nor from the bytes of other labels.
        """
        parts = [b"securevfl party secret v1", self.number.to_bytes(32, "big"), *(label.encode() for label in labels)]
        return hashlib.shake_256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest(count)

    def __repr__(self) -> str:
        return "PartySecret(…)"


SILENCE = 600.0
"""Seconds; see `PartyContext.silence`."""


class Observer:
    """Callbacks for the progress of a run; the base class ignores every event. The command line's progress bars are one
    such observer.

    What a party sees of its peers' data goes only to an observer with `listening`. Each party's own program makes these
    calls, so an observer of one party sees that party alone. It must not change its arguments.

    Attributes:
        listening: whether to call `message_passed` to `network_built`. Without it they are never called.
        accounting: whether `epsilon_spent` is wanted.
        counting: whether `message_counted` is wanted. Without it nothing is called.
    """

    listening: ClassVar[bool] = False
    accounting: ClassVar[bool] = False
    counting: bool = False

    def run(self, title: str) -> None:
        """A new run of a comparison began."""

    def end(self) -> None:
        """The comparison ended well."""

    def phase(self, name: str) -> None:
        """A phase of the run began: consent, alignment, setup, training, test, heads."""

    def step(self, epoch: int, done: int, total: int) -> None:
        """A training step of `epoch` (from 1) ended."""

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        """An epoch ended, with its mean loss and its metrics on the validation rows."""

    def epsilon_spent(self, party: str, epsilon: Mapping[str, float]) -> None:
        """`party` ended an epoch: ``"features"`` or ``"labels"`` of one row → ε of all releases so far, by RDP."""

    def message_passed(self, party: str, peer: str, way: Literal["sent", "received"], message: Message) -> None:
        """`party` sent a message to `peer`, or received one, after its policy and its ledger had it."""

    def message_counted(self, peer: str, way: Literal["sent", "received"], kind: Kind) -> None:
        """The party sent a message of this kind to `peer`, or received one. Nothing of its content is told."""

    def rows_numbered(self, party: str, owner: str, rows: Any) -> None:
        """`party` has its rows ready to train on in the federation of the label owner `owner`.

        Args:
            party: whose.
            owner: the label owner.
            rows: its `securevfl.training.NumberedRows`: its own features, its labels where it has them, the split.
        """

    def batch_begun(self, party: str, owner: str, epoch: int, rows: np.ndarray) -> None:
        """`party` begins with a batch: numbers of its rows, (n,); `epoch` from 1, or 0 where it only scores them."""

    def activations_fed(self, party: str, owner: str, rows: np.ndarray, activations: Array) -> None:
        """A passive `party` computed the activations (n, d) of its numbered rows, before any noise on them."""

    def cut_joined(self, party: str, owner: str, lr: float, momentum: float, decay: float) -> None:
        """The active `party` has a side of a cut, whose weights follow this rule: η, μ and η λ."""

    def values_opened(
        self, party: str, owner: str, what: Literal["z", "gradient"], values: Array, *, train: bool
    ) -> None:
        """What `party` has at the cut after decryption: z (n, h), or (parties, n, h) if the parties' parts arrive
        separately, at the active party; ∂L/∂a (n, d) at a passive one.
        """

    def steps_handed(self, party: str, owner: str, steps: np.ndarray) -> None:
        """The active `party` hands back η ∂L/∂z, (n, h) or (parties, n, h), as the integers of the cut round it."""

    def network_built(self, party: str, owner: str, network: Any) -> None:
        """A passive `party` built a network from its features to its output at the cut, a ``torch.nn.Module`` that it
        trains.
        """


class Keeper:
    """Stores a party's checkpoints and the journal of its releases; the base class stores no checkpoint and keeps its
    journal in memory.

    Attributes:
        start: the epoch to resume from; None to start from the beginning.
        step: batches of the epoch after it that were done too.
        steps: batches between checkpoints inside an epoch, if the algorithm can resume there; 0 for checkpoints only
            between epochs. Useful for long epochs: see `securevfl.training.checkpoints`.
        first_part: the party's part of an earlier model, from which training begins; None to begin anew.
        scope: for whom the releases in the journal are, where the party has several lists of them; see `Journal`.
    """

    start: int | None = None
    step: int = 0
    steps: int = 0
    scope: str = ""
    first_part: Mapping[str, Any] | None = None

    @cached_property
    def journal(self) -> Journal:
        """The party's journal of releases, over all attempts at the run."""
        return Journal()

    @cached_property
    def results(self) -> ResultBook:
        """Numbers of each row that earlier attempts opened, in a simulation whose policy bounds them."""
        return ResultBook()

    def load(self) -> dict[str, object] | None:
        """Load the checkpoint to resume from, or None to start from the beginning."""
        return None

    def last_position(self, after: int, most: int) -> tuple[int, int] | None:
        """The last checkpoint of the epochs after `after` up to `most`, not after the one to resume from: its epoch,
        and how many batches of the next one it has; None without one."""
        return None

    def load_from(self, epoch: int, step: int) -> dict[str, object]:
        """Load the checkpoint at a position that `last_position` named."""
        raise NotImplementedError

    def store_row_counts(self, counts: Mapping[str, tuple[int, int]]) -> None:
        """Keep how many rows of each party are not aligned, and how many of these have labels: so rows keep their
        numbers if a party leaves."""

    def read_row_counts(self) -> Mapping[str, tuple[int, int]]:
        """What `store_row_counts` stored; empty before."""
        return {}

    def store_diverged(self, candidates: Mapping[str, str]) -> None:
        """Keep which candidates of a choice diverged → why: an attempt that resumes does not train them again."""

    def read_diverged(self) -> Mapping[str, str]:
        """What `store_diverged` stored; empty before."""
        return {}

    def is_due(self, epoch: int) -> bool:
        """Whether to store a checkpoint after `epoch`."""
        return False

    def save(self, epoch: int, state: dict[str, object], *, step: int = 0) -> None:
        """Keep the party's state after `epoch`, and after `step` batches of the one that follows."""


@dataclass(frozen=True, kw_only=True)
class PartyContext:
    """Everything that one party's program may use in a run.

    Attributes:
        name: the party.
        active: name of the active party; with several label owners, of the one whose federation this is.
        passive: names of the passive parties, sorted.
        links: peer → link; every pair of parties is linked.
        ledger: the party's own.
        policy: the party's own.
        clock: the party's own.
        job: SHA-256 of the job that all parties were given, hexadecimal.
        seed: the job's seed, known to all parties: batches and splits.
        secret: the party's secret, which its peers must not know: source of first weights of cut and bottom models.
        owners: names of the parties with labels, in the job's order; if empty, the active party alone.
        coordinator: name of the party without data that connects label owners; empty if there is none.
        observer: receives progress events.
        keeper: keeps the party's checkpoints.
        notes: remarks for the report on this party's part in the run.
        results: what earlier jobs and predictions answered of each of the party's rows.
        held: the running numbers of its peers' result books.
        epsilon_over_jobs: largest ε of one of the party's rows for one asker, over all jobs: `max_epsilon` of its own
            policy, before an agreement tightens it for one job; None for any.
        organisations: party → its organisation, as this party's officer entered it. The book counts for organisations.
        simulated: whether one person runs all parties and sees every table, so that a refusal protects nobody. Then
            rules that nobody wrote refuse nothing, and the report warns; see `Policy.max_results`.
        filters: folder for files that outlive an unbalanced alignment; None to store none.
        gone: passive parties that left the job for good; they are not in `passive`.
        silence: seconds without a sign of life after which an awaited peer counts as lost. Each party chooses its own;
            the job does not set it.
        pool: the party's own workers, as `securevfl_crypto.pools.open_pool` reads them; likewise.
        device: the party's own device for plain tensors and for large products of shares; likewise.
    """

    name: str
    active: str
    passive: tuple[str, ...]
    links: dict[str, Link]
    ledger: Ledger
    policy: Policy
    clock: Clock
    job: str
    seed: int
    secret: PartySecret = field(repr=False)
    owners: tuple[str, ...] = ()
    coordinator: str = ""
    observer: Observer = field(default_factory=Observer)
    keeper: Keeper = field(default_factory=Keeper)
    notes: list[str] = field(default_factory=list)
    results: ResultBook = field(default_factory=ResultBook)
    held: HeldNumbers = field(default_factory=HeldNumbers)
    epsilon_over_jobs: float | None = None
    organisations: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False
    filters: Path | None = None
    gone: tuple[str, ...] = ()
    silence: float = SILENCE
    pool: str = "local"
    device: str = "cpu"

    @property
    def everyone(self) -> tuple[str, ...]:
        """Names of the passive parties with which the job began, sorted."""
        return tuple(sorted((*self.passive, *self.gone)))

    @property
    def role(self) -> PartyRole:
        """This party's role: active (it owns labels), passive, or the coordinator."""
        return self.role_of(self.name)

    def role_of(self, name: str) -> PartyRole:
        """A party's role."""
        if self.coordinator and name == self.coordinator:
            return COORDINATOR
        return PASSIVE if name in self.passive else ACTIVE

    def organisation_of(self, name: str) -> str:
        """A party's organisation: as the officer entered it, otherwise the party's name."""
        return self.organisations.get(name, name)

    @property
    def asker(self) -> str:
        """The organisation that this federation's answers are for: the active party's."""
        return self.organisation_of(self.active)

    @property
    def label_owners(self) -> tuple[str, ...]:
        """Names of the parties with labels: the active party, or several in the job's order."""
        return self.owners or (self.active,)

    @property
    def other_links(self) -> list[Link]:
        """Links to all peers, by name."""
        return [self.links[name] for name in sorted(self.links)]

    @property
    def passive_links(self) -> list[Link]:
        """Links to the passive parties, in the job's order, at the active party."""
        return [self.links[name] for name in self.passive]

    def federation(self, owner: str) -> PartyContext:
        """The context of this party in one label owner's federation: that owner and all passive parties.

        With one label owner and no coordinator there is one federation and the context is this one. Otherwise links
        lead only to members, and batches are drawn from a seed for each federation.
        """
        if len(self.label_owners) == 1 and not self.coordinator:
            return self
        inside = {owner, *self.passive}
        links = {name: link for name, link in self.links.items() if name in inside}
        seed = derive_seed(self.seed, "federation", owner)
        return replace(self, active=owner, owners=(owner,), coordinator="", links=links, seed=seed)

    def close(self) -> None:
        """Close all links: nothing more will be sent."""
        for link in self.links.values():
            link.close()
