"""The active party of few-shot VFL: the server, and a client with labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from securevfl.algorithms.attention import apply_attention
from securevfl.algorithms.field.few_shot_vfl.fixmatch import cluster_directions, cluster_purity
from securevfl.algorithms.field.few_shot_vfl.shots import FewShotRole
from securevfl.errors import ProtocolError
from securevfl.party_context import derive_seed
from securevfl.privacy import fan_out
from securevfl.training.active_role import ActiveRole
from securevfl.training.halves import Networks
from securevfl.training.networks import build_active_block, build_bottom, build_mlp
from securevfl.training.pseudo_labels import SelfTraining, give_labels
from securevfl.training.received_tensors import read_tensor
from securevfl.training.seeding import seed_torch
from securevfl.training.state import State, as_dict, as_flag, as_list, as_rows, as_tensor, kept_rows
from securevfl.transport import Kind

__all__ = ["FewShotServer", "keep_agreed"]


def keep_agreed(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Combine two classifiers' probabilities, (n, k) each → (n, k).

    If both give a row the same class, the result is the smaller probability of each class; otherwise zeros. Rows do not
    sum to one.
    """
    same = one.argmax(axis=1) == two.argmax(axis=1)
    found: np.ndarray = np.where(same[:, None], np.minimum(one, two), 0.0)
    return found


