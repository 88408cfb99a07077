"""The coordinator of Multi-VFL, which has no data: it brings the label owners' changes together, and passes on when to
stop. What it learns depends on the aggregation, see `averaging`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from securevfl_crypto.aggregation import Addends, Aggregation, Aggregator

from securevfl.algorithms.averaging import CHANGE_BITS, unmasked_mean, working
from securevfl.algorithms.halves import State, as_dict
from securevfl.algorithms.servers import Server
from securevfl.algorithms.table import Plan, Trained
from securevfl.errors import ProtocolError
from securevfl.site import Site
from securevfl.transport import Guard, Kind

__all__ = ["BlindCoordinator", "Coordinator", "MaskedCoordinator"]


class Coordinator(ABC):
    """The coordinator's program.

    Args:
        site: the coordinator's.
        plan: of the job.
        owners: all label owners, in order; the first is the chief.
    """

    def __init__(self, site: Site, plan: Plan, owners: Sequence[str]) -> None:
        self.site = site
        self.plan = plan
        self.owners = list(owners)
        self.chief = site.links[owners[0]]
        self.trained = Trained()

    @abstractmethod
    async def begin(self, saved: State | None) -> None:
        """Before the first round, or the first after a checkpoint."""

    @abstractmethod
    async def round(self) -> None:
        """Bring one round's changes together."""

    def state(self) -> State:
        """What it has to keep, beside where it stands."""
        return {}

    async def run(self) -> Trained:
        self.site.clock.lap()
        epoch, stop = 0, False
        saved = self.site.keeper.saved()
        if saved is not None:
            epoch, stop = int(str(saved["epoch"])), bool(saved["stop"])
            self.trained.restore_readings(saved["readings"])
        await self.begin(saved)
        self.trained.setup = self.site.clock.lap()
        while not stop:
            epoch += 1
            await self.round()
            verdict = await self.chief.receive(Kind.CONTROL, "train/epoch")
            stop = bool(verdict.meta.get("stop")) or epoch >= self.plan.epochs
            for name in self.owners[1:]:
                await self.site.links[name].send(Kind.CONTROL, "train/epoch", meta=dict(verdict.meta))
            self.trained.readings.append(self.site.clock.lap())
            if self.site.keeper.wants(epoch):
                readings = [[r.compute, r.he, r.wait, r.sent] for r in self.trained.readings]
                self.site.keeper.save(epoch, {"epoch": epoch, "stop": stop, **self.state(), "readings": readings})
        self.trained.finish = self.site.clock.lap()
        return self.trained


class MaskedCoordinator(Coordinator):
    """Adds up masked changes, steps the server optimiser, and tells the label owners their new weights.

    Args:
        server: the optimiser.
    """

    def __init__(self, site: Site, plan: Plan, owners: Sequence[str], server: Server) -> None:
        super().__init__(site, plan, owners)
        self.server = server
        self.weights = np.empty(0)

    async def begin(self, saved: State | None) -> None:
        message = await self.chief.receive(Kind.STATISTIC, "multi/weights", "weights")
        self.weights = np.asarray(message.arrays["weights"])
        if self.weights.ndim != 1 or self.weights.dtype != np.float64 or not np.isfinite(self.weights).all():
            raise ProtocolError(f"{self.owners[0]!r} sent initial weights that are no finite float64 (d,)")
        if saved is not None:
            self.server.load(as_dict(saved["server"]))
            self.weights = np.asarray(saved["weights"])
        await self._tell()

    async def round(self) -> None:
        parts = []
        for name in self.owners:
            part = await self.site.links[name].receive(Kind.MASKED_SHARE, "multi/change", "change")
            parts.append(np.asarray(part.arrays["change"]))
        self.weights = self.server.step(self.weights, unmasked_mean(parts, len(self.weights)))
        await self._tell()

    async def _tell(self) -> None:
        for name in self.owners:
            await self.site.links[name].send(Kind.STATISTIC, "multi/weights", weights=self.weights)

    def state(self) -> State:
        return {"weights": self.weights, "server": self.server.state()}


class BlindCoordinator(Coordinator):
    """Adds up ciphertexts that it has no key to.

    Args:
        scheme: that adds up.
    """

    def __init__(self, site: Site, plan: Plan, owners: Sequence[str], scheme: Aggregation) -> None:
        super().__init__(site, plan, owners)
        self.scheme = scheme

    async def begin(self, saved: State | None) -> None:
        message = await self.chief.receive(Kind.PUBLIC_KEY, "multi/key", "key")
        told = [message.meta.get(name) for name in ("weights", "shares", "share bits")]
        if not all(isinstance(value, int) and value >= 0 for value in told):
            raise ProtocolError(f"{self.chief.peer!r} announces {told} as numbers of weights, of shares and their bits")
        weights, shares, bits = (int(str(value)) for value in told)
        parties = len(self.owners)
        with working(self.site.clock):
            public = self.scheme.read_public(np.asarray(message.arrays["key"]).tobytes())
            self.changes = self.scheme.aggregator(public, Addends(count=weights, bits=CHANGE_BITS, parties=parties))
            self.shares: Aggregator | None = None
            if shares:
                self.shares = self.scheme.aggregator(public, Addends(count=shares, bits=bits, parties=parties))
        self.guard = Guard(self.scheme.name, public.bits, public.fingerprint)
        if saved is None:
            await self._add_shares()

    async def round(self) -> None:
        await self._add(self.changes, "multi/change")
        await self._add_shares()

    async def _add_shares(self) -> None:
        if self.shares is not None:
            await self._add(self.shares, "multi/shares")

    async def _add(self, aggregator: Aggregator, what: str) -> None:
        """Add up one message from each label owner, and give the sum to the chief."""
        parts = []
        for name in self.owners:
            message = await self.site.links[name].receive(Kind.CIPHERTEXT, what, "c")
            parts.append(np.asarray(message.arrays["c"]))
        with working(self.site.clock):
            total = aggregator.add(parts)
        await self.chief.send(Kind.CIPHERTEXT, f"{what} sum", guard=self.guard, c=total)
