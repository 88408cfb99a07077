"""FALSE-VFL: a deep latent-variable model of all parties' columns (Hong, Park and Hwang, ICLR 2026, arXiv 2505.11035).

A row that a party lacks is a row with missing columns. A generative model ``z → h → x`` explains the columns that are
there, whoever has them, and a classifier predicts from h:

* party k encodes its columns as ``N(μ_k, Σ_k)``; the parties S that have a row give
  ``q(h | x) = N((1/|S|) Σ_k μ_k, (Σ_k Σ_k⁻¹)⁻¹)``;
* the active party draws κ samples h_j from it and z_j from ``q(z | h_j)``, whose importance ratios are
  ``r_j = p(x | h_j) p(h_j | z_j) p(z_j) / (q(h_j | x) q(z_j | h_j))``, with ``p(x | h) = Π_{k∈S} p(x_k | h)``;
* first it maximises ``E log (1/κ) Σ_j r_j`` over all rows of all parties, labelled or not;
* then it keeps all that and maximises ``E log (1/κ) Σ_j r_j p_φ(y | h_j)`` over φ and the labelled rows;
* it predicts ``Σ_j w_j p_φ(y | h_j)`` with ``w_j = r_j / Σ_i r_i``.

This is the paper's variant for rows missing at random (FALSE-VFL-I). We read notes, reviews and excerpts, not the
paper: `docs/algorithms/field.md` lists what is ours.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import torch
from msgspec import Meta
from torch import nn

from securevfl.cut import Protection
from securevfl.cut.leakage import describe_representations
from securevfl.errors import InputError
from securevfl.training.algorithm import Algorithm, Subsets
from securevfl.training.networks import build_mlp
from securevfl.training.representations import representation_exchange
from securevfl.transport import ACTIVE, PASSIVE, Exchange, Kind, Sight

__all__ = [
    "FalseSettings",
    "Gaussian",
    "LatentModel",
    "PartyModel",
    "fuse_posteriors",
    "log_normal",
    "mean_log_ratio",
    "split_gaussian",
]

Width = Annotated[int, Meta(ge=1, le=1 << 16)]
Gaussian = tuple[torch.Tensor, torch.Tensor]
"""Mean and logarithm of the variances, of one shape."""

_CODES = "codes, APC-VFL"
"""Name in ``measured.json`` of what the active party reads: means of a trained encoder, as APC-VFL's codes are."""
_WIDEST = 6.0
"""Largest size of a log-variance."""
_SAMPLES = Sight(of="features", severity="leak", through="samples of a posterior that the active party's columns shape")
_SHAPED = "samples of each common row's posterior, whose mean is the mean over all parties' posteriors"
_OTHERS = Sight(of="features", severity="leak", through="samples of a posterior that its columns shape")
_LIKELY = Sight(of="features", severity="leak", through="likelihoods of the sender's columns, for each sample")
_WEIGHTS = Sight(of="features", severity="note", through="importance weights of samples")


class FalseSettings(Algorithm):
    """The settings of FALSE-VFL as roles use them: see `FalseVFL`."""

    uses_others: ClassVar[bool] = True
    subsets: ClassVar[Subsets] = "alone"
    reveals: ClassVar[str] = "sends the passive parties' posteriors to the active party, and samples back"
    bottom: tuple[Width, ...] = (64,)
    latent: Width = 16
    deep: Width = 8
    top: tuple[Width, ...] = (64,)
    samples: Annotated[int, Meta(ge=1, le=1000)] = 10
    pretraining: Annotated[int, Meta(ge=0, le=1_000_000)] = 250
    lr: Annotated[float, Meta(gt=0, le=100)] = 0.003

    def check_protection(self, protection: Protection) -> None:
        """See `Algorithm.check_protection`.

        Raises:
            InputError: the job asks for differential privacy, which this algorithm does not have.
        """
        super().check_protection(protection)
        if protection.dp is not None:
            raise InputError(
                f"{self.name} has no noise on posteriors, likelihoods or gradients: leave dp out, or use apc_vfl with "
                "sv.DP(features=sv.Gaussian(…))"
            )

    def exchanges(self, protection: Protection, passive: int) -> tuple[Exchange, ...]:
        if not passive:
            return ()
        told = describe_representations(protection.dp, "a posterior's mean and variances of each of its rows", _CODES)

        def down(step: str, words: str, reveals: str) -> Exchange:
            kind = Kind.REPRESENTATION if step == "false/samples" else Kind.GRADIENT
            leak, others = step == "false/samples", passive > 1
            return Exchange(
                step, kind, ACTIVE, PASSIVE, words, reveals=reveals, severity="leak" if leak else "note",
                of_others=_SHAPED if leak and others else "", others_severity="leak" if leak and others else "ok",
                sights=(_SAMPLES,) if leak else (_WEIGHTS,), others_sights=(_OTHERS,) if leak and others else (),
            )  # fmt: skip

        return (
            representation_exchange("false/posterior", "its posterior of h, row by row", told, protection.dp),
            down(
                "false/samples",
                "samples of h",
                "samples of each common row's posterior, which the active party's columns shape",
            ),
            Exchange(
                "false/likelihoods",
                Kind.STATISTIC,
                PASSIVE,
                ACTIVE,
                "log-likelihood of its columns, for each sample",
                reveals="how likely each row's columns are at each sample of h",
                severity="leak",
                sights=(_LIKELY,),
            ),
            down("false/weights", "weights of the samples", "which samples of h fit all parties' columns of a row"),
            Exchange(
                "false/pull",
                Kind.GRADIENT,
                PASSIVE,
                ACTIVE,
                "gradient of the likelihoods at the samples",
                reveals="in which direction each sample of h would fit the sender's columns better",
                severity="leak",
                sights=(_LIKELY,),
            ),
            down("false/gradient", "gradient at its posterior", "how its posterior of each row should move"),
        )


