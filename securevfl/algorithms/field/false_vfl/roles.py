"""The roles of FALSE-VFL: how the parties draw, weigh and learn from samples of h together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from securevfl.algorithms.field.false_vfl.settings import (
    FalseSettings,
    Gaussian,
    LatentModel,
    PartyModel,
    fuse_posteriors,
    mean_log_ratio,
)
from securevfl.errors import ProtocolError
from securevfl.party_context import derive_seed
from securevfl.privacy import Link, fan_out
from securevfl.training.active_role import ActiveRole
from securevfl.training.bookkeeping import Bookkeeping
from securevfl.training.halves import Networks
from securevfl.training.networks import build_mlp
from securevfl.training.passive_role import PassiveRole
from securevfl.training.received_tensors import read_tensor
from securevfl.training.role import Role
from securevfl.training.seeding import seed_torch
from securevfl.transport import Kind

__all__ = ["FalseActive", "FalsePassive"]


def _gradient_at(leaf: torch.Tensor) -> torch.Tensor:
    """The gradient that a backward pass left at a leaf; zeros where it does not depend on it."""
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


class _Books(Bookkeeping):
    """Rows that are not aligned teach the model too."""

    def rows_to_learn_from(self) -> np.ndarray:
        return np.concatenate([self.role.table.split.train, self.role.table.rows_only_at(self.role.site.active)])


class _LatentRole(Role):
    """Base of both roles.

    Attributes:
        model: the party's encoder and decoder.
        generative: all that the first stage trains at this party.
    """

    bookkeeping = _Books
    config: FalseSettings

    def build_model(self, *more: nn.Module) -> None:
        """Make the party's encoder and decoder, and train them with `more`."""
        with seed_torch(self.seed("model")):
            self.model = PartyModel(int(self.features.row_shape.numel()), self.config)
        self.generative = Networks(nn.ModuleList([self.model, *more]), self.config.lr, 0.0, self.plan.device)
        self.parts["generative"] = self.generative

    def training_rows(self, epoch: int) -> np.ndarray:
        return np.concatenate([self.table.split.train, self.table.rows_only_at(self.site.active)])

    def columns(self, rows: np.ndarray) -> torch.Tensor:
        """This party's columns of numbered rows, (n, columns)."""
        return self.features(rows).flatten(1)

    def draw_common(self, step: int) -> np.ndarray:
        """The aligned training rows of a step of the first stage, the same at all parties."""
        rows = self.table.split.train
        generator = np.random.default_rng(derive_seed(self.site.seed, "false_vfl", step))
        found: np.ndarray = generator.permutation(rows)[: self.nominal_batch]
        return found

    def draw_own(self, step: int) -> np.ndarray:
        """Rows that only this party has, of a step of the first stage."""
        rows = self.table.rows_only_at(self.site.name)
        generator = np.random.default_rng(self.seed("own rows", step))
        found: np.ndarray = generator.permutation(rows)[: self.nominal_batch]
        return found

    def common_of(self, rows: np.ndarray) -> np.ndarray:
        """The rows of a batch that all parties have."""
        found: np.ndarray = rows[rows < self.table.aligned_count]
        return found


