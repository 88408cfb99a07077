"""A model on shares: a part of a role, so that programs keep, restore and store it like any other."""

from __future__ import annotations

import torch

from securevfl.errors import InputError
from securevfl.shares.kept_targets import BestFigure, KeptTargets
from securevfl.shares.model_release import ModelRelease
from securevfl.shares.packed_shares import pack_shares, unpack_share
from securevfl.shares.trainee import Trainee
from securevfl.training.state import State, as_dict, as_tensor

__all__ = ["SharedModel"]

_OWN = "handed out"


class SharedModel:
    """This party's two summands of every word of the model; nothing at a party that only deals its rows.

    Attributes:
        network: at a computing party, once the sizes are known.
        stale: whether its shares were loaded, and have to be drawn anew before they are used.
        handing: hands the model out at the end, where the job says so.
        own: what was handed out to this party, block → float64 weights; None before.
        kept: the targets that were dealt for training; None before, and where a trained model predicts.
        best: the best figure of an epoch so far, where epochs are compared on shares.
    """

    def __init__(self) -> None:
        self.network: Trainee | None = None
        self.stale = False
        self.handing: ModelRelease | None = None
        self.own: State | None = None
        self.kept: KeptTargets | None = None
        self.best = BestFigure()

    async def setup(self) -> None:
        """See `Part.setup`; the program makes the network."""

    async def refresh_shares(self) -> None:
        """Check that loaded shares are one sharing, and draw them anew: the same values, other summands. A model that
        was handed out is dealt again.

        Raises:
            CryptoError: two parties hold different summands of one value.
            InputError, RangeError: a part that cannot be dealt.
        """
        network, stale = self.network, self.stale
        self.stale = False
        if stale and self.own is not None and self.handing is not None:
            await self.handing.deal_again({name: as_tensor(one).numpy() for name, one in self.own.items()})
            return
        if network is None or not stale:
            return
        targets = [] if self.kept is None else [self.kept.train, self.kept.valid]
        best = [] if self.best.share is None else [self.best.share]
        kept = [*network.list_shares(), *best, *targets]
        await network.engine.confirm("loaded shares", *kept)
        fresh = await network.engine.refresh(*kept)
        network.replace_shares(fresh[: len(kept) - len(targets) - len(best)])
        if best:
            self.best.share = fresh[len(kept) - len(targets) - 1]
        if self.kept is not None:
            self.kept = KeptTargets(fresh[-2], fresh[-1])

    async def hand_out(self) -> None:
        """Open to each data party its own part of the model, once, where the job says so: that is the model then."""
        if self.handing is not None:
            self.own = {name: torch.from_numpy(one) for name, one in (await self.handing.hand_out()).items()}

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        if self.own is not None:
            return {_OWN: dict(self.own)}
        return {} if self.network is None else self.network.pack_model()

    def restore(self, state: object) -> None:
        """See `Part.restore`; what only training needs begins anew."""
        kept = as_dict(state)
        if _OWN in kept:
            self.own, self.stale = as_dict(kept[_OWN]), True
            return
        if self.network is not None:
            self.network.unpack_model(kept)
            self.stale = True

    def get_state(self) -> State:
        """See `Part.get_state`."""
        if self.network is None:
            return {}
        found = dict(self.network.pack_training())
        if self.kept is not None:
            if self.best.share is not None:
                found["best"] = pack_shares({"figure": self.best.share})
            found["targets"] = pack_shares({"train": self.kept.train, "valid": self.kept.valid})
        return found

    def load_state(self, state: State) -> None:
        """See `Part.load_state`.

        Raises:
            InputError: shares of another network, or a checkpoint without the targets.
        """
        if self.network is not None:
            if "targets" not in state:
                raise InputError(
                    "the checkpoint has no targets: an older version wrote it, which dealt them in each epoch; start "
                    "the job again in another folder"
                )
            self.network.unpack_training(state)
            self.stale = True
            targets = {name: unpack_share(kept) for name, kept in as_dict(state["targets"]).items()}
            self.kept = KeptTargets(targets["train"], targets["valid"])
            if "best" in state:
                self.best.share = unpack_share(as_dict(state["best"])["figure"])
