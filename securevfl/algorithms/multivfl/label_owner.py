"""A label owner of Multi-VFL: the active side of its own split network, whose weights are averaged after each round."""

from __future__ import annotations

import numpy as np
import torch
from securevfl_crypto.aggregation import Addends

from securevfl.algorithms.multivfl.averaging import Averaging
from securevfl.algorithms.multivfl.convolution import ConvolvedActive
from securevfl.cut.handshake import read_snapshot
from securevfl.errors import InputError, ProtocolError
from securevfl.party_context import PartyContext
from securevfl.privacy import Link
from securevfl.training.active_program import ActiveProgram, Progress
from securevfl.training.rows import Trained
from securevfl.training.state import State, as_dict
from securevfl.transport import Kind

__all__ = ["LabelOwner", "LabelOwnerProgram"]

_SIGMA = 40


class LabelOwner(ConvolvedActive):
    """A label owner's part in its own federation, with weights that can be read and set as a whole."""

    def build(self) -> None:
        """See `Role.build`.

        Raises:
            InputError: fewer rows than a batch, where the cut computes in integers.
        """
        if self.plan.batch_size < self.nominal_batch and self.protection.uses_integers:
            raise InputError(
                f"{self.site.name!r} has {self.plan.batch_size} rows to train on, fewer than a batch of "
                f"{self.nominal_batch}; the fixed point of the cut depends on the batch, and weights are "
                "averaged: take a smaller batch"
            )
        super().build()

    def weight_vector(self) -> np.ndarray:
        """This party's weights, (d,) float64: its bottom, its top model and its block of the cut with the bias."""
        parts = [parameter.detach().double().ravel() for parameter in self.half.model.parameters()]
        return torch.cat(parts).cpu().numpy()

    def set_weights(self, vector: np.ndarray) -> None:
        """Set the weights from a vector.

        Raises:
            ProtocolError: it has another length, or numbers that are not finite.
        """
        parameters = list(self.half.model.parameters())
        if vector.shape != (sum(p.numel() for p in parameters),) or not np.isfinite(vector).all():
            raise ProtocolError(f"the next weights have shape {vector.shape}, or are not finite: use one job file")
        at = 0
        with torch.no_grad():
            for p in parameters:
                p.copy_(torch.from_numpy(vector[at : at + p.numel()]).reshape(p.shape).to(p))
                at += p.numel()

    def weight_shares(self) -> np.ndarray | None:
        """This side's shares of the weights of the cut, (n,) integers; None where the data owners have the weights."""
        shares = self.half.cut.snapshot()
        if not isinstance(shares, dict):
            return None
        return np.concatenate([np.asarray(values, dtype=object).ravel() for values, _ in shares.values()])

    def put_shares(self, flat: np.ndarray) -> None:
        """Set the shares from the output of `weight_shares`; their velocities restart at zero."""
        shares, at = as_dict(self.half.cut.snapshot()), 0
        for name, state in shares.items():
            values, _ = read_snapshot(state)
            shares[name] = flat[at : at + values.size].reshape(values.shape), None
            at += values.size
        self.half.cut.restore(shares)

    def share_sizes(self, parties: int) -> Addends | None:
        """Sizes of the shares for the sum over this many label owners; None if there are no shares."""
        shares = self.weight_shares()
        if shares is None:
            return None
        point = self.config.cut_spec(self, self.config.hidden).fixed_point
        bits = point.weight_fraction_bits + 4 + _SIGMA + 1  # what is drawn to hide a weight, and the weight
        return Addends(count=shares.size, bits=bits, parties=parties)


class LabelOwnerProgram(ActiveProgram):
    """A label owner's program: an epoch is a round. The first label owner validates, tests and keeps its part of the
    model; the others' weights are the same.

    Args:
        role: in the label owner's own federation.
        site: the label owner's, linked with the other ones and the coordinator.
        averaging: its side of the aggregation.
    """

    role: LabelOwner

    resumes_within_epochs = False  # an epoch ends with averaging

    def __init__(self, role: LabelOwner, site: PartyContext, averaging: Averaging) -> None:
        super().__init__(role)
        self.averaging = averaging
        self.server = site.links[site.coordinator]
        self.owners = site.label_owners
        self.evaluates = site.name == self.owners[0]

    async def setup(self) -> None:
        await super().setup()
        role = self.role
        role.set_weights(await self.averaging.agree_weights(role.weight_vector(), role.share_sizes(len(self.owners))))

    async def prepare_training(self) -> State | None:
        saved = await super().prepare_training()
        if saved is None:
            await self.average_shares()
        return saved

    async def average_shares(self) -> None:
        """Take the mean over label owners for this side's shares of the weights of the cut, where it has any."""
        shares = self.role.weight_shares()
        if shares is not None:
            self.role.put_shares(await self.averaging.mean_shares(shares))

    async def train_epoch(self, epoch: int) -> float:
        role = self.role
        before = role.weight_vector()
        loss = await super().train_epoch(epoch)
        role.set_weights(await self.averaging.average_change(role.weight_vector() - before))
        await self.average_shares()
        return loss

    async def evaluate_rows(self, rows: np.ndarray, *, keep: bool = False, judge: bool = False) -> dict[str, float]:
        return await super().evaluate_rows(rows, keep=keep, judge=judge) if self.evaluates else {}

    async def decide_epoch(self, progress: Progress, valid: dict[str, float]) -> None:
        if self.evaluates:
            await super().decide_epoch(progress, valid)
            return
        told = await self.server.receive(Kind.CONTROL, "train/epoch")
        progress.stop = bool(told.meta.get("stop"))
        if told.meta.get("best"):
            progress.kept = self.role.books.snapshot()
            self.trained.best_epoch = progress.epoch

    def peers_to_notify(self) -> list[Link]:
        return [*super().peers_to_notify(), self.server]

    def program_state(self) -> State:
        return super().program_state() | {"averaging": self.averaging.get_state()}

    def resume_from(self, saved: State) -> Progress:
        self.averaging.load_state(as_dict(saved["averaging"]))
        return super().resume_from(saved)

    def close_books(self) -> Trained:
        trained = super().close_books()
        if not self.evaluates:
            trained.model = {}
        return trained
