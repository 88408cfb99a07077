"""The Fréchet distance between two sets of images, over the features of a small classifier.

FID (Heusel et al. 2017, equation 6) is this distance over features of an Inception network trained on ImageNet. Its
weights are not to be had offline; the features here are those before the last layer of a small network trained to
classify the same data set. Distances therefore have a scale of their own: compare them with one another, never with
published FID figures.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import nn

from securevfl.training.seeding import seed_torch


def root(c: np.ndarray) -> np.ndarray:
    """Square root of a symmetric matrix (d, d) without negative eigenvalues; those below zero by rounding count as
    zero."""
    values, vectors = np.linalg.eigh(c)
    half: np.ndarray = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    return half


def frechet(m1: np.ndarray, c1: np.ndarray, m2: np.ndarray, c2: np.ndarray) -> float:
    """``‖m1 − m2‖² + tr(C1 + C2 − 2 (C1 C2)^½)`` of two normal distributions (Dowson and Landau 1982), in float64.

    The trace of ``(C1 C2)^½`` is that of ``(C1^½ C2 C1^½)^½``, whose argument is symmetric: C1 C2 is similar to it.
    Singular covariances are fine.

    Args:
        m1, m2: means (d,).
        c1, c2: covariances (d, d).
    """
    m1, c1, m2, c2 = (np.asarray(x, dtype=np.float64) for x in (m1, c1, m2, c2))
    half = root(c1)
    middle = half @ c2 @ half
    values = np.linalg.eigvalsh((middle + middle.T) / 2)
    cross = np.sqrt(np.clip(values, 0, None)).sum()
    distance = np.square(m1 - m2).sum() + np.trace(c1) + np.trace(c2) - 2 * cross
    return max(float(distance), 0.0)


def moments(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d,) and covariance (d, d) of features (n, d), n ≥ 2, in float64."""
    features = np.asarray(features, dtype=np.float64)
    return features.mean(axis=0), np.cov(features, rowvar=False)


def between(one: np.ndarray, other: np.ndarray) -> float:
    """The distance between two sets of features, (n, d) and (m, d)."""
    return frechet(*moments(one), *moments(other))


def between_batches(one: np.ndarray, other: np.ndarray, rng: np.random.Generator, *, rows: int, repeat: int) -> float:
    """Mean distance of `repeat` random batches of `rows` rows, the same rows of both, (n, d) each.

    A covariance of fewer rows than features is singular, and the distance of small batches is too large by an amount
    that depends on both sides; `between` over many rows is the surer figure.
    """
    chosen = [rng.choice(len(one), size=rows, replace=False) for _ in range(repeat)]
    return float(np.mean([between(one[i], other[i]) for i in chosen]))


class Classifier(nn.Module):
    """Three convolutions (kernel 3, ReLU, pooling between them), one hidden layer of `width` features, ten classes."""

    def __init__(self, shape: tuple[int, int, int], channels: tuple[int, int, int], width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in zip((shape[0], *channels[:2]), channels, strict=True):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        flat = channels[-1] * (shape[1] // 8) * (shape[2] // 8)
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(flat, width), nn.ReLU())
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.body(x))
        return logits

    @torch.no_grad()
    def features(self, x: torch.Tensor, rows: int = 500) -> np.ndarray:
        """Features (n, width) float64 of images (n, channels, height, width), `rows` at a time."""
        return torch.cat([self.body(part) for part in x.split(rows)]).cpu().numpy().astype(np.float64)

    @torch.no_grad()
    def accuracy(self, x: torch.Tensor, y: torch.Tensor, rows: int = 500) -> float:
        """Share of images whose class is found."""
        right = [(self(a).argmax(dim=1) == b).sum() for a, b in zip(x.split(rows), y.split(rows), strict=True)]
        return float(torch.stack(right).sum()) / len(x)

    def fingerprint(self) -> str:
        """Tells one set of weights from another: distances over different ones are not to be compared."""
        digest = hashlib.sha256()
        for value in self.state_dict().values():
            digest.update(value.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]


def train_classifier(
    x: torch.Tensor, y: torch.Tensor, *, channels: tuple[int, int, int], epochs: int, seed: int = 0
) -> Classifier:
    """A `Classifier` of images (n, c, h, w) and classes (n,), by Adam, whose rate falls from 2e-3 to nothing.

    Trained where `x` is. Mirror images are no other digits: nothing is augmented.
    """
    rows = 128
    with seed_torch(seed):
        model = Classifier((x.shape[1], x.shape[2], x.shape[3]), channels).to(x.device)
        steps = epochs * -(-len(x) // rows)
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
        for _ in range(epochs):
            for batch in torch.randperm(len(x)).to(x.device).split(rows):
                loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
    return model.eval().requires_grad_(False)