def split_gaussian(outputs: torch.Tensor) -> Gaussian:
    """Mean and log-variances from a network's outputs, (…, 2 d)."""
    mean, wide = outputs.chunk(2, dim=-1)
    return mean, wide.clamp(-_WIDEST, _WIDEST)


def fuse_posteriors(posteriors: list[Gaussian]) -> Gaussian:
    """The posterior of h from those of the parties that have a row: the mean of means, and the sum of precisions.

    Args:
        posteriors: of each party, (n, d).
    """
    mean = torch.stack([mean for mean, _ in posteriors]).mean(dim=0)
    precision = torch.stack([torch.exp(-wide) for _, wide in posteriors]).sum(dim=0)
    return mean, -torch.log(precision)


def log_normal(x: torch.Tensor, given: Gaussian) -> torch.Tensor:
    """Log-density of a Gaussian with a diagonal covariance, summed over the last dimension."""
    mean, wide = given
    return -0.5 * (math.log(2 * math.pi) + wide + (x - mean).square() * torch.exp(-wide)).sum(dim=-1)


def mean_log_ratio(logs: torch.Tensor) -> torch.Tensor:
    """``log (1/κ) Σ_j r_j`` of each row, (n,), from log-ratios (κ, n)."""
    return torch.logsumexp(logs, dim=0) - math.log(len(logs))


class PartyModel(nn.Module):
    """A party's encoder of its columns into a posterior of h, and its decoder from h back to them.

    Args:
        columns: of the party.
        config: the algorithm.
    """

    def __init__(self, columns: int, config: FalseSettings) -> None:
        super().__init__()
        self.encoder = build_mlp([columns, *config.bottom, 2 * config.latent])
        self.decoder = build_mlp([config.latent, *reversed(config.bottom), columns])
        self.wide = nn.Parameter(torch.zeros(columns))

    def encode(self, x: torch.Tensor) -> Gaussian:
        """The posterior of h by these columns, (n, d) each."""
        return split_gaussian(self.encoder(x))

    def log_likelihood(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """Log-likelihood of columns x (n, c) at samples h (κ, n, d): (κ, n)."""
        return log_normal(x, (self.decoder(h), self.wide.clamp(-_WIDEST, _WIDEST)))


class LatentModel(nn.Module):
    """The active party's part above h: ``q(z | h)`` and ``p(h | z)``.

    Args:
        config: the algorithm.
    """

    def __init__(self, config: FalseSettings) -> None:
        super().__init__()
        self.encoder = build_mlp([config.latent, *config.bottom, 2 * config.deep])
        self.decoder = build_mlp([config.deep, *reversed(config.bottom), 2 * config.latent])

    def log_ratio(self, h: torch.Tensor, posterior: Gaussian, noise: torch.Tensor) -> torch.Tensor:
        """``log p(h | z) p(z) / (q(h | x) q(z | h))`` of samples, (κ, n).

        Args:
            h: the samples, (κ, n, d).
            posterior: q(h | x), (n, d) each.
            noise: standard normal, of the samples of z, (κ, n or 1, e).
        """
        mean, wide = split_gaussian(self.encoder(h))
        z = mean + torch.exp(0.5 * wide) * noise
        zero = torch.zeros_like(z)
        above = log_normal(h, split_gaussian(self.decoder(z))) + log_normal(z, (zero, zero))
        return above - log_normal(h, posterior) - log_normal(z, (mean, wide))