class FewShotServer(FewShotRole, ActiveRole):
    """The server, and a client with labels.

    Attributes:
        h: party → its representations of all numbered rows, estimated where it lacks a row, (rows, d).
    """

    def build(self) -> None:
        with seed_torch(self.seed("model")):
            self.bottom, self.width = build_bottom(self.config.bottom, self.features.row_shape)
            self.head = build_active_block(self.width, self.task.outputs)
        self.own = self.new_networks(nn.ModuleList([self.bottom, self.head]))
        self.parts["own"] = self.own
        self.h: dict[str, torch.Tensor] = {}
        self.y = self.y.clone()
        self.tally = SelfTraining(self.config.agreement)
        self.books.tally = lambda: self.tally if self.site.passive and self.config.few_shot else None
        self.pure: list[float] = []

    async def setup(self) -> None:
        await super().setup()
        self.widths = {self.site.active: self.width}
        for name in self.site.passive:
            message = await self.site.links[name].receive(Kind.CONTROL, "few_shot_vfl/width")
            width = message.meta.get("width")
            if not isinstance(width, int) or not 1 <= width <= 1 << 16:
                raise ProtocolError(f"{name!r} announced representations of width {width!r}; 1 to {1 << 16} is allowed")
            self.widths[name] = width
        self.classifier = self.build_classifier("classifier", list(self.widths))
        self.parts["classifier"] = self.classifier

    def build_classifier(self, label: str, parties: Sequence[str]) -> Networks:
        """A new classifier of these parties' representations, side by side."""
        with seed_torch(self.seed(label)):
            inputs = sum(self.widths[name] for name in parties)
            return self.new_networks(build_mlp([inputs, *self.config.top, self.task.outputs]))

    def concatenate_parties(self, rows: np.ndarray, parties: Sequence[str] | None = None) -> torch.Tensor:
        """Representations of these rows, side by side, (n, sum of d)."""
        at = torch.from_numpy(rows).to(self.plan.device)
        return torch.cat([self.h[name][at] for name in parties or self.widths], dim=1)

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1:
            await self.run_rounds()
        return False

    async def run_rounds(self) -> None:
        """Run all rounds, from the first to the last upload."""
        self.h = {
            name: torch.zeros(self.table.total_count, width, device=self.plan.device)
            for name, width in self.widths.items()
        }
        none = {name: np.arange(0) for name in self.site.passive}
        self.represent_rows()
        await self.take_uploads(1, none)
        await self.hand_back(1, none)
        self.train_bottom()
        self.represent_rows()
        await self.take_uploads(2, none)
        if self.config.few_shot:
            labelled = self.label_others()
            self.chosen = np.concatenate([self.training_rows(1), *labelled.values()])
            told = {name: self.table.known_to(name, self.chosen) for name in self.site.passive}
            await fan_out(
                self.site.other_links, lambda link: link.send(Kind.CONTROL, "few_shot_vfl/rows", rows=told[link.peer])
            )
            await self.hand_back(2, labelled)
            await self.take_uploads(3, labelled)
            self.estimate_missing()
        self.met = True

    def represent_rows(self) -> None:
        """Compute this party's representations of all rows that it has."""
        mine = self.features.present_rows()
        mine = mine[mine < self.table.total_count]
        with torch.no_grad():
            self.h[self.site.active][torch.from_numpy(mine)] = self.bottom(self.features(mine))

    async def take_uploads(self, shot: int, labelled: dict[str, np.ndarray]) -> None:
        """Receive upload number `shot` of each passive party into `h`."""
        for name in self.site.passive:
            rows = self.upload_rows(name, shot, labelled[name])
            self.h[name][torch.from_numpy(rows)] = await self.receive_representations(name, "upload", len(rows))

    async def receive_representations(self, name: str, step: str, rows: int) -> torch.Tensor:
        """Receive a party's representations of this many rows, (rows, d)."""
        message = await self.site.links[name].receive(Kind.REPRESENTATION, f"few_shot_vfl/{step}", "h")
        return read_tensor(message.arrays["h"], (rows, self.widths[name]), name, self.plan.device)

    async def hand_back(self, shot: int, labelled: dict[str, np.ndarray]) -> None:
        """Send each passive party the gradient of a classifier's loss at its representations of the training rows.

        The classifier is untrained, so it is equally unsure of all rows, and gradients differ by class only.
        """
        classifier = self.build_classifier(f"gradient {shot}", list(self.widths)).model
        for name in self.site.passive:
            rows = np.concatenate([self.table.split.train, labelled[name]])
            at = torch.from_numpy(rows).to(self.plan.device)
            parts = {peer: self.h[peer][at].clone().requires_grad_() for peer in self.widths}
            logits = classifier(torch.cat(list(parts.values()), dim=1))
            loss = self.loss(self.label_noise.correct_logits(logits), self.labels(rows)).sum()
            (gradient,) = torch.autograd.grad(loss, parts[name])
            seed = derive_seed(self.site.seed, "groups", name, shot)
            self.pure.append(cluster_purity(cluster_directions(gradient, self.task.classes, seed), self.labels(rows)))
            await self.site.links[name].send(Kind.GRADIENT, "few_shot_vfl/gradient", gradient=gradient)

    def train_bottom(self) -> None:
        """Train this party's bottom on all of its labelled rows."""
        rows = np.concatenate([self.table.split.train, self.table.rows_only_at(self.site.active)])
        self.fit_networks(self.own, rows, lambda some: self.head(self.bottom(self.features(some))), "own")

    def fit_networks(
        self, networks: Networks, rows: np.ndarray, model: Callable[[np.ndarray], torch.Tensor], label: str
    ) -> None:
        """Train on these rows and their labels for `local_steps` steps; `model` gives the logits of row numbers."""
        generator = np.random.default_rng(self.seed("batches", label))
        size = min(self.nominal_batch, len(rows))
        for _ in range(self.config.local_steps):
            some = generator.choice(rows, size, replace=False)
            logits = model(some)
            networks.step(self.loss(self.label_noise.correct_logits(logits), self.labels(some)).mean())

    def complete_from(self, holder: str, rows: np.ndarray) -> dict[str, torch.Tensor]:
        """Every party's representations of rows that only `holder` has, (n, d) each.

        Attention over the aligned training rows estimates the other parties' from the holder's (SDPA).
        """
        train = torch.from_numpy(self.table.split.train).to(self.plan.device)
        query, keys = self.h[holder][torch.from_numpy(rows).to(self.plan.device)], self.h[holder][train]
        heat = self.config.temperature
        return {
            name: query if name == holder else apply_attention(query, keys, h[train], heat)
            for name, h in self.h.items()
        }

    def estimate_missing(self) -> None:
        """Fill in estimates for training rows that a party lacks."""
        for holder in self.widths:
            others = self.table.rows_only_at(holder)
            for name, h in self.complete_from(holder, others).items():
                self.h[name][torch.from_numpy(others).to(self.plan.device)] = h

    def label_others(self) -> dict[str, np.ndarray]:
        """Label the passive parties' other rows where two classifiers agree; return their numbers by party.

        Validation rows, scored as if only that party had them, measure how many labels are right.
        """
        found, valid = {}, self.table.split.valid
        whole = self.fit_classifier(list(self.widths))
        for name in self.site.passive:
            alone = self.fit_classifier([name])

            def predict_agreed(rows: np.ndarray, name: str = name, alone: nn.Module = alone) -> np.ndarray:
                h = self.complete_from(name, rows)
                with torch.no_grad():
                    logits = alone(h[name]), whole(torch.cat(list(h.values()), dim=1))
                return keep_agreed(*(self.task.compute_probabilities(each) for each in logits))

            others = self.table.rows_only_at(name)
            found[name] = give_labels(self, others, predict_agreed(others), self.tally)
            self.tally.assess_held_out(predict_agreed(valid), self.labels(valid).cpu().numpy())
        return found

    def fit_classifier(self, parties: Sequence[str]) -> nn.Module:
        """A classifier of these parties' representations that is trained on the aligned rows."""
        label = "+".join(parties)
        networks = self.build_classifier(label, parties)

        def compute_logits(some: np.ndarray) -> torch.Tensor:
            found: torch.Tensor = networks.model(self.concatenate_parties(some, parties))
            return found

        self.fit_networks(networks, self.table.split.train, compute_logits, label)
        return networks.model

    async def train_batch(self, rows: np.ndarray) -> torch.Tensor:
        logits = self.classifier.model(self.concatenate_parties(rows))
        loss = self.loss(self.label_noise.correct_logits(logits), self.labels(rows)).sum()
        self.classifier.step(loss / self.plan.batch_size)
        return loss.detach()

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        if self.has_all(rows):
            found = self.concatenate_parties(rows)
        else:
            with torch.no_grad():
                own = self.bottom(self.features(rows))
            found = torch.cat(
                [own, *[await self.receive_representations(name, "answer", len(rows)) for name in self.site.passive]], 1
            )
        with torch.no_grad():
            logits: torch.Tensor = self.classifier.model(found)
        return logits

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        """Logits (n, outputs) by the active party's own classifier, without any message."""
        with torch.no_grad():
            logits: torch.Tensor = self.head(self.bottom(self.features(rows)))
        return logits

    def remember(self) -> State:
        learned: State = {"y": self.y.clone(), "h": {name: h.clone() for name, h in self.h.items()}}
        learned |= {"chosen": kept_rows(self.chosen), "met": self.met}
        return learned | {"pure": list(self.pure), "tally": self.tally.get_state()}

    def recall(self, memory: State) -> None:
        self.y = as_tensor(memory["y"]).to(self.plan.device).clone()
        self.h = {name: as_tensor(h).to(self.plan.device) for name, h in as_dict(memory["h"]).items()}
        self.chosen, self.met = as_rows(memory["chosen"]), as_flag(memory["met"])
        self.pure = [float(share) for share in as_list(memory["pure"])]
        self.tally.load_state(as_dict(memory["tally"]))

    def closing_notes(self) -> list[str]:
        if not self.pure:
            return []
        shares = ", ".join(f"{100 * share:.0f} %" for share in self.pure)
        return [
            "k-means of the gradients that went back groups the training rows by their labels: this share of them is "
            f"of the most frequent label of its group, for each message: {shares}"
        ]
