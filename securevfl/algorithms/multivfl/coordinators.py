"""The coordinator of Multi-VFL: it has no data, combines the label owners' changes and passes on when to stop.

The aggregation decides what it learns, see `averaging`.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
from securevfl_crypto.aggregation import Addends, Aggregation, Aggregator

from securevfl.algorithms.multivfl.averaging import CHANGE_BITS, count_as_encryption, unmasked_mean
from securevfl.algorithms.multivfl.servers import ServerOptimiser
from securevfl.cut.handshake import read_key
from securevfl.errors import ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import fan_out
from securevfl.training.plan import Plan
from securevfl.training.program import Program
from securevfl.training.rows import Trained
from securevfl.training.state import State, as_dict, as_flag, as_int
from securevfl.transport import Guard, Kind

__all__ = ["BlindCoordinator", "Coordinator", "MaskedCoordinator"]


class Coordinator(Program):
    """The coordinator's program.

    Args:
        site: the coordinator's, linked with all label owners; the first label owner is the chief.
        plan: of the job.
    """

    def __init__(self, site: PartyContext, plan: Plan) -> None:
        self.site = site
        self.plan = plan
        self.owners = [site.links[name] for name in site.label_owners]
        self.chief = self.owners[0]
        self.trained = Trained()

    @abstractmethod
    async def begin_rounds(self, saved: State | None) -> None:
        """Before the first round, or the first after a checkpoint."""

    @abstractmethod
    async def combine_changes(self) -> None:
        """Combine one round's changes."""

    def get_state(self) -> State:
        """The state to resume from, apart from the epoch."""
        return {}

    async def run(self) -> Trained:
        clock, trained, observer = self.site.clock, self.trained, self.site.observer
        observer.phase("setup")
        clock.lap()
        saved = self.site.keeper.load()
        epoch = 0 if saved is None else as_int(saved["epoch"])
        stop = saved is not None and self._is_finished(saved)
        if saved is not None:
            trained.restore_readings(saved["readings"])
        await self.begin_rounds(saved)
        trained.setup = clock.lap()
        observer.phase("training")
        while not stop:
            epoch += 1
            await self.combine_changes()
            observer.step(epoch, 1, 1)
            stop = await self.pass_on() or epoch >= self.plan.epochs
            trained.readings.append(clock.lap())
            self._save_checkpoint(epoch, stop=stop)
            observer.epoch(epoch, math.nan, {})
        trained.finish = clock.lap()
        return trained

    async def pass_on(self) -> bool:
        """Send the chief's decision to the other label owners; return whether training ends."""
        verdict = await self.chief.receive(Kind.CONTROL, "train/epoch")
        meta = dict(verdict.meta)
        await fan_out(self.owners[1:], lambda link: link.send(Kind.CONTROL, "train/epoch", meta=meta))
        return bool(meta.get("stop"))

    def _save_checkpoint(self, epoch: int, *, stop: bool) -> None:
        if not self.site.keeper.is_due(epoch):
            return
        readings = [[r.compute, r.he, r.wait, r.sent] for r in self.trained.readings]
        where = {"epoch": epoch, "epochs": self.plan.epochs, "stop": stop, "readings": readings}
        self.site.keeper.save(epoch, where | self.get_state())

    def _is_finished(self, saved: State) -> bool:
        """Whether a resumed run is already complete: it stopped early, or has had all epochs."""
        epoch = as_int(saved["epoch"])
        return as_flag(saved["stop"]) and (epoch < as_int(saved["epochs"]) or epoch >= self.plan.epochs)


class MaskedCoordinator(Coordinator):
    """Adds up masked changes, steps the server optimiser, and sends the new weights to the label owners.

    Args:
        site: see `Coordinator`.
        plan: see `Coordinator`.
        server: the optimiser.
    """

    def __init__(self, site: PartyContext, plan: Plan, server: ServerOptimiser) -> None:
        super().__init__(site, plan)
        self.server = server
        self.weights = np.empty(0)

    async def begin_rounds(self, saved: State | None) -> None:
        message = await self.chief.receive(Kind.STATISTIC, "multi/weights", "weights")
        self.weights = np.asarray(message.arrays["weights"])
        if self.weights.ndim != 1 or self.weights.dtype != np.float64 or not np.isfinite(self.weights).all():
            raise ProtocolError(f"{self.chief.peer!r} sent malformed initial weights; finite float64 (d,) are needed")
        if saved is not None:
            self.server.load_state(as_dict(saved["server"]))
            self.weights = np.asarray(saved["weights"])
        await self._send_weights()

    async def combine_changes(self) -> None:
        parts = []
        for link in self.owners:
            part = await link.receive(Kind.MASKED_SHARE, "multi/change", "change")
            parts.append(np.asarray(part.arrays["change"]))
        self.weights = self.server.step_weights(self.weights, unmasked_mean(parts, len(self.weights)))
        await self._send_weights()

    async def _send_weights(self) -> None:
        weights = self.weights
        await fan_out(self.owners, lambda link: link.send(Kind.STATISTIC, "multi/weights", weights=weights))

    def get_state(self) -> State:
        return {"weights": self.weights, "server": self.server.get_state()}


class BlindCoordinator(Coordinator):
    """Adds up ciphertexts that it has no key to.

    Args:
        site: see `Coordinator`.
        plan: see `Coordinator`.
        scheme: that adds up.
    """

    def __init__(self, site: PartyContext, plan: Plan, scheme: Aggregation) -> None:
        super().__init__(site, plan)
        self.scheme = scheme

    async def begin_rounds(self, saved: State | None) -> None:
        message = await self.chief.receive(Kind.PUBLIC_KEY, "multi/key", "key")
        told = [message.meta.get(name) for name in ("weights", "shares", "share bits")]
        if not all(isinstance(value, int) and value >= 0 for value in told):
            raise ProtocolError(
                f"{self.chief.peer!r} announced invalid numbers of weights, of shares and of their bits: {told}"
            )
        weights, shares, bits = (int(str(value)) for value in told)
        parties = len(self.owners)
        with count_as_encryption(self.site.clock):
            public = self.scheme.read_public(read_key(self.chief.peer, message.arrays["key"]))
            self.changes = self.scheme.create_aggregator(
                public, Addends(count=weights, bits=CHANGE_BITS, parties=parties)
            )
            self.shares: Aggregator | None = None
            if shares:
                self.shares = self.scheme.create_aggregator(public, Addends(count=shares, bits=bits, parties=parties))
        self.guard = Guard(self.scheme.name, public.bits, public.fingerprint)
        if saved is None:
            await self._add_shares()

    async def combine_changes(self) -> None:
        await self._add_messages(self.changes, "multi/change")
        await self._add_shares()

    async def _add_shares(self) -> None:
        if self.shares is not None:
            await self._add_messages(self.shares, "multi/shares")

    async def _add_messages(self, aggregator: Aggregator, what: str) -> None:
        """Add up one message from each label owner, and give the sum to the chief."""
        parts = []
        for link in self.owners:
            message = await link.receive(Kind.CIPHERTEXT, what, "c")
            parts.append(np.asarray(message.arrays["c"]))
        with count_as_encryption(self.site.clock):
            total = aggregator.add(parts)
        await self.chief.send(Kind.CIPHERTEXT, f"{what} sum", guard=self.guard, c=total)