class FalseActive(_LatentRole, ActiveRole):
    """The active party: fuses posteriors, draws samples, weighs them and trains the classifier.

    Attributes:
        latent: q(z | h) and p(h | z).
        classifier: p_φ(y | h).
        noise: of h and of z, for rows that are scored: one draw for all rows, so that a score depends on no other row.
    """

    def build(self) -> None:
        config = self.config
        with seed_torch(self.seed("latent")):
            self.latent = LatentModel(config)
            self.classifier = build_mlp([config.latent, *config.top, self.task.outputs])
            shapes = ((config.samples, 1, config.latent), (config.samples, 1, config.deep))
            self.noise = nn.ParameterList([nn.Parameter(torch.randn(shape), requires_grad=False) for shape in shapes])
        self.build_model(self.latent, self.noise)
        self.networks = Networks(self.classifier, config.lr, 0.0, self.plan.device)
        self.parts["networks"] = self.networks

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1:
            draws = self._make_generator("pretraining")
            for step in range(self.config.pretraining):
                await self._take_pretraining_step(step, draws)
        return False

    def _make_generator(self, *purpose: str | int) -> torch.Generator:
        """A generator for samples, not torch's global one: parties of a process take turns while messages travel."""
        return torch.Generator(self.plan.device).manual_seed(self.seed(*purpose))

    async def _take_pretraining_step(self, step: int, draws: torch.Generator) -> None:
        """One step on common rows, on rows of each passive party alone, and on own rows."""
        common, own = self.draw_common(step), self.draw_own(step)
        self.generative.optimizer.zero_grad(set_to_none=True)
        if len(common):
            await self._learn_rows(self.columns(common), self.site.passive_links, len(common), draws)
        for link in self.site.passive_links:
            await self._learn_rows(None, [link], None, draws)
        if len(own):
            await self._learn_rows(self.columns(own), [], len(own), draws)
        self.generative.optimizer.step()

    async def _learn_rows(
        self, x: torch.Tensor | None, links: Sequence[Link], rows: int | None, draws: torch.Generator
    ) -> None:
        """Add the gradient of the bound of some rows, of this party's columns x and those of others."""
        theirs = [await self._receive_posterior(link, rows) for link in links]
        if not theirs and x is None:
            return
        if theirs and not len(theirs[0][0]):
            return  # the party has no other rows
        own = [] if x is None else [self.model.encode(x)]
        leaves = [tuple(part.requires_grad_() for part in one) for one in theirs]
        posterior = fuse_posteriors([*own, *((mean, wide) for mean, wide in leaves)])
        h, logs = self._sample_latents(posterior, self._draw_noise(len(posterior[0]), draws))
        if x is not None:
            logs = logs + self.model.log_likelihood(x, h)
        likely = [one.requires_grad_() for one in await self._ask_likelihoods(links, h)]
        for one in likely:
            logs = logs + one
        loss = -mean_log_ratio(logs).mean()
        torch.autograd.backward(loss, retain_graph=bool(likely))
        for link, one in zip(links, likely, strict=True):
            await link.send(Kind.GRADIENT, "false/weights", weights=_gradient_at(one))
        for link in links:
            message = await link.receive(Kind.GRADIENT, "false/pull", "pull")
            pull = read_tensor(message.arrays["pull"], tuple(h.shape), link.peer, self.plan.device)
            torch.autograd.backward(h, pull, retain_graph=True)
        for link, (mean, wide) in zip(links, leaves, strict=True):
            await link.send(Kind.GRADIENT, "false/gradient", mean=_gradient_at(mean), wide=_gradient_at(wide))

    async def _receive_posterior(self, link: Link, rows: int | None) -> Gaussian:
        """A party's posterior of some rows, (n, d) each; of as many as it sends, up to a batch, if `rows` is None.

        Raises:
            ProtocolError: it sent something else.
        """
        message = await link.receive(Kind.REPRESENTATION, "false/posterior", "mean", "wide")
        count = rows
        if count is None:
            shape = np.shape(message.arrays["mean"])
            count = shape[0] if len(shape) == 2 else 0
            if count > self.nominal_batch:
                raise ProtocolError(f"{link.peer!r} sent {count} rows for a batch of {self.nominal_batch}")
        shape = (count, self.config.latent)
        try:
            mean, wide = (
                read_tensor(message.arrays[name], shape, link.peer, self.plan.device) for name in ("mean", "wide")
            )
        except ProtocolError as error:
            raise ProtocolError(f"{error}: false_vfl needs one width of h at all parties") from error
        return mean, wide

    def _draw_noise(self, rows: int, draws: torch.Generator) -> list[torch.Tensor]:
        """Standard normal noise of h and of z, (κ, rows, width) each."""
        config = self.config
        return [
            torch.randn(config.samples, rows, width, device=self.plan.device, generator=draws)
            for width in (config.latent, config.deep)
        ]

    def _sample_latents(self, posterior: Gaussian, noise: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Samples of h, (κ, n, d), and what their log-ratios have without the columns' likelihoods, (κ, n)."""
        mean, wide = posterior
        of_h, of_z = noise
        h = mean + torch.exp(0.5 * wide) * of_h
        return h, self.latent.log_ratio(h, posterior, of_z)

    async def _ask_likelihoods(self, links: Sequence[Link], h: torch.Tensor) -> list[torch.Tensor]:
        """Log-likelihoods of passive parties' columns at samples, (κ, n) each."""
        if not links:
            return []
        told = h.detach()

        async def send(link: Link) -> None:
            await link.send(Kind.REPRESENTATION, "false/samples", h=told)

        await fan_out(list(links), send)
        found = []
        for link in links:
            message = await link.receive(Kind.STATISTIC, "false/likelihoods", "likelihoods")
            shape = tuple(h.shape[:2])
            found.append(read_tensor(message.arrays["likelihoods"], shape, link.peer, self.plan.device))
        return found

    async def _weigh_samples(
        self, rows: np.ndarray, links: Sequence[Link], noise: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Samples of h of rows that these parties have, (κ, n, d), and their log-ratios, (κ, n), without gradients."""
        theirs = [await self._receive_posterior(link, len(rows)) for link in links]
        h, logs = self._weigh_own(rows, theirs, noise)  # not awaited: it turns gradients off, for all of the process
        for one in await self._ask_likelihoods(links, h):
            logs = logs + one
        return h, logs

    def _weigh_own(
        self, rows: np.ndarray, theirs: Sequence[Gaussian], noise: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            x = self.columns(rows)
            h, logs = self._sample_latents(fuse_posteriors([self.model.encode(x), *theirs]), noise)
            return h, logs + self.model.log_likelihood(x, h)

    async def train_batch(self, rows: np.ndarray) -> torch.Tensor:
        common = self.common_of(rows)
        own = rows[rows >= self.table.aligned_count]
        draws, parts = self._make_generator("batch", *map(int, rows[:16])), []
        for which, links in ((common, self.site.passive_links), (own, [])):
            if len(which):
                parts.append((which, *await self._weigh_samples(which, links, self._draw_noise(len(which), draws))))
        losses = [self._compute_bound(h, logs, self.labels(which)) for which, h, logs in parts]
        loss = torch.cat(losses).sum()
        self.networks.step(loss / self.plan.batch_size)
        return loss.detach()

    def _compute_bound(self, h: torch.Tensor, logs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """``−log Σ_j w_j p_φ(y | h_j)`` of each row, (n,): the joint bound without what φ cannot change."""
        return -torch.logsumexp(torch.log_softmax(logs, dim=0) + self._log_chances(h, y), dim=0)

    def _log_chances(self, h: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """``log p_φ(y | h_j)``, (κ, n)."""
        logits = self.classifier(h)
        if self.task.outputs == 1:
            return functional.logsigmoid(logits[..., 0] * (2.0 * y - 1.0))
        return functional.log_softmax(logits, dim=-1).gather(-1, y.expand(len(h), -1).unsqueeze(-1)).squeeze(-1)

    def _mix_logits(self, h: torch.Tensor, logs: torch.Tensor) -> torch.Tensor:
        """Logits of ``Σ_j w_j p_φ(y | h_j)``, (n, outputs)."""
        with torch.no_grad():
            weights, logits = torch.log_softmax(logs, dim=0).unsqueeze(-1), self.classifier(h)
            if self.task.outputs == 1:
                yes, no = (torch.logsumexp(weights + functional.logsigmoid(s * logits), dim=0) for s in (1.0, -1.0))
                return yes - no
            return torch.logsumexp(weights + functional.log_softmax(logits, dim=-1), dim=0)

    async def score(self, rows: np.ndarray) -> torch.Tensor:
        return self._mix_logits(*await self._weigh_samples(rows, self.site.passive_links, list(self.noise)))

    def score_alone(self, rows: np.ndarray) -> torch.Tensor:
        return self._mix_logits(*self._weigh_own(rows, [], list(self.noise)))


class FalsePassive(_LatentRole, PassiveRole):
    """A passive party: sends its posterior, and the likelihood of its columns at samples."""

    def build(self) -> None:
        self.build_model()
        if self.site.observer.listening:
            self.site.observer.network_built(self.site.name, self.site.active, self.model.encoder)

    async def begin_epoch(self, epoch: int) -> bool:
        if epoch == 1:
            for step in range(self.config.pretraining):
                self.generative.optimizer.zero_grad(set_to_none=True)
                common = self.draw_common(step)
                if len(common):
                    await self._learn_rows(self.columns(common))
                await self._learn_rows(self.columns(self.draw_own(step)))
                self.generative.optimizer.step()
        return False

    async def _learn_rows(self, x: torch.Tensor) -> None:
        """Add the gradient of the bound of some rows."""
        mean, wide = self.model.encode(x)
        await self._send_posterior(mean, wide)
        if not len(x):
            return
        h = (await self._receive_samples(len(x))).requires_grad_()
        likely = self.model.log_likelihood(x, h)
        await self.upstream.send(Kind.STATISTIC, "false/likelihoods", likelihoods=likely.detach())
        weights = await self._receive_gradient("false/weights", "weights", tuple(likely.shape))
        torch.autograd.backward(likely, weights)
        await self.upstream.send(Kind.GRADIENT, "false/pull", pull=_gradient_at(h))
        message = await self.upstream.receive(Kind.GRADIENT, "false/gradient", "mean", "wide")
        gradients = [
            read_tensor(message.arrays[name], tuple(mean.shape), self.upstream.peer, self.plan.device)
            for name in ("mean", "wide")
        ]
        torch.autograd.backward([mean, wide], gradients)

    async def _send_posterior(self, mean: torch.Tensor, wide: torch.Tensor) -> None:
        await self.upstream.send(Kind.REPRESENTATION, "false/posterior", mean=mean.detach(), wide=wide.detach())

    async def _receive_gradient(self, step: str, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        message = await self.upstream.receive(Kind.GRADIENT, step, name)
        return read_tensor(message.arrays[name], shape, self.upstream.peer, self.plan.device)

    async def _receive_samples(self, rows: int) -> torch.Tensor:
        message = await self.upstream.receive(Kind.REPRESENTATION, "false/samples", "h")
        shape = (self.config.samples, rows, self.config.latent)
        return read_tensor(message.arrays["h"], shape, self.upstream.peer, self.plan.device)

    async def _send_likelihoods(self, rows: np.ndarray) -> None:
        x = self.columns(rows)
        await self._send_posterior(*self.model.encode(x))
        h = await self._receive_samples(len(rows))
        likely = self.model.log_likelihood(x, h).detach()
        await self.upstream.send(Kind.STATISTIC, "false/likelihoods", likelihoods=likely)

    async def train_batch(self, rows: np.ndarray) -> None:
        common = self.common_of(rows)
        if len(common):
            await self._send_likelihoods(common)

    async def answer(self, rows: np.ndarray) -> None:
        await self._send_likelihoods(rows)
