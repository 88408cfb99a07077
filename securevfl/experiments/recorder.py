"""A recorder: an observer that notes what each party of a job sees, as a `Transcript` that attacks run on."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import nn

from securevfl.attacks import CutRule, Observation, Observations, PartyView, Seen, Transcript, Truth
from securevfl.attacks import ObservedMessage as Noted
from securevfl.party_context import Observer
from securevfl.training import NumberedRows
from securevfl.transport import Array, Kind, Message

__all__ = ["Recorder"]

_SEEN: dict[Kind, Seen] = {
    Kind.ACTIVATION: "part of z",
    Kind.REPRESENTATION: "representations",
    Kind.GRADIENT: "gradient at the cut",
}


@dataclass
class _Notes:
    """The notes on one party in one federation."""

    rows: NumberedRows | None = None
    observations: dict[tuple[Seen, str], list[Observation]] = field(default_factory=lambda: defaultdict(list))
    steps: dict[str, list[Observation]] = field(default_factory=lambda: defaultdict(list))
    arrived: dict[str, tuple[np.ndarray, int]] = field(default_factory=dict, repr=False)
    epoch: int = 0
    fed: np.ndarray = field(default_factory=lambda: np.arange(0), repr=False)
    rule: CutRule | None = None
    network: nn.Module | None = None


class Recorder(Observer):
    """Observes all parties of a job and changes nothing.

    One recorder serves all parties of a simulation and keeps their observations apart. It takes an observation's row
    numbers from what the sender fed last; the receiver could derive them from the job's seed, as both draw the same
    batches.

    Args:
        beside: another observer, which receives the run's progress (a progress bar).
    """

    listening = True

    def __init__(self, beside: Observer | None = None) -> None:
        self._beside = beside or Observer()
        self._notes: dict[tuple[str, str], _Notes] = defaultdict(_Notes)
        self._messages: dict[str, list[Noted]] = defaultdict(list)
        self._under_way: dict[tuple[str, str], deque[tuple[np.ndarray, int]]] = defaultdict(deque)

    def run(self, title: str) -> None:
        self._beside.run(title)

    def phase(self, name: str) -> None:
        self._beside.phase(name)

    def step(self, epoch: int, done: int, total: int) -> None:
        self._beside.step(epoch, done, total)

    def epoch(self, epoch: int, loss: float, valid: dict[str, float]) -> None:
        self._beside.epoch(epoch, loss, valid)

    def message_passed(self, party: str, peer: str, way: Literal["sent", "received"], message: Message) -> None:
        self._messages[party].append(Noted(way, peer, message.kind.value, message.what))
        if message.kind not in _SEEN and message.kind is not Kind.CIPHERTEXT:
            return
        if way == "sent":
            notes = self._notes.get((party, peer))  # of a passive party in the federation of `peer`
            fed = (np.arange(0), 0) if notes is None else (notes.fed, notes.epoch)
            self._under_way[party, peer].append(fed)
            return
        rows, epoch = self._under_way[peer, party].popleft()
        if (peer, party) in self._notes:  # at a label owner, from a passive party of its federation
            notes, about = self._notes[party, party], peer
            notes.arrived[peer] = rows, epoch
        elif (party, peer) in self._notes:  # at a passive party, from the label owner of a federation
            notes, about = self._notes[party, peer], party
            rows, epoch = notes.fed, notes.epoch
        else:  # among label owners and their coordinator: about no rows
            return
        if message.kind in _SEEN:
            for array in message.arrays.values():
                self._record_observation(notes, _SEEN[message.kind], about, rows, array, epoch)

    def rows_numbered(self, party: str, owner: str, rows: NumberedRows) -> None:
        self._notes[party, owner].rows = rows

    def batch_begun(self, party: str, owner: str, epoch: int, rows: np.ndarray) -> None:
        self._notes[party, owner].epoch = epoch

    def activations_fed(self, party: str, owner: str, rows: np.ndarray, activations: Array) -> None:
        self._notes[party, owner].fed = rows

    def cut_joined(self, party: str, owner: str, lr: float, momentum: float, decay: float) -> None:
        self._notes[party, owner].rule = CutRule(lr, momentum, decay)

    def values_opened(
        self, party: str, owner: str, what: Literal["z", "gradient"], values: Array, *, train: bool
    ) -> None:
        notes = self._notes[party, owner]
        if what == "gradient":
            self._record_observation(notes, "gradient at the activations", party, notes.fed, values, notes.epoch)
            return
        for i, (peer, (rows, epoch)) in enumerate(sorted(notes.arrived.items())):
            self._record_observation(notes, "z", peer, rows, values[i] if values.ndim == 3 else values, epoch)

    def steps_handed(self, party: str, owner: str, steps: np.ndarray) -> None:
        notes = self._notes[party, owner]
        for i, (peer, (rows, epoch)) in enumerate(sorted(notes.arrived.items())):
            notes.steps[peer].append(Observation(rows, np.array(steps[i] if steps.ndim == 3 else steps), epoch))

    def network_built(self, party: str, owner: str, network: nn.Module) -> None:
        self._notes[party, owner].network = network

    @staticmethod
    def _record_observation(notes: _Notes, what: Seen, about: str, rows: np.ndarray, array: Array, epoch: int) -> None:
        values = _copy_rows(array)
        split = None if notes.rows is None else notes.rows.split
        if len(values) != len(rows):  # representations of all training rows, in their order, or what we cannot place
            if split is None or len(values) != len(split.train):
                return
            rows = split.train
        notes.observations[what, about].append(Observation(rows, values, epoch))

    def transcript(self, *, scores: dict[str, np.ndarray] | None = None) -> Transcript:
        """Everything that was observed.

        Args:
            scores: label owner → probabilities of the test rows, as its program has them.
        """
        views: dict[tuple[str, str], PartyView] = {}
        truths: dict[str, Truth] = {}
        for (party, owner), notes in self._notes.items():
            rows = notes.rows
            if rows is None:
                continue
            members = [name for name, of in self._notes if of == owner and name != owner]
            chief = self._notes[owner, owner].rows
            if chief is None or chief.y is None:
                continue
            y = chief.y[: chief.aligned_count].numpy().copy()
            x = {name: _flatten(table.x) for name in (owner, *members) if (table := self._notes[name, owner].rows)}
            views[party, owner] = PartyView(
                party=party,
                owner=owner,
                passive=tuple(sorted(members)),
                widths={name: x[name].shape[1] for name in sorted(members)},
                aligned=rows.aligned_count,
                x=x[party][: rows.aligned_count],
                y=y if party == owner else None,
                classes=rows.classes,
                train=rows.split.train,
                valid=rows.split.valid,
                test=rows.split.test,
                observations={key: Observations(found) for key, found in notes.observations.items()},
                steps={key: Observations(found) for key, found in notes.steps.items()},
                rule=notes.rule,
                embed=None if notes.network is None else _embedding_function(notes.network, tuple(rows.x.shape[1:])),
                scores=(scores or {}).get(party) if party == owner else None,
                messages=tuple(self._messages[party]),
            )
            truths.setdefault(
                owner,
                Truth(
                    x={name: values[: rows.aligned_count] for name, values in x.items()},
                    y=y,
                    others={name: values[rows.aligned_count :] for name, values in x.items()},
                ),
            )
        return Transcript(views=views, truths=truths)


def _copy_rows(array: Array) -> np.ndarray:
    """Copy rows of numbers, (n, width) float64: the job may overwrite the original."""
    value = array.detach().cpu().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)
    return value.reshape(len(value), -1).astype(np.float64)


def _flatten(x: torch.Tensor) -> np.ndarray:
    found: np.ndarray = x.reshape(len(x), -1).cpu().numpy().astype(np.float64)
    return found


def _embedding_function(network: nn.Module, shape: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    """A network as a function of flat features."""
    device = next((p.device for p in network.parameters()), torch.device("cpu"))

    def embed(x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            rows = torch.from_numpy(x.astype(np.float32)).reshape(len(x), *shape).to(device)
            return _copy_rows(network(rows))

    return embed
