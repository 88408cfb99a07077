"""A trained network as shares: a part of a role, so that programs keep, restore and store it like any other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from securevfl_crypto.replicated import Share

from securevfl.errors import InputError
from securevfl.shares.kept_targets import KeptTargets
from securevfl.shares.model_release import ModelRelease
from securevfl.shares.network import Network
from securevfl.training.state import State, as_dict, as_list, as_tensor

__all__ = ["SharedModel"]

Shares = Mapping[str, Share]

_OWN = "handed out"


class SharedModel:
    """This party's two summands of every weight; nothing at a party that only deals its rows.

    Attributes:
        network: at a computing party, once the sizes are known.
        stale: whether its shares were loaded, and have to be drawn anew before they are used.
        handing: hands the model out at the end, where the job says so.
        own: what was handed out to this party, block → float64 weights; None before.
        kept: the targets that were dealt for training; None before, and where a trained model predicts.
    """

    def __init__(self) -> None:
        self.network: Network | None = None
        self.stale = False
        self.handing: ModelRelease | None = None
        self.own: State | None = None
        self.kept: KeptTargets | None = None

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
        kept = [*network.weights.values(), *network.moving.values(), *targets]
        await network.engine.confirm("loaded shares", *kept)
        fresh = iter(await network.engine.refresh(*kept))
        network.weights = {name: next(fresh) for name in network.weights}
        network.moving = {name: next(fresh) for name in network.moving}
        if self.kept is not None:
            self.kept = KeptTargets(next(fresh), next(fresh))

    async def hand_out(self) -> None:
        """Open to each data party its own part of the model, once, where the job says so: that is the model then."""
        if self.handing is not None:
            self.own = {name: torch.from_numpy(one) for name, one in (await self.handing.hand_out()).items()}

    def snapshot(self) -> object:
        """See `Part.snapshot`."""
        if self.own is not None:
            return {_OWN: dict(self.own)}
        return {} if self.network is None else _pack_shares(self.network.weights)

    def restore(self, state: object) -> None:
        """See `Part.restore`; the momentum begins anew."""
        network = self.network
        kept = as_dict(state)
        if _OWN in kept:
            self.own, self.stale = as_dict(kept[_OWN]), True
            return
        if network is not None:
            network.weights = _unpack_shares(as_dict(state), network.weights)
            zero = {name: np.zeros(one.shape, dtype=np.uint64) for name, one in network.weights.items()}
            network.moving = {name: network.engine.constant(words) for name, words in zero.items()}
            self.stale = True

    def get_state(self) -> State:
        """See `Part.get_state`."""
        if self.network is None:
            return {}
        found: State = {"weights": _pack_shares(self.network.weights), "moving": _pack_shares(self.network.moving)}
        if self.kept is not None:
            found["targets"] = _pack_shares({"train": self.kept.train, "valid": self.kept.valid})
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
            self.restore(state["weights"])
            self.network.moving = _unpack_shares(as_dict(state["moving"]), self.network.moving)
            targets = {name: _unpack_share(kept) for name, kept in as_dict(state["targets"]).items()}
            self.kept = KeptTargets(targets["train"], targets["valid"])


def _pack_shares(shares: Shares) -> State:
    return {name: [torch.from_numpy(part.view(np.int64).copy()) for part in (one.mine, one.next)]
            for name, one in shares.items()}  # fmt: skip


def _unpack_shares(state: Mapping[str, object], like: Shares) -> dict[str, Share]:
    """Kept shares.

    Raises:
        InputError: they are of another network.
    """
    if state.keys() != like.keys():
        raise InputError(f"the model has shares of {', '.join(state)}; this job's network has {', '.join(like)}")
    found = {name: _unpack_share(kept) for name, kept in state.items()}
    for name, share in found.items():
        if share.shape != like[name].shape:
            raise InputError(f"the model's {name} has shares of other shapes than {like[name].shape}")
    return found


def _unpack_share(kept: object) -> Share:
    """One kept share.

    Raises:
        InputError: it is none.
    """
    parts = [np.ascontiguousarray(as_tensor(part).numpy()).view(np.uint64) for part in as_list(kept)]
    if len(parts) != 2 or parts[0].shape != parts[1].shape:
        raise InputError("a share has two parts of one shape, and what was kept has not")
    return Share(parts[0].copy(), parts[1].copy())
